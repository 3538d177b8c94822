"""Each target holds each release once, and its newest rows are those of the client.

Covers: reading/sinks/target.py, reading/sinks/sql.py, reading/sinks/duck.py
Covers: reading/sinks/parquet.py, reading/sinks/iceberg.py, reading/sinks/postgres.py
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hushstream.errors import ConfigError, EngineError
from hushstream.reading.sinks import sql
from hushstream.reading.sinks.feed import SinkBatch
from hushstream.reading.sinks.layout import SinkLayout, layouts
from hushstream.reading.sinks.target import SinkTarget, target_of
from hushstream.reading.tables import table_of
from hushstream.topics.assembly import Released
from msgspec import structs
from pyarrow import parquet

from ...servers.connect import Postgres
from ...support import deployment as fixed
from .samples import batches, layout, with_keys

no_postgres = pytest.mark.skipif(bool(Postgres.missing()), reason=Postgres.missing() or "it is")
KINDS = [
    "duckdb",
    "parquet",
    "iceberg",
    pytest.param("postgresql", marks=[no_postgres, pytest.mark.slow]),
]


class Place:
    """A target of one kind in a folder, and its tables as a reader sees them."""

    def __init__(self, kind: str, folder: Path, url: str) -> None:
        self.kind, self.folder, self.url = kind, folder, url

    def target(self) -> SinkTarget:
        return target_of(self.url)

    def read(self, table: str, what: str = "") -> Any:
        """A table, or with ``what`` a table or view beside it, as Arrow."""
        name = f"{table}{what}"
        if self.kind == "duckdb":
            with duckdb.connect(str(self.folder / "f.db"), read_only=True) as client:
                client.execute("SET TimeZone = 'UTC'")
                found = client.sql(f'SELECT * FROM "{name}"').to_arrow_table()
        elif self.kind == "postgresql":
            from adbc_driver_postgresql import dbapi

            with dbapi.connect(self.url) as client, client.cursor() as cursor:
                cursor.execute(f'SELECT * FROM "{name}"')
                found = cursor.fetch_arrow_table()
        elif self.kind == "iceberg":
            from pyiceberg.catalog import load_catalog

            found = load_catalog().load_table(("hush", name)).scan().to_arrow()
        else:
            path = self.folder / "out" / (f"{name}.parquet" if what else name)
            found = parquet.read_table(path)
        return found


Placed = Callable[[str], Place]


@pytest.fixture(scope="module")
def database() -> Iterator[Callable[[], str]]:
    """Return a function that makes an empty database, on a server that starts when needed."""
    numbers = itertools.count()
    with ExitStack() as ended:

        @cache
        def server() -> Postgres:
            return ended.enter_context(Postgres())

        def fresh() -> str:
            name = f"d{next(numbers)}"
            server().ask(f"CREATE DATABASE {name}")
            url = server().url.removeprefix("jdbc:").replace("://", "://hush@")
            return f"{url.rpartition('/')[0]}/{name}"

        yield fresh


@pytest.fixture
def placed(database: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Placed:
    """Return a function that makes a target of a kind."""

    def made(kind: str) -> Place:
        if kind == "iceberg":
            (tmp_path / "warehouse").mkdir()
            uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse"
            monkeypatch.setenv("PYICEBERG_CATALOG__DEFAULT__URI", uri)
            monkeypatch.setenv("PYICEBERG_CATALOG__DEFAULT__WAREHOUSE", warehouse)
        urls = {"duckdb": f"duckdb:{tmp_path}/f.db", "parquet": f"parquet:{tmp_path}/out"}
        url = database() if kind == "postgresql" else urls.get(kind, "iceberg:hush")
        return Place(kind, tmp_path, url)

    return made


def _plain(table: Any, layout_: SinkLayout) -> list[dict[str, Any]]:
    """Sorted rows, without the columns that the client's table lacks."""
    keys = ["window_start", "trigger", *(column for column, _ in layout_.keys.values())]
    found: list[dict[str, Any]] = table.drop_columns(
        [
            name
            for name in ("release_id", "pipeline", layout_.whole_key)
            if name in table.column_names
        ]
    ).to_pylist()
    return sorted(found, key=lambda row: [str(row[name]) for name in keys])


def _emptied(release: Released) -> Released:
    """The release without its rows."""
    manifests = [type(m)(**{f: getattr(m, f) for f in m.__struct_fields__} | {"rows": 0})
                 for m in release.manifests]  # fmt: skip
    return Released((), tuple(manifests))


@pytest.mark.spread(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_target_holds_what_was_released(kind: str, placed: Placed) -> None:
    place = placed(kind)
    for case in ("histogram", "privhp"):
        wanted, layout_ = batches(case), layout(case)
        target = place.target()
        assert target.open(layout_) is None
        target.write(layout_, wanted[0])
        again = place.target()  # as after a restart
        assert again.open(layout_) == wanted[0].position
        again.write(layout_, wanted[1])
        with pytest.raises(EngineError, match="another process writes"):
            target.write(layout_, wanted[1])
        for batch in wanted[2:]:
            again.write(layout_, batch)
        assert place.target().open(layout_) == wanted[-1].position
        every = [one for batch in wanted for one in batch.releases]
        assert _plain(place.read(layout_.table), layout_) == _plain(table_of(every), layout_)
        if kind == "iceberg":
            continue
        latest = table_of(every, latest=True)
        assert _plain(place.read(layout_.table, "_newest"), layout_) == _plain(latest, layout_)
        if kind != "parquet":
            told = place.read(layout_.table, "_releases")
            assert sorted(told["trigger"].to_pylist()) == sorted(one.trigger for one in every)
    _without_rows(place, layout("privhp", table="gone"), kind)


def _without_rows(place: Place, layout_: SinkLayout, kind: str) -> None:
    """A release without rows that replaces the previous one leaves no rows."""
    first = batches("privhp")[0]
    one, two = first.releases[0], _emptied(first.releases[1])
    assert one.window == two.window and one.manifest.replaces
    target = place.target()
    target.open(layout_)
    for release in (one, two):
        target.write(layout_, SinkBatch([release], first.position))
    assert place.read(layout_.table).num_rows == len(one.rows)
    if kind == "iceberg":
        return
    assert place.read(layout_.table, "_newest").num_rows == 0
    if kind == "parquet":
        again = place.target()  # which reads it from the files
        again.open(layout_)
        again.write(layout_, SinkBatch([two], first.position))
        assert place.read(layout_.table, "_newest").num_rows == 0


@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_differ_in_their_type_alone_are_all_kept(kind: str, placed: Placed) -> None:
    place, layout_ = placed(kind), layout("histogram", table="t")
    position = batches("histogram")[0].position
    target = place.target()
    target.open(layout_)
    every = [5, "5", True, "true", "a\0", "a␀", "x"]
    target.write(layout_, SinkBatch([with_keys(every, 2)], position))
    again = place.target()
    assert again.open(layout_) == position
    again.write(layout_, SinkBatch([with_keys([5], 3)], position))
    assert place.read("t").num_rows == len(every) + 1
    if kind == "iceberg":
        assert "hush_key" in place.read("t").column_names
        return
    newest = place.read("t", "_newest").to_pylist()
    assert {(row["hush_key"], row["trigger"]) for row in newest} == {
        *((f'{{"zone": {json.dumps(one, ensure_ascii=False)}}}', 2) for one in every[1:]),
        ('{"zone": 5}', 3),
    }
    assert len(newest) == len(every)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_any_name_are_written_and_read(kind: str, placed: Placed) -> None:
    """Some databases ignore case, and the newest rows are found by a column of their own."""
    place = placed(kind)
    named = ["count", "key_count", "Zone", "zone", "hush_place", "newest", "hush_key"]
    (layout_,) = layouts(
        fixed(swap={'key = ["page"]': f"key = {json.dumps(named)}"}), (), "any", named[1:]
    )
    made = with_keys([0, 1, 2])
    rows = [
        structs.replace(row, key={name: 10 * row.key["zone"] + n for n, name in enumerate(named)})
        for row in made.rows
    ]
    release, position = Released(tuple(rows), made.manifests), batches("histogram")[0].position
    target = place.target()
    target.open(layout_)
    target.write(layout_, SinkBatch([release], position))
    for what in ("",) if kind == "iceberg" else ("", "_newest"):
        found = place.read("any", what)
        for n, name in enumerate(named):
            told = [int(one) for one in found[layout_.keys[name][0]].to_pylist()]
            assert sorted(told) == [n, 10 + n, 20 + n], (what, name)


@no_postgres
@pytest.mark.slow
def test_a_view_that_others_use_gets_a_column_at_its_end(placed: Placed) -> None:
    place, layout_ = placed("postgresql"), layout("histogram", table="t")
    before = replace(layout_)
    vars(before)["whole_key"] = None
    target = place.target()
    assert isinstance(target, sql.Database)
    target.open(before)
    with target.session() as session:
        session.ask("CREATE VIEW mine AS SELECT zone FROM t_newest")
    target.open(layout_)
    assert place.read("t", "_newest").column_names[-1] == "hush_key"


@pytest.mark.parametrize("kind", [one for one in KINDS if one in ("duckdb", KINDS[-1])])
def test_what_fails_half_way_leaves_nothing(
    kind: str, placed: Placed, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = placed(kind)
    layout_, batch = layout("histogram"), batches("histogram")[0]
    target, write = place.target(), sql._upserted
    target.open(layout_)

    def broken(session: Any, table: str, rows: Any, identity: Any) -> None:
        write(session, table, rows, identity)
        if table.endswith("_releases"):
            raise EngineError("away")

    with monkeypatch.context() as patch:
        patch.setattr(sql, "_upserted", broken)
        with pytest.raises(EngineError, match="away"):
            target.write(layout_, batch)
    assert place.target().open(layout_) is None and place.read(layout_.table).num_rows == 0
    target.write(layout_, batch)
    assert place.target().open(layout_) == batch.position


@pytest.mark.spread(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_another_kind_is_refused(kind: str, placed: Placed) -> None:
    place = placed(kind)
    layout_ = layout("histogram", table="t")
    target = place.target()
    target.open(layout_)
    target.write(layout_, batches("histogram")[0])
    with pytest.raises(ConfigError, match="--table"):
        place.target().open(layout("histogram", table="t", integers=["zone"]))


@pytest.mark.parametrize("kind", [one for one in KINDS if one in ("duckdb", KINDS[-1])])
def test_a_table_that_was_dropped_is_written_anew_and_one_of_others_is_left_alone(
    kind: str, placed: Placed
) -> None:
    place = placed(kind)
    layout_, target = layout("histogram", table="t"), place.target()
    assert isinstance(target, sql.Database)
    with target.session() as session:
        session.ask("CREATE TABLE t (a BIGINT)")
    with pytest.raises(ConfigError, match="'t' is there already, and no sink has made it"):
        target.open(layout_)
    assert place.read("t").column_names == ["a"]
    for first in (0, 1):
        with target.session() as session:
            session.ask("DROP TABLE t" + " CASCADE" * first)
        assert target.open(layout_) is None
        for batch in batches("histogram"):
            target.write(layout_, batch)
        assert target.open(layout_) == batches("histogram")[-1].position
        assert place.read("t").num_rows == sum(one.rows for one in batches("histogram"))


@no_postgres
@pytest.mark.slow
def test_a_text_with_a_zero_does_not_stop_postgresql(tmp_path: Path) -> None:
    from hushstream.reading.sinks.postgres import without_zeros

    table = pa.table({"a": ["x\0y", None], "n": [1, 2]})
    assert without_zeros(table)["a"].to_pylist() == ["x␀y", None]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mysql://h/d", "is no target: expected postgresql"),
        ("duckdb:", "is no target"),
        ("f.db", "is no target"),
        ("duckdb:/no/such/folder/f.db", "the folder does not exist"),
    ],
)
def test_what_is_no_target_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        target_of(text)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Not a directory"):
        target_of(f"parquet:{tmp_path}/file").open(layout("histogram"))


def test_a_database_that_is_away_is_told_without_its_password() -> None:
    with pytest.raises(EngineError) as told:
        target_of("postgresql://hush:secret@127.0.0.1:1/d").open(layout("histogram"))
    assert "127.0.0.1/d" in str(told.value) and "secret" not in str(told.value)
    assert "check address, user and password" in str(told.value)
