"""A CASE of several numbers within an aggregate: one derived column, clipped like a field.

A record is in one case, so it has one number, and the clipping interval bounds the column's
sensitivity whatever the number of cases. A separate sum for each case would need more noise in all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from sqlglot import exp

from ..columns import QuerySource, bare, number_of, plain_number
from ..expressions.derived import branches
from ..expressions.filters import conditions_of
from ..refusal import call_of, refused, shown
from .bounds import bounds_of


class ChosenColumn(NamedTuple):
    """A column as a setting, with the clipping interval from its query.

    Attributes:
        derive: entry of the pipeline's ``derive``, without a name.
        ends: ``low``, ``high`` and perhaps ``grid``.
    """

    derive: dict[str, Any]
    ends: dict[str, Any]


class Around(NamedTuple):
    """A CASE, and the functions applied to its number.

    Attributes:
        case: the expression.
        low: lower bound to which numbers are clipped; None: not stated.
        high: upper bound to which numbers are clipped; None: not stated.
        digits: decimals to which numbers are rounded; None: not stated.
    """

    case: exp.Case | exp.If
    low: Decimal | None = None
    high: Decimal | None = None
    digits: int | None = None

    def one_value(self, summed: bool) -> bool:
        """Whether it gives some records one value and all others none (or 0, in a sum)."""
        ifs, other = branches(self.case)
        plain = (self.low, self.high, self.digits) == (None, None, None)
        same = all(then == ifs[0][1] for _, then in ifs)
        constant = number_of(bare(ifs[0][1]))
        return (
            plain and same and constant in ((None, 1) if summed else (None,))
            and (other is None or (summed and number_of(other) == 0))
        )  # fmt: skip


def around(node: exp.Expr) -> Around | None:
    """The CASE within ROUND, CLIP, LEAST and GREATEST; None if there is none."""
    node = bare(node)
    if isinstance(node, exp.Case | exp.If):
        return Around(node)
    if isinstance(node, exp.Coalesce) and (case := _without(node)) is not None:
        return Around(case)
    if isinstance(node, exp.Round):
        found, digits = around(node.this), number_of(node.args.get("decimals")) or Decimal(0)
        return found if found is None else found._replace(digits=int(digits))
    call = call_of(node)
    if call in ("CLIP", "CLAMP") and len(node.expressions) == 3:
        found = around(node.expressions[0])
        low, high = (number_of(one) for one in node.expressions[1:])
        return found if found is None else found._replace(low=low, high=high)
    if isinstance(node, exp.Least | exp.Greatest) and len(node.expressions) == 1:
        sides = [bare(node.this), bare(node.expressions[0])]
        found = next(filter(None, map(around, sides)), None)
        end = next((n for one in sides if (n := number_of(one)) is not None), None)
        if found is None:
            return None
        least = isinstance(node, exp.Least)
        return found._replace(high=end) if least else found._replace(low=end)
    return None


def _without(node: exp.Coalesce) -> exp.Case | None:
    """``COALESCE(x, 0)`` as a CASE: the field's number, or a constant if it is missing."""
    if len(node.expressions) != 1 or number_of(bare(node.expressions[0])) is None:
        return None
    fields = list(node.this.find_all(exp.Column))
    if len(fields) != 1 or node.this.find(exp.AggFunc) is not None:
        return None
    there = exp.Is(this=fields[0].copy(), expression=exp.Null())
    return exp.Case().when(there, node.expressions[0].copy()).else_(node.this.copy())


def chosen(
    node: exp.Expr,
    given: Around,
    source: QuerySource,
    table: Sequence[str],
    clip: Mapping[str, Mapping[str, Any]],
) -> ChosenColumn:
    """The column of a CASE within the aggregate ``node``; raises `QueryError` if it makes none."""
    ifs, other = branches(given.case)
    if other is None:
        if not isinstance(node, exp.Sum):
            raise refused(
                node, "a record of no case has no number here: write ELSE 0, or leave such "
                "records out with WHERE",
            )  # fmt: skip
        other = exp.Literal.number(0)
    values = list[Decimal | str]()
    intervals = list[tuple[Decimal | None, Decimal | None]]()
    for then in (*(then for _, then in ifs), other):
        if (number := number_of(bare(then))) is not None:
            values.append(number)
            continue
        path, low, high = bounds_of(then, table)
        if path is None:
            raise refused(
                then, "must be a number, or a field within CLIP(field, low, high); an aggregate "
                "for each is subtracted and multiplied where it is read",
            )  # fmt: skip
        values.append(path)
        if low is None and high is None and path in clip:
            low, high = (Decimal(str(clip[path][name])) for name in ("low", "high"))
        intervals.append((low, high))
    cases = [
        {"where": conditions_of(when, table, source.time), **_value("then", value)}
        for (when, _), value in zip(ifs, values, strict=False)
    ]
    numbers = [one for one in values if isinstance(one, Decimal)]
    low, high = _ends(node, given, numbers, intervals)
    ends: dict[str, Any] = {"low": plain_number(low), "high": plain_number(high)}
    digits = given.digits
    if digits is None:
        digits = max((_digits(one) for one in [*numbers, low, high]), default=0)
    if digits:
        ends["grid"] = plain_number(Decimal(1).scaleb(-digits))
    return ChosenColumn({"cases": cases, **_value("otherwise", values[-1])}, ends)


def _value(name: str, value: Decimal | str) -> dict[str, Any]:
    return {"field": value} if isinstance(value, str) else {name: plain_number(value)}


def _digits(number: Decimal) -> int:
    exponent = number.normalize().as_tuple().exponent
    return max(-exponent, 0) if isinstance(exponent, int) else 0


def _ends(
    node: exp.Expr,
    given: Around,
    numbers: Sequence[Decimal],
    intervals: Sequence[tuple[Decimal | None, Decimal | None]],
) -> tuple[Decimal, Decimal]:
    """The clipping interval of all cases: stated around the CASE, or for each field in it."""
    around_it = "bound it as a whole, CLIP(CASE ... END, 0, 100), with your own bounds"
    if given.low is not None and given.high is not None:
        ends, apart = (given.low, given.high), [one for one in intervals if one != (None, None)]
        if any(one != ends for one in apart):
            raise refused(node, f"is bounded twice, and not alike: {around_it} alone")
    elif not intervals:
        ends = min(numbers), max(numbers)
    else:
        low, high = intervals[0]
        if low is None or high is None or any(one != intervals[0] for one in intervals):
            raise refused(
                node, "needs one pair of bounds for all cases, or one record could be any amount: "
                + around_it,
            )  # fmt: skip
        ends = low, high
        if beyond := [one for one in numbers if not low <= one <= high]:
            raise refused(
                node, f"{plain_number(beyond[0])} lies beyond the bounds of the fields: {around_it}"
            )
    if ends[0] >= ends[1]:
        raise refused(node, f"has one number for every record: {shown(node.this)} is no choice")
    return ends
