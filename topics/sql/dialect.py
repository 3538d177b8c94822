"""The SQL that is read: what people write for several systems, by one parser.

sqlglot reads it. A hand-written parser would be smaller than this package's share of it, and would
know a tenth of the spellings; sqlglot is pure Python without dependencies, is locked by its digest,
and each of its tokens knows its place. Its own dialects are not used: each reads one system, and a
query says not which. So there is one dialect, with what differs between systems decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect

from .refusal import QUANTILE_CALLS

NAMED = "named"
"""In the ``meta`` of an aggregate: its arguments that were given by name."""


def _aggregate(kind: type[exp.Expr]) -> Callable[[Sequence[exp.Expr]], exp.Expr]:
    """A builder of an aggregate that keeps arguments given by name aside."""

    def build(args: Sequence[exp.Expr]) -> exp.Expr:
        plain = [one for one in args if not isinstance(one, exp.Kwarg)]
        node = kind(this=plain[0] if plain else None)
        if len(plain) > 1:
            node.set("expressions", plain[1:])
        named = [one for one in args if isinstance(one, exp.Kwarg)]
        node.meta[NAMED] = {one.this.name.lower(): one.expression for one in named}
        return node

    return build


def _quantile(name: str) -> Callable[[Sequence[exp.Expr]], exp.Expr]:
    """A builder of a quantile, which stays a call: systems differ in the order of arguments."""

    def build(args: Sequence[exp.Expr]) -> exp.Expr:
        node = _aggregate(exp.Anonymous)(args)
        given = [one for one in (node.this, *node.expressions) if one is not None]
        node.set("expressions", given)
        node.set("this", name)
        return node

    return build


_UNREAD = ("DATE_TRUNC", "TIMESTAMP_TRUNC", "DATETIME_TRUNC", "TIME_BUCKET", "DATE_BIN", "TRUNC")
"""Functions whose arguments have another order in each system: they stay calls."""

_FUNCTIONS: dict[str, Any] = {
    **{name: f for name, f in parser.Parser.FUNCTIONS.items() if name not in _UNREAD},
    **dict.fromkeys(("COUNT", "ANON_COUNT"), _aggregate(exp.Count)),
    **dict.fromkeys(("SUM", "ANON_SUM"), _aggregate(exp.Sum)),
    **dict.fromkeys(("VAR_POP", "ANON_VAR_POP"), _aggregate(exp.VariancePop)),
    **dict.fromkeys(("STDDEV_POP", "ANON_STDDEV_POP"), _aggregate(exp.StddevPop)),
    **dict.fromkeys(("AVG", "MEAN", "AVERAGE", "ANON_AVG"), _aggregate(exp.Avg)),
    **{name: _quantile(name) for name in QUANTILE_CALLS},
}


class Hush(Dialect):
    """Names in double quotes or backticks, texts in single quotes; see `spoken` for others."""

    class Tokenizer(tokens.Tokenizer):
        IDENTIFIERS: ClassVar[list[Any]] = ['"', "`"]
        COMMENTS: ClassVar[list[Any]] = ["--", "#", ("/*", "*/")]
        RAW_STRINGS: ClassVar[list[Any]] = [
            (prefix + quote, quote) for prefix in "rR" for quote in "'\""
        ]

    class Parser(parser.Parser):
        FUNCTIONS: ClassVar[dict[str, Any]] = _FUNCTIONS
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: f for name, f in parser.Parser.FUNCTION_PARSERS.items() if name not in _UNREAD
        }

        def validate_expression(self, expression: Any, args: Any = None) -> Any:
            """Check the number of arguments, except of aggregates with some by name."""
            known = isinstance(expression, exp.Expr) and NAMED in expression.meta
            return super().validate_expression(expression, None if known else args)
