"""Fields, numbers and names in a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from sqlglot import exp

from .refusal import QueryError

ROW_TIME = "ROWTIME"
"""Stands for the time of a record itself, where an input's events have no field of their own."""


class QuerySource(NamedTuple):
    """Properties of an input that a query may name.

    Attributes:
        name: of the input.
        topic: its topic.
        unit: paths that together name the privacy unit.
        time: path of the event time; None if it is the record's own.
    """

    name: str
    topic: str
    unit: tuple[str, ...]
    time: str | None


def path_of(node: exp.Expr | None, table: Sequence[str]) -> str | None:
    """The path of a field, None if it is none; it may begin with one of the ``table``'s names."""
    steps: list[str] = []
    while isinstance(node, exp.Dot):  # more than four steps
        steps.insert(0, node.expression.name)
        node = node.this
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return None
    steps = [part.name for part in node.parts] + steps
    return ".".join(steps[1:] if len(steps) > 1 and steps[0] in table else steps)


def bare(node: exp.Expr) -> exp.Expr:
    """An expression without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def number_of(node: exp.Expr | None) -> Decimal | None:
    """The number that a literal states; None if an expression is no number."""
    if isinstance(node, exp.Neg):
        inner = number_of(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Paren):
        return number_of(node.this)
    if isinstance(node, exp.Literal) and not node.is_string:
        return Decimal(node.this)
    return None


def plain_number(number: Decimal) -> int | Decimal:
    """A number as a person writes it: whole if it is."""
    whole = number.to_integral_value()
    return int(whole) if whole == number else number


def aliases(select: exp.Select) -> Mapping[str, exp.Expr]:
    """Expressions of a SELECT by their aliases; raises `QueryError` for two of one name."""
    found: dict[str, exp.Expr] = {}
    for item in select.expressions:
        if isinstance(item, exp.Alias):
            if item.alias in found:
                raise QueryError(f"two columns are named {item.alias}: name one of them otherwise")
            found[item.alias] = item.this
    return found
