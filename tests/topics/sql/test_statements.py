"""Statements as people write them for BigQuery, Flink, ksqlDB, Spark and Postgres: each runs, or is
refused in words that contain the next step.

Covers: topics/sql/expressions/derived.py, topics/sql/expressions/texts.py
Covers: topics/sql/expressions/times.py, topics/sql/outer/flat.py, topics/sql/outer/outer.py
Covers: topics/sql/outer/viewed.py, topics/sql/parsing/dialect.py, topics/sql/parsing/parsed.py
Covers: topics/sql/parsing/spoken.py, topics/sql/select.py, topics/sql/source.py
Covers: topics/sql/windows/sessions.py, topics/sql/windows/windows.py
"""

from __future__ import annotations

import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hushstream.topics.sql.columns import QuerySource
from hushstream.topics.sql.query import read_query
from hushstream.topics.sql.refusal import QueryError

ORDERS = QuerySource("orders", "shop-orders", ("user",), "created")

STATEMENTS = tomllib.loads(
    Path(__file__).with_name("statements.toml").read_text("utf-8"), parse_float=Decimal
)["statement"]


@pytest.mark.parametrize("case", STATEMENTS, ids=lambda case: case["sql"])
def test_a_statement_runs_or_says_the_next_step(case: dict[str, Any]) -> None:
    if "refused" in case:
        with pytest.raises(QueryError) as caught:
            read_query(case["sql"], [ORDERS])
        assert str(caught.value).endswith(case["refused"]), str(caught.value)
        return
    found = read_query(case["sql"], [ORDERS])
    more = {"view": found.view, "over": found.over}
    settings = found.settings | {name: value for name, value in more.items() if value is not None}
    assert settings == {"input": "orders", **case["becomes"]}


@pytest.mark.parametrize(
    ("statement", "note"),
    [
        ("SELECT product FROM orders GROUP BY product ORDER BY 1", "sort them"),
        ("SELECT product FROM orders GROUP BY product EMIT CHANGES", "set triggers.every"),
        ("SELECT product AS p FROM orders GROUP BY product", "keeps its name, product"),
        ("SELECT user FROM orders GROUP BY user", "is the privacy unit"),
        (
            "SELECT TO_CHAR(created, 'HH24'), COUNT(*) FROM orders GROUP BY 1",
            "released as a number",
        ),
        ("SELECT DAYOFWEEK(created), COUNT(*) FROM orders GROUP BY 1", "a number, 1 is Sunday"),
        (
            "SELECT price > 3 AS big, COUNT(*) FROM orders GROUP BY big",
            "price > 3: where it is neither true nor false, the column is false",
        ),
        ("SELECT SPLIT_PART(p, '-', 5), COUNT(*) FROM orders GROUP BY 1", "is a dead letter"),
        ("SELECT ROUND(COUNT(*), -1) FROM orders", "round it when it is read"),
        ("SELECT AVG(CLIP(price, 0, 1)) FROM orders", "price: each value counts as the nearest"),
        (
            "SELECT product FROM orders WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 5 MINUTES) "
            "GROUP BY product",
            "lateness of the pipeline",
        ),
        (
            "SELECT product, SUM(ROUND(price, 1), contribution_bounds_per_group => (0, 9)) "
            "FROM orders GROUP BY product",
            "of the value of each record",
        ),
    ],
)
def test_what_changes_nothing_is_told(statement: str, note: str) -> None:
    (told,) = read_query(statement, [ORDERS]).notes
    assert note in told


def test_places_are_those_of_the_query_as_it_was_written() -> None:
    statement = (
        "SELECT WITH DIFFERENTIAL_PRIVACY\n  OPTIONS(epsilon=1)\n  product, COUNT(*)\n"
        "FROM orders\nWEHRE price > 3 GROUP BY product"
    )
    with pytest.raises(QueryError, match=r"'WEHRE' \(line 5, column 1\); did you mean WHERE"):
        read_query(statement, [ORDERS])
