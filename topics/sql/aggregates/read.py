"""The aggregates of a query as those of a pipeline."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from ..columns import bare, number_of, path_of
from ..expressions.derived import branches
from ..expressions.filters import conditions_of
from ..parsing.dialect import NAMED
from ..refusal import QUANTILE_CALLS, call_of, instead_of, refused
from .bounds import clipped, ends_of, per_group
from .cases import Around, around, chosen
from .stated import Aggregated, Scope


def aggregate_of(node: exp.Expr, alias: str | None, scope: Scope) -> Aggregated:
    """The aggregate that an expression of a SELECT states, with its alias if it has one.

    Raises `QueryError` if the expression is not an aggregate that can be released.
    """
    named = {"name": alias} if alias else {}
    node = bare(node)
    call = call_of(node)
    read = CALLS.get(call) if call else AGGREGATES.get(type(node))
    if read is not None:
        found = read(node, scope)
        return found._replace(setting={**found.setting, **named})
    if (words := instead_of(node)) is not None:
        raise refused(node, words)
    if isinstance(node, exp.AggFunc) and type(node) not in AGGREGATES:
        raise refused(node, _UNKNOWN)
    if list(node.find_all(*AGGREGATES, exp.AggFunc)):
        instead = "compute it from released values: write one pipeline with the aggregates alone"
        raise refused(node, instead)
    if isinstance(node, exp.Literal | exp.Boolean | exp.Null | exp.CurrentDate):
        raise refused(node, "is the same in every row: add it where rows are read")
    if call in _DISTINCT:
        raise refused(node, "is COUNT(DISTINCT field), which is exact but for its noise")
    near = (
        difflib.get_close_matches(call, [*_NAMES, *CALLS, *QUANTILE_CALLS], 1, 0.6) if call else []
    )
    hint = f"; did you mean {near[0]}?" if near else ": write COUNT(*), SUM, AVG, or group by it"
    raise refused(node, f"is neither an aggregate nor a column of GROUP BY{hint}")


_DISTINCT = ("UNIQ", "UNIQEXACT", "UNIQHLL12", "UNIQCOMBINED", "UNIQTHETA", "NDV", "COUNTD")
_NAMES = ("COUNT", "SUM", "AVG", "COUNT_DISTINCT")
_UNKNOWN = (
    "is no aggregate that is released: write COUNT, SUM, AVG, VARIANCE, STDDEV, MEDIAN or "
    "PERCENTILE_CONT, or let the producer write what it adds up into a field"
)


def _count(node: exp.Expr, scope: Scope) -> Aggregated:
    given, source = node.this, scope.source
    if node.expressions:
        raise refused(node, "write COUNT(*), or a pipeline for each field")
    if isinstance(given, exp.Star) or number_of(given) is not None:
        return Aggregated({"kind": "count"}, per_group=per_group(node))
    if isinstance(given, exp.Distinct):
        node.meta[NAMED] = given.meta.get(NAMED, {})
        most = per_group(node)
        paths = tuple(path_of(one, scope.table) for one in given.expressions)
        if sorted(map(str, paths)) == sorted(source.unit):
            return Aggregated({"kind": "count"}, units=True)
        return _distinct(node, paths)._replace(per_group=most)
    if isinstance(bare(given), exp.Case | exp.If):
        when, then = one_case(bare(given), counted=True)
        where = conditions_of(when, scope.table, source.time)
        field = path_of(bare(then), scope.table)
        if field is None and not _constant(then):
            raise refused(node, "counts records: write COUNT(CASE WHEN ... THEN 1 END)")
        where += [] if field is None else [{"field": field, "present": True}]
        return _partial(node, Aggregated({"kind": "count"}), where)
    path = path_of(given, scope.table)
    if path is None:
        raise refused(node, "write COUNT(*) or COUNT(DISTINCT unit)")
    if path in source.unit:
        return Aggregated({"kind": "count"})  # every record has its unit
    return _partial(node, Aggregated({"kind": "count"}), [{"field": path, "present": True}])


def _count_if(node: exp.Expr, scope: Scope) -> Aggregated:
    where = conditions_of(node.this, scope.table, scope.source.time)
    return _partial(node, Aggregated({"kind": "count"}), where)


def _filtered(node: exp.Expr, scope: Scope) -> Aggregated:
    where = conditions_of(node.expression, scope.table, scope.source.time)
    return _partial(node, aggregate_of(node.this, None, scope), where)


def _partial(node: exp.Expr, of: Aggregated, where: list[dict[str, Any]]) -> Aggregated:
    """An aggregate of the records that fulfil some conditions."""
    if not where:
        return of
    if of.units or of.values or of.setting["kind"] not in _CONDITIONAL:
        raise refused(
            node, "has no condition of its own here: write a pipeline with the condition in WHERE"
        )
    return of._replace(setting={**of.setting, "where": [*of.setting.get("where", []), *where]})


def one_case(node: exp.Expr, counted: bool) -> tuple[exp.Expr, exp.Expr]:
    """Condition and value of CASE or IF with one value, and nothing for all other records.

    Several WHEN with one value are one condition, their OR: a CASE takes the first true one, so it
    has the value if at least one is true, also in SQL's three-valued logic. If records are counted,
    any constant will do.
    """
    assert isinstance(node, exp.Case | exp.If)
    ifs, other = branches(node)
    if counted and other is not None:
        raise refused(node, "ELSE makes every record count: leave it out, CASE WHEN ... THEN x END")
    first = ifs[0][1]
    same = all(then == first or (counted and _constant(then) and _constant(first))
               for _, then in ifs)  # fmt: skip
    if not same or not (other is None or number_of(other) == 0):
        end = "END" if counted else "ELSE 0 END"
        raise refused(
            node,
            "has one value here, and sums are added up where they are read: write CASE WHEN ... "
            f"THEN x {end}, and an aggregate for each value; where the conditions exclude each "
            "other, all have the noise of one",
        )
    whole = ifs[0][0]
    for when, _ in ifs[1:]:
        whole = exp.Or(this=exp.paren(whole.copy()), expression=exp.paren(when.copy()))
    return whole, first


def _constant(node: exp.Expr) -> bool:
    return isinstance(bare(node), exp.Literal | exp.Boolean)


def _distinct(node: exp.Expr, paths: Sequence[str | None]) -> Aggregated:
    if len(paths) != 1 or paths[0] is None:
        once = "values of one field are counted once: write COUNT(DISTINCT field)"
        cased = node.find(exp.Case, exp.If) is not None
        raise refused(node, f"{once}, with the condition in WHERE" if cased else once)
    return Aggregated({"kind": "distinct", "field": paths[0]}, values=True)


def _approximate(node: exp.Expr, scope: Scope) -> Aggregated:
    """APPROX_COUNT_DISTINCT: the exact number, with noise."""
    path = path_of(node.this, scope.table)
    if (path,) == tuple(scope.source.unit):
        return Aggregated({"kind": "count"}, units=True)
    return _distinct(node, [path])


def _spread(node: exp.Expr, scope: Scope) -> Aggregated:
    if (given := around(node.this)) is not None and given.one_value(summed=False):
        return _of_case(node, given.case, scope, _spread)
    kind = "variance" if isinstance(node, exp.Variance | exp.VariancePop) else "stddev"
    found = _valued(node, kind, given, scope)
    if not isinstance(node, exp.VariancePop | exp.StddevPop):
        found.setting["sample"] = True
    return found


def _sum(node: exp.Expr, scope: Scope) -> Aggregated:
    if (words := instead_of(node.this)) is not None:
        raise refused(node, words)
    given = around(node.this)
    if given is not None and given.one_value(summed=isinstance(node, exp.Sum)):
        return _of_case(node, given.case, scope, _sum)
    return _valued(node, "sum" if isinstance(node, exp.Sum) else "mean", given, scope)


def _valued(node: exp.Expr, kind: str, given: Around | None, scope: Scope) -> Aggregated:
    """An aggregate of a number of each record: a field, or one of several by CASE."""
    ends = ends_of(node)
    if given is None:
        setting = {"kind": kind, **clipped(node, scope.table, scope.clip)}
        return Aggregated(setting, bounded=ends is not None)
    if ends is not None:
        given = given._replace(low=ends[0], high=ends[1])
    found = chosen(node, given, scope.source, scope.table, scope.clip)
    return Aggregated({"kind": kind, **found.ends}, bounded=ends is not None, derive=found.derive)


Reader = Callable[[Any, Scope], Aggregated]
_CONDITIONAL = ("count", "sum", "variance", "stddev")


def _of_case(node: exp.Expr, case: exp.Case | exp.If, scope: Scope, read: Reader) -> Aggregated:
    """An aggregate of the value of a CASE: of the records that fulfil its condition."""
    when, then = one_case(case, counted=not isinstance(node, exp.Sum))
    where = conditions_of(when, scope.table, scope.source.time)
    if isinstance(node, exp.Sum) and number_of(then) == 1:
        return _partial(node, Aggregated({"kind": "count"}), where)
    of = node.copy()
    of.meta.update(node.meta)
    of.set("this", then)
    return _partial(node, read(of, scope), where)


AGGREGATES: dict[type[exp.Expr], Reader] = {
    exp.Count: _count,
    exp.CountIf: _count_if,
    exp.Filter: _filtered,
    exp.Sum: _sum,
    exp.Avg: _sum,
    exp.ApproxDistinct: _approximate,
    exp.Hll: _approximate,
    exp.Stddev: _spread,
    exp.StddevPop: _spread,
    exp.StddevSamp: _spread,
    exp.Variance: _spread,
    exp.VariancePop: _spread,
}
"""The aggregates that the parser knows, with their readers. A new one is a line here."""

CALLS: dict[str, Reader] = {}
"""The same for calls without a type in the parser, by upper-case name."""
