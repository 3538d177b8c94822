"""Times written as texts in a query: which format is which part of a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlglot import exp

from ..columns import path_of
from ..refusal import call_of, refused

_PERCENT = {
    "%F": "date", "%Y-%m-%d": "date", "%Y": "year", "%Q": "quarter",
    "%m": "month", "%d": "day", "%u": "weekday", "%H": "hour", "%M": "minute",
}  # fmt: skip
_JAVA = {
    "yyyy-MM-dd": "date", "yyyy": "year", "MM": "month", "dd": "day", "HH": "hour", "mm": "minute",
}  # fmt: skip
_POSTGRES = {
    "YYYY-MM-DD": "date", "YYYY": "year", "Q": "quarter", "MM": "month", "DD": "day",
    "ID": "weekday", "HH24": "hour", "MI": "minute",
}  # fmt: skip
_MYSQL = {
    **{code: part for code, part in _PERCENT.items() if code != "%u"},  # %u is the week there
    "%i": "minute", "%M": "month", "%W": "weekday",
}  # fmt: skip
_NAMED = {
    **dict.fromkeys(("%A", "%a", "EEEE", "EEE", "E", "DAY", "DY"), "weekday"), "%w": "dow",
    **dict.fromkeys(("%B", "%b", "MMMM", "MMM", "MONTH", "MON"), "month"),
}  # fmt: skip
"""Formats for names of days and months, which are released as numbers."""
_FORMATS: dict[str, dict[str, str]] = {
    **dict.fromkeys(("FORMAT_TIMESTAMP", "FORMAT_DATETIME", "FORMAT_DATE", "STRFTIME"), _PERCENT),
    "DATE_FORMAT": _MYSQL | _JAVA,
    "TIMESTAMPTOSTRING": _JAVA,
    "FORMATDATETIME": _JAVA,
}
"""For each function, the formats of single parts of a time, with the part's name in settings."""


class Formatted(NamedTuple):
    """A part of a time that was written as a text: its name, the time, and the zone if stated."""

    part: str
    time: exp.Expr
    zone: str | None


def formatted(node: exp.Expr, table: Sequence[str]) -> Formatted | None:
    """The part of a time that a formatting call yields; None for other calls.

    Raises `QueryError` if the format is not a single part.
    """
    if isinstance(node, exp.ToChar):
        return _read(node, [node.this, node.args.get("format")], _POSTGRES, table)
    name = call_of(node)
    if name not in _FORMATS:
        return None
    return _read(node, node.expressions, _FORMATS[name], table)


def _read(
    node: exp.Expr, given: Sequence[exp.Expr | None], known: dict[str, str], table: Sequence[str]
) -> Formatted:
    wanted = next((one for one in given[:2] if isinstance(one, exp.Literal)), None)
    times = [one for one in given[:2] if one is not None and one is not wanted]
    if wanted is None or len(times) != 1:
        raise refused(node, "needs a time and a format: FORMAT_TIMESTAMP('%Y-%m-%d', time)")
    zone = given[2] if len(given) > 2 else None
    postgres = known is _POSTGRES
    said = wanted.name.upper() if postgres else wanted.name
    part = known.get(said) or _NAMED.get(said)
    if part is None:
        fields = (path_of(one, table) for one in times[0].find_all(exp.Column))
        time = next((path for path in fields if path), "time")
        listed = ", ".join(f"'{one}'" for one in known)
        raise refused(
            node,
            f"a column of the key is one part of a time: {listed}. Write "
            f"EXTRACT(YEAR FROM {time}), EXTRACT(MONTH FROM {time}) for two, "
            f"EXTRACT(ISODOW FROM {time}) for the day of a week, or "
            f"DATE_TRUNC('month', {time}) for windows",
        )
    return Formatted(part, times[0], None if zone is None else zone.name)
