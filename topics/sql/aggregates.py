"""The aggregates of a query as those of a pipeline."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from sqlglot import exp

from .cases import Around, around, chosen
from .columns import QuerySource, bare, cast_to_whole, number_of, path_of, plain_number
from .derived import branches
from .dialect import NAMED
from .filters import conditions_of
from .refusal import QUANTILE_CALLS, QueryError, instead_of, refused, shown


class Aggregated(NamedTuple):
    """An aggregate as a setting.

    Attributes:
        setting: of the pipeline's ``aggregate``.
        units: whether it counts units instead of records.
        values: whether it counts distinct values.
        per_group: most records of a unit in a group, where the query bounds a count.
        bounded: whether the query bounds a sum by arguments of its own.
        derive: the derived column that it sums, which has no name yet; None: it sums a field.
    """

    setting: dict[str, Any]
    units: bool = False
    per_group: int | None = None
    bounded: bool = False
    values: bool = False
    derive: dict[str, Any] | None = None

    @property
    def label(self) -> str:
        """Name of the value in releases."""
        of = str(self.setting.get("field", "")).replace(".", "_")
        return str(self.setting.get("name") or f"{self.setting['kind']}_{of}".rstrip("_"))


class Scope(NamedTuple):
    """Names and bounds that an aggregate of a query may refer to.

    Attributes:
        source: the input.
        table: names of the table.
        clip: bounds of fields that the query itself does not bound.
    """

    source: QuerySource
    table: Sequence[str]
    clip: Mapping[str, Mapping[str, Any]]


def aggregate_of(node: exp.Expr, alias: str | None, scope: Scope) -> Aggregated:
    """The aggregate that an expression of a SELECT states, with its alias if it has one.

    Raises `QueryError` if the expression is no aggregate that can be released.
    """
    named = {"name": alias} if alias else {}
    node = bare(node)
    call = node.name.upper() if isinstance(node, exp.Anonymous) else ""
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
    near = (
        difflib.get_close_matches(call, [*_NAMES, *CALLS, *QUANTILE_CALLS], 1, 0.6) if call else []
    )
    hint = f"; did you mean {near[0]}?" if near else ": write COUNT(*), SUM, AVG, or group by it"
    raise refused(node, f"is neither an aggregate nor a column of GROUP BY{hint}")


_UNKNOWN = (
    "is no aggregate that is released: write COUNT, SUM, AVG, VARIANCE, STDDEV, MEDIAN or "
    "PERCENTILE_CONT, or let the producer write what it adds up into a field"
)


def _count(node: exp.Expr, scope: Scope) -> Aggregated:
    given, source = node.this, scope.source
    if node.expressions:
        raise refused(node, "write COUNT(*), or a pipeline for each field")
    if isinstance(given, exp.Star) or number_of(given) is not None:
        return Aggregated({"kind": "count"}, per_group=_per_group(node))
    if isinstance(given, exp.Distinct):
        node.meta[NAMED] = given.meta.get(NAMED, {})
        most = _per_group(node)
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
            node,
            "has no condition of its own here: write a pipeline with the condition in WHERE",
        )
    return of._replace(setting={**of.setting, "where": [*of.setting.get("where", []), *where]})


def one_case(node: exp.Expr, counted: bool) -> tuple[exp.Expr, exp.Expr]:
    """Condition and value of CASE or IF with one value, and nothing for all other records.

    Several WHEN of one value are one condition: their OR. A CASE takes the first that is true, so
    it has the value where at least one is true, which is when their OR is, in SQL's logic of three
    values too. Where records are counted, every constant is one.
    """
    assert isinstance(node, exp.Case | exp.If)
    ifs, other = branches(node)
    nothing = other is None or isinstance(other, exp.Null)
    if counted and not nothing:
        raise refused(node, "ELSE makes every record count: leave it out, CASE WHEN ... THEN x END")
    first = ifs[0][1]
    same = all(then == first or (counted and _constant(then) and _constant(first))
               for _, then in ifs)  # fmt: skip
    if not same or not (nothing or number_of(other) == 0):
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
    """An aggregate of the number of each record: of a field, or one of several."""
    ends = ends_of(node)
    if given is None:
        setting = {"kind": kind, **_clipped(node, scope.table, scope.clip)}
        return Aggregated(setting, bounded=ends is not None)
    if ends is not None:
        given = given._replace(low=ends[0], high=ends[1])
    found = chosen(node, given, scope.source, scope.table, scope.clip, bounds_of)
    return Aggregated({"kind": kind, **found.ends}, bounded=ends is not None, derive=found.derive)


Reader = Callable[[Any, Scope], Aggregated]
_CONDITIONAL = ("count", "sum", "variance", "stddev")


def _of_case(node: exp.Expr, case: exp.Case | exp.If, scope: Scope, read: Reader) -> Aggregated:
    """An aggregate of the value of a CASE: that of the records which its condition fulfil."""
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
"""The aggregates that the parser knows, and what reads each. A new one is a line here."""

CALLS: dict[str, Reader] = {}
"""The same for calls that the parser has no type for, by name in capitals."""

_MOST_DECIMALS = 100
_NAMES = ("COUNT", "SUM", "AVG", "COUNT_DISTINCT")


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


def _per_group(node: exp.Expr) -> int | None:
    ends = ends_of(node)
    if ends is None:
        return None
    if ends[0] > 1 or ends[1] < 1 or ends[1] != int(ends[1]):
        raise refused(node, "bounds of a count are records of a unit in a group: (0, 5)")
    return int(ends[1])


def _clipped(
    node: exp.Expr, table: Sequence[str], clip: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The field of a sum with its bounds."""
    inner, grid = _uncast(node.this), None
    if isinstance(inner, exp.Distinct):
        raise refused(node, "DISTINCT has no meaning in a sum, every record counts: leave it out")
    if isinstance(inner, exp.Round):
        decimals = inner.args.get("decimals")
        digits = Decimal(0) if decimals is None else number_of(decimals)
        if digits is None or digits != int(digits) or abs(digits) > _MOST_DECIMALS:
            raise refused(inner, f"needs a number of decimals up to {_MOST_DECIMALS}")
        grid, inner = plain_number(Decimal(1).scaleb(-int(digits))), bare(inner.this)
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
            word = shown(node).partition("(")[0].strip()  # as it was written: VAR_SAMP, MEAN
            word = word if word.replace("_", "").isalpha() else _WORDS[type(node)]
            raise refused(
                node,
                f"needs bounds, or one record could be any amount: write {word}(CLIP({path}, 0, "
                f"100)) with your own bounds, or set clip.{path} = {{ low = 0, high = 100 }}",
            )
        found = {"field": path, **given}
    else:
        found = {"field": path, "low": plain_number(low), "high": plain_number(high)}
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
    if isinstance(node, exp.Anonymous) and node.name.upper() in ("CLIP", "CLAMP"):
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


def checked(found: Sequence[Aggregated]) -> None:
    """Refuse (`QueryError`) a count of units beside other aggregates: it has its own bound."""
    if len(found) > 1 and any(one.units for one in found):
        raise QueryError(
            "COUNT(DISTINCT ...) counts each unit once in a key, other aggregates count each "
            "record: write a pipeline for each. For HAVING COUNT(DISTINCT ...) >= 50 alone, leave "
            "it out and set mechanism.min_users = 50"
        )
    if len(found) > 1 and any(one.values for one in found):
        raise QueryError(
            "COUNT(DISTINCT ...) of a field stands alone: write a pipeline for each aggregate; "
            "they may share a [[budget]]"
        )
