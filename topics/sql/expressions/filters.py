"""The WHERE of a query as the conditions of a pipeline."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from ..columns import (  # fmt: skip
    bare,
    cast_to_whole,
    json_path,
    meant_text,
    number_of,
    path_of,
    plain_number,
    uncast,
)
from ..refusal import call_of, refused, shown, single_quotes
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
    """The list of conditions of a WHERE; NOT is pushed down to the comparisons.

    In SQL a comparison with a missing field, and its negation, are neither true nor false, so both
    leave such a record out. ``time`` is the path of the event time, which is for windows and
    triggers.

    Raises:
        QueryError: a construct cannot be written so.
    """
    if where is None:
        return []
    if (inner := where.find(exp.Select)) is not None:
        raise refused(
            inner,
            "a query within a query is not possible: compare with values that are known before, "
            "such as IN ('a', 'b'), or let the producer write the answer into a field",
        )
    if (empty := where.find(exp.Placeholder, exp.Parameter)) is not None:
        raise refused(empty, "stands for a value that is not given: write the value in its place")
    for node in where.find_all(exp.Predicate, exp.Between, exp.Anonymous):
        sides = (path_of(one, table) for one in node.find_all(exp.Column))
        if time is not None and time in sides:
            raise refused(node, _timed(node, time))
    asked = where.this if isinstance(where, exp.Where) else where
    while isinstance(asked, exp.And) and (_trivial(asked.this) or _trivial(asked.expression)):
        asked = asked.expression if _trivial(asked.this) else asked.this
    if _trivial(asked):
        return []
    found = _condition(asked, False, table)
    return found["all"] if set(found) == {"all"} else [found]


def _timed(node: exp.Expr, time: str) -> str:
    """Say what to write in place of a condition on the event time."""
    part = node.find(exp.Extract, exp.Hour, exp.DayOfWeek, exp.Month, exp.Year, exp.DayOfWeekIso)
    if part is not None:
        return (
            f"parts of the event time are columns of the key: GROUP BY {shown(part)}, and keep "
            "or add up the released rows that are wanted, which costs nothing"
        )
    return f"windows and triggers say which times count: leave out {time} in WHERE"


def _trivial(node: exp.Expr) -> bool:
    """Whether a condition is always true: TRUE, or 1 = 1, as programs write it."""
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
    path = path_of(uncast(node), table)
    if path is not None:
        return {"field": path, "equals": not denied}
    node, denied = _listed(node, denied)
    if (found := _defaulted(node, denied, table)) is not None:
        return found
    if (text := compared_text(node, denied, table)) is not None:
        return text
    if isinstance(node, exp.In):
        return _among(node, denied, table)
    if isinstance(node, exp.Is):
        return _is(node, denied, table)
    if isinstance(node, exp.Between):
        return _between(node, denied, table)
    if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
        return _distinct(node, denied == isinstance(node, exp.NullSafeNEQ), table)
    if isinstance(node, exp.EQ | exp.NEQ):
        return _equal(node, denied != isinstance(node, exp.NEQ), table)
    if type(node) in _ENDS:
        return _end(node, denied, table)
    if isinstance(node, exp.ArrayContains | exp.ArrayContainsAll | exp.ArrayOverlaps):
        raise refused(node, "looks into a list: let the producer write true or false into a field")
    if isinstance(node, exp.BitwiseLeftShift | exp.BitwiseRightShift):
        raise refused(node, "did you mean > or <?")
    raise refused(node, _ALLOWED)


def _listed(node: exp.Expr, denied: bool) -> tuple[exp.Expr, bool]:
    """``= ANY(ARRAY[...])``, ``<> ALL(ARRAY[...])`` and ``IN UNNEST([...])`` as IN."""
    if isinstance(node, exp.EQ | exp.NEQ) and (array := _every(node)) is not None:
        denied = denied != isinstance(node, exp.NEQ)
    elif isinstance(node, exp.In) and node.args.get("unnest") is not None:
        array = node.args["unnest"].expressions[0]
    else:
        return node, denied
    if not isinstance(array, exp.Array):
        raise refused(node, "write IN and the values: country IN ('DE', 'AT')")
    return exp.In(this=node.this, expressions=array.expressions), denied


def _every(node: exp.EQ | exp.NEQ) -> exp.Expr | None:
    """The list in ``= ANY (list)`` or ``<> ALL (list)``."""
    of = node.expression
    if isinstance(node, exp.EQ):
        return bare(of.this) if isinstance(of, exp.Any) else None
    given = of.expressions if call_of(of) == "ALL" else []
    return given[0] if len(given) == 1 else None


def _defaulted(node: exp.Expr, denied: bool, table: Sequence[str]) -> Table | None:
    """A condition on ``COALESCE(field, constant)``; None for anything else."""
    whole = isinstance(bare(node), exp.Coalesce)
    given = bare(node if whole or not isinstance(node.this, exp.Expr) else node.this)
    if not isinstance(given, exp.Coalesce) or len(given.expressions) != 1:
        return None
    field = uncast(given.this)
    path = path_of(field, table)
    constant = not list(given.expressions[0].find_all(exp.Column))
    if path is None or isinstance(node, exp.Is) or not constant:
        raise refused(node, "COALESCE takes a field and one constant here: COALESCE(country, '-')")
    asked = field
    if not whole:
        asked = node.copy()
        asked.set("this", field.copy())
    found, default = _leaf(asked, denied, table), _value(given.expressions[0])
    fulfilled = _fulfils(default, found)
    if fulfilled is None:
        raise refused(node, f"write {path} IS NULL OR and the condition, without COALESCE")
    return {"any": [{"field": path, "present": False}, found]} if fulfilled else found


def _fulfils(value: Any, condition: Table) -> bool | None:
    """Whether a constant fulfils a condition; None if their types differ."""
    if "any" in condition:
        parts = [_fulfils(value, one) for one in condition["any"]]
        return None if None in parts else any(parts)
    asked = {name: of for name, of in condition.items() if name != "field"}
    if not asked.keys() <= _HOLDS.keys():
        return None
    ordered = asked.keys() & _DENIED.keys()
    if ordered and (isinstance(value, str | bool)):
        return None
    return all(_HOLDS[name](value, of) for name, of in asked.items())


_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "equals": lambda value, of: type(value) is type(of) and value == of,
    "one_of": lambda value, of: value in of,
    "none_of": lambda value, of: value not in of,
    "at_least": operator.ge,
    "above": operator.gt,
    "at_most": operator.le,
    "below": operator.lt,
}


def _sides(node: exp.Expr, table: Sequence[str]) -> tuple[str, exp.Expr, bool]:
    """The field and the value of a comparison, and whether the field is on the right."""
    left, right = uncast(node.this), uncast(node.expression)
    path, other = path_of(left, table), path_of(right, table)
    if path is not None and other is None:
        return path, right, False
    if other is not None and path is None:
        return other, left, True
    if path is not None and other is not None:
        text = meant_text(right)
        raise refused(node, f"{_TWO} '{other}'" if text is None else single_quotes(text))
    raise refused(node, _computed(node))


_TWO = (
    "two fields are not compared: let the producer write the difference into a field; a text "
    "stands in single quotes:"
)


def _computed(node: exp.Expr) -> str:
    """Say what to write in place of a comparison of anything but a field."""
    for side in (bare(one) for one in (node.this, node.args.get("expression")) if one):
        fields = list(side.find_all(exp.Column))
        if not fields:
            continue
        name = shown(fields[0])
        if cast_to_whole(side):
            return (
                f"a cast to whole numbers changes the value: compare {name} itself, as it is in "
                "the record"
            )
        if (dots := json_path(side)) is not None:
            return f"write the path with dots, of an object of the record: {dots}"
        if isinstance(side, exp.Binary):
            return f"compare {name} itself, or let the producer write the result into a field"
    return _ALLOWED


def _value(node: exp.Expr) -> str | bool | int | Any:
    node = uncast(node)
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    number = number_of(node)
    if isinstance(node, exp.Concat):
        raise refused(node, "a comma is missing between two texts")
    if number is None:
        text = meant_text(node)
        known = "must be a text, a number or a truth value: 'DE', 3, TRUE"
        raise refused(node, known if text is None else single_quotes(text))
    return plain_number(number)


def _equal(node: exp.Expr, denied: bool, table: Sequence[str]) -> Table:
    path, given, _ = _sides(node, table)
    if isinstance(given, exp.Null):
        raise refused(node, "is never true, whatever the field holds: write IS NULL")
    value = _value(given)
    if isinstance(value, bool):
        return {"field": path, "equals": value != denied}
    return {"field": path, "none_of": [value]} if denied else {"field": path, "equals": value}


def _distinct(node: exp.Expr, equal: bool, table: Sequence[str]) -> Table:
    """IS [NOT] DISTINCT FROM, which treats a missing field like any other value."""
    path, given, _ = _sides(node, table)
    if isinstance(given, exp.Null):
        return {"field": path, "present": not equal}
    found = _equal(exp.EQ(this=node.this, expression=node.expression), not equal, table)
    return found if equal else {"any": [{"field": path, "present": False}, found]}


def _among(node: exp.In, denied: bool, table: Sequence[str]) -> Table:
    if (one := node.args.get("field")) is not None:
        text = meant_text(one)
        shape = shown(one) if text is None else f"'{text}'"
        raise refused(node, f"a list stands in brackets: IN ({shape})")
    path = path_of(uncast(node.this), table)
    if path is None or node.args.get("query") is not None:
        raise refused(node, _computed(node))
    given = [one for one in node.expressions if not isinstance(one, exp.Null)]
    if not given or (denied and len(given) < len(node.expressions)):
        empty = "names no value: write IN ('DE', 'AT')"
        raise refused(node, "is never true beside NULL: leave NULL out" if given else empty)
    values = [_value(one) for one in given]
    return {"field": path, "none_of" if denied else "one_of": values}


def _is(node: exp.Is, denied: bool, table: Sequence[str]) -> Table:
    path, given = path_of(uncast(node.this), table), node.expression
    if path is None or not isinstance(given, exp.Null | exp.Boolean):
        raise refused(node, _ALLOWED)
    if isinstance(given, exp.Null):
        return {"field": path, "present": denied}
    if not denied:
        return {"field": path, "equals": bool(given.this)}
    missing, other = {"field": path, "present": False}, not given.this
    return {"any": [missing, {"field": path, "equals": other}]}


def _between(node: exp.Between, denied: bool, table: Sequence[str]) -> Table:
    path = path_of(uncast(node.this), table)
    low, high = (number_of(uncast(node.args[end])) for end in ("low", "high"))
    if path is None:
        raise refused(node, _computed(node))
    if low is None or high is None:
        raise refused(node, "BETWEEN needs a field and two numbers: price BETWEEN 1 AND 10")
    if node.args.get("symmetric"):
        low, high = min(low, high), max(low, high)
    ends = plain_number(low), plain_number(high)
    if denied:
        return {"any": [{"field": path, "below": ends[0]}, {"field": path, "above": ends[1]}]}
    return {"field": path, "at_least": ends[0], "at_most": ends[1]}


def _end(node: exp.Expr, denied: bool, table: Sequence[str]) -> Table:
    path, given, turned = _sides(node, table)
    number = number_of(given)
    if number is None:
        text = given.find(exp.Literal)
        if text is not None and text.name.replace(".", "", 1).isdigit():
            raise refused(node, f"write the number without quotes: {text.name}")
        raise refused(
            node,
            "only numbers have an order here: price > 10. Windows and triggers say which times "
            "count, so leave out conditions on times",
        )
    name = _ENDS[type(node)]
    name = _TURNED[name] if turned else name
    return {"field": path, _DENIED[name] if denied else name: plain_number(number)}
