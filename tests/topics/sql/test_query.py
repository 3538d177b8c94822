"""Queries: their settings, their refusals, and charges equal to those of written settings.

Covers: topics/sql/aggregates/bounds.py, topics/sql/aggregates/read.py
Covers: topics/sql/aggregates/stated.py, topics/sql/columns.py, topics/sql/expand.py
Covers: topics/sql/expressions/filters.py, topics/sql/written.py
"""

from __future__ import annotations

import tomllib
from decimal import Decimal
from typing import Any

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.topics.config.canonical import canonical, config_hash
from hushstream.topics.config.load import loads
from hushstream.topics.sql.columns import QuerySource
from hushstream.topics.sql.query import compile_query
from hushstream.topics.sql.refusal import QueryError
from hushstream.topics.sql.written import table
from hypothesis import given, settings
from hypothesis import strategies as st

from .orders import DAY, INPUT, compiled, configured


def test_a_query_becomes_what_a_person_would_write() -> None:
    found = compiled(
        f"""SELECT product, EXTRACT(HOUR FROM created AT TIME ZONE 'Europe/Berlin') AS hour,
                   COUNT(*) AS orders, AVG(LEAST(GREATEST(o.price, 0), 100)) AS mean_price,
                   SUM(ROUND(CLIP(item.weight, -1, 5), 2))
            FROM orders o
            WHERE price >= 10 AND (country IN ('DE', 'FR') OR NOT active) AND coupon IS NOT NULL
            GROUP BY product, hour, {DAY}"""
    )
    assert found == {
        "input": "orders",
        "key": ["product", "hour"],
        "derive": {"hour": {"time": "hour", "zone": "Europe/Berlin"}},
        "where": [
            {"field": "price", "at_least": 10},
            {"any": [{"field": "country", "one_of": ["DE", "FR"]},
                     {"field": "active", "equals": False}]},
            {"field": "coupon", "present": True},
        ],
        "aggregate": [
            {"kind": "count", "name": "orders"},
            {"kind": "mean", "field": "price", "low": 0, "high": 100, "name": "mean_price"},
            {"kind": "sum", "field": "item.weight", "low": -1, "high": 5, "grid": Decimal("0.01")},
        ],
        "window": {"length": "1d"},
    }  # fmt: skip


def test_a_backtick_in_a_text_does_not_turn_quoted_names_into_texts() -> None:
    found = compiled(f"""SELECT "product" FROM orders WHERE "country" = '`' GROUP BY 1, {DAY}""")
    assert found["key"] == ["product"]
    assert found["where"] == [{"field": "country", "equals": "`"}]


def test_an_input_is_found_by_its_topic_and_columns_by_number_or_alias() -> None:
    query = 'SELECT product, FLOOR(price / 10) * 10 AS tens FROM "shop-orders" GROUP BY 1, tens'
    assert compiled(query) == {
        "input": "orders",
        "key": ["product", "tens"],
        "derive": {"tens": {"field": "price", "bucket": 10}},
        "aggregate": "keys",
    }


def test_units_are_counted_once_by_a_bound_of_their_own() -> None:
    found = compiled("SELECT product, COUNT(DISTINCT user) AS users FROM orders GROUP BY product")
    assert found["aggregate"] == [{"kind": "count", "name": "users"}]
    assert found["mechanism"] == {"kind": "histogram", "bound": "per-key", "per_key": 1}


@pytest.mark.parametrize(
    ("call", "setting"),
    [
        ("COUNT(DISTINCT device)", {"kind": "distinct", "field": "device"}),
        ("APPROX_COUNT_DISTINCT(item.colour)", {"kind": "distinct", "field": "item.colour"}),
        ("VAR_POP(CLIP(price, 0, 9))", {"kind": "variance"}),
        ("VARIANCE(CLIP(price, 0, 9))", {"kind": "variance", "sample": True}),
        ("VAR_SAMP(LEAST(GREATEST(price, 0), 9))", {"kind": "variance", "sample": True}),
        ("STDDEV_POP(CLIP(price, 0, 9))", {"kind": "stddev"}),
        ("STDDEV(CLIP(price, 0, 9))", {"kind": "stddev", "sample": True}),
        ("STDDEV_SAMP(CLIP(price, 0, 9))", {"kind": "stddev", "sample": True}),
    ],
)
def test_values_are_counted_once_and_spreads_are_clipped(call: str, setting: Any) -> None:
    found = compiled(f"SELECT product, {call} AS x FROM orders GROUP BY product")
    clipped = {"field": "price", "low": 0, "high": 9} if "price" in call else {}
    assert found["aggregate"] == [{**setting, **clipped, "name": "x"}]
    assert "mechanism" not in found


@pytest.mark.parametrize(
    "call",
    [
        "STDDEV(CLIP(price, 0, 9)) FILTER (WHERE age > 3)",
        "STDDEV(CASE WHEN age > 3 THEN CLIP(price, 0, 9) END)",
        "STDDEV(IF(age > 3, CLIP(price, 0, 9), NULL))",
    ],
)
def test_spreads_have_conditions(call: str) -> None:
    found = compiled(f"SELECT product, {call} AS x FROM orders GROUP BY product")
    assert found["aggregate"] == [
        {
            "kind": "stddev", "field": "price", "low": 0, "high": 9, "sample": True,
            "where": [{"field": "age", "above": 3}], "name": "x",
        }
    ]  # fmt: skip


def test_units_may_be_counted_approximately() -> None:
    query = "SELECT product, APPROX_COUNT_DISTINCT(user) AS users FROM orders GROUP BY product"
    assert compiled(query)["mechanism"] == {"kind": "histogram", "bound": "per-key", "per_key": 1}


@pytest.mark.parametrize(
    ("part", "settings"),
    [
        ("DATE(created)", {"time": "date"}),
        ("CAST(created AS DATE)", {"time": "date"}),
        ("YEAR(created)", {"time": "year"}),
        ("EXTRACT(ISODOW FROM created)", {"time": "weekday"}),
        ("EXTRACT(MINUTE FROM created)", {"time": "minute"}),
        ("ROUND(price, 1)", {"field": "price", "round": 1}),
        ("ROUND(price)", {"field": "price", "round": 0}),
        ("FLOOR(price)", {"field": "price", "bucket": 1}),
        ("0.5 * FLOOR(price / 0.5)", {"field": "price", "bucket": Decimal("0.5")}),
    ],
)
def test_derived_columns(part: str, settings: dict[str, Any]) -> None:
    found = compiled(f"SELECT product, {part} AS it FROM orders GROUP BY product, it")
    assert found["derive"] == {"it": settings}
    unnamed = compiled(f"SELECT product, {part} FROM orders GROUP BY product, {part}")
    assert list(unnamed["derive"].values()) == [settings]
    assert unnamed["key"][1] in unnamed["derive"]


@pytest.mark.parametrize(
    ("where", "condition"),
    [
        ("a = 1", [{"field": "a", "equals": 1}]),
        ("1.5 < a", [{"field": "a", "above": Decimal("1.5")}]),
        ("a <> -3", [{"field": "a", "none_of": [-3]}]),
        ("NOT a = 'x'", [{"field": "a", "none_of": ["x"]}]),
        ("NOT (a > 1 OR b)", [{"field": "a", "at_most": 1}, {"field": "b", "equals": False}]),
        ("NOT (a > 1 AND b)",
         [{"any": [{"field": "a", "at_most": 1}, {"field": "b", "equals": False}]}]),
        ("a NOT IN (1, 2)", [{"field": "a", "none_of": [1, 2]}]),
        ("a BETWEEN 1 AND 2", [{"field": "a", "at_least": 1, "at_most": 2}]),
        ("a NOT BETWEEN 1 AND 2",
         [{"any": [{"field": "a", "below": 1}, {"field": "a", "above": 2}]}]),
        ("a IS NULL", [{"field": "a", "present": False}]),
        ("a IS NOT TRUE",
         [{"any": [{"field": "a", "present": False}, {"field": "a", "equals": False}]}]),
        ("a.b.c = TRUE AND orders.d", [{"field": "a.b.c", "equals": True},
                                       {"field": "d", "equals": True}]),
    ],
)  # fmt: skip
def test_conditions(where: str, condition: list[dict[str, Any]]) -> None:
    query = f"SELECT product FROM orders WHERE {where} GROUP BY product"
    assert compiled(query)["where"] == condition


def test_an_input_with_the_time_of_its_records_has_windows_of_rowtime() -> None:
    source = QuerySource("a", "a", ("u",), None)
    query = "SELECT p FROM a GROUP BY p, TUMBLE({}, INTERVAL '2 hours')"
    found = compile_query(query.format("ROWTIME"), [source])
    assert found["window"] == {"length": "2h"}
    with pytest.raises(QueryError, match="write ROWTIME"):
        compile_query(query.format("created"), [source])


# -- within a configuration -----------------------------------------------------------------------


def test_the_query_of_a_pipeline_stands_for_its_settings() -> None:
    query = f"SELECT product, AVG(price) AS mean_price FROM orders GROUP BY product, {DAY}"
    clip = "clip = { price = { low = 0, high = 100, grid = 0.01 } }"
    one = loads(configured(f'query = """{query}"""\n{clip}'), environ={})
    other = loads(
        configured(
            'input = "orders"\nkey = ["product"]\nwindow = { length = "1d" }\n'
            'triggers = { every = "1d" }\naggregate = [{ kind = "mean", field = "price", '
            'low = 0, high = 100, grid = 0.01, name = "mean_price" }]'
        ),
        environ={},
    )
    assert canonical(one, one.pipeline[0]) == canonical(other, other.pipeline[0])
    assert one.pipeline[0].query == query
    hashes = [compile_config(config).pipelines[0].config_hash for config in (one, other)]
    assert hashes[0] == hashes[1]


# -- both ways to write random pipelines -----------------------------------------------------------

TEXTS, FIGURES = ["country", "Größe"], ["price", "item.size", "x_1"]
NAMES = st.sampled_from([*TEXTS, *FIGURES, "a-b"])
NUMBERS = st.one_of(
    st.integers(-1000, 1000), st.decimals(-1000, 1000, places=2, allow_nan=False).map(abs)
)
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=8)
_KINDS = {WORDS: [1], NUMBERS: [1, 2, 3]}


def quoted(path: str) -> str:
    return ".".join(f'"{step}"' for step in path.split("."))


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


@st.composite
def leaves(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A comparison in SQL, and the same condition as settings."""
    path = draw(NAMES)
    of = WORDS if path in TEXTS else NUMBERS if path in FIGURES else st.booleans()
    column, kind = quoted(path), draw(st.sampled_from([0, 4, *_KINDS.get(of, [5])]))
    if kind == 0:
        value = draw(of)
        return f"{column} = {literal(value)}", {"field": path, "equals": value}
    if kind == 1:
        values = draw(st.lists(of, min_size=1))
        listed, word = ", ".join(map(literal, values)), draw(st.sampled_from(["", "NOT "]))
        name = "none_of" if word else "one_of"
        return f"{column} {word}IN ({listed})", {"field": path, name: values}
    if kind == 2:
        sign, name = draw(st.sampled_from([
            (">=", "at_least"), (">", "above"), ("<=", "at_most"), ("<", "below"),
        ]))  # fmt: skip
        number = draw(NUMBERS)
        return f"{column} {sign} {literal(number)}", {"field": path, name: number}
    if kind == 3:
        low, high = sorted([draw(NUMBERS), draw(NUMBERS)])
        text = f"{column} BETWEEN {literal(low)} AND {literal(high)}"
        return text, {"field": path, "at_least": low, "at_most": high}
    if kind == 4:
        word = draw(st.sampled_from(["", "NOT "]))
        return f"{column} IS {word}NULL", {"field": path, "present": bool(word)}
    return f"NOT {column}", {"field": path, "equals": False}


def joined(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def join(word: str, name: str, parts: list[Any]) -> tuple[str, dict[str, Any]]:
        text = f" {word} ".join(f"({sql})" for sql, _ in parts)
        return text, {name: [toml for _, toml in parts]}

    lists = st.lists(parts, min_size=2, max_size=3)
    return st.one_of(
        lists.map(lambda found: join("AND", "all", found)),
        lists.map(lambda found: join("OR", "any", found)),
    )


DERIVED = [
    ("EXTRACT(HOUR FROM created)", {"time": "hour"}),
    ("DATE(created AT TIME ZONE 'Asia/Tokyo')", {"time": "date", "zone": "Asia/Tokyo"}),
    ("FLOOR(price / 2.5) * 2.5", {"field": "price", "bucket": Decimal("2.5")}),
    ("ROUND(price, -1)", {"field": "price", "round": -1}),
]
AGGREGATES = [
    ("COUNT(*) AS n", {"kind": "count", "name": "n"}),
    ("SUM(CLIP(price, 0, 9))", {"kind": "sum", "field": "price", "low": 0, "high": 9}),
    ("AVG(GREATEST(LEAST(fee, 5), -5)) AS fee",
     {"kind": "mean", "field": "fee", "low": -5, "high": 5, "name": "fee"}),
]  # fmt: skip
WINDOWS = [("INTERVAL '1' DAY", "1d"), ("INTERVAL '90' MINUTE", "1h30m"), ("INTERVAL '2w'", "14d")]


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A pipeline in SQL, and the same pipeline as settings."""
    columns = draw(st.lists(NAMES, unique=True, max_size=2))
    derived = draw(st.lists(st.sampled_from(DERIVED), min_size=not columns, max_size=2,
                            unique_by=lambda one: one[0]))  # fmt: skip
    shown = draw(st.lists(st.sampled_from(AGGREGATES), max_size=3, unique_by=lambda one: one[0]))
    interval, length = draw(st.sampled_from(WINDOWS))
    named = [(f"{sql} AS d{n}", f"d{n}", toml) for n, (sql, toml) in enumerate(derived)]
    items = [*map(quoted, columns), *(item for item, _, _ in named), *(sql for sql, _ in shown)]
    group = [*map(quoted, columns), *(name for _, name, _ in named)]
    where = draw(st.none() | st.recursive(leaves(), joined, max_leaves=5))
    text = f"SELECT {', '.join(items)} FROM orders"
    text += f" WHERE {where[0]}" if where else ""
    text += f" GROUP BY {', '.join([*group, f'TUMBLE(created, {interval})'])}"
    settings: dict[str, Any] = {
        "input": "orders",
        "key": [*columns, *(name for _, name, _ in named)],
        "aggregate": [toml for _, toml in shown] or "keys",
        "window": {"length": length},
        "triggers": {"every": length},
    }
    if named:
        settings["derive"] = {name: toml for _, name, toml in named}
    if shown and not columns and all(toml.get("time") == "hour" for _, _, toml in named):
        settings["public_keys"] = "natural"
    if where:
        settings["where"] = [where[1]]
    return text, settings


@settings(max_examples=150, deadline=None)
@given(pipelines())
def test_both_ways_to_write_one_are_charged_alike(pipeline: tuple[str, dict[str, Any]]) -> None:
    query, written = pipeline
    budget = {"budget": {"epsilon": 1, "delta": Decimal("0.000001")}}
    ways = [{"name": "p", "query": query}, {"name": "p", **written}]
    texts = [INPUT + table(way | budget) for way in ways]
    configs = [loads(text, environ={}) for text in texts]
    one, other = (config_hash(config, config.pipeline[0]) for config in configs)
    assert one == other


@settings(max_examples=100, deadline=None)
@given(st.recursive(
    st.one_of(st.text(max_size=20), st.integers(), st.booleans(),
              st.decimals(allow_nan=False, allow_infinity=False, places=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3),
                            st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
))  # fmt: skip
def test_a_written_table_reads_as_what_was_written(value: Any) -> None:
    try:
        text = table({"a b": value, "c": 1})
        text.encode()
    except UnicodeEncodeError:
        return  # half a surrogate pair is not text
    read = tomllib.loads(text, parse_float=Decimal)["pipeline"][0]
    assert read == {"a b": value, "c": 1}
