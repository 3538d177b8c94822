"""Queries within a query whose inner one only selects columns and records."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from ..columns import path_of
from ..parsing.parsed import check_clauses
from ..refusal import QueryError, refused

DEEPEST = 8
INNER = (
    "a query within a query may choose columns and records, no more: what it counts would rest on "
    "single units before there is any noise. Write the inner one as a pipeline of its own"
)


def flattened(select: exp.Select) -> exp.Select:
    """The query over the innermost table, with the conditions of all levels.

    Raises:
        QueryError: an inner query groups, counts, or names no such column.
    """
    named = named_queries(select)
    select.set("with_", None)
    for _ in range(DEEPEST):
        if (found := _from(select, named)) is None:
            return select
        select = merged(select, *found)
    raise QueryError(f"queries within each other are more than {DEEPEST} deep: write one SELECT")


def within(select: exp.Select, named: dict[str, exp.Expr]) -> tuple[exp.Select, str] | None:
    """The SELECT in another one's FROM, and its name there; None for any other FROM."""
    inner, alias = _from(select, named) or (None, "")
    return (inner, alias) if isinstance(inner, exp.Select) else None


def _from(select: exp.Select, named: dict[str, exp.Expr]) -> tuple[exp.Expr, str] | None:
    """The query in another one's FROM, and its name there; None for any other FROM."""
    clause = select.args.get("from_")
    given = clause.this if clause is not None else None
    if isinstance(given, exp.Table) and given.name in named and not given.db:
        return named[given.name], given.alias or given.name
    return (given.this, given.alias) if isinstance(given, exp.Subquery) else None


def named_queries(select: exp.Select) -> dict[str, exp.Expr]:
    """The queries of WITH, by name; raises `QueryError` if one is recursive."""
    clause = select.args.get("with_")
    if clause is None:
        return {}
    if clause.args.get("recursive"):
        raise QueryError("WITH RECURSIVE is not possible: a pipeline reads each record once")
    return {one.alias: one.this for one in clause.expressions}


def joined_names(select: exp.Select) -> list[str]:
    """The names that qualify columns of the tables that a query joins."""
    return [one.this.alias_or_name for one in select.args.get("joins") or ()]


def _joined(join: exp.Join, replaced: Callable[[exp.Expr], exp.Expr]) -> exp.Join:
    """A join of the outer query, by columns of the inner one's table."""
    on, using = join.args.get("on"), list[exp.Expr](join.args.get("using") or ())
    if len(using) == 1:
        name = exp.to_identifier(using[0].name, quoted=True)
        table = exp.to_identifier(join.this.alias_or_name, quoted=True)
        on = exp.EQ(this=exp.Column(this=name), expression=exp.Column(this=name, table=table))
        join.set("using", None)
    if on is not None:
        join.set("on", on.transform(replaced))
    return join


def merged(outer: exp.Select, inner: exp.Expr, alias: str) -> exp.Select:
    """Merge two SELECTs: columns of the inner one are replaced by their expressions."""
    if not isinstance(inner, exp.Select):
        raise refused(inner, INNER)
    check_clauses(inner)
    grouped = [name for name in ("group", "distinct", "with_") if inner.args.get(name)]
    if grouped or any(inner.find_all(exp.AggFunc, exp.Window)):
        raise refused(inner, INNER)
    columns: dict[str, exp.Expr] = {}
    every = False
    below, beside = joined_names(inner), joined_names(outer)
    for item in inner.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and item.is_star):
            if below and getattr(item, "table", "") in ("", *below):
                raise refused(item, "name the columns of a joined table: z.borough AS borough")
            every = True
        elif isinstance(item, exp.Alias | exp.Column):
            columns[item.alias_or_name] = item.this if isinstance(item, exp.Alias) else item
        else:
            raise refused(item, "needs a name: write AS and one, in the query within the query")

    def replaced(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.is_star:
            return node
        path = path_of(node, [alias] if alias else [])
        first, _, rest = (path or "").partition(".")
        if rest and first in beside and first != alias:
            return node  # a column of a table that the outer query joins
        if first in columns:
            found = columns[first].copy()
            if not rest:
                return found
            if isinstance(found, exp.Column):
                return exp.Column(this=node.this, table=found.this)
        elif every and first not in below:
            steps = (path or "").split(".")
            return exp.column(*reversed([exp.to_identifier(s, quoted=True) for s in steps[-4:]]))
        raise refused(node, f"the query within gives {', '.join(columns)}, and no such column")

    def named(item: exp.Expr) -> exp.Expr:
        made = item.transform(replaced)
        keeps = not isinstance(item, exp.Column) or item.is_star or made.output_name == item.name
        return made if keeps else exp.alias_(made, item.name, quoted=True)

    outer = outer.copy()
    wheres = [one for one in (inner.args.get("where"), outer.args.get("where")) if one is not None]
    aliases = {item.alias for item in outer.expressions if isinstance(item, exp.Alias)}
    for name in ("expressions", "where", "group"):
        value = outer.args.get(name)
        if isinstance(value, list):
            outer.set(name, [named(one) for one in value])
        elif isinstance(value, exp.Where):
            outer.set(name, value.transform(replaced))
        elif isinstance(value, exp.Group):
            outer.set("group", exp.Group(**{
                k: [one if isinstance(one, exp.Column) and one.name in aliases and not one.table
                    else one.transform(replaced) for one in v] if isinstance(v, list) else v
                for k, v in value.args.items()
            }))  # fmt: skip
    if len(wheres) == 2:
        both = exp.And(this=exp.paren(wheres[0].this.copy()), expression=exp.paren(
            outer.args["where"].this))  # fmt: skip
        outer.set("where", exp.Where(this=both))
    elif wheres and outer.args.get("where") is None:
        outer.set("where", wheres[0].copy())
    joins = [_joined(one, replaced) for one in outer.args.get("joins") or ()]
    outer.set("joins", [*(one.copy() for one in inner.args.get("joins") or ()), *joins])
    outer.set("from_", inner.args["from_"].copy() if inner.args.get("from_") else None)
    return outer
