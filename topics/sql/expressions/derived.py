"""Derived columns of a key in a query: parts of a time or a text, bands of a number, cases."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from sqlglot import exp

from ....formats.events.expressions.derived import PARTS
from ..columns import (
    QuerySource,
    bare,
    cast_to_whole,
    json_path,
    number_of,
    path_of,
    plain_number,
    whole_of,
)  # fmt: skip
from ..refusal import EACH, call_of, instead_of, refused, shown
from ..windows.windows import check_time
from .filters import conditions_of
from .texts import text_of
from .times import formatted

_CALLS: dict[type[exp.Expr], str] = {
    exp.Year: "year",
    exp.Quarter: "quarter",
    exp.Month: "month",
    exp.Day: "day",
    exp.Hour: "hour",
    exp.Minute: "minute",
    exp.Date: "date",
    exp.TsOrDsToDate: "date",
    exp.DayOfWeek: "dayofweek",
    exp.DayOfWeekIso: "weekday",
    exp.Dayname: "weekday",
    exp.Monthname: "month",
}
_NAMES = (exp.Dayname, exp.Monthname, exp.DayOfWeek)
_EXTRACTED = {
    **{name: name for name in ("year", "quarter", "month", "day", "hour", "minute")},
    "date": "date",
    "isodow": "weekday",
    "dayofweek": "dayofweek",
    "dow": "dow",
    "dayofweekiso": "weekday",
    "dayofweek_iso": "weekday",
}
_PART_CALLS = ("DATE_PART", "DATEPART")
_BANDS = (
    "group by a field, by a part of the event time such as EXTRACT(HOUR FROM t), or by a band: "
    "FLOOR(x / 10) * 10, ROUND(x, 1), by a part of a text: LOWER(x), SUBSTR(x, 1, 3), or by CASE "
    "WHEN x > 10 THEN 'large' ELSE 'small' END; or let the producer write the value into a field"
)


class Derivation(NamedTuple):
    """A derived column of a key.

    Attributes:
        name: name without an alias.
        settings: settings as a person would write them.
        note: what differs from the query as written; None: nothing.
    """

    name: str
    settings: dict[str, Any]
    note: str | None = None


def derived_of(node: exp.Expr, source: QuerySource, table: Sequence[str]) -> Derivation:
    """The derived column that an expression states; raises `QueryError` if it states none."""
    node = bare(node)
    return (
        _time_part(node, source, table)
        or choice_of(node, table, source.time)
        or function_of(node, table)
        or _unknown(node)
    )


def function_of(node: exp.Expr, table: Sequence[str]) -> Derivation | None:
    """A function of one text, or a band of one number; None if an expression is neither."""
    return _text(node, table) or _band(node, table)


def _text(node: exp.Expr, table: Sequence[str]) -> Derivation | None:
    found = text_of(node, table)
    if found is None or not found.steps:
        return None
    note = None
    if any(_may_miss(step) for step in found.steps):
        note = (
            f"{shown(node)}: a record whose text has no such part has no key: it is a dead letter; "
            "leave such records out with WHERE and LIKE or REGEXP_CONTAINS"
        )
    return Derivation(_name(found.path, "text"), found.settings(), note)


def _may_miss(step: dict[str, Any]) -> bool:
    """Whether a function may find nothing in a text that is not empty."""
    return "extract" in step or step.get("start", 1) > 1


_MADE = (
    "TUMBLE", "DATE_TRUNC", "TIMESTAMP_TRUNC", "DATETIME_TRUNC", "TIME_BUCKET", "DATE_BIN",
    "DATE_PART", "EXTRACT", "HOUR", "LOWER", "UPPER", "TRIM", "SUBSTR", "SUBSTRING", "LEFT",
    "RIGHT", "REGEXP_EXTRACT", "SPLIT_PART", "FORMAT_TIMESTAMP", "DATE_FORMAT",
)  # fmt: skip
"""Functions that make a key column or a window."""

_NUMERIC = (
    exp.Div, exp.IntDiv, exp.WidthBucket, exp.Mul, exp.Add, exp.Sub, exp.Ceil, exp.Floor,
    exp.Round,
)  # fmt: skip


def _instead(node: exp.Expr) -> str | None:
    """Say what to write in place of an expression that cannot be a key column; None: unknown."""
    fields = [shown(one) for one in node.find_all(exp.Column, bfs=False)]
    if isinstance(node, exp.Literal):
        return f"is a text, not a name: write {node.name}" if node.is_string else None
    if (dots := json_path(node)) is not None:
        return f"write the path with dots, of an object of the record: {dots}"
    if isinstance(node, exp.Explode | exp.Unnest | exp.Bracket):
        return EACH
    if isinstance(node, exp.Ceil) and node.args.get("to") is not None:
        return f"names a window by its end: write FLOOR({shown(node.this)} TO {node.args['to']})"
    if node.find(exp.Window) is not None:
        return instead_of(node)
    if isinstance(node, exp.Literal | exp.Boolean | exp.Null) and not node.is_string:
        return "is the same for every record: leave it out, and add it where rows are read"
    if node.find(exp.Interval) is not None and fields:
        return f"windows begin at whole multiples: write TUMBLE({fields[0]}, INTERVAL '1' DAY)"
    if (of := _since_1970(node)) is not None:
        return f"stretches of time are windows: TUMBLE({of}, INTERVAL '5' MINUTE)"
    if isinstance(node, exp.LastDay) and fields:
        return f"names a window by its end: write DATE_TRUNC('month', {fields[0]})"
    if isinstance(node, exp.AtTimeZone) and fields:
        zone = shown(node.args["zone"])
        return (
            "the time is turned into a zone before it is cut: DATE_TRUNC('day', "
            f"{fields[0]} AT TIME ZONE {zone}); hours need no zone"
        )
    if isinstance(node, exp.Coalesce) and len(fields) == 1:
        return (
            f"a record without {fields[0]} has no key, and is a dead letter: let the producer "
            f"write {shown(node.expressions[0])}, and group by {fields[0]}"
        )
    if isinstance(node, exp.Nullif) and len(fields) == 1:
        other = shown(node.expression)
        return f"write WHERE {fields[0]} <> {other}, and group by {fields[0]}"
    if isinstance(node, exp.Concat | exp.DPipe) and len(fields) > 1:
        return f"a key may have several columns: GROUP BY {', '.join(fields)}"
    if len(set(fields)) == 1 and _counts_in_numbers(node):
        width = _width(node)
        band = f"FLOOR({fields[0]} / {width}) * {width}" if width > 1 else f"FLOOR({fields[0]})"
        return f"a band of a number is {band}, or ROUND({fields[0]}, 0)"
    if isinstance(node, exp.RangeBucket) and fields:
        return _ranges(node, fields[0])
    if call_of(node) in _PART_CALLS:
        return _parts(node.expressions[0].name.lower(), node.expressions[-1])
    if call_of(node) == "WEEKDAY":
        return "write EXTRACT(ISODOW FROM time), where 1 is Monday"
    if isinstance(node, exp.Array) and fields:
        return f'names stand in double quotes: write "{fields[0]}"'
    if isinstance(node, exp.Anonymous):
        near = difflib.get_close_matches(node.name.upper(), _MADE, 1, 0.75)
        return f"did you mean {near[0]}?" if near else f"is no function that is known here: {_LET}"
    if isinstance(node, exp.Func) and not isinstance(node, exp.Extract | exp.Case | exp.If):
        return f"no column of a key is made by this function: {_LET}"
    return None


_LET = "let the producer write its result into a field, and group by that"


def _since_1970(node: exp.Expr) -> str | None:
    """The time whose seconds since 1970 are computed with; None if there is none."""
    for one in node.find_all(exp.Extract, exp.TimeToUnix, exp.UnixSeconds, exp.UnixMillis):
        of = one.expression if isinstance(one, exp.Extract) else one.this
        if not isinstance(one, exp.Extract) or one.name.upper() == "EPOCH":
            return shown(of)
    return None


def _ranges(node: exp.Expr, field: str) -> str:
    """Say how to write the ranges of RANGE_BUCKET as CASE."""
    ends = [n for one in node.find_all(exp.Literal) if (n := number_of(one)) is not None]
    numbered = sorted(enumerate(sorted(ends), 1), reverse=True)
    cases = " ".join(f"WHEN {field} >= {plain_number(end)} THEN {n}" for n, end in numbered)
    return f"write CASE {cases or 'WHEN x >= 10 THEN 1'} ELSE 0 END, which names every range"


def _width(node: exp.Expr) -> int | Decimal:
    """The width of the bands that an expression seems to form."""
    numbers = [
        n for one in node.find_all(exp.Literal, bfs=False) if (n := number_of(one)) is not None
    ]
    if isinstance(node, exp.WidthBucket) and len(numbers) == 3 and numbers[2]:
        return plain_number((numbers[1] - numbers[0]) / numbers[2])
    return plain_number(max(numbers, default=Decimal(1)))


def _counts_in_numbers(node: exp.Expr) -> bool:
    name = call_of(node)
    whole = cast_to_whole(node) or isinstance(node, _NUMERIC)
    return whole or name in ("TRUNC", "TRUNCATE", "DIV")


def _unknown(node: exp.Expr) -> Derivation:
    if (words := _instead(node)) is not None:
        raise refused(node, words)
    if isinstance(node, exp.Extract):
        raise refused(node, _parts(node.name.lower(), node.expression))
    raise refused(node, f"is no column of a key: {_BANDS}")


def _parts(part: str, time: exp.Expr) -> str:
    """Say which parts a time has, for a query that names an unknown one."""
    known = ", ".join(dict.fromkeys(name.upper() for name in PARTS))
    near = difflib.get_close_matches(part, _EXTRACTED, 1, 0.75)
    hint = f"did you mean {near[0].upper()}? " if near else ""
    if part in ("week", "isoweek"):
        hint = f"weeks are windows: DATE_TRUNC('week', {shown(time)}). "
    return f"{hint}parts of a time are {known}"


def _time_part(node: exp.Expr, source: QuerySource, table: Sequence[str]) -> Derivation | None:
    if isinstance(node, exp.Extract):
        part = _EXTRACTED.get(node.name.lower())
        inner = node.expression
    elif call_of(node) in _PART_CALLS:
        if len(node.expressions) != 2:
            raise refused(node, "must be DATE_PART('hour', time)")
        part, inner = _EXTRACTED.get(node.expressions[0].name.lower()), node.expressions[1]
    elif isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DATE:
        part, inner = "date", node.this
    else:
        part, inner = _CALLS.get(type(node)), node.this
    if (text := formatted(node, table)) is not None:
        part, inner = text.part, text.time
    if part is None:
        return None
    if isinstance(node, exp.Date) and node.args.get("zone") is not None:
        inner = node
    zone = check_time(node, inner, source, table, days=part not in ("hour", "minute"))
    note = _numbered(node, part) if isinstance(node, _NAMES) else None
    if text is not None:
        if zone is not None and text.zone is not None:
            raise refused(node, f"name one time zone: '{zone}' or '{text.zone}'")
        zone = zone or text.zone
        if part != "date":
            note = _numbered(node, part)
    return Derivation(part, {"time": part, **({"zone": zone} if zone else {})}, note)


def _numbered(node: exp.Expr, part: str) -> str:
    """Say that a part is released as a number, and as which."""
    first = {
        "weekday": "1 is Monday", "dow": "0 is Sunday", "dayofweek": "1 is Sunday",
        "month": "1 is January",
    }  # fmt: skip
    meant = first.get(part, "such as 8 in place of '08'")
    return f"{shown(node)}: released as a number, {meant}"


def choice_of(node: exp.Expr, table: Sequence[str], time: str | None = None) -> Derivation | None:
    """CASE over constants, or a comparison, which is true or false; None if it is neither.

    ``time`` is the path of the event time, which is for windows and triggers.

    Raises:
        QueryError: a condition or a value cannot be written so.
    """
    if isinstance(node, exp.Case | exp.If):
        ifs, other = branches(node)
        cases = [
            {"where": conditions_of(when, table, time), "then": constant_of(then)}
            for when, then in ifs
        ]
        if other is None:
            raise refused(node, "a record of no case would have no key: write ELSE 'other'")
        return Derivation("case", {"cases": cases, "otherwise": constant_of(other)})
    if isinstance(node, exp.Predicate | exp.Between | exp.Not | exp.And | exp.Or | exp.Escape):
        where = conditions_of(node, table, time)
        settings = {"cases": [{"where": where, "then": True}], "otherwise": False}
        decided = isinstance(bare(node), exp.Is | exp.NullSafeEQ | exp.NullSafeNEQ)
        note = f"{shown(node)}: where it is neither true nor false, the column is false"
        return Derivation("fulfilled", settings, None if decided else note)
    return None


def branches(node: exp.Case | exp.If) -> tuple[list[tuple[exp.Expr, exp.Expr]], exp.Expr | None]:
    """Conditions and values of CASE or IF, and the value of ELSE; None if it is missing or NULL."""
    if isinstance(node, exp.If):
        ifs, other = [(node.this, node.args["true"])], node.args.get("false")
    else:
        ifs = [(one.this, one.args["true"]) for one in node.args["ifs"]]
        if node.this is not None:  # CASE x WHEN 1 THEN ...
            ifs = [(exp.EQ(this=node.this, expression=when), then) for when, then in ifs]
        other = node.args.get("default")
    inner = None if other is None else bare(other)
    if not isinstance(inner, exp.Case | exp.If):
        return ifs, None if isinstance(other, exp.Null) else other
    more, last = branches(inner)  # for records of no earlier case
    return [*ifs, *more], last


def constant_of(node: exp.Expr) -> str | int | bool:
    """The constant that an expression states; raises `QueryError` if it is not one."""
    node = bare(node)
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    number = whole_of(node)
    if number is None:
        raise refused(node, "must be a text, a whole number or a truth value: 'large', 1, TRUE")
    return number


def _band(node: exp.Expr, table: Sequence[str]) -> Derivation | None:
    if isinstance(node, exp.Round):
        path, decimals = path_of(bare(node.this), table), node.args.get("decimals")
        digits = 0 if decimals is None else whole_of(decimals)
        if path is None or digits is None:
            return None
        return Derivation(_name(path, "rounded"), {"field": path, "round": digits})
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
