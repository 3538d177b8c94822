"""Derived columns of a key in a query: parts of a time or a text, bands of a number, cases."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from sqlglot import exp

from ...formats.events.expressions.derived import PARTS
from .columns import QuerySource, bare, number_of, path_of, plain_number
from .filters import conditions_of
from .refusal import refused
from .texts import text_of
from .windows import check_time

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
}
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
    """A derived column of a key: the name it has without an alias, and its settings."""

    name: str
    settings: dict[str, Any]


def derived_of(node: exp.Expr, source: QuerySource, table: Sequence[str]) -> Derivation:
    """The derived column that an expression states; raises `QueryError` if it is none."""
    node = bare(node)
    return (
        _time_part(node, source, table)
        or _choice(node, source, table)
        or _text(node, table)
        or _band(node, table)
        or _unknown(node)
    )


def _text(node: exp.Expr, table: Sequence[str]) -> Derivation | None:
    found = text_of(node, table)
    if found is None or not found.steps:
        return None
    return Derivation(_name(found.path, "text"), found.settings())


def _unknown(node: exp.Expr) -> Derivation:
    if isinstance(node, exp.Extract):
        known = ", ".join(dict.fromkeys(name.upper() for name in PARTS))
        near = difflib.get_close_matches(node.name.lower(), _EXTRACTED, 1, 0.75)
        raise refused(
            node,
            (f"did you mean {near[0].upper()}? " if near else "") + f"parts of a time are {known}",
        )
    if isinstance(node, exp.JSONExtract | exp.JSONExtractScalar | exp.JSONValue):
        raise refused(node, "write the path with dots, payload.product, of an object of the record")
    if isinstance(node, exp.Anonymous) and node.name.upper() == "WEEKDAY":
        raise refused(node, "write EXTRACT(ISODOW FROM time), where 1 is Monday")
    raise refused(node, f"is no column of a key: {_BANDS}")


def _time_part(node: exp.Expr, source: QuerySource, table: Sequence[str]) -> Derivation | None:
    if isinstance(node, exp.Extract):
        part = _EXTRACTED.get(node.name.lower())
        inner = node.expression
    elif isinstance(node, exp.Anonymous) and node.name.upper() in _PART_CALLS:
        if len(node.expressions) != 2:
            raise refused(node, "must be DATE_PART('hour', time)")
        part, inner = _EXTRACTED.get(node.expressions[0].name.lower()), node.expressions[1]
    elif isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DATE:
        part, inner = "date", node.this
    else:
        part, inner = _CALLS.get(type(node)), node.this
    if part is None:
        return None
    zone, inner = _zoned(inner)
    if isinstance(node, exp.Date) and node.args.get("zone") is not None:
        zone = node.args["zone"].name
    check_time(node, inner, source, table)
    return Derivation(part, {"time": part, **({"zone": zone} if zone else {})})


def _zoned(node: exp.Expr) -> tuple[str | None, exp.Expr]:
    node = bare(node)
    if isinstance(node, exp.TsOrDsToDate):
        node = node.this
    if not isinstance(node, exp.AtTimeZone):
        return None, node
    inner = bare(node.this)
    if isinstance(inner, exp.AtTimeZone) and inner.args["zone"].name.upper() == "UTC":
        inner = bare(inner.this)  # how Postgres turns a time of UTC into that of a zone
    return node.args["zone"].name, inner


def _choice(node: exp.Expr, source: QuerySource, table: Sequence[str]) -> Derivation | None:
    """CASE over constants, or a comparison, which is true or false."""
    if isinstance(node, exp.Case | exp.If):
        ifs, other = branches(node)
        cases = [
            {"where": conditions_of(when, table, source.time), "then": constant_of(then)}
            for when, then in ifs
        ]
        if other is None or isinstance(other, exp.Null):
            raise refused(node, "a record of no case would have no key: write ELSE 'other'")
        return Derivation("case", {"cases": cases, "otherwise": constant_of(other)})
    if isinstance(node, exp.Predicate | exp.Between | exp.Not | exp.And | exp.Or | exp.Escape):
        where = conditions_of(node, table, source.time)
        return Derivation(
            "fulfilled", {"cases": [{"where": where, "then": True}], "otherwise": False}
        )
    return None


def branches(node: exp.Case | exp.If) -> tuple[list[tuple[exp.Expr, exp.Expr]], exp.Expr | None]:
    """Conditions and values of CASE or IF, and the value of ELSE."""
    if isinstance(node, exp.If):
        return [(node.this, node.args["true"])], node.args.get("false")
    ifs = [(one.this, one.args["true"]) for one in node.args["ifs"]]
    if node.this is not None:  # CASE x WHEN 1 THEN ...
        ifs = [(exp.EQ(this=node.this, expression=when), then) for when, then in ifs]
    return ifs, node.args.get("default")


def constant_of(node: exp.Expr) -> str | int | bool:
    """The constant that an expression is; raises `QueryError` if it is none."""
    node = bare(node)
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    number = number_of(node)
    if number is None or number != int(number):
        raise refused(node, "must be a text, a whole number or a truth value: 'large', 1, TRUE")
    return int(number)


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
