"""Bounds of an aggregate in a query: CLIP, LEAST, GREATEST, arguments of other systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from sqlglot import exp

from ..columns import bare, cast_to_whole, number_of, path_of, plain_number, whole_of
from ..parsing.dialect import NAMED
from ..refusal import QueryError, call_of, refused, shown

_MOST_DECIMALS = 100


def ends_of(node: exp.Expr) -> tuple[Decimal, Decimal] | None:
    """The two numbers of ``contribution_bounds_per_group``, or of CLAMPED BETWEEN."""
    named = dict(node.meta.get(NAMED, {}))
    given = named.pop("contribution_bounds_per_group", None)
    given = named.pop("clamped", given)
    if given is None:
        given = named.pop("contribution_bounds_per_row", None)
    for name in named:
        if name == "report_format":
            raise refused(node, "leave report_format out: each release has its interval")
        raise QueryError(
            f"{shown(node)}: {name} is not known; write contribution_bounds_per_group => (0, 100)"
        )
    if given is None:
        return None
    low, high = (number_of(one) for one in given.expressions) if (
        isinstance(given, exp.Tuple) and len(given.expressions) == 2) else (None, None)  # fmt: skip
    if low is None or high is None:
        raise refused(node, "contribution_bounds_per_group needs two numbers: (0, 100)")
    return low, high


def per_group(node: exp.Expr) -> int | None:
    ends = ends_of(node)
    if ends is None:
        return None
    if ends[0] > 1 or ends[1] < 1 or ends[1] != int(ends[1]):
        raise refused(node, "bounds of a count are records of a unit in a group: (0, 5)")
    return int(ends[1])


def clipped(
    node: exp.Expr, table: Sequence[str], clip: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The summed field with its bounds."""
    inner, grid = _uncast(node.this), None
    if isinstance(inner, exp.Distinct):
        raise refused(node, "DISTINCT has no meaning in a sum, every record counts: leave it out")
    if isinstance(inner, exp.Round):
        decimals = inner.args.get("decimals")
        digits = 0 if decimals is None else whole_of(decimals)
        if digits is None or abs(digits) > _MOST_DECIMALS:
            raise refused(inner, f"needs a number of decimals up to {_MOST_DECIMALS}")
        grid, inner = plain_number(Decimal(1).scaleb(-digits)), bare(inner.this)
    path, low, high = bounds_of(inner, table)
    stated = ends_of(node)
    if stated is not None:
        if (low, high) != (None, None):
            raise refused(node, "is bounded twice: leave out CLIP, or the bounds of the group")
        low, high = stated
    if low is not None and high is not None and low >= high:
        raise refused(node, f"bounds are the least and the most: {high} is not above {low}")
    if path is None:
        instead = "sums need bounds: write SUM(CLIP(field, low, high)), or LEAST and GREATEST"
        if low is not None or high is not None:
            instead = (
                "what is bounded is a field of the record: write CLIP(field, low, high), with "
                "ROUND around it; let the producer write what is computed into a field"
            )
        if cast_to_whole(inner):
            name = shown(inner.this)
            instead = (
                f"a cast to whole numbers changes a number: write COUNTIF({name}) if it is true or "
                f"false, else CLIP({name}, 0, 100), which is rounded to whole numbers"
            )
        elif number_of(inner) is not None:
            instead = "count the records, COUNTIF(...), and multiply where it is read"
        elif inner.find(exp.Binary, exp.Neg) and inner.find(exp.Column):
            instead = (
                "a value is a field of the record, clipped: let the producer write what is "
                "computed into a field; sums are subtracted and multiplied where they are read"
            )
        raise refused(node, instead)
    if low is None or high is None:
        given = clip.get(path)
        if given is None:
            word = shown(node).partition("(")[0].strip()  # as written: VAR_SAMP, MEAN
            word = word if word.replace("_", "").isalpha() else _WORDS[type(node)]
            raise refused(
                node,
                f"needs bounds, or one record could be any amount: write {word}(CLIP({path}, 0, "
                f"100)) with your own bounds, or set clip.{path} = {{ low = 0, high = 100 }}",
            )
        found = {"field": path, **given}
    else:
        found = {"field": path, "low": plain_number(low), "high": plain_number(high)}
        if grid is None and (low != int(low) or high != int(high)):
            raise refused(
                node, "values are rounded to whole numbers, and these bounds are none: round to "
                f"decimals, ROUND(CLIP({path}, {low}, {high}), 2)"
            )  # fmt: skip
    return found if grid is None else found | {"grid": grid}


_WORDS: dict[type[exp.Expr], str] = {
    exp.Sum: "SUM",
    exp.Avg: "AVG",
    exp.Stddev: "STDDEV",
    exp.StddevPop: "STDDEV_POP",
    exp.StddevSamp: "STDDEV_SAMP",
    exp.Variance: "VARIANCE",
    exp.VariancePop: "VAR_POP",
}
_NUMBERS = ("DOUBLE", "FLOAT", "DECIMAL", "NUMERIC", "BIGNUMERIC", "REAL", "BIGDECIMAL")


def _uncast(node: exp.Expr) -> exp.Expr:
    """A number without a cast that keeps its value."""
    node = bare(node)
    while isinstance(node, exp.Cast | exp.TryCast) and _keeps(node.to):
        node = bare(node.this)
    if isinstance(node, exp.Coalesce):
        raise refused(node, "is one field, or a number without it: write COALESCE(field, 0)")
    return node


def _keeps(kind: exp.DataType) -> bool:
    return not kind.expressions and kind.sql().upper().startswith(_NUMBERS)


def bounds_of(
    node: exp.Expr, table: Sequence[str]
) -> tuple[str | None, Decimal | None, Decimal | None]:
    """The field within CLIP, LEAST or GREATEST, with the ends that they state."""
    node = _uncast(node)
    if call_of(node) in ("CLIP", "CLAMP"):
        if len(node.expressions) != 3:
            raise refused(node, "must be CLIP(field, low, high)")
        first, low, high = node.expressions
        ends = number_of(low), number_of(high)
        if None in ends:
            raise refused(node, "needs two numbers as bounds")
        return (path_of(_uncast(first), table), *ends)
    if not isinstance(node, exp.Least | exp.Greatest):
        return path_of(node, table), None, None
    sides = [_uncast(node.this), *map(_uncast, node.expressions)]
    numbers = [n for side in sides if (n := number_of(side)) is not None]
    others = [side for side in sides if number_of(side) is None]
    if len(sides) != 2 or len(numbers) != 1:
        raise refused(node, "must bound one field by one number")
    path, low, high = bounds_of(others[0], table)
    if (high if isinstance(node, exp.Least) else low) is not None:
        raise refused(node, "bounds the same end twice")
    return (path, low, numbers[0]) if isinstance(node, exp.Least) else (path, numbers[0], high)
