"""Constructs without a private meaning: each is refused by name, with an alternative."""

from __future__ import annotations

import pytest
from hushstream.errors import ConfigError
from hushstream.topics.config.load import loads
from hushstream.topics.sql.parsing.parsed import MOST
from hushstream.topics.sql.refusal import QueryError

from .orders import DAY, compiled, configured

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
