"""Columns and types of tables follow from the configuration."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.errors import ConfigError
from hushstream.reading.sinks.layout import FIRST, layouts, undeclared
from hushstream.reading.tables import table_of
from hushstream.topics.assembly import Released
from hushstream.topics.config.load import loads
from hushstream.topics.config.pipelines.views import FIXED

from ...support import deployment as fixed
from .samples import batches, deployment, layout, made, text, with_keys

VIEW = """
[[view]]
name = "cheap"
source = "sinks-histogram"
limit = 3
"""


def test_no_value_may_have_a_column_of_every_release() -> None:
    assert tuple(FIRST) == FIXED


def _same(case: str) -> None:
    """Check that a sink's rows are those of the client's table."""
    found = layout(case)
    releases = [one for batch in batches(case) for one in batch.releases]
    mine = found.rows(releases)
    theirs = table_of(releases)
    order = [("window_start", "ascending"), ("trigger", "ascending")]
    order += [(column, "ascending") for column, _ in found.keys.values()]
    names = [name for name in mine.column_names if name in theirs.column_names]
    assert set(theirs.column_names) == set(mine.column_names) - {
        "release_id", "pipeline", found.whole_key,
    }  # fmt: skip
    assert mine.sort_by(order).select(names).equals(theirs.sort_by(order).select(names))
    assert mine.num_rows == theirs.num_rows > 0
    assert len(set(mine["release_id"].to_pylist())) == mine.num_rows
    told = found.releases(releases)
    assert sum(told["rows"].to_pylist()) == mine.num_rows and told.num_rows == len(releases)


@pytest.mark.spread(3)
@pytest.mark.parametrize("case", ["histogram", "privhp", "pak"])
def test_rows_are_those_of_the_client(case: str) -> None:
    _same(case)


def test_types_follow_from_the_configuration() -> None:
    found = layout("histogram")
    kinds = dict(found.columns)
    assert (kinds["release_id"], kinds["window_start"], kinds["final"]) == ("text", "time", "truth")
    assert kinds["zone"] == "text" and kinds["count"] == kinds["sum_fare_low"] == "real"
    assert undeclared(found, deployment("histogram")) == ["zone"]
    assert layout("histogram", integers=["zone"]).columns["zone"] == "whole"
    assert layout("histogram", table="t").table == "t"
    assert layout("pak").columns["slot"] == "whole"
    with pytest.raises(ConfigError, match="no key column 'area'; there is zone"):
        layout("histogram", integers=["area"])


@pytest.mark.parametrize(
    "key,columns",
    [
        ('["count", "key_count"]', ["key_count_", "key_count"]),
        ('["Zone", "zone"]', ["Zone", "zone_"]),
        ('["Trigger"]', ["key_Trigger"]),
        ('["N_low"]', ["key_N_low"]),
    ],
)
def test_no_two_columns_have_one_name_in_any_case(key: str, columns: list[str]) -> None:
    values = 'aggregate = [{ kind = "count", name = "N" }, { kind = "sum", field = "f", low = 0, '
    values += 'high = 1, name = "n" }, { kind = "count", name = "count", where = [{ field = "f", '
    values += "above = 0 }] }]"
    made = fixed(more=values, swap={'key = ["page"]': f"key = {key}"})
    (found,) = layouts(made, (), None, ())
    assert [column for column, _ in found.keys.values()] == columns
    folded = [name.casefold() for name in found.columns]
    assert len(set(folded)) == len(folded) and {"N", "n_", "N_low", "n_low_"} <= set(found.columns)
    table = found.rows([])
    assert table.column_names == list(found.columns)


def _with_key(value: Any) -> list[Released]:
    return [with_keys([value])]


def test_a_column_of_the_whole_key_tells_apart_what_is_the_same_text() -> None:
    found = layout("histogram")
    rows = found.rows([with_keys([5, "5", True, "true", "a\0"])])
    assert rows.column_names[-1] == found.whole_key == "hush_key"
    assert set(rows["hush_key"].to_pylist()) == {
        '{"zone": 5}', '{"zone": "5"}', '{"zone": true}', '{"zone": "true"}',
        '{"zone": "a\\u0000"}',
    }  # fmt: skip
    assert layout("privhp").whole_key is None and layout("pak").whole_key is None
    assert replace(found, values=("hush_key",)).whole_key == "hush_key_"


def test_a_key_is_text_unless_declared_and_no_value_is_lost() -> None:
    for value in (5, True, 1 << 70, "x"):
        (told,) = layout("histogram").rows(_with_key(value))["zone"].to_pylist()
        assert told == (value if isinstance(value, str) else json.dumps(value))
    whole = layout("histogram", integers=["zone"])
    assert whole.rows(_with_key(5))["zone"].to_pylist() == [5]
    assert whole.unheld(_with_key(5)) == []
    for value in (True, "5", 1 << 70):
        rows = whole.rows(_with_key(value))
        assert rows["zone"].to_pylist() == [None] and whole.unheld(_with_key(value)) == ["zone"]
        assert rows["hush_key"].to_pylist() == [json.dumps({"zone": value})]
    assert replace(whole, replaces=True).whole_key == "hush_key"  # else nothing would tell the key
    known = replace(whole, asserted=frozenset())
    assert known.whole_key is None
    with pytest.raises(ConfigError, match="'zone' that is no whole number of 64 bits: name anoth"):
        known.rows(_with_key("5"))


def test_integers_are_asserted_only_where_no_configuration_says_so() -> None:
    assert layout("histogram", integers=["zone"]).asserted == {"zone"}
    assert not layout("pak", integers=["slot"]).asserted and not layout("histogram").asserted


def test_pipelines_and_views_are_chosen_by_name() -> None:
    both = compile_config(loads(text(made("histogram"), "histogram") + VIEW, environ={}))
    assert [one.table for one in layouts(both, (), None, ())] == ["sinks-histogram", "cheap"]
    (view,) = layouts(both, ["cheap"], "t", ())
    assert view.replaces and (view.table, view.topic) == ("t", "hush.cheap.releases.v1")
    with pytest.raises(ConfigError, match="choose it by --pipeline"):
        layouts(both, (), "t", ())
    with pytest.raises(ConfigError, match="'other' is unknown; expected one of"):
        layouts(both, ["other"], None, ())
