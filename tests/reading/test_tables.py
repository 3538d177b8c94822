"""Arrow tables of releases: columns, types, order, and the numbers of the records."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hushstream.reading.tables import FIXED, TIME, bodies_of, table_of
from hushstream.topics.assembly import Released
from hushstream.topics.releases import Row

from ..topics.test_assembly import complete, records


def releases(case: str) -> list[Released]:
    return complete(records(case)[0], case)


def renamed(release: Released, key: dict[str, str | int | float | bool]) -> Released:
    """A release with the first row alone, under another key."""
    row = release.rows[0]
    fields = {name: getattr(row, name) for name in row.__struct_fields__}
    manifest = release.manifest
    told = {name: getattr(manifest, name) for name in manifest.__struct_fields__}
    told |= {"key_names": tuple(key), "shards": 1, "rows": 1}
    return Released((Row(**fields | {"key": key}),), (type(manifest)(**told),))


def test_values_are_those_of_the_records_and_rows_are_in_order() -> None:
    found = releases("histogram-sums")
    table = table_of(random.Random(2).sample(found, len(found)))
    named = ["count", "sum_fare", "mean_fare"]
    parts = [n + s for n in named for s in ("", "_stddev", "_low", "_high")]
    assert table.column_names == [*FIXED, "zone", *parts]
    rows = table.to_pylist()
    assert len(rows) == sum(len(release.rows) for release in found)
    places = [(r["window_start"], r["trigger"], r["zone"]) for r in rows]
    assert places == sorted(places)
    for release in found:
        for row in release.rows:
            place = (release.window.start, release.trigger, row.key["zone"])
            (line,) = [r for r, at in zip(rows, places, strict=True) if at == place]
            assert line["released"] == release.scheduled and line["final"] == release.final
            for name, one in row.values.items():
                got = [line[name + suffix] for suffix in ("", "_stddev", "_low", "_high")]
                assert got == ([None] * 4 if one is None
                               else [one.value, one.stddev, one.low, one.high])  # fmt: skip


def test_types_do_not_depend_on_the_data() -> None:
    some = next(r for r in releases("histogram-sums") if r.rows)
    bare = Released((), (some.manifest,))
    left, right = table_of([bare]), table_of([some])
    assert left.schema == right.schema and len(left) == 0
    assert left.schema.field("window_start").type == TIME
    assert left.schema.field("count").type == pa.float64()
    assert table_of([]).column_names == [*FIXED]
    some = next(r for r in releases("phdstream") if r.rows)
    assert table_of([Released((), (some.manifest,))]).column_names == table_of([some]).column_names


def test_maps_have_both_ends_of_each_cell() -> None:
    table = table_of(releases("phdstream"), latest=True)
    assert {"cell", "x_low", "x_high", "y_low", "y_high", "count"} <= set(table.column_names)
    frame = table.to_pandas()
    first = frame[frame.window_start == frame.window_start.min()]
    area = ((first.x_high - first.x_low) * (first.y_high - first.y_low)).sum()
    assert area == pytest.approx(4.0)  # the leaves of one tree divide the domain: 2 × 2


def test_a_data_frame_has_dates_with_a_zone() -> None:
    frame = table_of(releases("histogram-plain"), latest=True).to_pandas()
    assert frame.window_start.min().to_pydatetime() == datetime(2019, 3, 1, tzinfo=UTC)
    assert frame["count"].dtype == "float64" and frame.final.dtype == bool
    assert (frame.count_low <= frame["count"]).all() and (frame["count"] <= frame.count_high).all()


def test_a_key_named_like_another_column_is_renamed() -> None:
    release = renamed(releases("histogram-plain")[0], {"count": "a", "trigger": "b", "page": "c"})
    table = table_of([release])
    assert {"key_count", "key_trigger", "page"} <= set(table.column_names)
    assert table["key_count"].to_pylist() == ["a"] and table["trigger"].to_pylist() == [1]


@pytest.mark.parametrize(
    "key,columns",
    [
        (["count", "key_count"], ["key_count_", "key_count"]),
        (["Zone", "zone", "ZONE"], ["Zone", "zone_", "ZONE__"]),
        (["Trigger", "pipeline"], ["key_Trigger", "key_pipeline"]),
    ],
)
def test_no_two_columns_have_one_name_in_any_case(key: list[str], columns: list[str]) -> None:
    release = renamed(releases("histogram-plain")[0], {name: f"of {name}" for name in key})
    table = table_of([release])
    folded = [name.casefold() for name in table.column_names]
    assert len(set(folded)) == len(folded) == len(FIXED) + len(key) + 4
    for name, column in zip(key, columns, strict=True):
        assert table[column].to_pylist() == [f"of {name}"]


def test_keys_that_look_alike_as_text_have_a_column_of_the_whole_key() -> None:
    base = releases("histogram-plain")[0]
    for names, other in ((["k"], "hush_key"), (["k", "hush_key"], "hush_key_")):
        made = [renamed(base, dict.fromkeys(names, value)) for value in (5, "5", True)]
        joined = Released(tuple(one.rows[0] for one in made), made[0].manifests)
        table = table_of([joined])
        assert table.column_names[-1] == other and table["k"].to_pylist() == ["true", "5", "5"]
        told = [json.loads(text) for text in table[other].to_pylist()]
        assert [one["k"] for one in told] == [True, 5, "5"]
        assert [body["k"] for body in bodies_of([joined])] == [True, 5, "5"]
        assert other not in bodies_of([joined])[0]
    alike = [renamed(base, {"k": value}) for value in ("5", "6")]
    assert "hush_key" not in table_of(alike).column_names


@pytest.mark.parametrize(
    "values,kind,shown",
    [
        ([3, 1], pa.int64(), [1, 3]),
        ([1, 2.5], pa.float64(), [1.0, 2.5]),
        ([True, False], pa.bool_(), [False, True]),
        ([True, 7, "x"], pa.string(), ["true", "7", "x"]),
        ([1 << 70, 1], pa.string(), ["1", str(1 << 70)]),
        ([1 << 60, 0.5], pa.string(), ["0.5", str(1 << 60)]),
    ],
)
def test_keys_of_any_type_have_a_column(values, kind, shown) -> None:
    base = releases("histogram-plain")[0]
    made = [renamed(base, {"k": value}) for value in values]
    joined = Released(tuple(one.rows[0] for one in made), made[0].manifests)
    table = table_of([joined])
    assert table.schema.field("k").type == kind
    assert table["k"].to_pylist() == shown
