"""Refusals of SQL that has no private meaning, each with what to do instead."""

from __future__ import annotations

from sqlglot import exp

from ...errors import ConfigError

MOST_SHOWN = 80  # characters of SQL in a message


class QueryError(ConfigError):
    """A query cannot become a pipeline."""


def shown(node: exp.Expr) -> str:
    """The SQL of a part of a query, short enough for a message."""
    text = node.sql()
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."


def refused(node: exp.Expr, instead: str) -> QueryError:
    """Make the refusal of a construct, by its own SQL."""
    return QueryError(f"{shown(node)}: {instead}")


CLAUSES = {
    "with_": "WITH has no meaning here: write the query of one pipeline over one input",
    "joins": "JOIN is not possible: a pipeline reads one input. Join the topics first, for "
    "example with Kafka Streams, so that one record holds all fields",
    "laterals": "LATERAL is not possible: a pipeline reads the fields of one record",
    "having": "HAVING would decide by exact values. A key is released when its noisy count passes "
    "a private threshold; set min_users, or filter the releases, which costs nothing",
    "order": "ORDER BY has no meaning in a stream: sort the releases, which costs nothing",
    "limit": "LIMIT has no meaning in a stream: take the largest of the releases, which costs "
    "nothing",
    "offset": "OFFSET has no meaning in a stream",
    "distinct": "SELECT DISTINCT: group by the columns instead; without an aggregate the keys "
    "alone are released",
    "qualify": "QUALIFY would decide by exact values: filter the releases, which costs nothing",
    "windows": "WINDOW is not possible: windows are TUMBLE(time, INTERVAL '1' DAY)",
    "sample": "TABLESAMPLE is not possible: a smaller epsilon says less, and counts every record",
    "pivots": "PIVOT is not possible: releases have a row for each key",
    "into": "INTO is not possible: the release topic is set by release.topic",
}
"""Clauses of a SELECT, and what to say of each."""
