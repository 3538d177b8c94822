"""Fields, numbers and names in a query."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from sqlglot import exp

from ..digits import NOT_HUGE, huge
from .refusal import QueryError, call_of, refused

ROW_TIME = "ROWTIME"
"""Stands for a record's own timestamp if the input's events have no time field."""


class QuerySource(NamedTuple):
    """Properties of an input that a query may name.

    Attributes:
        unit: paths that together name the privacy unit.
        time: path of the event time; None if it is the record's own.
        attributes_of: name of the input whose units' attributes it states; None: it holds records.
        public: whether it is not an input but public data to join.
    """

    name: str
    topic: str
    unit: tuple[str, ...]
    time: str | None
    attributes_of: str | None = None
    public: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """All names in it."""
        return tuple(filter(None, (self.name, self.topic, *self.unit, self.time)))


def path_of(node: exp.Expr | None, table: Sequence[str]) -> str | None:
    """The path of a field; None for anything else. It may begin with a name of the ``table``."""
    steps: list[str] = []
    while isinstance(node, exp.Dot):  # more than four steps
        steps.insert(0, node.expression.name)
        node = node.this
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return None
    steps = [part.name for part in node.parts] + steps
    return ".".join(steps[1:] if len(steps) > 1 and steps[0] in table else steps)


def bare(node: exp.Expr) -> exp.Expr:
    """An expression without its outer parentheses."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


TEXTS, BOOLEAN = ("TEXT", "VARCHAR", "STRING"), "BOOLEAN"
NUMBERS = (
    "DOUBLE", "FLOAT", "FLOAT32", "FLOAT64", "DECIMAL", "NUMERIC", "BIGNUMERIC", "REAL",
    "BIGDECIMAL",
)  # fmt: skip
_KEPT = (*TEXTS, BOOLEAN, *NUMBERS)
_WHOLE = ("INT", "BIGINT", "SMALLINT", "TINYINT", "INTEGER", "INT64", "INT128")


def cast_to_whole(node: exp.Expr) -> bool:
    """Whether an expression is a cast to whole numbers; some systems round, others truncate."""
    return kind_of(node) in _WHOLE


def kind_of(node: exp.Expr) -> str:
    """The upper-case name of the type that a cast makes; empty for anything else."""
    return str(node.to.sql().upper()) if isinstance(node, exp.Cast | exp.TryCast) else ""


def uncast(node: exp.Expr) -> exp.Expr:
    """An expression without casts: a field is read as in the record; see `casts_of`.

    The cast of a constant to another type stays.
    """
    node = bare(node)
    while (kind := kind_of(node)) in _KEPT:
        inner = bare(node.this)
        if isinstance(inner, exp.Literal) and kind not in (TEXTS if inner.is_string else NUMBERS):
            break
        node = inner
    return node


_COMPUTED: dict[type[exp.Expr], Callable[[Decimal, Decimal], Decimal]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}


def filled(node: exp.Expr) -> exp.Expr | None:
    """The sum or count in COALESCE(sum, number) and the like; None for anything else."""
    zero = call_of(node) == "ZEROIFNULL"
    inner = node.expressions[0] if zero and node.expressions else node.this
    plain = isinstance(node, exp.Coalesce) and [number_of(one) for one in node.expressions] == [0]
    numbers = (exp.Sum, exp.Count, exp.CountIf)
    return bare(inner) if (zero or plain) and isinstance(bare(inner), numbers) else None


def number_of(node: exp.Expr | None) -> Decimal | None:
    """The number that an expression of literals states; None if it is not one.

    Raises `QueryError` if it is too large to compute with.
    """
    if isinstance(node, exp.Neg):
        inner = number_of(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Add | exp.Sub | exp.Mul):
        left, right = number_of(node.this), number_of(node.expression)
        if left is None or right is None:
            return None
        found = _COMPUTED[type(node)](left, right)
        if huge(str(found)):
            raise refused(node, NOT_HUGE)
        return found
    if isinstance(node, exp.Paren):
        return number_of(node.this)
    if isinstance(node, exp.Literal) and not node.is_string:
        return Decimal(node.this)
    return None


def whole_of(node: exp.Expr | None) -> int | None:
    """The whole number that an expression of literals states; None if it is not one."""
    number = number_of(node)
    return None if number is None or number != int(number) else int(number)


def item_at(node: exp.Expr, items: Sequence[exp.Expr]) -> exp.Expr | None:
    """The column of SELECT that a number refers to, without its alias; None if there is none."""
    place = whole_of(node)
    return None if place is None or not 1 <= place <= len(items) else items[place - 1].unalias()


def json_path(node: exp.Expr) -> str | None:
    """The path that JSON_VALUE, ``->`` and the like extract from a field; None for others."""
    if isinstance(node, exp.JSONExtract | exp.JSONExtractScalar):
        parts = [one.this for one in node.expression.find_all(exp.JSONPathKey)]
        inner, plain = json_path(node.this), path_of(node.this, ())
        first = inner if plain is None else plain
        parts = parts or [node.expression.name]
        return None if first is None else ".".join([first, *map(str, parts)])
    if isinstance(node, exp.Bracket) and len(node.expressions) == 1:
        key, field = node.expressions[0], path_of(node.this, ()) or json_path(node.this)
        return f"{field}.{key.name}" if field is not None and key.is_string else None
    call = call_of(node)
    if call in _JSON and len(node.expressions) == 2:
        field, path = path_of(node.expressions[0], ()), node.expressions[1].name
        return None if field is None else field + path.removeprefix("$")
    return None


_JSON = (
    "JSON_VALUE", "JSON_QUERY", "JSON_EXTRACT", "JSON_EXTRACT_SCALAR", "EXTRACTJSONFIELD",
    "GET_JSON_OBJECT", "JSON_EXTRACT_PATH_TEXT",
)  # fmt: skip


def meant_text(node: exp.Expr | None) -> str | None:
    """The text that a name in double or curly quotes was probably meant to be; None for others."""
    if not isinstance(node, exp.Column) or len(node.parts) > 1:
        return None
    curly = node.name[:1] in _CURLY and node.name[-1:] in _CURLY
    return node.name.strip(_CURLY) if curly or node.this.args.get("quoted") else None


_CURLY = "\u2018\u2019\u201c\u201d"


def plain_number(number: Decimal) -> int | Decimal:
    """A number as a person writes it: an integer if it is whole."""
    whole = number.to_integral_value()
    return int(whole) if whole == number else number


def aliases(select: exp.Select) -> Mapping[str, exp.Expr]:
    """Expressions of a SELECT by alias; raises `QueryError` for a repeated alias."""
    found: dict[str, exp.Expr] = {}
    for item in select.expressions:
        if isinstance(item, exp.Alias):
            if item.alias in found:
                raise QueryError(f"two columns are named {item.alias}: name one of them otherwise")
            found[item.alias] = item.this
    return found
