"""The accepted SQL: what people write for several systems, read by one parser.

sqlglot parses it. A hand-written parser would know a tenth of the spellings; sqlglot is pure Python
without dependencies, is locked by its digest, and each of its tokens knows its place. Its own
dialects are not used: each reads one system, and a query does not say which. So there is one
dialect, and this module decides what differs between systems.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import TokenType

from ..columns import cast_to_whole
from ..refusal import QUANTILE_CALLS

NAMED = "named"
"""Key in an aggregate's ``meta``: its named arguments."""

NULLS_FIRST = "nulls first"
"""Key in the ``meta`` of a step of ORDER BY in which it is written."""

PLACE = "place"
"""Key in an expression's ``meta``: its begin and end in the parsed text."""


def _aggregate(kind: type[exp.Expr]) -> Callable[[Sequence[exp.Expr]], exp.Expr]:
    """A builder of an aggregate that sets named arguments aside."""

    def build(args: Sequence[exp.Expr]) -> exp.Expr:
        plain = [one for one in args if not isinstance(one, exp.Kwarg)]
        first = plain[0] if plain else None
        node = kind(this=_truth(first, kind) if kind in (exp.Sum, exp.Avg) else first)
        if len(plain) > 1:
            node.set("expressions", plain[1:])
        named = [one for one in args if isinstance(one, exp.Kwarg)]
        node.meta[NAMED] = {one.this.name.lower(): one.expression for one in named}
        return node

    return build


def _truth(node: exp.Expr | None, kind: type[exp.Expr]) -> exp.Expr | None:
    """A comparison as the number 1 or 0, for SUM and AVG.

    One that is neither true nor false has no number in a mean, and adds nothing to a sum.
    """
    inner = node
    while isinstance(inner, exp.Paren) or (inner is not None and cast_to_whole(inner)):
        inner = inner.this
    if not isinstance(inner, exp.Predicate | exp.Between | exp.Not | exp.And | exp.Or):
        return node
    one, none = exp.Literal.number(1), exp.Literal.number(0)
    made = exp.Case().when(inner, one)
    if kind is exp.Sum:
        return made.else_(none)
    return made.when(exp.Not(this=exp.paren(inner.copy())), none)


def _quantile(name: str) -> Callable[[Sequence[exp.Expr]], exp.Expr]:
    """A builder of a quantile, which stays a call: systems differ in the order of arguments."""

    def build(args: Sequence[exp.Expr]) -> exp.Expr:
        node = _aggregate(exp.Anonymous)(args)
        given = [one for one in (node.this, *node.expressions) if one is not None]
        node.set("expressions", given)
        node.set("this", name)
        return node

    return build


def _decode(args: Sequence[exp.Expr]) -> exp.Expr:
    """DECODE(x, a, 1, b, 2, 0) as CASE: missing values equal each other, as Oracle has it."""
    of, pairs = args[0], list(zip(args[1::2], args[2::2], strict=False))
    made = exp.Case()
    for asked, then in pairs:
        when = exp.Is if isinstance(asked, exp.Null) else exp.EQ
        made = made.when(when(this=of.copy(), expression=asked), then)
    made = made.else_(args[-1]) if len(args) % 2 == 0 else made
    made.meta[NAMED] = {}  # else it would have too many arguments for CASE
    return made


def _nvl2(args: Sequence[exp.Expr]) -> exp.Expr:
    there = exp.Not(this=exp.Is(this=args[0], expression=exp.Null()))
    return exp.Case().when(there, args[1]).else_(args[2])


def _where(kind: type[exp.Expr]) -> Callable[[Sequence[exp.Expr]], exp.Expr]:
    """A builder of an aggregate over the records that fulfil its second argument."""
    return lambda args: exp.Filter(this=kind(this=args[0]), expression=exp.Where(this=args[1]))


def _only(size: int, name: str, build: Callable[[Sequence[exp.Expr]], exp.Expr]) -> Any:
    """A builder for ``size`` or more arguments; with fewer it stays a call."""
    return lambda args: (
        build(args) if len(args) >= size else exp.Anonymous(this=name, expressions=list(args))
    )


_SYNONYMS: dict[str, Any] = {
    "DECODE": _only(3, "DECODE", _decode),
    "NVL2": _only(3, "NVL2", _nvl2),
    "SUMIF": _only(2, "SUMIF", _where(exp.Sum)),
    "AVGIF": _only(2, "AVGIF", _where(exp.Avg)),
    **dict.fromkeys(("DIV0", "DIV0NULL", "TRY_DIVIDE"), exp.SafeDivide.from_arg_list),
    "TO_DATE": _only(1, "TO_DATE", lambda args: exp.TsOrDsToDate(this=args[0])),
    "ZEROIFNULL": _only(1, "ZEROIFNULL", lambda args: exp.Coalesce(
        this=args[0], expressions=[exp.Literal.number(0)])),
}  # fmt: skip
"""Functions of single systems, as equivalents in common SQL."""

_UNREAD = (
    "DATE_TRUNC",
    "TIMESTAMP_TRUNC",
    "DATETIME_TRUNC",
    "TIME_BUCKET",
    "DATE_BIN",
    "TRUNC",
    "TIME_SLICE",
)
"""Functions whose argument order differs between systems: they stay calls."""

_FUNCTIONS: dict[str, Any] = {
    **{name: f for name, f in parser.Parser.FUNCTIONS.items() if name not in _UNREAD},
    **dict.fromkeys(("COUNT", "ANON_COUNT"), _aggregate(exp.Count)),
    **dict.fromkeys(("SUM", "ANON_SUM"), _aggregate(exp.Sum)),
    **dict.fromkeys(("VAR_POP", "ANON_VAR_POP"), _aggregate(exp.VariancePop)),
    **dict.fromkeys(("STDDEV_POP", "ANON_STDDEV_POP"), _aggregate(exp.StddevPop)),
    **dict.fromkeys(("AVG", "MEAN", "AVERAGE", "ANON_AVG"), _aggregate(exp.Avg)),
    "COUNT_DISTINCT": lambda args: exp.Count(this=exp.Distinct(expressions=args)),
    "IFF": exp.If.from_arg_list,
    **_SYNONYMS,
    "VAR": exp.Variance.from_arg_list,
    "STDEV": exp.Stddev.from_arg_list,
    **{name: _quantile(name) for name in QUANTILE_CALLS},
}


_PARSED = (
    "assignment", "disjunction", "conjunction", "equality", "comparison", "range", "bitwise",
    "term", "factor", "unary", "type", "column", "primary", "function", "lambda",
)  # fmt: skip
"""Names of parser methods, each of which returns an expression."""


def _placed(name: str) -> Callable[..., Any]:
    """A parser method that also notes the place of the expression that it returns."""
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
            name: f
            for name, f in parser.Parser.FUNCTION_PARSERS.items()
            if name not in (*_UNREAD, *_SYNONYMS)
        }

        locals().update({f"_parse_{name}": _placed(name) for name in _PARSED})

        def _parse_ordered(self, parse_method: Any = None) -> Any:
            """A step of ORDER BY, which notes NULLS FIRST: the parser sets it by itself, too."""
            made = super()._parse_ordered(parse_method)
            words = [one.text.upper() for one in self._tokens[: self._index][-2:]]
            if made is not None and words == ["NULLS", "FIRST"]:
                made.meta[NULLS_FIRST] = True
            return made

        def _parse_lambda(self, alias: bool = False) -> Any:
            """A list after DISTINCT, followed by a named argument."""
            found = _placed("lambda")(self, alias)
            if isinstance(found, exp.Distinct) and self._match(TokenType.FARROW):
                name = found.expressions[-1].name.lower()
                found.set("expressions", found.expressions[:-1])
                found.meta[NAMED] = {name: self._parse_disjunction()}
            return found

        def validate_expression(self, expression: Any, args: Any = None) -> Any:
            """Check the number of arguments, except for aggregates with named ones."""
            known = isinstance(expression, exp.Expr) and NAMED in expression.meta
            return super().validate_expression(expression, None if known else args)
