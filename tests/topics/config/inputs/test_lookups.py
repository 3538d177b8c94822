"""Lookups: public tables, read at the start, and charged by content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hushstream.errors import ConfigError
from hushstream.formats.events.expressions.looked_up import Origin, PublicTable
from hushstream.topics.config.canonical import canonical
from hushstream.topics.config.inputs.lookups import read_table
from hushstream.topics.config.load import Config, loads

from ..expressions.test_conditions import TEXT

ZONES = "id,borough,rank\n1,Queens,3\n2,Bronx,4\n3,Queens,5\n4,,6\n"
COLUMN = 'lookup = "zones.csv", field = "at.id", take = "borough", otherwise = "none"'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "zones.csv").write_text(ZONES)
    return tmp_path


def read(folder: Path, column: str = COLUMN, more: str = "") -> Config:
    text = TEXT.replace('key = "page"', 'key = ["zone"]')
    return loads(f"{text}derive = {{ zone = {{ {column} }} }}\n{more}", environ={}, folder=folder)


def charged(config: Config) -> Any:
    return json.loads(canonical(config, config.pipeline[0]))["derive"]["zone"]


def test_a_value_without_a_row_or_a_row_without_a_value_gives_the_other_one(folder):
    config = read(folder)
    derived = config.pipeline[0].derive["zone"].meant()
    assert derived.values(["3", "2", "4", "9", "03"]) == ["Queens", "Bronx", "none", "none", "none"]
    assert derived.missing == "none"


def test_the_content_is_charged_and_not_the_name_or_order_of_the_file(folder):
    one = charged(read(folder))
    assert one == {
        "kind": "lookup", "field": "at.id", "otherwise": "none", "count": 3,
        "sha256": "95bc352c20977fb37ba626b0bfcaa7cb4cda1bef7debf2700f6c215ea3775c0b",
    }  # fmt: skip
    (folder / "other.tsv").write_text("borough\tzone\nQueens\t3\nBronx\t2\nQueens\t1\n")
    other = COLUMN.replace("zones.csv", "other.tsv") + ', match = "zone"'
    assert charged(read(folder, other)) == one
    (folder / "zones.csv").write_text(ZONES.replace("3,Queens", "3,Bronx"))
    assert charged(read(folder))["sha256"] != one["sha256"]


def test_all_keys_follow_from_the_table(folder):
    config = read(folder, more='public_keys = "natural"\naggregate = [{ kind = "count" }]\n')
    assert config.pipeline[0].public_keys == (("Bronx",), ("Queens",), ("none",))
    numbers = COLUMN.replace('take = "borough"', 'take = "rank"').replace('"none"', "3")
    config = read(folder, numbers, 'public_keys = "natural"\naggregate = [{ kind = "count" }]\n')
    assert config.pipeline[0].public_keys == ((4,), (5,), (6,), (3,))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (COLUMN.replace("zones", "zone"), "zone.csv cannot be read"),
        (COLUMN.replace("zones.csv", "zones"), "must be a file .csv or .tsv with a header"),
        (COLUMN.replace('"borough"', '"boro"'), "no column 'boro'; its columns: id, borough, rank"),
        (COLUMN.replace("at.id", "at.zone"), "no column 'zone'"),
        (COLUMN.replace(', take = "borough"', ""), "[[lookup]]'s, with take"),
        (COLUMN.replace('"zones.csv"', "3"), "must be a file's name, or a"),
        (COLUMN.replace(', otherwise = "none"', ""), "otherwise: is missing"),
        (COLUMN.replace('"none"', '""'), "otherwise: is an empty text"),
        (COLUMN + ", bucket = 3", "column borough has values that are no numbers"),
        (COLUMN + ", bucket = 3, round = 1", "more than one of bucket, round and text"),
        (COLUMN + ", text = []", "text: is empty"),
        (COLUMN + ", cases = []", "cases: has no effect with lookup"),
        ('field = "at", bucket = 3, take = "a"', "take: has an effect only with lookup"),
    ],
)
def test_mistakes_are_named_with_their_line(folder, column, message):
    with pytest.raises(ConfigError) as caught:
        read(folder, column)
    assert message in str(caught.value)
    assert str(caught.value).startswith("hush.toml:13: pipeline[0].derive.zone")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column 'id'"),
        ("id,id,borough\n1,1,a\n", "more than one column 'id'"),
        ("id,borough\n1\n", "line 2: 1 values under 2 columns"),
        ("id,borough\n1,a\n1,b\n", "line 3: another value of id '1'"),
        ('id,borough\n1,"a\n', "line 2: unexpected end of data"),
        ("id,borough\n,a\n", "no rows with id and borough"),
        ("id,borough\n\udcff1,a\n", "cannot be read"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, text, message):
    path = tmp_path / "zones.csv"
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(ConfigError) as caught:
        read_table(path, "id", "borough")
    assert message in str(caught.value)


def test_the_same_row_twice_is_no_mistake(tmp_path):
    path = tmp_path / "zones.csv"
    path.write_text("\ufeffid,borough\n1,a\n\n1,a\n", encoding="utf-8")
    assert read_table(path, "id", "borough") == PublicTable({"1": "a"})


WHERE = 'field = "at.id", lookup = "zones.csv", take = "borough"'


def test_a_column_may_be_a_function_of_the_values_and_is_charged_as_both(folder):
    column = COLUMN + ', text = [{ case = "upper" }, { start = 1, length = 1 }]'
    config = read(folder, column)
    derived = config.pipeline[0].derive["zone"].meant()
    assert derived.values(["3", "2", "9"]) == ["Q", "B", "none"]
    assert charged(config) == charged(read(folder)) | {"steps": [["upper"], ["part", 1, 1]]}
    banded = COLUMN.replace('take = "borough"', 'take = "rank", bucket = 2')
    assert read(folder, banded).pipeline[0].derive["zone"].meant().values(["3", "9"]) == [4, "none"]
    told = charged(read(folder, banded))
    assert (told["width"], told["nearest"]) == ("2", False)


def conditioned(folder: Path, where: str) -> Any:
    config = loads(f"{TEXT}where = [{where}]\n", environ={}, folder=folder)
    return json.loads(canonical(config, config.pipeline[0]))["where"]


def test_a_condition_on_a_row_is_charged_by_the_content_of_its_column(folder):
    one = conditioned(folder, f'{{ {WHERE}, equals = "Queens" }}')
    assert one == {
        "kind": "rowfits", "field": "at.id", "count": 3, "denied": False,
        "sha256": charged(read(folder))["sha256"],
        "test": {"kind": "textin", "values": ["Queens"], "denied": False},
    }  # fmt: skip
    (folder / "zones.csv").write_text(ZONES.replace("3,Queens", "3,Bronx"))
    assert conditioned(folder, f'{{ {WHERE}, equals = "Queens" }}')["sha256"] != one["sha256"]
    other = f"{{ {WHERE.replace('borough', 'rank')}, above = 3 }}"
    both = conditioned(folder, f'{{ any = [{other}, {{ field = "price", above = 3 }}] }}')
    assert [part["kind"] for part in both["parts"]] == ["between", "rowfits"]


def test_conditions_of_cases_and_aggregates_look_up_too(folder):
    text = (
        TEXT.replace('key = "page"', 'key = ["kind"]')
        + f"""
    aggregate = [{{ kind = "count", where = [{{ {WHERE}, equals = "Bronx" }}] }},
        {{ kind = "count", name = "n", where = [{{ {WHERE}, none_of = ["Bronx"] }}] }}]
    [pipeline.derive.kind]
    cases = [{{ where = [{{ {WHERE}, present = false }}], then = "far" }}]
    otherwise = "near"
    """
    )
    config = loads(text, environ={}, folder=folder)
    told = json.loads(canonical(config, config.pipeline[0]))
    assert told["derive"]["kind"]["cases"][0]["denied"] is True
    assert [sorted(group) for group in told["apart"]] == [
        sorted(one["column"] for one in told["aggregate"])
    ]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (WHERE + ", above = 3", "lookup: column borough is compared as number, and its values"),
        (WHERE, "says nothing about at.id"),
        (WHERE.replace("zones", "zone") + ", equals = 1", "zone.csv cannot be read"),
        ('field = "at.id", take = "borough", equals = 1', "take: has an effect only with lookup"),
        (WHERE + ', any = [{ field = "a", equals = 1 }]', "any: must stand alone"),
    ],
)
def test_mistakes_in_conditions_are_named(folder, where, message):
    with pytest.raises(ConfigError) as caught:
        conditioned(folder, f"{{ {where} }}")
    assert message in str(caught.value)
    assert "hush.toml:13: pipeline[0].where[0]" in str(caught.value)


def test_no_view_and_no_choice_of_units_looks_up(folder):
    view = f'[[view]]\nname = "v"\nsource = "p"\nwhere = [{{ {WHERE}, equals = "a" }}]\n'
    with pytest.raises(ConfigError, match="not in those of a view"):
        loads(TEXT + view, environ={}, folder=folder)
    unit = f'of_unit = true, cases = [{{ where = [{{ {WHERE}, equals = "a" }}], then = 1 }}]'
    with pytest.raises(ConfigError, match="of_unit has none"):
        read(folder, unit + ", otherwise = 2")


TOPIC = '[[lookup]]\nname = "zones"\ntopic = "shop-zones"\n'
NAMED = COLUMN.replace("zones.csv", "zones")


def kept(pipeline: str, origin: Origin) -> PublicTable:
    assert (pipeline, origin) == ("p", Origin("shop-zones", "id", "borough"))
    return PublicTable({"1": "Queens", "2": "Bronx", "3": "Queens"}, origin)


def from_topic(tables: Any, column: str = NAMED, more: str = TOPIC) -> Config:
    text = TEXT.replace('key = "page"', 'key = ["zone"]')
    return loads(f"{text}derive = {{ zone = {{ {column} }} }}\n{more}", environ={}, tables=tables)


def test_a_table_of_a_topic_is_charged_as_a_file_with_the_same_content(folder):
    config = from_topic(kept)
    assert charged(config) == charged(read(folder))
    natural = TOPIC.replace("[[", 'public_keys = "natural"\naggregate = [{ kind = "count" }]\n[[')
    assert from_topic(kept, more=natural).pipeline[0].public_keys == (
        ("Bronx",), ("Queens",), ("none",)
    )  # fmt: skip


def test_a_table_that_nobody_has_read_is_known_as_such():
    config = from_topic(None)
    table = config.pipeline[0].derive["zone"].lookup
    assert table is not None and table.unread
    assert not PublicTable({}).unread


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (TOPIC.replace('"shop-zones"', '"orders"'), "holds records of input orders, and a lookup"),
        (TOPIC.replace("shop-zones", "hush.p.dlq"), "holds records set aside, and a lookup"),
        (TOPIC.replace("shop-zones", "hush.other.trips.late"), "holds records set aside"),
        (TOPIC.replace("shop-zones", "hush.ledger.v1"), "is the ledger of deployment hush"),
        (TOPIC.replace('"zones"', '"orders"') + TOPIC, "is the name of another table"),
        (TOPIC + TOPIC, "is the name of another table"),
        (TOPIC.replace('topic = "shop-zones"', ""), "topic is missing"),
        (TOPIC.replace("zones", "zone", 1), "or the name of a [[lookup]]"),
    ],
)
def test_a_topic_that_cannot_be_public_is_refused(more: str, message: str):
    def any_table(pipeline: str, origin: Origin) -> PublicTable:
        return PublicTable({"1": "a"}, origin)

    with pytest.raises(ConfigError) as caught:
        from_topic(any_table, more=more)
    assert message in str(caught.value)


def test_a_table_that_is_refused_is_named_with_its_line():
    def none(pipeline: str, origin: Origin) -> PublicTable:
        raise ConfigError("topic shop-zones has no rows")

    with pytest.raises(ConfigError, match=r"hush.toml:13: .*lookup: topic shop-zones has no rows"):
        from_topic(none)
