"""The aggregates of a query as those of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from sqlglot import exp

from .columns import QuerySource, bare, number_of, path_of, plain_number
from .refusal import QueryError, instead_of, refused


class Aggregated(NamedTuple):
    """An aggregate as a setting, and whether it counts units instead of records."""

    setting: dict[str, Any]
    units: bool = False


def aggregate_of(
    node: exp.Expr,
    alias: str | None,
    source: QuerySource,
    table: Sequence[str],
    clip: Mapping[str, Mapping[str, Any]],
) -> Aggregated:
    """The aggregate that an expression of a SELECT states, with its alias if it has one.

    ``table`` has the names of the table, ``clip`` the bounds of fields that the query itself does
    not bound. Raises `QueryError` if the expression is no aggregate that can be released.
    """
    named = {"name": alias} if alias else {}
    node = bare(node)
    if isinstance(node, exp.Count):
        return _count(node, named, source, table)
    if isinstance(node, exp.Sum | exp.Avg) and instead_of(node) is None:
        kind = "sum" if isinstance(node, exp.Sum) else "mean"
        return Aggregated({"kind": kind, **_clipped(node, table, clip), **named})
    if isinstance(node, exp.ApproxDistinct):
        raise refused(node, f"write COUNT(DISTINCT {', '.join(source.unit)})")
    if (words := instead_of(node)) is not None:
        raise refused(node, words)
    if list(node.find_all(exp.AggFunc)):
        instead = "compute it from released values: write one pipeline with the aggregates alone"
        raise refused(node, instead)
    raise refused(node, "is neither an aggregate nor a column of GROUP BY")


def _count(
    node: exp.Count, named: dict[str, Any], source: QuerySource, table: Sequence[str]
) -> Aggregated:
    given = node.this
    if node.expressions:
        raise refused(node, "write COUNT(*), or a pipeline for each field")
    if isinstance(given, exp.Star) or number_of(given) is not None:
        return Aggregated({"kind": "count", **named})
    if isinstance(given, exp.Distinct):
        paths = tuple(path_of(one, table) for one in given.expressions)
        if sorted(map(str, paths)) == sorted(source.unit):
            return Aggregated({"kind": "count", **named}, units=True)
        unit = ", ".join(source.unit)
        raise refused(
            node,
            f"only privacy units can be counted once: write COUNT(DISTINCT {unit}). For another "
            "field, group by it: the released keys are the values that enough units have",
        )
    path = path_of(given, table)
    if path is None:
        raise refused(node, "write COUNT(*) or COUNT(DISTINCT unit)")
    raise refused(node, f"write COUNT(*) with WHERE {path} IS NOT NULL")


def _clipped(
    node: exp.Expr, table: Sequence[str], clip: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The field of a sum with its bounds."""
    inner, grid = bare(node.this), None
    if isinstance(inner, exp.Distinct):
        raise refused(node, "DISTINCT has no meaning in a sum: every record counts")
    if isinstance(inner, exp.Round):
        decimals = inner.args.get("decimals")
        digits = Decimal(0) if decimals is None else number_of(decimals)
        if digits is None:
            raise refused(inner, "needs a number of decimals")
        grid, inner = plain_number(Decimal(1).scaleb(-int(digits))), bare(inner.this)
    path, low, high = _bounds(inner, table)
    if path is None:
        instead = "sums need bounds: write SUM(CLIP(field, low, high)), or LEAST and GREATEST"
        raise refused(node, instead)
    if low is None or high is None:
        given = clip.get(path)
        if given is None:
            word = "SUM" if isinstance(node, exp.Sum) else "AVG"
            raise refused(
                node,
                f"needs bounds, or one record could be any amount: write {word}(CLIP({path}, 0, "
                f"100)) with your own bounds, or set clip.{path} = {{ low = 0, high = 100 }}",
            )
        found = {"field": path, **given}
    else:
        found = {"field": path, "low": plain_number(low), "high": plain_number(high)}
    return found if grid is None else found | {"grid": grid}


def _bounds(
    node: exp.Expr, table: Sequence[str]
) -> tuple[str | None, Decimal | None, Decimal | None]:
    """The field within CLIP, LEAST or GREATEST, with the ends that they state."""
    if isinstance(node, exp.Anonymous) and node.name.upper() in ("CLIP", "CLAMP"):
        if len(node.expressions) != 3:
            raise refused(node, "must be CLIP(field, low, high)")
        first, low, high = node.expressions
        ends = number_of(low), number_of(high)
        if None in ends:
            raise refused(node, "needs two numbers as bounds")
        return (path_of(bare(first), table), *ends)
    if not isinstance(node, exp.Least | exp.Greatest):
        return path_of(node, table), None, None
    sides = [bare(node.this), *map(bare, node.expressions)]
    numbers = [n for side in sides if (n := number_of(side)) is not None]
    others = [side for side in sides if number_of(side) is None]
    if len(sides) != 2 or len(numbers) != 1:
        raise refused(node, "must bound one field by one number")
    path, low, high = _bounds(others[0], table)
    if (high if isinstance(node, exp.Least) else low) is not None:
        raise refused(node, "bounds the same end twice")
    return (path, low, numbers[0]) if isinstance(node, exp.Least) else (path, numbers[0], high)


def checked(found: Sequence[Aggregated]) -> None:
    """Refuse (`QueryError`) a count of units beside other aggregates: it has its own bound."""
    if len(found) > 1 and any(one.units for one in found):
        raise QueryError(
            "COUNT(DISTINCT ...) counts each unit once in a key, other aggregates count each "
            "record: write a pipeline for each"
        )
