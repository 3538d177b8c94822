"""Refusals of SQL that has no private meaning, each with what to do instead."""

from __future__ import annotations

import re

from sqlglot import ErrorLevel, exp

from ...errors import ConfigError

MOST_SHOWN = 80  # characters of SQL in a message


class QueryError(ConfigError):
    """A query cannot become a pipeline."""


def single_quotes(text: str) -> str:
    """Say how to write a text that is in other quotes, or in none."""
    plain = text.replace("'", "''")
    return f"texts stand in single quotes: write '{plain}'"


SAID = "said"
"""Key in an expression's ``meta``: its text in the query."""


def shown(node: exp.Expr) -> str:
    """A part of a query as written, short enough for a message."""
    said = node.meta.get(SAID)
    return short(said) if said else respelt(node)


def respelt(node: exp.Expr) -> str:
    """The SQL of a rewritten expression, short enough for a message."""
    return short(sql_of(node))


def sql_of(node: exp.Expr) -> str:
    """The SQL of an expression, without warnings about other systems."""
    return node.sql(comments=False, unsupported_level=ErrorLevel.IGNORE)


def call_of(node: exp.Expr | None) -> str:
    """The upper-case name of a call without a type in the parser; empty for anything else."""
    return node.name.upper() if isinstance(node, exp.Anonymous) else ""


def short(text: str) -> str:
    """A text, shortened if it is too long for a message."""
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."


def refused(node: exp.Expr, instead: str) -> QueryError:
    """Make the refusal of a construct, quoting its SQL."""
    return QueryError(f"{shown(node)}: {instead}")


EACH = "makes several records of one: let the producer write a record for each element"

CLAUSES = {
    "joins": "JOIN of two inputs is not possible: a pipeline reads one. Join the topics first, for "
    "example with Kafka Streams, so that one record holds all fields. A public table is a file, "
    "LEFT JOIN 'zones.csv' AS z ON zone = z.id, or a topic that a [[lookup]] names. A "
    "topic that states something of each privacy unit, such as its country, is joined by the unit: "
    'give its [[input]] attributes_of = "…"',
    "laterals": f"LATERAL {EACH}",
    "having": "HAVING would decide by exact values. A key is released when its noisy count passes "
    "a private threshold; set min_users, or filter the releases with a [[view]], which costs "
    "nothing",
    "order": "ORDER BY has no meaning in a stream: sort the releases, which costs nothing",
    "limit": "LIMIT has no meaning in a stream: take the largest of the releases with a "
    "[[view]], which costs nothing",
    "offset": "OFFSET has no meaning in a stream: leave out released rows, which costs nothing",
    "distinct": "DISTINCT ON shows single records: write SELECT DISTINCT column, which "
    "releases the keys alone",
    "qualify": "QUALIFY would decide by exact values: for the largest releases write ORDER BY n "
    "DESC LIMIT 10, or HAVING n > 100, which are a [[view]] and cost nothing",
    "windows": "WINDOW is not possible: windows are TUMBLE(time, INTERVAL '1' DAY)",
    "sample": "TABLESAMPLE is not possible: a smaller epsilon says less, and counts every record",
    "pivots": "PIVOT is not possible: releases have a row for each key; turning them round costs "
    "nothing",
    "version": "a version of the table is not possible: windows say which records count",
    "when": "a version of the table is not possible: windows say which records count",
    "into": "INTO is not possible: the release topic is set by release.topic",
    "sort": "SORT BY has no meaning in a stream: sort the releases, which costs nothing",
    **dict.fromkeys(
        ("distribute", "cluster"),
        "DISTRIBUTE BY and CLUSTER BY place no record here, Kafka's partitions do: leave them out",
    ),
    "locks": "FOR UPDATE locks nothing here: leave it out",
    "hints": "hints on a table say nothing here: leave WITH (...) out",
}
"""Refused clauses of a SELECT, and the message for each."""


_BANDS = (
    "release quantiles per key, such as PERCENTILE_CONT(CLIP(x, 0, 100), 0.99), or count in bands, "
    "GROUP BY FLOOR(x / 10) * 10, and take it from the released counts (docs/recipes.md, Quantiles)"
)
_ONE = f"rests on one record, which no noise can hide: {_BANDS}"
_SINGLE = "shows values of single records, which are never released: group by the field and count"
GROUPINGS = (
    "is not possible: write the finest grouping; SELECT country, SUM(n) FROM (...) GROUP BY "
    "country adds up its released rows, a [[view]] that costs nothing; or write a pipeline for "
    "each grouping"
)
"""Words on several groupings in one query."""
_WITHIN = "a query within a query is not possible: "

_TOP = (
    "group by the field with COUNT(*) or SUM, and take the largest released rows: ORDER BY n DESC "
    "LIMIT 10, which is a [[view]] and costs nothing"
)
_TRUTH = (
    "rests on one record, which no noise can hide: count those that fulfil it, COUNTIF(field), and "
    "compare the released count"
)
_SKETCH = (
    "a sketch holds exact values, and merged sketches have no noise: write COUNT(DISTINCT field), "
    "which is exact with noise, for each window"
)
EXPRESSIONS: dict[type[exp.Expr], str] = {
    exp.Select: f"{_WITHIN}write a pipeline for each, and compare what they released",
    exp.Min: f"MIN {_ONE}",
    exp.Max: f"MAX {_ONE}",
    exp.ArgMin: f"MIN {_ONE}",
    exp.ArgMax: f"MAX {_ONE}",
    exp.ApproxTopK: _TOP,
    exp.ApproxTopSum: _TOP,
    exp.Mode: "MODE rests on exact counts: group by the field, and take the largest released count",
    **dict.fromkeys(
        (exp.Corr, exp.CovarPop, exp.CovarSamp, exp.RegrSlope, exp.RegrIntercept, exp.RegrR2),
        "is not possible: release the distribution of both fields by mechanism privhp",
    ),
    exp.Grouping: "tells groupings apart, and a pipeline has one: leave it out",
    exp.JSONObjectAgg: _SINGLE,
    exp.JSONArrayAgg: _SINGLE,
    exp.LogicalOr: _TRUTH,
    exp.LogicalAnd: _TRUTH,
    exp.First: _SINGLE,
    exp.Last: _SINGLE,
    exp.FirstValue: _SINGLE,
    exp.LastValue: _SINGLE,
    exp.NthValue: _SINGLE,
    exp.AnyValue: _SINGLE,
    exp.ArrayAgg: _SINGLE,
    exp.ArrayUniqueAgg: _SINGLE,
    exp.GroupConcat: _SINGLE,
    exp.Window: "OVER compares single records: rank, add up or compare the released rows with "
    "a [[view]], which costs nothing",
    exp.Rollup: f"ROLLUP {GROUPINGS}",
    exp.Cube: f"CUBE {GROUPINGS}",
    exp.GroupingSets: f"GROUPING SETS {GROUPINGS}",
}
"""Expressions that no pipeline can release, and what to do instead."""

SPLIT_CALLS = ("APPROX_QUANTILES", "ANON_QUANTILES", "QUANTILES")
"""Calls for quantiles that split the records into equal parts."""

QUANTILE_CALLS = (
    "MEDIAN", "PERCENTILE_CONT", "PERCENTILE_DISC", "ANON_PERCENTILE_CONT", "PERCENTILE",
    "PERCENTILE_APPROX", "APPROX_PERCENTILE", "APPROX_QUANTILE", "QUANTILE", "QUANTILE_CONT",
    "QUANTILE_DISC", *SPLIT_CALLS,
)  # fmt: skip
"""Calls for quantiles, in upper case."""

_CALLS = {
    "AS_VALUE": "is released by itself as a column of the key: leave it out",
    **dict.fromkeys(
        ("APPROX_TOP_COUNT", "HISTOGRAM", "APPROX_TOP_SUM", "APPROX_MOST_FREQUENT"), _TOP
    ),
    **dict.fromkeys(
        ("INIT", "EXTRACT", "MERGE", "MERGE_PARTIAL", "HLL_ACCUMULATE", "HLL_COMBINE"), _SKETCH
    ),
    **dict.fromkeys(
        QUANTILE_CALLS,
        "a quantile stands in SELECT by itself: MEDIAN(CLIP(x, 0, 100)); compute with what is "
        "released, which costs nothing",
    ),
    **dict.fromkeys(
        (
            "LISTAGG",
            "COLLECT",
            "COLLECT_LIST",
            "COLLECT_SET",
            "EARLIEST_BY_OFFSET",
            "LATEST_BY_OFFSET",
            "TOPK",
            "TOPKDISTINCT",
        ),
        _SINGLE,
    ),
}  # calls without a type in the parser, of Flink, Spark and ksqlDB among others


_RANKS = "ranks rows: for the largest of each window write ORDER BY n DESC LIMIT 3"
_PARTS = (
    "NTILE puts single records in order: the values that part them are quantiles, "
    "APPROX_QUANTILES(CLIP(price, 0, 100), 4); released rows are ranked where they are read"
)
OVER: dict[type[exp.Expr], str] = {
    exp.Ntile: _PARTS,
    **dict.fromkeys(
        (exp.Rank, exp.DenseRank, exp.RowNumber, exp.PercentRank, exp.CumeDist), _RANKS
    ),
    exp.Avg: "a mean over windows is SUM(n) OVER (... ROWS BETWEEN 6 PRECEDING AND CURRENT ROW), "
    "divided by their number where it is read",
    **dict.fromkeys(
        (exp.FirstValue, exp.LastValue, exp.NthValue, exp.Lead),
        "a view looks back at windows that are over: write LAG(n, 7) OVER (...)",
    ),
}
"""What to write in place of a function OVER rows, by the function."""
_TOTAL = (
    "a share of all rows is computed where they are read: their total is SELECT SUM(n) FROM (...), "
    "another [[view]]"
)


def over_of(node: exp.Expr) -> str | None:
    """Message on a function OVER rows that no view has; None if the general one suffices."""
    call = node.this
    while isinstance(call, exp.IgnoreNulls | exp.RespectNulls):
        call = call.this
    named = call_of(call) == "RATIO_TO_REPORT"
    empty = not node.args.get("partition_by") and not node.args.get("order")
    if named or (empty and isinstance(call, exp.Sum)):
        return _TOTAL
    return OVER.get(type(call))


def instead_of(node: exp.Expr) -> str | None:
    """Message on the outermost part of an expression that no pipeline can release, or None."""
    for part in node.bfs():
        if isinstance(part, exp.Window) and (words := over_of(part)) is not None:
            return words
        if type(part) in EXPRESSIONS:
            return EXPRESSIONS[type(part)]
        if call_of(part) in _CALLS:
            return _CALLS[part.name.upper()]
    return None


_UNREADABLE = {
    r"\bSELECT\s+TOP\s+\d": "TOP takes the largest of the releases: write ORDER BY n DESC LIMIT "
    "10, which is a [[view]] and costs nothing",
    r"\bWITH\s+AGGREGATION_THRESHOLD\b": "WITH AGGREGATION_THRESHOLD shows exact counts behind a "
    "threshold, which hides no unit: write WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, ...)",
    r"\bMATCH_RECOGNIZE\b": "MATCH_RECOGNIZE compares single records: find the pattern with Flink "
    "first, and count what it found",
}


def unreadable(text: str) -> str | None:
    """Message on the construct that makes a query unreadable for the parser; None if unknown."""
    found = (
        words for pattern, words in _UNREADABLE.items() if re.search(pattern, text, re.IGNORECASE)
    )
    return next(found, None)
