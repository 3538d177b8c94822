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
from sqlglot.tokenizer_core import TokenType

from .refusal import QUANTILE_CALLS

NAMED = "named"
"""In the ``meta`` of an aggregate: its arguments that were given by name."""

PLACE = "place"
"""In the ``meta`` of an expression: where it begins and ends in the text that was parsed."""


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


_UNREAD = (
    "DATE_TRUNC",
    "TIMESTAMP_TRUNC",
    "DATETIME_TRUNC",
    "TIME_BUCKET",
    "DATE_BIN",
    "TRUNC",
    "TIME_SLICE",
)
"""Functions whose arguments have another order in each system: they stay calls."""

_FUNCTIONS: dict[str, Any] = {
    **{name: f for name, f in parser.Parser.FUNCTIONS.items() if name not in _UNREAD},
    **dict.fromkeys(("COUNT", "ANON_COUNT"), _aggregate(exp.Count)),
    **dict.fromkeys(("SUM", "ANON_SUM"), _aggregate(exp.Sum)),
    **dict.fromkeys(("VAR_POP", "ANON_VAR_POP"), _aggregate(exp.VariancePop)),
    **dict.fromkeys(("STDDEV_POP", "ANON_STDDEV_POP"), _aggregate(exp.StddevPop)),
    **dict.fromkeys(("AVG", "MEAN", "AVERAGE", "ANON_AVG"), _aggregate(exp.Avg)),
    "COUNT_DISTINCT": lambda args: exp.Count(this=exp.Distinct(expressions=args)),
    "IFF": exp.If.from_arg_list,
    "VAR": exp.Variance.from_arg_list,
    "STDEV": exp.Stddev.from_arg_list,
    **{name: _quantile(name) for name in QUANTILE_CALLS},
}


_PARSED = (
    "assignment", "disjunction", "conjunction", "equality", "comparison", "range", "bitwise",
    "term", "factor", "unary", "type", "column", "primary", "function", "lambda",
)  # fmt: skip
"""What the parser parses by methods of these names; each returns an expression."""


def _placed(name: str) -> Callable[..., Any]:
    """A method of the parser that notes where the expression stood which it returns."""
    parse = getattr(parser.Parser, f"_parse_{name}")

    def placed(self: Any, *args: Any, **more: Any) -> Any:
        first, goes_on = self._curr, bool(args and isinstance(args[0], exp.Expr))
        found = parse(self, *args, **more)
        if isinstance(found, exp.Expr) and first is not None and not goes_on:
            found.meta.setdefault(PLACE, (first.start, self._prev.end + 1))
        return found

    return placed


class Hush(Dialect):
    """Names in double quotes or backticks, texts in single quotes; see `spoken` for others."""

    class Tokenizer(tokens.Tokenizer):
        IDENTIFIERS: ClassVar[list[Any]] = ['"', "`"]
        SINGLE_TOKENS: ClassVar[dict[str, Any]] = {
            **tokens.Tokenizer.SINGLE_TOKENS,
            "~": TokenType.RLIKE,  # as in Postgres
        }
        COMMENTS: ClassVar[list[Any]] = ["--", "#", ("/*", "*/")]
        RAW_STRINGS: ClassVar[list[Any]] = [
            (prefix + quote, quote) for prefix in "rR" for quote in "'\""
        ]

    class Parser(parser.Parser):
        FUNCTIONS: ClassVar[dict[str, Any]] = _FUNCTIONS
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: f for name, f in parser.Parser.FUNCTION_PARSERS.items() if name not in _UNREAD
        }

        locals().update({f"_parse_{name}": _placed(name) for name in _PARSED})

        def _parse_lambda(self, alias: bool = False) -> Any:
            """A list after DISTINCT, with an argument by name behind it."""
            found = _placed("lambda")(self, alias)
            if isinstance(found, exp.Distinct) and self._match(TokenType.FARROW):
                name = found.expressions[-1].name.lower()
                found.set("expressions", found.expressions[:-1])
                found.meta[NAMED] = {name: self._parse_disjunction()}
            return found

        def validate_expression(self, expression: Any, args: Any = None) -> Any:
            """Check the number of arguments, except of aggregates with some by name."""
            known = isinstance(expression, exp.Expr) and NAMED in expression.meta
            return super().validate_expression(expression, None if known else args)
