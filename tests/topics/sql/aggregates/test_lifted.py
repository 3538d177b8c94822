"""The condition of the only aggregate of a query moves to WHERE, and others stay."""

from __future__ import annotations

import pytest
import sqlglot
from hushstream.topics.sql.aggregates.lifted import lifted


def moved(text: str) -> str:
    select = sqlglot.parse_one(text)
    assert isinstance(select, sqlglot.exp.Select)
    return lifted(select).sql()


@pytest.mark.parametrize(
    ("columns", "count"),
    [
        ("COUNT(DISTINCT CASE WHEN a OR b THEN u END)", "COUNT(DISTINCT u)"),
        ("COUNT(DISTINCT u) FILTER(WHERE a OR b)", "COUNT(DISTINCT u)"),
        ("k, COUNT(DISTINCT u) FILTER(WHERE a OR b) AS n", "k, COUNT(DISTINCT u) AS n"),
    ],
)
def test_a_count_of_values_is_of_the_records_that_fulfil_its_condition(
    columns: str, count: str
) -> None:
    assert moved(f"SELECT {columns} FROM t") == f"SELECT {count} FROM t WHERE (a OR b)"
    both = f"SELECT {count} FROM t WHERE (c OR d) AND (a OR b)"
    assert moved(f"SELECT {columns} FROM t WHERE c OR d") == both


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(DISTINCT u) FILTER(WHERE a), COUNT(*) FROM t",
        "SELECT COUNT(DISTINCT u) FILTER(WHERE a), COUNT(DISTINCT u) FROM t",
        "SELECT COUNT(DISTINCT u) FILTER(WHERE a), SUM(x) FILTER(WHERE b) FROM t",
        "SELECT SUM(x) FILTER(WHERE a) FROM t",
        "SELECT COUNT(DISTINCT u) FROM t",
    ],
)
def test_the_condition_of_one_among_several_aggregates_stays(text: str) -> None:
    assert moved(text) == text
