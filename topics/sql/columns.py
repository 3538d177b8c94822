"""Parts of a query that become columns: fields, windows, parts of a time, bands of a number."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from sqlglot import exp

from .refusal import QueryError, refused

ROW_TIME = "ROWTIME"
"""Stands for the time of a record itself, where an input's events have no field of their own."""

_UNITS = {"second": "s", "minute": "m", "hour": "h", "day": "d", "week": "w"}
_CALLS: dict[type[exp.Expr], str] = {
    exp.Year: "year",
    exp.Quarter: "quarter",
    exp.Month: "month",
    exp.Day: "day",
    exp.Hour: "hour",
    exp.Minute: "minute",
    exp.Date: "date",
    exp.TsOrDsToDate: "date",
}
_EXTRACTED = {
    **{name: name for name in ("year", "quarter", "month", "day", "hour", "minute")},
    "isodow": "weekday",
    "dayofweekiso": "weekday",
    "dayofweek_iso": "weekday",
}
_BANDS = (
    "group by a field, by a part of the event time such as EXTRACT(HOUR FROM t), or by a band: "
    "FLOOR(x / 10) * 10, ROUND(x, 1)"
)


class QuerySource(NamedTuple):
    """Properties of an input that a query may name.

    Attributes:
        name: of the input.
        topic: its topic.
        unit: paths that together name the privacy unit.
        time: path of the event time; None if it is the record's own.
    """

    name: str
    topic: str
    unit: tuple[str, ...]
    time: str | None


class Derivation(NamedTuple):
    """A derived column of a key: the name it has without an alias, and its settings."""

    name: str
    settings: dict[str, Any]


def path_of(node: exp.Expr | None, table: Sequence[str]) -> str | None:
    """The path of a field, None if it is none; it may begin with one of the ``table``'s names."""
    steps: list[str] = []
    while isinstance(node, exp.Dot):  # more than four steps
        steps.insert(0, node.expression.name)
        node = node.this
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return None
    steps = [part.name for part in node.parts] + steps
    return ".".join(steps[1:] if len(steps) > 1 and steps[0] in table else steps)


def bare(node: exp.Expr) -> exp.Expr:
    """An expression without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def number_of(node: exp.Expr | None) -> Decimal | None:
    """The number that a literal states; None if an expression is no number."""
    if isinstance(node, exp.Neg):
        inner = number_of(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Paren):
        return number_of(node.this)
    if isinstance(node, exp.Literal) and not node.is_string:
        return Decimal(node.this)
    return None


def plain_number(number: Decimal) -> int | Decimal:
    """A number as a person writes it: whole if it is."""
    whole = number.to_integral_value()
    return int(whole) if whole == number else number


def duration_of(node: exp.Expr) -> str:
    """The duration of an INTERVAL, as settings state it; raises `QueryError` if it is none."""
    if not isinstance(node, exp.Interval):
        raise refused(node, "must be an INTERVAL such as INTERVAL '1' DAY")
    amount, unit = str(node.this.name if node.this else ""), node.args.get("unit")
    found = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", amount)
    word = (unit.name if unit is not None else found.group(2) if found else "").lower()
    short = _UNITS.get(word.removesuffix("s"))
    if found is None or short is None or int(found.group(1)) == 0:
        known = ", ".join(name.upper() for name in _UNITS)
        raise refused(node, f"must be a positive number of {known}: windows have one length")
    return f"{int(found.group(1))}{short}"


def window_of(node: exp.Expr, source: QuerySource, table: Sequence[str]) -> str | None:
    """The length of the window that a call of TUMBLE states; None if it is another expression.

    Raises `QueryError` for another kind of window, or one that is not of the event time.
    """
    if not isinstance(node, exp.Anonymous):
        return None
    name, given = node.name.upper(), node.expressions
    if name in ("HOP", "CUMULATE", "SESSION"):
        instead = "windows tumble: write TUMBLE, and sum released windows, which costs nothing"
        raise refused(node, instead)
    if name != "TUMBLE":
        return None
    if len(given) != 2:
        raise refused(node, "must be TUMBLE(time, INTERVAL '1' DAY)")
    _check_time(node, given[0], source, table)
    return duration_of(given[1])


def derived_of(node: exp.Expr, source: QuerySource, table: Sequence[str]) -> Derivation:
    """The derived column that an expression states; raises `QueryError` if it is none."""
    node = bare(node)
    return _time_part(node, source, table) or _band(node, table) or _unknown(node)


def _unknown(node: exp.Expr) -> Derivation:
    if isinstance(node, exp.DayOfWeek) or (
        isinstance(node, exp.Extract) and node.name.lower() in ("dow", "dayofweek")
    ):
        raise refused(node, "counts weekdays in another way in each database: EXTRACT(ISODOW ...)")
    if isinstance(node, exp.DateTrunc | exp.TimestampTrunc):
        instead = "is no column of a key: for a window write TUMBLE(time, INTERVAL '1' DAY), for a "
        raise refused(node, f"{instead}part of the time EXTRACT(HOUR FROM time) or DATE(time)")
    raise refused(node, f"is no column of a key: {_BANDS}")


def _time_part(node: exp.Expr, source: QuerySource, table: Sequence[str]) -> Derivation | None:
    if isinstance(node, exp.Extract):
        part = _EXTRACTED.get(node.name.lower())
        inner = node.expression
    elif isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DATE:
        part, inner = "date", node.this
    else:
        part, inner = _CALLS.get(type(node)), node.this
    if part is None:
        return None
    zone, inner = _zoned(inner)
    _check_time(node, inner, source, table)
    return Derivation(part, {"time": part, **({"zone": zone} if zone else {})})


def _zoned(node: exp.Expr) -> tuple[str | None, exp.Expr]:
    node = bare(node)
    if isinstance(node, exp.TsOrDsToDate):
        node = node.this
    if isinstance(node, exp.AtTimeZone):
        return node.args["zone"].name, bare(node.this)
    return None, node


def _check_time(node: exp.Expr, given: exp.Expr, source: QuerySource, table: Sequence[str]) -> None:
    """Refuse a time that is not the input's event time."""
    path = path_of(given, table)
    if source.time is None:
        if path is None or path.upper() != ROW_TIME:
            instead = f"input {source.name} has the time of its records: write {ROW_TIME}"
            raise refused(node, instead)
    elif path != source.time:
        raise refused(node, f"the event time of input {source.name} is {source.time}")


def _band(node: exp.Expr, table: Sequence[str]) -> Derivation | None:
    if isinstance(node, exp.Round):
        path, decimals = path_of(bare(node.this), table), node.args.get("decimals")
        digits = Decimal(0) if decimals is None else number_of(decimals)
        if path is None or digits is None or plain_number(digits) != int(digits):
            return None
        return Derivation(_name(path, "rounded"), {"field": path, "round": int(digits)})
    width = Decimal(1)
    floor = node
    if isinstance(node, exp.Mul):
        left, right = bare(node.this), bare(node.expression)
        times = number_of(right) if isinstance(left, exp.Floor) else number_of(left)
        floor = left if isinstance(left, exp.Floor) else right
        if times is None:
            return None
        width = times
    if not isinstance(floor, exp.Floor) or floor.args.get("decimals") is not None:
        return None
    inner = bare(floor.this)
    if isinstance(node, exp.Mul):
        if not isinstance(inner, exp.Div) or number_of(inner.expression) != width:
            return None
        inner = bare(inner.this)
    path = path_of(inner, table)
    if path is None or width <= 0:
        return None
    return Derivation(_name(path, "band"), {"field": path, "bucket": plain_number(width)})


def _name(path: str, kind: str) -> str:
    return f"{path.replace('.', '_')}_{kind}"


def aliases(select: exp.Select) -> Mapping[str, exp.Expr]:
    """Expressions of a SELECT by their aliases; raises `QueryError` for two of one name."""
    found: dict[str, exp.Expr] = {}
    for item in select.expressions:
        if isinstance(item, exp.Alias):
            if item.alias in found:
                raise QueryError(f"two columns are named {item.alias}: name one of them otherwise")
            found[item.alias] = item.this
    return found
