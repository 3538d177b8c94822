"""Conditions have the meaning of SQL, as SQLite decides it.

Covers: topics/sql/expressions/filters.py, topics/sql/expressions/texts.py
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hushstream.formats.events.expressions.texts import changed
from hushstream.topics.config.expressions.conditions import every
from hushstream.topics.config.load import loads
from hushstream.topics.sql.columns import QuerySource
from hushstream.topics.sql.query import compile_query, read_query
from hushstream.topics.sql.written import table

ORDERS = QuerySource("orders", "orders", ("user",), "created")
CONFIG = """
[[input]]
name = "orders"
topic = "orders"
unit = "user"
time = { field = "created", format = "epoch_ms" }

"""
TEXTS = [None, "", "a", "ab", "a%b", "DE", "line\n", "x" * 7]
NUMBERS = [None, -3, 0, 2.5, 3, 5, 19]
ROWS = list(product(TEXTS, NUMBERS, [None, False, True]))


class Rows:
    """The records of `ROWS` as columns t, n and b."""

    def _column(self, path: str) -> list[Any]:
        return [row["tnb".index(path)] for row in ROWS]

    def numbers(self, path: str) -> np.ndarray:
        return np.array([np.nan if one is None else one for one in self._column(path)], float)

    def among(self, path: str, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        column = self._column(path)
        return np.array([one in texts for one in column]), self.present(path)

    def texts(self, path: str) -> tuple[list[str], np.ndarray]:
        known = [one for one in TEXTS if one is not None]
        column = self._column(path)
        return known, np.array([-1 if one is None else known.index(one) for one in column])

    def truths(self, path: str) -> tuple[np.ndarray, np.ndarray]:
        column = self._column(path)
        return np.array([one is True for one in column]), np.array([one is False for one in column])

    def present(self, path: str) -> np.ndarray:
        return np.array([one is not None for one in self._column(path)])


def ours(condition: str) -> list[int]:
    """Places of the rows that fulfil a query's WHERE condition."""
    return asked(f"SELECT t, COUNT(*) FROM orders WHERE {condition} GROUP BY t")


def asked(query: str) -> list[int]:
    """Places of the rows that a query counts, by the condition of the query or of its count."""
    return counted(compile_query(query, [ORDERS]))[0]


def counted(settings: dict[str, Any]) -> list[list[int]]:
    """Places of the rows that each aggregate counts."""
    more = {
        "name": "p", "window": {"length": "1d"}, "triggers": {"every": "1d"},
        "budget": {"epsilon": 1, "delta": 1e-6},
    }  # fmt: skip
    (pipeline,) = loads(CONFIG + table(settings | more), environ={}).pipeline
    asked = [every(pipeline.where or one.where) for one in pipeline.aggregate]
    each = np.ones(len(ROWS), bool)
    found = [each if one is None else one.fulfilled(Rows()) for one in asked]
    return [np.flatnonzero(one).tolist() for one in found]


def theirs(condition: str) -> list[int]:
    """Places of the rows that fulfil the condition in SQLite."""
    base = sqlite3.connect(":memory:")
    base.execute("PRAGMA case_sensitive_like = ON")
    base.execute("CREATE TABLE orders (place INT, t TEXT, n REAL, b INT)")
    rows = [(place, *row) for place, row in enumerate(ROWS)]
    base.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", rows)
    found = base.execute(f"SELECT place FROM orders WHERE {condition} ORDER BY place")
    return [place for (place,) in found]


@pytest.mark.parametrize(
    "condition",
    [
        "t = 'a' OR n > 2.5",
        "NOT (t = 'a' AND n > 2.5)",
        "t IS DISTINCT FROM 'a'",
        "NOT t IS DISTINCT FROM 'a'",
        "t IS NOT DISTINCT FROM NULL",
        "b IS DISTINCT FROM TRUE",
        "n IS NOT DISTINCT FROM 3",
        "COALESCE(t, 'DE') = 'DE'",
        "COALESCE(t, 'DE') <> 'DE'",
        "COALESCE(t, 'DE') NOT IN ('a', 'ab')",
        "IFNULL(n, 5) BETWEEN 3 AND 5",
        "NOT (COALESCE(n, 5) BETWEEN 1 AND 4)",
        "NOT COALESCE(b, FALSE)",
        "COALESCE(b, TRUE) AND COALESCE(n, 0) >= 0",
        "LENGTH(t) > 1",
        "NOT LENGTH(t) >= 1",
        "LENGTH(t) <= 2",
        "LENGTH(t) < 2",
        "LENGTH(t) <> 2",
        "LENGTH(t) = 0",
        "INSTR(t, '%') > 0",
        "INSTR(t, 'a') = 0",
        "NOT INSTR(t, 'a') >= 1",
        "INSTR(t, 'a') <> 0",
        "INSTR(t, 'a') < 1",
        "n > 10 * 2 - 0.5",
        "n <= -(1 + 2)",
        "n IN (3, NULL)",
        "CAST(n AS REAL) = 2.5 OR CAST(t AS TEXT) LIKE 'a_%'",
        "b IS NOT TRUE",
    ],
)
def test_a_condition_holds_where_it_does_in_sql(condition: str) -> None:
    assert ours(condition) == theirs(condition)


@pytest.mark.parametrize(
    ("condition", "plain"),
    [
        ("t LIKE ANY ('a%', 'D_')", "t LIKE 'a%' OR t LIKE 'D_'"),
        ("NOT (t LIKE ANY ('a%', 'D_'))", "NOT (t LIKE 'a%' OR t LIKE 'D_')"),
        ("t LIKE ALL ('a%', '%b')", "t LIKE 'a%' AND t LIKE '%b'"),
        ("t NOT LIKE ALL ('a%', '%b')", "t NOT LIKE 'a%' AND t NOT LIKE '%b'"),
        ("n BETWEEN SYMMETRIC 5 AND 1", "n BETWEEN 1 AND 5"),
        ("n NOT BETWEEN SYMMETRIC 5 AND 1", "n NOT BETWEEN 1 AND 5"),
        ("n BETWEEN ASYMMETRIC 1 AND 5", "n BETWEEN 1 AND 5"),
        ("SUBSTRING_INDEX(t, '%', 1) = 'a'", "substr(t, 1, instr(t || '%', '%') - 1) = 'a'"),
    ],
)
def test_what_other_systems_say_holds_where_its_long_form_does(condition: str, plain: str) -> None:
    assert ours(condition) == theirs(plain)


@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_text_of_fewer_parts_has_empty_ones(place: int) -> None:
    query = f"SELECT SPLIT_PART(t, '.', {place}) AS s, COUNT(*) FROM orders GROUP BY s"
    (step,) = compile_query(query, [ORDERS])["derive"]["s"]["text"]
    for text in ("", "a", "a.b", "a.b.c", ".a.", "a..b", "x.y.z.w", "a\n", "a\n.b"):
        parts = [*text.split("."), "", ""]
        assert changed([text], [("extract", step["extract"])]) == [parts[place - 1]], text


@pytest.mark.parametrize("times", [1, 2, 3, -1, -2, -3])
def test_a_text_ends_at_the_separator_that_is_counted(times: int) -> None:
    query = f"SELECT SUBSTRING_INDEX(t, '.', {times}) AS s, COUNT(*) FROM orders GROUP BY s"
    (step,) = compile_query(query, [ORDERS])["derive"]["s"]["text"]
    for text in ("a", "a.b", "a.b.c", ".a.", "a..b", "x.y.z.w"):
        parts = text.split(".")
        wanted = parts[:times] if times > 0 else parts[times:]
        assert changed([text], [("extract", step["extract"])]) == [".".join(wanted)], text


@pytest.mark.parametrize(
    "case",
    [
        "CASE WHEN t = 'a' THEN 1 ELSE CASE WHEN n > 2.5 THEN 2 ELSE IIF(b, 3, NULL) END END",
        "CASE WHEN t = 'a' THEN 1 WHEN n > 2.5 THEN 2 END",
        "CASE WHEN NOT b THEN 1 WHEN t IS NULL AND n < 3 THEN 'x' WHEN b THEN 1 END",
        "CASE t WHEN 'a' THEN 1 WHEN 'DE' THEN 1 END",
    ],
)
def test_a_case_of_several_conditions_counts_what_it_does_in_sql(case: str) -> None:
    query = f"SELECT t, COUNT({case}) FROM orders GROUP BY t"
    assert asked(query) == theirs(f"{case} IS NOT NULL")


@pytest.mark.parametrize(
    "condition",
    [
        "n > 2.5",
        "NOT (n > 2.5)",
        "5 >= n",
        "n IN (3, 5)",
        "t LIKE 'a_%'",
        "b IS NOT TRUE",
        "n IS NULL",
        "n = 3 OR t = 'a'",
        "n = 3 AND t = 'a' AND NOT b",
        "COALESCE(n, 5) > 4",
    ],
)
@pytest.mark.parametrize("filtered", ["", "t = 'ab' OR b"])
def test_the_mean_of_a_comparison_leaves_out_what_it_does_in_sql(
    condition: str, filtered: str
) -> None:
    mean = f"AVG({condition})" + (f" FILTER (WHERE {filtered})" if filtered else "")
    read = read_query(f"SELECT {mean} AS share FROM orders", [ORDERS])
    numerator, denominator = counted(read.settings)
    more = f"({filtered or 1}) AND "
    assert numerator == theirs(f"{more} ({condition})")
    assert denominator == theirs(f"{more} ({condition}) IS NOT NULL")
    assert read.over is not None and read.over["values"][0]["kind"] == "ratio"


def test_decode_takes_a_missing_value_for_equal_to_another() -> None:
    meant = "t IS NULL OR t = 'a'"
    assert asked("SELECT COUNT(DECODE(t, NULL, 1, 'a', 2)) FROM orders") == theirs(meant)
    assert asked("SELECT COUNT(n) FROM orders") == theirs("n IS NOT NULL")
