"""Conditions on attributes of units: they select released rows, and become a view.

An attribute of a record's unit is a key column, so the pipeline releases it, and the view keeps the
rows that fulfil the condition. This costs nothing, and each row has the same noise as before: a
record is in one row, whichever rows are kept. A column of a public table depends on the record
alone, so a condition on it is a condition on the record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sqlglot import exp

from ..columns import QuerySource, bare
from ..refusal import refused
from .joined import UNMATCHED, table_of

ROWS = (
    "WHERE of an attribute: rows are released for each of its values, and the view keeps those "
    "that fulfil the condition"
)
_NAME = "released"


def after_release(select: exp.Select, sources: Sequence[QuerySource]) -> exp.Select:
    """The query with its conditions on attributes moved to a SELECT around it, if it has any.

    Args:
        sources: all inputs, and public tables.

    Raises:
        QueryError: a condition mixes attributes with other columns.
    """
    joins = [one for one in select.args.get("joins") or () if {"on", "using"} & one.args.keys()]
    names = {join.this.alias_or_name for join in joins if table_of(join.this, sources) is None}
    where = select.args.get("where")
    if where is None or not names:
        return select
    parts = list(_parts(where.this))
    kept = [one for one in parts if any(_of(column, names) for column in _columns(one))]
    if not kept:
        return select
    inner = select.copy()
    others = [one.copy() for one in parts if one not in kept]
    inner.set("where", exp.Where(this=exp.and_(*others)) if others else None)
    outer = exp.select("*")
    for name in ("order", "limit", "with_"):
        outer.set(name, inner.args.get(name))
        inner.set(name, None)
    for condition in kept:
        columns = _columns(condition)
        if not all(_of(column, names) for column in columns) or len(set(columns)) > 1:
            raise refused(
                condition,
                "an attribute is compared alone, with values that are known before: write "
                "conditions one by one, with AND between them",
            )
        if condition.find(exp.Null):
            raise refused(
                condition, f"all other records have the value '{UNMATCHED}': compare it with that"
            )
        name = _grouped(inner, columns[0])
        outer = outer.where(_renamed(condition, name), copy=False)
        if condition.find(exp.NEQ, exp.Not) and _has_text(condition):  # null is not "another value"
            there = exp.NEQ(this=exp.column(name), expression=exp.Literal.string(UNMATCHED))
            outer = outer.where(there, copy=False)
    return outer.from_(inner.subquery(_NAME), copy=False)


def _parts(node: exp.Expr) -> Iterable[exp.Expr]:
    """Conditions that must all hold."""
    node = bare(node)
    if isinstance(node, exp.And):
        yield from _parts(node.this)
        yield from _parts(node.expression)
    else:
        yield node


def _columns(node: exp.Expr) -> list[exp.Column]:
    return list(node.find_all(exp.Column))


def _of(column: exp.Column, names: Collection[str]) -> bool:
    return len(column.parts) > 1 and column.parts[0].name in names


def _has_text(node: exp.Expr) -> bool:
    return any(one.is_string for one in node.find_all(exp.Literal))


def _renamed(condition: exp.Expr, name: str) -> exp.Expr:
    made = condition.copy()
    for column in _columns(made):
        column.replace(exp.column(name))
    return made


def _grouped(inner: exp.Select, column: exp.Column) -> str:
    """The name of a column in GROUP BY, to which it is added if missing."""
    for item in inner.expressions:
        if item.unalias() == column:
            return str(item.alias_or_name)
    name = column.parts[-1].name
    if name in {item.alias_or_name for item in inner.expressions}:
        raise refused(column, f"another column is named {name}: name that one with AS")
    inner.append("expressions", column.copy())
    group = inner.args.get("group")
    if group is None:
        inner.set("group", exp.Group(expressions=[column.copy()]))
    elif not group.args.get("all") and column not in group.expressions:
        group.append("expressions", column.copy())
    return str(name)
