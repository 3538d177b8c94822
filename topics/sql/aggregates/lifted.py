"""Moves the condition of a query's only aggregate to WHERE.

A record that does not fulfil it is in no aggregate of the query. In SQL it could still create a row
of zeros, but here no single record makes a key appear.
"""

from __future__ import annotations

from sqlglot import exp

from ..columns import bare
from ..refusal import QUANTILE_CALLS, call_of
from .read import AGGREGATES, one_case


def lifted(select: exp.Select) -> exp.Select:
    """The query with the condition of its only aggregate in WHERE: distinct values, or quantiles.

    Other queries stay unchanged: counts of records and sums can have their own conditions.

    Raises:
        QueryError: the values are those of several conditions.
    """
    found = [one for item in select.expressions for one in item.walk() if _of_values(one)]
    every = [one for item in select.expressions for one in item.find_all(*AGGREGATES)]
    others = [one for one in every if one not in found and not isinstance(one, exp.Filter)]
    if len(found) != 1 or others:
        return select
    asked, (call,) = [], found
    values = call.this if isinstance(call, exp.Count) else call
    inner = bare(values.expressions[0])
    if isinstance(inner, exp.Case | exp.If):
        when, then = one_case(inner, counted=True)
        asked.append(when)
        values.set("expressions", [then, *values.expressions[1:]])
    whole = call.parent if isinstance(call.parent, exp.WithinGroup) else call
    if isinstance(whole.parent, exp.Filter):
        asked.append(whole.parent.expression.this)
        whole.parent.replace(whole)
    for condition in asked:
        select = select.where(exp.paren(condition.copy()), copy=False)
    return select


def _of_values(node: exp.Expr) -> bool:
    """Whether an expression is an aggregate that cannot have its own condition."""
    if isinstance(node, exp.Count):
        return isinstance(node.this, exp.Distinct) and len(node.this.expressions) == 1
    named = call_of(node) in QUANTILE_CALLS
    return named and bool(node.expressions)
