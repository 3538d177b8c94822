"""The part of a query that concerns released rows: it becomes a view, which costs nothing.

HAVING, LIMIT, arithmetic with aggregates, LAG or SUM OVER windows, and a SELECT from a grouped one
use released numbers. The rest is the query of a pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlglot import exp

from ..aggregates.cases import around
from ..aggregates.read import AGGREGATES, one_case
from ..columns import bare, item_at, number_of, whole_of
from ..expressions.derived import branches
from ..refusal import SAID, QueryError, instead_of, over_of, refused, shown, sql_of
from .flat import DEEPEST, INNER, merged, named_queries, within

ARITHMETIC = (exp.Div, exp.SafeDivide, exp.Sub, exp.Add, exp.Mul)
_LARGEST = (
    "ranks rows: for the largest of each window write ORDER BY n DESC LIMIT 3 after the query that "
    "counts, which is a [[view]] and costs nothing"
)
_SINGLE = (
    "OVER of single records is never released: write GROUP BY with the window HOP(time, INTERVAL "
    "'1' HOUR, INTERVAL '24' HOUR)"
)
_MOVED = ("having", "limit", "order")


class AskedOfRows(NamedTuple):
    """A query, and what it does with released rows.

    Attributes:
        inner: the query of the pipeline.
        outer: a SELECT over the columns of ``inner``; None: no view.
        alias: name of the rows in ``outer``.
        rows: condition on them, from the HAVING of ``inner``.
        every: whether ``outer`` has every column of ``inner``.
    """

    inner: exp.Select
    outer: exp.Select | None
    alias: str = ""
    rows: exp.Expr | None = None
    every: bool = False


def split(select: exp.Select) -> AskedOfRows:
    """Split a query; raises `QueryError` if it is more than one pipeline and one view."""
    named, layers = named_queries(select), [select]
    while len(layers) <= DEEPEST and (found := within(layers[-1], named)) is not None:
        layers.append(found[0])
    counts = [place for place, one in enumerate(layers) if _groups(one)]
    if not counts or counts[-1] == 0:
        return _of_one(select)
    inner, (outer, *between) = layers[counts[-1]], layers[: counts[-1]]
    _, alias = within(layers[counts[-1] - 1], named) or (None, "")
    for place, one in enumerate(between, 1):
        if one.find(exp.RowNumber, exp.Rank, exp.DenseRank):
            raise refused(one, _LARGEST)
        if _groups(one):
            raise refused(one, "is a view of a view: write one SELECT over the one that counts")
        outer = merged(outer, one, (within(layers[place - 1], named) or (None, ""))[1])
    inner = inner.copy()
    if (clause := select.args.get("with_")) is not None:
        inner.set("with_", clause.copy())
    if inner.args.get("limit") or any(map(_composed, inner.expressions)):
        raise refused(inner, "write its LIMIT and arithmetic in the outer query, which is the view")
    base, having = _Base(inner), inner.args.get("having")
    rows = None if having is None else base.lifted(having.this)
    inner.set("having", None)
    every = any(isinstance(one, exp.Star) or one.is_star for one in outer.expressions)
    return AskedOfRows(inner, outer, alias, rows, every)


def _groups(select: exp.Select) -> bool:
    if select.args.get("group") or select.args.get("distinct"):
        return True
    found = (one for item in select.expressions for one in item.find_all(*AGGREGATES))
    return any(not isinstance(one.parent, exp.Window) for one in found)


def _composed(item: exp.Expr) -> bool:
    """Whether a column of SELECT is computed from released values."""
    if item.find(exp.Window):
        return True
    found = item.find_all(*ARITHMETIC)
    return any(list(one.find_all(*AGGREGATES)) for one in found)


def _of_one(select: exp.Select) -> AskedOfRows:
    select = _with_means(_spelt_out(select))
    composed = [item for item in select.expressions if _composed(item)]
    limit, having = select.args.get("limit"), select.args.get("having")
    grouped = select.args.get("group") is not None
    for name in (one.name for one in select.args["group"].expressions) if grouped else ():
        for item in composed:
            if item.alias == name and (over := item.find(exp.Window)) is not None:
                raise refused(over, instead_of(over) or _SINGLE)
    if composed and not grouped and (over := composed[0].find(exp.Window)) and not _groups(select):
        parts = isinstance(over.this, exp.Ntile)
        raise refused(over, (over_of(over) if parts else None) or _SINGLE)
    if not (limit or having or (composed and (grouped or _groups(select)))):
        return AskedOfRows(select, None)
    inner = select.copy()
    _name_numbers(inner)
    inner.set("expressions", [item for item in inner.expressions if not _composed(item)])
    base, outer = _Base(inner), exp.Select()
    items = [base.kept(item) or base.lifted(item) for item in select.expressions]
    outer.set("expressions", items)
    if having is not None:
        outer.set("having", exp.Having(this=base.lifted(having.this)))
    if (order := select.args.get("order")) is not None:
        outer.set("order", base.lifted(order))
    outer.set("limit", limit)
    for name in _MOVED:
        inner.set(name, None)
    return AskedOfRows(inner, outer, every=not composed and not base.added)


def _spelt_out(select: exp.Select) -> exp.Select:
    """A query with aggregates in place of their aliases if SELECT computes with aliases."""
    named = {item.alias: item.this for item in select.expressions
             if isinstance(item, exp.Alias) and list(item.find_all(*AGGREGATES))}  # fmt: skip
    if not named:
        return select
    select = select.copy()
    for item in select.expressions:
        whole = item.unalias()
        inner = whole.this if isinstance(whole, exp.Round) else whole
        if isinstance(bare(inner), ARITHMETIC) and not list(whole.find_all(*AGGREGATES)):
            for one in list(whole.find_all(exp.Column)):
                if len(one.parts) == 1 and one.name in named:
                    one.replace(exp.paren(named[one.name].copy()))
    return select


def _with_means(select: exp.Select) -> exp.Select:
    """A query with sum / count in place of the mean of some records.

    A record that fulfils the condition but has no number is a dead letter, so the count covers
    exactly the summed records.
    """
    select = select.copy()
    for node in list(select.find_all(exp.Filter, exp.Avg)):
        share = _share(node) or _share_of_truths(node)
        if share is not None and node.root() is select:
            node.replace(share)
            continue
        named: exp.Expr | None = None
        if isinstance(node, exp.Filter) and isinstance(node.this, exp.Avg):
            named, when = node.this.this, node.expression.this
        elif isinstance(node, exp.Avg) and _one_value(node.this, summed=False):
            when, named = one_case(bare(node.this), counted=True)
        if named is None or isinstance(node.parent, exp.Window) or node.root() is not select:
            continue
        where = exp.Where(this=when.copy())
        total = exp.Filter(this=exp.Sum(this=named.copy()), expression=where)
        number = exp.Filter(this=exp.Count(this=exp.Star()), expression=where.copy())
        mean: exp.Expr = exp.Div(this=total, expression=number)
        mean.meta[SAID] = shown(node)
        if node.parent is select and (field := next(iter(named.find_all(exp.Column)), None)):
            mean = exp.alias_(mean, f"mean_{field.name}")
        node.replace(mean)
    return select


def _share(node: exp.Expr) -> exp.Expr | None:
    """A mean to which all other records add 0, as sum / count of all; None for others.

    ``AVG(CASE WHEN ... THEN 1 ELSE 0 END)`` is the share of the records that fulfil the condition.
    """
    case = bare(node.this) if isinstance(node, exp.Avg) else None
    if not isinstance(case, exp.Case | exp.If) or isinstance(node.parent, exp.Window | exp.Filter):
        return None
    _, other = branches(case)
    if other is None or number_of(other) != 0 or not _one_value(case, summed=True):
        return None
    when, value = one_case(case, counted=False)
    where = exp.Where(this=when.copy())
    of = exp.Count(this=exp.Star()) if number_of(value) == 1 else exp.Sum(this=value.copy())
    made = exp.Div(
        this=exp.Filter(this=of, expression=where), expression=exp.Count(this=exp.Star())
    )
    made.meta[SAID] = shown(node)
    return made


def _share_of_truths(node: exp.Expr) -> exp.Expr | None:
    """The mean of a comparison, as a count / count; None for others.

    A record for which it is neither true nor false is in neither count.
    """
    mean = node.this if isinstance(node, exp.Filter) else node
    case = bare(mean.this) if isinstance(mean, exp.Avg) else None
    if not isinstance(case, exp.Case) or isinstance(node.parent, exp.Window | exp.Filter):
        return None
    ifs, other = branches(case)
    asked = ifs[0][0]
    numbers = [number_of(then) for _, then in ifs]
    denied = exp.Not(this=exp.paren(asked.copy()))
    if other is not None or numbers != [1, 0] or ifs[1][0] != denied:
        return None
    when = [node.expression.this] if isinstance(node, exp.Filter) else []
    made = exp.Div(
        this=_counted(*when, asked),
        expression=_counted(*when, *filter(None, [_decided(asked)])),
    )
    made.meta[SAID] = shown(node)
    return made


def _counted(*conditions: exp.Expr) -> exp.Expr:
    """The number of records that fulfil some conditions."""
    every = exp.Count(this=exp.Star())
    if not conditions:
        return every
    where = exp.Where(this=exp.and_(*conditions, copy=True))
    return exp.Filter(this=every, expression=where)


def _decided(asked: exp.Expr) -> exp.Expr | None:
    """The condition under which a comparison is true or false; None: it always is."""
    asked = bare(asked)
    if isinstance(asked, exp.Not):
        return _decided(asked.this)
    if isinstance(asked, exp.Is | exp.NullSafeEQ | exp.NullSafeNEQ):
        return None
    columns = set(asked.find_all(exp.Column))
    if len(columns) == 1 and asked.find(exp.Func, exp.Connector, exp.Null, exp.Is) is None:
        return exp.Not(this=exp.Is(this=columns.pop().copy(), expression=exp.Null()))
    return exp.or_(asked, exp.Not(this=exp.paren(asked.copy())), copy=True)


def _one_value(node: exp.Expr, summed: bool) -> bool:
    """Whether an expression is a CASE of one value, without ELSE or, in a sum, with ELSE 0."""
    given = around(node)
    return given is not None and given.one_value(summed)


def _name_numbers(select: exp.Select) -> None:
    """Replace numbers in GROUP BY by the columns that they refer to."""
    group = select.args.get("group")
    for one in () if group is None else list(group.expressions):
        if (item := item_at(one, select.expressions)) is not None:
            one.replace(item.copy())


class _Base:
    """The query of a pipeline, extended by aggregates that the view needs."""

    def __init__(self, select: exp.Select) -> None:
        self._select = select
        self.added = False

    def kept(self, item: exp.Expr) -> exp.Expr | None:
        """A column of SELECT as a column of the view, if the pipeline has it."""
        if _composed(item) or isinstance(item, exp.Star):
            return None
        return _column(item, name_of(item))

    def lifted(self, node: exp.Expr) -> exp.Expr:
        """An expression with aggregates replaced by columns of the pipeline."""
        whole = exp.Paren(this=node.copy())
        for part in whole.find_all(exp.Binary):
            part.meta.setdefault(SAID, shown(part))
        for one in list(whole.find_all(*AGGREGATES)):
            of_window = isinstance(one.parent, exp.Window) and one.parent.this is one
            if one.root() is whole and not of_window:
                one.replace(_column(one, self._name(one)))
        found: exp.Expr = whole.this
        return found

    def _name(self, aggregate: exp.Expr) -> str:
        for item in self._select.expressions:
            if item.unalias() == aggregate:
                return name_of(item)
        added = aggregate.copy()
        if added.find(exp.Filter, exp.CountIf, exp.Case, exp.If):  # needs a unique name
            added = exp.alias_(added, f"part_{len(self._select.expressions)}")
        self._select.append("expressions", added)
        self.added = True
        return name_of(added)


def name_of(item: exp.Expr) -> str:
    """A view's name for a column of its inner query."""
    if isinstance(item, exp.Column):
        return item.name if len(item.parts) == 1 else sql_of(item)
    return item.alias or sql_of(item)


def _column(said: exp.Expr, name: str) -> exp.Expr:
    found = exp.column(exp.to_identifier(name, quoted=True))
    found.meta[SAID] = shown(said)
    return found


def check_outer(inner_key: Sequence[str], unit: Sequence[str], outer: exp.Select) -> None:
    """Refuse (`QueryError`) a view over rows of single units, which are never released."""
    if set(inner_key) & set(unit):
        raise refused(outer, INNER)


def limit_of(select: exp.Select) -> int | None:
    """The number of LIMIT or FETCH; None without either. Raises `QueryError` if it is not one."""
    clause = select.args.get("limit")
    if clause is None:
        return None
    given = clause.args.get("expression") or clause.args.get("count")
    number = whole_of(bare(given)) if given is not None else None
    options = clause.args.get("limit_options")
    if clause.expressions or (options is not None and options.args.get("percent")):
        raise QueryError("LIMIT takes the first rows of each window, so many of them: LIMIT 10")
    if options is not None and options.args.get("with_ties"):
        raise QueryError("WITH TIES is not possible: LIMIT takes so many rows: leave it out")
    if number is None or number < 1:
        raise QueryError("LIMIT needs a whole number of rows: LIMIT 10")
    return number
