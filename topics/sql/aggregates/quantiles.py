"""Medians and other quantiles of a query: one mechanism releases them all, and counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from sqlglot import exp

from ....mechanisms.catalogue import QUANTILES
from ..columns import bare, number_of, path_of, plain_number, whole_of
from ..refusal import QUANTILE_CALLS, SPLIT_CALLS, QueryError, call_of, refused, respelt, shown
from .bounds import bounds_of, ends_of
from .stated import Aggregated, Scope

_DIGITS = 6  # of k / n
_MOST_PARTS = 1000
_EXACT = ("PERCENTILE_APPROX", "APPROX_PERCENTILE")
_OFFSETS = {"OFFSET": 0, "SAFE_OFFSET": 0, "ORDINAL": 1, "SAFE_ORDINAL": 1}
_EXTREMES = (
    "the smallest and the largest value rest on one record: take shares between them, such as 0.01 "
    "and 0.99"
)


class Quantile(NamedTuple):
    """Quantiles of a field.

    Attributes:
        node: the expression, for messages.
        field: path of the field.
        ends: the public range of its values.
        at: shares of the quantiles.
    """

    node: exp.Expr
    field: str
    ends: tuple[Any, Any]
    at: tuple[Decimal, ...]

    def notes(self, alias: str | None) -> Iterator[str]:
        """Tell what is accepted but not released as written."""
        if alias is not None:
            yield f"AS {alias}: a quantile is named after its share: p50 is the median"
        if call_of(self.node) in SPLIT_CALLS:
            yield f"{shown(self.node)}: without both ends of the list, which rest on single records"


def quantile_of(node: exp.Expr, scope: Scope) -> Quantile | None:
    """The quantiles that an expression of a SELECT states; None if it is something else.

    Raises `QueryError` if they cannot be released as written.
    """
    place = None
    outer = node
    if isinstance(node, exp.Bracket) and len(node.expressions) == 1:
        place, node = node.expressions[0], node.this
    ordered = node.expression if isinstance(node, exp.WithinGroup) else None
    call = node.this if isinstance(node, exp.WithinGroup) else node
    name = call_of(call)
    if name not in QUANTILE_CALLS or (place is not None and name not in SPLIT_CALLS):
        return None
    if name in SPLIT_CALLS:
        value, at = _split(outer, call, place)
    elif ordered is not None:
        value, at = _within(outer, call, ordered)
    else:
        value, at = _plain(outer, call, name)
    path, ends = _range(outer, call, value, scope)
    return Quantile(outer, path, ends, at)


def _plain(outer: exp.Expr, call: exp.Expr, name: str) -> tuple[exp.Expr, tuple[Decimal, ...]]:
    given = call.expressions
    if name == "MEDIAN":
        if len(given) != 1:
            raise refused(outer, "must be MEDIAN(CLIP(field, low, high))")
        return given[0], (Decimal("0.5"),)
    if len(given) == 3 and name in _EXACT:
        given = given[:2]  # drops the accuracy, which noise determines
    if len(given) == 2 and _numbers(given[0]) and not _numbers(given[1]):
        given = given[::-1]
    if len(given) != 2:
        raise refused(outer, f"needs a field and a share: {name}(CLIP(field, low, high), 0.5)")
    return given[0], _shares(outer, given[1])


def _within(
    outer: exp.Expr, call: exp.Expr, ordered: exp.Expr
) -> tuple[exp.Expr, tuple[Decimal, ...]]:
    """``q`` of a call WITHIN GROUP, and the field that orders the group."""
    columns = ordered.expressions
    if len(call.expressions) != 1 or len(columns) != 1:
        raise refused(
            outer, f"must be {call.name}(0.5) WITHIN GROUP (ORDER BY CLIP(field, low, high))"
        )
    at = _shares(outer, call.expressions[0])
    down = bool(columns[0].args.get("desc"))
    return columns[0].this, tuple(1 - q for q in at) if down else at


def _split(
    outer: exp.Expr, call: exp.Expr, place: exp.Expr | None
) -> tuple[exp.Expr, tuple[Decimal, ...]]:
    """Quantiles that split the records into n equal parts, or one of them."""
    given = call.expressions
    parts = whole_of(given[1]) if len(given) == 2 else None
    if parts is None or parts < 2:
        raise refused(outer, f"needs a number of parts: {call.name}(CLIP(field, low, high), 4)")
    if parts > _MOST_PARTS:
        raise refused(outer, f"has at most {_MOST_PARTS} parts, of which each has records")
    every = range(1, parts)
    if place is not None:
        every = range(chosen := _chosen(outer, place), chosen + 1)
        if not 0 < chosen < parts:
            raise refused(outer, _EXTREMES)
    return given[0], tuple(round(Decimal(k) / parts, _DIGITS) for k in every)


def _chosen(outer: exp.Expr, place: exp.Expr) -> int:
    call = call_of(place)
    number = whole_of(place.expressions[0] if call in _OFFSETS else place)
    if number is None or (call and call not in _OFFSETS):
        raise refused(outer, "needs a place in the list: [OFFSET(1)]")
    return number - _OFFSETS.get(call, 0)


def _numbers(node: exp.Expr) -> list[Decimal]:
    """The number of an expression, or the numbers of an array; empty for a field."""
    items = node.expressions if isinstance(node, exp.Array) else [node]
    found = [number_of(one) for one in items]
    return [one for one in found if one is not None] if None not in found else []


def _shares(outer: exp.Expr, node: exp.Expr) -> tuple[Decimal, ...]:
    found = _numbers(node)
    if not found:
        raise refused(outer, f"{shown(node)} must be a number between 0 and 1, such as 0.5")
    for q in found:
        if q in (0, 1):
            raise refused(outer, _EXTREMES)
        if not 0 < q < 1:
            near = plain_number(q / 100) if 1 < q < 100 else "0.5"
            raise refused(outer, f"a share lies between 0 and 1: write {near}")
    return tuple(found)


def _range(
    outer: exp.Expr, call: exp.Expr, value: exp.Expr, scope: Scope
) -> tuple[str, tuple[Any, Any]]:
    """The field, and its range from the query or ``clip``."""
    inner = bare(value)
    if isinstance(inner, exp.Distinct):
        raise refused(outer, "DISTINCT has no meaning in a quantile: every record counts")
    if isinstance(inner, exp.Round):
        raise refused(outer, "values are counted in bands: leave out ROUND")
    path, low, high = bounds_of(inner, scope.table)
    stated = ends_of(call)
    if path is None:
        raise refused(outer, "is of one field with bounds: write CLIP(field, low, high) in it")
    if stated is not None:
        if (low, high) != (None, None):
            raise refused(outer, "is bounded twice: leave out CLIP, or the bounds of the row")
        low, high = stated
    if low is not None and high is not None:
        return path, (plain_number(low), plain_number(high))
    given = scope.clip.get(path, {})
    if "low" not in given or "high" not in given:
        clipped = _clipped(outer, path, scope.table)
        raise refused(
            outer,
            f"needs the public range of the values: write {clipped} with your own bounds, or set "
            f"clip.{path} = {{ low = 0, high = 100 }}",
        )
    return path, (given["low"], given["high"])


def _clipped(outer: exp.Expr, path: str, table: Sequence[str]) -> str:
    """The same expression with its field in CLIP."""

    def put(node: exp.Expr) -> exp.Expr:
        if path_of(node, table) != path:
            return node
        ends = [exp.Literal.number(end) for end in (0, 100)]
        return exp.Anonymous(this="CLIP", expressions=[node.copy(), *ends])

    return respelt(outer.transform(put))


def mechanism_of(found: Sequence[Quantile], others: Sequence[Aggregated]) -> dict[str, Any]:
    """The settings ``inputs`` and ``mechanism`` of all quantiles of a query.

    Raises `QueryError` if they have two fields or ranges, or stand beside anything but counts.
    """
    first = found[0]
    for one in found[1:]:
        if one.field != first.field:
            raise refused(
                one.node,
                "quantiles of one field share a pipeline: write a pipeline for each field; a "
                "[[budget]] with both as members charges them together",
            )
        if one.ends != first.ends:
            raise refused(one.node, "quantiles of one field have one range: write the same bounds")
    for other in others:
        if other.setting.get("kind") != "count" or other.units:
            raise QueryError(
                f"{shown(first.node)} stands beside COUNT(*) alone: write a pipeline for other "
                "aggregates; a [[budget]] with both as members charges them together"
            )
    at = sorted({q.normalize() for one in found for q in one.at})
    low, high = first.ends
    settings = {**QUANTILES, "low": low, "high": high, "at": [plain_number(q) for q in at]}
    return {"inputs": {"value": first.field}, "mechanism": settings}
