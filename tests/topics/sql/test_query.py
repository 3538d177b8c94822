"""Queries: what they become, what is refused and how, and that both forms are charged alike.

Covers: topics/sql/aggregates/bounds.py, topics/sql/aggregates/read.py
Covers: topics/sql/aggregates/stated.py, topics/sql/columns.py, topics/sql/expand.py
Covers: topics/sql/expressions/filters.py, topics/sql/refusal.py, topics/sql/written.py
"""

from __future__ import annotations

import tomllib
from decimal import Decimal
from typing import Any

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.errors import ConfigError
from hushstream.topics.config.canonical import canonical, config_hash
from hushstream.topics.config.load import loads
from hushstream.topics.sql.columns import QuerySource
from hushstream.topics.sql.parsing.parsed import MOST
from hushstream.topics.sql.query import compile_query
from hushstream.topics.sql.refusal import QueryError
from hushstream.topics.sql.written import table
from hypothesis import given, settings
from hypothesis import strategies as st

ORDERS = QuerySource("orders", "shop-orders", ("user",), "created")
INPUT = """\
[[input]]
name = "orders"
topic = "shop-orders"
unit = "user"
time = { field = "created", format = "epoch_ms" }
"""
DAY = "TUMBLE(created, INTERVAL '1' DAY)"


def compiled(query: str, **more: Any) -> dict[str, Any]:
    return compile_query(query, [ORDERS], **more)


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


REFUSED = [
    ("SELECT product, COUNT(*) FROM orders GROUP BY 1 HAVING COUNT(*) > 3", "are a [[view]]"),
    ("SELECT product FROM orders JOIN b USING (x) GROUP BY 1", "Join the topics first"),
    ("SELECT product FROM orders, b GROUP BY 1", "Join the topics first"),
    ("SELECT product FROM (SELECT MAX(a) AS product FROM orders) GROUP BY 1", "query within a"),
    ("SELECT a FROM (SELECT product FROM orders) GROUP BY 1", "the query within gives product"),
    ("SELECT product FROM orders GROUP BY 1 LIMIT 3", "add COUNT(*)"),
    ("SELECT DISTINCT ON (a) product FROM orders", "write SELECT DISTINCT column"),
    ("WITH a AS (SELECT MAX(b) FROM orders) SELECT b FROM a GROUP BY 1", "query within a query"),
    ("WITH RECURSIVE a AS (SELECT 1) SELECT b FROM a GROUP BY 1", "reads each record once"),
    ("SELECT a FROM orders GROUP BY 1 UNION SELECT b FROM orders GROUP BY 1", "one SELECT"),
    ("SELECT product FROM orders GROUP BY 1; SELECT 1", "one SELECT"),
    ("DELETE FROM orders", "one SELECT"),
    ("SELECT FROM WHERE", "cannot be read as SQL"),
    ("SELECT product FROM nowhere GROUP BY 1", "no such input or topic; inputs: orders"),
    ("SELECT product", "FROM is missing; inputs: orders"),
    ("SELECT * FROM orders GROUP BY product", "name the columns"),
    ("SELECT product, price FROM orders GROUP BY product", "price: is not in GROUP BY"),
    (
        "SELECT product, MAX(price) FROM orders GROUP BY 1",
        "MAX rests on one record, which no noise can hide: release quantiles",
    ),
    ("SELECT product, MIN(price) FROM orders GROUP BY 1", "docs/recipes.md, Quantiles"),
    ("SELECT MEDIAN(price), COUNT(*) FROM orders GROUP BY MEDIAN(price)", "in SELECT by itself"),
    ("SELECT product, MODE(price) FROM orders GROUP BY 1", "take the largest released count"),
    ("SELECT product, ANY_VALUE(price) FROM orders GROUP BY 1", "values of single records"),
    ("SELECT product, LISTAGG(price) FROM orders GROUP BY 1", "values of single records"),
    ("SELECT product, CORR(price, age) FROM orders GROUP BY 1", "both fields by mechanism privhp"),
    ("SELECT product, COUNT_IF(a) OVER () FROM orders GROUP BY 1", "compares single records"),
    ("SELECT product, STDDEV(price) FROM orders GROUP BY 1", "CLIP(price, 0, 100)"),
    ("SELECT product, COUNT(DISTINCT a, b) FROM orders GROUP BY 1", "COUNT(DISTINCT field)"),
    (
        "SELECT product, COUNT(DISTINCT device), COUNT(*) FROM orders GROUP BY 1",
        "stands alone: write a pipeline for each",
    ),
    ("SELECT product, SUM(price) FROM orders GROUP BY 1", "SUM(CLIP(price, 0, 100))"),
    ("SELECT product, AVG(GREATEST(price, 0)) FROM orders GROUP BY 1", "needs bounds"),
    ("SELECT product, SUM(CLIP(price, 0, x)) FROM orders GROUP BY 1", "two numbers as bounds"),
    ("SELECT product, SUM(DISTINCT price) FROM orders GROUP BY 1", "every record counts"),
    ("SELECT product, SUM(price) / COUNT(*) FROM orders GROUP BY 1", "SUM(price): needs bounds"),
    ("SELECT product, COUNT(*) - 3 FROM orders GROUP BY 1", "from released values"),
    (
        "SELECT product, COUNT(CASE WHEN a THEN b WHEN c THEN d END) FROM orders GROUP BY 1",
        "has one value here",
    ),
    (
        "SELECT product, COUNT(DISTINCT user) FILTER (WHERE a), COUNT(*) FROM orders GROUP BY 1",
        "a pipeline with the condition in WHERE",
    ),
    (
        "SELECT product, COUNT(*) OVER () FROM orders GROUP BY 1",
        "OVER compares single records or rows of several keys",
    ),
    ("SELECT product, RANK() OVER (ORDER BY a) FROM orders GROUP BY 1", "ORDER BY n DESC LIMIT 3"),
    ("SELECT product, COUNT(price + 1) FROM orders GROUP BY 1", "COUNT(DISTINCT unit)"),
    (
        "SELECT product, COUNT(DISTINCT user), COUNT(*) FROM orders GROUP BY 1",
        "a pipeline for each",
    ),
    ("SELECT product FROM orders WHERE REVERSE(name) = 'a' GROUP BY 1", "WHERE compares fields"),
    ("SELECT product FROM orders WHERE a < b GROUP BY 1", "two fields are not compared"),
    ("SELECT product FROM orders WHERE a IN (SELECT 1) GROUP BY 1", "known before, such as IN"),
    ("SELECT product FROM orders WHERE EXISTS (SELECT 1) GROUP BY 1", "query within a query"),
    ("SELECT product, (SELECT MAX(a) FROM b) FROM orders GROUP BY 1", "query within a query"),
    ("SELECT product FROM orders WHERE COALESCE(a, b) = 1 GROUP BY 1", "a field and one constant"),
    ("SELECT product FROM orders WHERE name = NULL GROUP BY 1", "write IS NULL"),
    ("SELECT product FROM orders WHERE name > 'a' GROUP BY 1", "only numbers have an order"),
    ("SELECT REVERSE(product) FROM orders GROUP BY 1", "let the producer write its result"),
    ("SELECT YEAR(other) FROM orders GROUP BY 1", "event time of input orders is created"),
    ("SELECT product FROM orders GROUP BY CUBE (product)", "a pipeline for each grouping"),
    ("SELECT product FROM orders GROUP BY ROLLUP (product)", "a pipeline for each grouping"),
    ("SELECT product FROM orders GROUP BY GROUPING SETS ((product))", "for each grouping"),
    ("SELECT DATE_TRUNC('day', created) FROM orders GROUP BY 1", "GROUP BY is missing"),
    (f"SELECT p FROM orders GROUP BY p, DATE_TRUNC('hour', created), {DAY}", "window already"),
    ("SELECT p FROM orders GROUP BY p, DATE_TRUNC('week', other)", "is created"),
    ("SELECT p FROM orders GROUP BY p, DATE_TRUNC('decade', created)", "QUARTER or YEAR"),
    ("SELECT p FROM orders GROUP BY p, SESSION(created, INTERVAL '1' HOUR)", "one privacy unit"),
    (
        "SELECT TOP 3 p FROM orders GROUP BY p",
        "TOP takes the largest of the releases",
    ),
    (
        "SELECT p FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(t), INTERVAL '1' DAY)) GROUP BY p",
        "the event time of input orders is created",
    ),
    ("SELECT p FROM orders GROUP BY p OFFSET 3", "leave out released rows"),
    ("SELECT p FROM orders PIVOT (SUM(x) FOR y IN (1)) GROUP BY p", "PIVOT is not possible"),
    ("SELECT p FROM orders FOR SYSTEM_TIME AS OF '2020' GROUP BY p", "a version of the table"),
    ("SELECT p FROM orders AS o(p, q) GROUP BY p", "leave out the list"),
    ("SELECT p FROM orders TABLESAMPLE (10 PERCENT) GROUP BY p", "counts every record"),
    ("SELECT p, COUNT(1, q) FROM orders GROUP BY p", "a pipeline for each field"),
    ("SELECT p FROM orders GROUP BY p, HOP(created, INTERVAL '1' HOUR)", "must be HOP(time,"),
    (
        "SELECT p FROM orders WINDOW HOPPING (SIZE 1 DAY) GROUP BY p",
        "SIZE 24 HOURS, ADVANCE BY 1 HOUR",
    ),
    (
        "SELECT p FROM TABLE(HOP(TABLE orders, DESCRIPTOR(created), INTERVAL '1' DAY)) GROUP BY p",
        "HOP needs table, time, hop and length",
    ),
    ("SELECT p FROM orders GROUP BY p, TUMBLE(t, INTERVAL '1' DAY)", "is created"),
    ("SELECT p FROM orders GROUP BY p, TUMBLE(created, INTERVAL '0' MONTH)", "positive number"),
    ("SELECT p FROM orders GROUP BY p, TUMBLE(created, INTERVAL '0' DAY)", "positive number"),
    ("SELECT p FROM orders GROUP BY p, 7", "a column of SELECT from 1 to 1"),
    ("SELECT p FROM orders GROUP BY p, FLOOR(x), FLOOR(x / 2) * 2", "x_band already"),
    ("SELECT HOUR(TO_TIMESTAMP()), COUNT(*) FROM orders GROUP BY 1", "time"),
    ("SELECT p FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(), INTERVAL '1' DAY))", "names nothing"),
    (
        "SELECT p, SUM(CLIP(price, 0, 9)) AS s FROM orders WHERE price <> 'free' GROUP BY p",
        "price: WHERE asks for a text, and s for a number",
    ),
    (
        "SELECT p, COUNT(*) FILTER (WHERE active) FROM orders WHERE active = 1 GROUP BY p",
        "active: WHERE asks for a number, and the condition of count for true or false",
    ),
    (
        "SELECT LOWER(p) AS q, MEDIAN(CLIP(p, 0, 9)) FROM orders GROUP BY q",
        "p: the column q asks for a text, and the quantile for a number",
    ),
    ("SELECT p FROM orders WHERE NOT user GROUP BY p", "user: the privacy unit asks for"),
    (f"SELECT p{' ' * MOST} FROM orders GROUP BY p", "is longer than"),
]


@pytest.mark.parametrize(("query", "message"), REFUSED)
def test_what_has_no_private_meaning_is_refused_by_name(query: str, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        compiled(query)
    assert message in str(caught.value), str(caught.value)


def test_an_input_with_the_time_of_its_records_has_windows_of_rowtime() -> None:
    source = QuerySource("a", "a", ("u",), None)
    query = "SELECT p FROM a GROUP BY p, TUMBLE({}, INTERVAL '2 hours')"
    found = compile_query(query.format("ROWTIME"), [source])
    assert found["window"] == {"length": "2h"}
    with pytest.raises(QueryError, match="write ROWTIME"):
        compile_query(query.format("created"), [source])


# -- within a configuration -----------------------------------------------------------------------


def configured(pipeline: str) -> str:
    return (
        f'{INPUT}[[pipeline]]\nname = "p"\n{pipeline}\nbudget = {{ epsilon = 1, delta = 1e-6 }}\n'
    )


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


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('key = "product"', "pipeline[0].key: is set by query"),
        ('window = { length = "2d" }', "pipeline[0].window.length: is set by query"),
        ('input = "other"', "pipeline[0].input: is set by query"),
        ("clip = { price = { low = 3 } }", "pipeline[0].clip.price: high is missing"),
    ],
)
def test_settings_that_contradict_a_query_are_refused(more: str, message: str) -> None:
    query = f"SELECT product FROM orders GROUP BY product, {DAY}"
    with pytest.raises(ConfigError) as caught:
        loads(configured(f"query = '''{query}'''\n{more}"), environ={})
    assert message in str(caught.value), str(caught.value)


def test_a_refused_query_names_its_line_alone() -> None:
    with pytest.raises(ConfigError) as caught:
        loads(configured("query = 'SELECT product, MAX(price) FROM orders GROUP BY product'"))
    assert str(caught.value).startswith("hush.toml:8: pipeline[0].query: MAX(price): MAX rests")


def test_bounds_for_a_query_need_one() -> None:
    text = 'input = "orders"\nkey = "product"\nwindow = { length = "1d" }\n'
    text += 'triggers = { every = "1d" }\nclip = { price = { low = 0, high = 1 } }'
    with pytest.raises(ConfigError, match="clip: has an effect only with query"):
        loads(configured(text), environ={})


# -- both forms of random pipelines ---------------------------------------------------------------

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
    """A comparison in SQL, and the condition that a person would write."""
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
    """A pipeline in SQL, and as a person would write it."""
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
def test_both_forms_of_a_pipeline_are_charged_alike(pipeline: tuple[str, dict[str, Any]]) -> None:
    query, written = pipeline
    budget = {"budget": {"epsilon": 1, "delta": Decimal("0.000001")}}
    forms = [{"name": "p", "query": query}, {"name": "p", **written}]
    texts = [INPUT + table(form | budget) for form in forms]
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
        return  # half a surrogate pair is no text
    read = tomllib.loads(text, parse_float=Decimal)["pipeline"][0]
    assert read == {"a b": value, "c": 1}
