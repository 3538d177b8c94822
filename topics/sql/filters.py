"""The WHERE of a query as the conditions of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from .columns import number_of, path_of, plain_number
from .refusal import refused
from .texts import compared_text

Table = dict[str, Any]

_ENDS: dict[type[exp.Expr], str] = {
    exp.GTE: "at_least",
    exp.GT: "above",
    exp.LTE: "at_most",
    exp.LT: "below",
}
_TURNED = {"at_least": "at_most", "above": "below", "at_most": "at_least", "below": "above"}
_DENIED = {"at_least": "below", "above": "at_most", "at_most": "above", "below": "at_least"}
_ALLOWED = (
    "WHERE compares fields of the record, or LOWER, UPPER, TRIM, SUBSTR, REGEXP_EXTRACT of them, "
    "with texts, numbers and truth values: =, <>, <, <=, >, >=, IN, BETWEEN, LIKE, "
    "REGEXP_CONTAINS, IS NULL, AND, OR, NOT. Let the producer write anything else into a field"
)


def conditions_of(
    where: exp.Expr | None, table: Sequence[str], time: str | None = None
) -> list[Table]:
    """The list of conditions that a WHERE states; NOT is moved to the comparisons.

    A comparison with a missing field is neither true nor false in SQL, and NOT of it is neither, so
    a condition and its denial both leave such a record out. ``time`` is the path of the event
    time, which windows and triggers decide about.

    Raises:
        QueryError: a construct has no such form.
    """
    if where is None:
        return []
    if (inner := where.find(exp.Select)) is not None:
        raise refused(
            inner,
            "a query within a query is not possible: compare with values that are known before, "
            "such as IN ('a', 'b'), or let the producer write the answer into a field",
        )
    for node in where.find_all(exp.Predicate, exp.Between, exp.Anonymous):
        sides = (path_of(one, table) for one in node.find_all(exp.Column))
        if time is not None and time in sides:
            raise refused(
                node, f"windows and triggers say which times count: leave out {time} in WHERE"
            )
    asked = where.this if isinstance(where, exp.Where) else where
    while isinstance(asked, exp.And) and (_trivial(asked.this) or _trivial(asked.expression)):
        asked = asked.expression if _trivial(asked.this) else asked.this
    if _trivial(asked):
        return []
    found = _condition(asked, False, table)
    return found["all"] if set(found) == {"all"} else [found]


def _trivial(node: exp.Expr) -> bool:
    """Whether a condition is true of every record: TRUE, or 1 = 1, as programs write it."""
    if isinstance(node, exp.EQ) and isinstance(node.this, exp.Literal):
        return bool(node.this == node.expression)
    return bool(node == exp.true())


def _condition(node: exp.Expr, denied: bool, table: Sequence[str]) -> Table:
    if isinstance(node, exp.Paren):
        return _condition(node.this, denied, table)
    if isinstance(node, exp.Not):
        return _condition(node.this, not denied, table)
    if isinstance(node, exp.And | exp.Or):
        name = "all" if isinstance(node, exp.And) != denied else "any"
        parts = [_condition(side, denied, table) for side in (node.this, node.expression)]
        return {name: [one for part in parts for one in part.get(name, [part])]}
    return _leaf(node, denied, table)


def _leaf(node: exp.Expr, denied: bool, table: Sequence[str]) -> Table:
    path = path_of(node, table)
    if path is not None:
        return {"field": path, "equals": not denied}
    if (text := compared_text(node, denied, table)) is not None:
        return text
    if isinstance(node, exp.In):
        return _among(node, denied, table)
    if isinstance(node, exp.Is):
        return _is(node, denied, table)
    if isinstance(node, exp.Between):
        return _between(node, denied, table)
    if isinstance(node, exp.EQ | exp.NEQ):
        return _equal(node, denied != isinstance(node, exp.NEQ), table)
    if type(node) in _ENDS:
        return _end(node, denied, table)
    raise refused(node, _ALLOWED)


def _sides(node: exp.Expr, table: Sequence[str]) -> tuple[str, exp.Expr, bool]:
    """The field and the value of a comparison, and whether the field stands on the right."""
    left, right = node.this, node.expression
    path = path_of(left, table)
    if path is not None and path_of(right, table) is None:
        return path, right, False
    if isinstance(right, exp.Column) and right.this.args.get("quoted"):
        text = right.name.replace("'", "''")
        raise refused(node, f"texts stand in single quotes: write '{text}'")
    path = path_of(right, table)
    if path is None or path_of(left, table) is not None:
        raise refused(node, _ALLOWED)
    return path, left, True


def _value(node: exp.Expr) -> str | bool | int | Any:
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    number = number_of(node)
    if number is None:
        raise refused(node, "must be a text, a number or a truth value")
    return plain_number(number)


def _equal(node: exp.Expr, denied: bool, table: Sequence[str]) -> Table:
    path, given, _ = _sides(node, table)
    if isinstance(given, exp.Null):
        raise refused(node, "is never true, whatever the field holds: write IS NULL")
    value = _value(given)
    if isinstance(value, bool):
        return {"field": path, "equals": value != denied}
    return {"field": path, "none_of": [value]} if denied else {"field": path, "equals": value}


def _among(node: exp.In, denied: bool, table: Sequence[str]) -> Table:
    path = path_of(node.this, table)
    if path is None or node.args.get("query") is not None or not node.expressions:
        raise refused(node, _ALLOWED)
    values = [_value(one) for one in node.expressions]
    return {"field": path, "none_of" if denied else "one_of": values}


def _is(node: exp.Is, denied: bool, table: Sequence[str]) -> Table:
    path, given = path_of(node.this, table), node.expression
    if path is None or not isinstance(given, exp.Null | exp.Boolean):
        raise refused(node, _ALLOWED)
    if isinstance(given, exp.Null):
        return {"field": path, "present": denied}
    if not denied:
        return {"field": path, "equals": bool(given.this)}
    missing, other = {"field": path, "present": False}, not given.this
    return {"any": [missing, {"field": path, "equals": other}]}


def _between(node: exp.Between, denied: bool, table: Sequence[str]) -> Table:
    path = path_of(node.this, table)
    low, high = number_of(node.args["low"]), number_of(node.args["high"])
    if path is None or low is None or high is None:
        raise refused(node, "BETWEEN needs a field and two numbers")
    ends = plain_number(low), plain_number(high)
    if denied:
        return {"any": [{"field": path, "below": ends[0]}, {"field": path, "above": ends[1]}]}
    return {"field": path, "at_least": ends[0], "at_most": ends[1]}


def _end(node: exp.Expr, denied: bool, table: Sequence[str]) -> Table:
    path, given, turned = _sides(node, table)
    number = number_of(given)
    if number is None:
        raise refused(
            node, "only numbers have an order here; windows and triggers say which times count"
        )
    name = _ENDS[type(node)]
    name = _TURNED[name] if turned else name
    return {"field": path, _DENIED[name] if denied else name: plain_number(number)}
