"""Parsing of a query; one that cannot be parsed is refused with the word at fault."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ...digits import NOT_HUGE, huge
from ..refusal import CLAUSES, EACH, SAID, QueryError, refused, short, unreadable
from .dialect import PLACE, Hush
from .spoken import Spoken, spoken

MOST = 20_000  # characters of a query
_USED = {
    "expressions", "from_", "joins", "where", "group", "kind", "hint", "operation_modifiers",
    "with_", "distinct", "order",
}  # fmt: skip
KEYWORDS = (
    "SELECT", "DISTINCT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "AND", "OR", "NOT",
    "IN", "IS", "NULL", "LIKE", "BETWEEN", "AS", "WITH", "UNION", "JOIN", "CASE", "WHEN", "THEN",
    "ELSE", "END", "INTERVAL", "COUNT", "SUM", "AVG", "TUMBLE", "TUMBLING", "WINDOW", "EXTRACT",
    "CAST", "TRUE", "FALSE", "FILTER", "CREATE", "MATERIALIZED", "VIEW", "OPTIONS", "EMIT",
    "CHANGES", "DIFFERENTIAL_PRIVACY", "CLAMPED", "DESCRIPTOR", "TABLE", "BY",
)  # fmt: skip
_CALLS = ("COUNT", "SUM", "AVG", "TUMBLE", "EXTRACT", "CAST", "DESCRIPTOR", "OPTIONS")
_FIRST = ("CREATE", "MATERIALIZED", "VIEW")
_OTHERS = dict.fromkeys(
    ("DECLARE", "SET", "DEFINE"), "leave it out, and write the value where its name stands"
)
_NEAR = 0.7
_VALUES = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING}
_ENDS = {*_VALUES, TokenType.R_PAREN}
_BEGINS = {*_VALUES, TokenType.INTERVAL, TokenType.NULL}
_CURLY = ("“", "”", "„")
_COMMENTS = ("--", "#", "/*")


class Parsed(NamedTuple):
    """A SELECT, and the content of clauses that were taken out of it."""

    select: exp.Select
    said: Spoken


def parsed(text: str, names: Sequence[str] = ()) -> Parsed:
    """Parse a query; ``names`` are words that are spelt correctly.

    Raises:
        QueryError: it is not a single SELECT, or has a clause that no pipeline can have.
    """
    if len(text) > MOST:
        raise QueryError(f"a query of {len(text):,} characters is longer than {MOST:,}")
    if "{{" in text or "{%" in text:
        raise QueryError(
            "the query is a template: let dbt compile it, and give the SQL that it makes"
        )
    dialect = Hush()
    try:
        tokens = dialect.tokenize(text)
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise QueryError(f"the query cannot be read as SQL: {_untokenized(text, error)}") from None
    words = _Words(text, tokens, frozenset(name.upper() for name in names))
    words.check()
    said = spoken(text, tokens)
    first = said.text.lstrip("( \n\t\r;")[:1] and _first(dialect.tokenize(said.text))
    if first not in ("SELECT", "WITH", "FROM", "VALUES", ""):
        near = words.nearest(1) or f"; {first} is another statement: " + _OTHERS.get(
            first, "write SELECT"
        )
        raise QueryError(f"the query must be one SELECT over one input{near}")
    try:
        every = [one for one in dialect.parse(said.text) if one is not None]
    except (sqlglot.errors.SqlglotError, RecursionError, AttributeError, ValueError) as error:
        raise QueryError(unreadable(text) or words.fault(error)) from None
    found = [one for one in every if not isinstance(one, exp.Semicolon)]  # a comment after it
    _quote(found, text if len(text) == len(said.text) else said.text)
    return Parsed(_select(found), said)


def _quote(found: Sequence[exp.Expr], text: str) -> None:
    """Attach to each expression its text in the query, for messages."""
    for node in (node for one in found for node in one.walk()):
        begin, end = node.meta.pop(PLACE, (0, 0))
        words = " ".join(text[begin:end].split())
        if words and not any(mark in words for mark in _COMMENTS):
            node.meta[SAID] = words


def expression_of(sql: str) -> exp.Expr:
    """Parse an expression that was taken out of a query; raises `QueryError` if it is not one."""
    try:
        found = Hush().parse(f"SELECT {sql}")
    except (sqlglot.errors.SqlglotError, RecursionError, AttributeError, ValueError):
        found = []
    if len(found) != 1 or not isinstance(found[0], exp.Select) or not found[0].expressions:
        raise QueryError(
            f"{short(sql)}: cannot be read; a length is INTERVAL '1' HOUR, or SIZE 1 HOUR"
        )
    only: exp.Expr = found[0].expressions[0]
    return only


def _first(tokens: Sequence[Token]) -> str:
    return next((one.text.upper() for one in tokens if one.text not in "(;"), "")


def _select(found: Sequence[exp.Expr]) -> exp.Select:
    if len(found) != 1:
        raise QueryError(
            f"there are {len(found)} statements, and a pipeline is one SELECT: write a pipeline "
            "for each"
            if found
            else "the query must be one SELECT, and there is none: SELECT column, COUNT(*) "
            "FROM input GROUP BY column"
        )
    (only,) = found
    while isinstance(only, exp.Subquery) and set(_given(only)) == {"this"}:
        only = only.this
    if not isinstance(only, exp.Select):
        several = isinstance(only, exp.SetOperation)
        more = (
            "a pipeline for each, or join the topics first" if several else "SELECT ... FROM input"
        )
        raise refused(only, f"must be one SELECT over one input: write {more}")
    check_clauses(only, VIEWED)
    for given in only.find_all(exp.Subquery, exp.Table):
        joined = isinstance(given.parent, exp.Join)  # a join has its own message
        for name in () if joined else ("pivots", "sample", "version", "when"):
            if given.args.get(name):
                raise QueryError(CLAUSES[name])
    return only


VIEWED = frozenset({"having", "limit"})
"""Clauses that make a view."""


def check_clauses(select: exp.Select, more: frozenset[str] = frozenset()) -> None:
    """Refuse (`QueryError`) a clause that no SELECT of a pipeline has; ``more`` are allowed."""
    for join in select.args.get("joins") or ():
        if isinstance(join.this, exp.Unnest | exp.Explode):
            raise refused(join.this, EACH)
    for name in _given(select):
        if name not in _USED | more:
            raise QueryError(CLAUSES.get(name, f"{name.strip('_').upper()} is not possible here"))
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        raise QueryError(CLAUSES["distinct"])


def _given(node: exp.Expr) -> list[str]:
    return [name for name, value in node.args.items() if value]


_WHOLE = re.compile(r"""--[^\n]*|\#[^\n]*|'[^']*'|"[^"]*"|`[^`]*`|[^-\#'"`/]+|/(?!\*)|-(?!-)""")
"""A part of a query that ends: a comment of one line, a text, a name, or anything between them."""


def _untokenized(text: str, error: Exception) -> str:
    """Name the place of the comment or text that has no end."""
    at = 0
    while at < len(text):
        if text.startswith("/*", at):
            end = _comment_end(text, at)
            what = "a comment has no end: close it with */"
        else:
            whole = _WHOLE.match(text, at)
            end = whole.end() if whole else None
            what = "a quotation mark has no partner: close the text or the name"
        if end is None:
            line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
            return f"line {line}, column {column}: {what}"
        at = end
    return str(error).splitlines()[0]


def _comment_end(text: str, at: int) -> int | None:
    """The end of a comment in ``/* */``, which may hold others; None if it has none."""
    depth = 0
    for mark in re.finditer(r"/\*|\*/", text[at:]):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return at + mark.end()
    return None


_CLAUSE_ORDER = "clauses stand in this order: SELECT, FROM, WHERE, GROUP BY"
_SAID = {
    **dict.fromkeys(("WHERE", "FROM", "GROUP", "SELECT", "HAVING"), _CLAUSE_ORDER),
    "~": "patterns are not compared: write = or IN, or let the producer write a field",
}


class _Words:
    """The words of a query that cannot be parsed.

    ``names`` are upper-case words that are spelt correctly.
    """

    def __init__(self, text: str, tokens: Sequence[Token], names: frozenset[str]) -> None:
        self._text, self._tokens, self._names = text, tokens, names

    def fault(self, error: Exception) -> str:
        """Name the word at which the parser gave up, and the word probably meant."""
        details: Any = getattr(error, "errors", None)
        if isinstance(error, RecursionError):
            return "the query cannot be read as SQL: it is nested too deeply; write fewer brackets"
        if not details or not details[0].get("line"):
            said = str(error).splitlines()[0] if str(error) else "there is no SELECT"
            return f"the query cannot be read as SQL: {said}"
        first = details[0]
        where = first["line"], first["col"]
        places = (n for n, one in enumerate(self._tokens) if (one.line, one.col) == where)
        place = next(places, len(self._tokens))
        opening = place < len(self._tokens) and self._tokens[place].text.upper() == "WITH"
        near = self.nearest(place + 1 + opening, place - 1) or self._comma(place)
        near = near or self.nearest(place + 1 + opening)
        said = near or self._expected(str(first["description"]), place)
        return f"the query cannot be read as SQL{said}"

    def _comma(self, place: int) -> str | None:
        """Say that a comma is missing between two values in brackets."""
        if not 0 < place < len(self._tokens) or self._depth(place) <= 0 or self._depth(None):
            return None
        here, before = self._tokens[place], self._tokens[place - 1]
        if before.token_type not in _ENDS or here.token_type not in _BEGINS:
            return None
        return f": a comma is missing before {here.text!r} ({self._at(here)})"

    def _depth(self, place: int | None) -> int:
        """Number of brackets open before a token; at the end for None."""
        return sum({"(": 1, ")": -1}.get(one.text, 0) for one in self._tokens[:place])

    def check(self) -> None:
        """Refuse (`QueryError`) a number that is too long to read, and curly quotation marks."""
        for token in self._tokens:
            if token.token_type is TokenType.VAR and token.text.startswith(_CURLY):
                name = token.text.strip("".join(_CURLY))
                raise QueryError(
                    f"{short(token.text)} ({self._at(token)}): names stand in double quotes, texts "
                    f"in single ones: write \"{name}\" or '{name}'"
                )
            if token.token_type is TokenType.NUMBER and huge(token.text):
                raise QueryError(f"{short(token.text)} ({self._at(token)}): {NOT_HUGE}")

    def nearest(self, end: int, begin: int = 0) -> str | None:
        """Name the last word between two places that is almost a keyword, and that keyword."""
        for place in reversed(range(max(begin, 0), min(end, len(self._tokens)))):
            token = self._tokens[place]
            word = token.text.upper()
            if word in KEYWORDS or word in self._names or len(word) < 3:
                continue
            known = [one for one in KEYWORDS if self._possible(one, place)]
            near = difflib.get_close_matches(word, known, 1, _NEAR)
            if token.token_type is TokenType.VAR and near:
                return f": {token.text!r} ({self._at(token)}); did you mean {near[0]}?"
        return None

    def _possible(self, keyword: str, place: int) -> bool:
        """Whether a keyword can stand at a place."""
        after = self._tokens[place + 1].text if place + 1 < len(self._tokens) else ""
        return (keyword not in _CALLS or after == "(") and (keyword not in _FIRST or place < 4)

    def _at(self, token: Token) -> str:
        line = self._text.count("\n", 0, token.start) + 1
        column = token.start - self._text.rfind("\n", 0, token.start)
        return f"line {line}, column {column}"

    def _expected(self, said: str, place: int) -> str:
        """Say what is missing before a word, or why it cannot stand there."""
        tokens = self._tokens
        here = tokens[place] if place < len(tokens) else None
        word, at = (repr(here.text), f" ({self._at(here)})") if here else ("the end", "")
        before = tokens[place - 1].text if 0 < place <= len(tokens) else ""
        if opened := self._depth(None):
            more = "a ) is missing" if opened > 0 else "leave out a )"
            return f": {more} before {word}{at}"
        if said.startswith("Expecting"):
            missing = said.removeprefix("Expecting").strip()
            return f": {missing} is missing before {word}{at}"
        fix = _SAID.get(here.text.upper() if here else "", "")
        if before.upper() in ("GROUP", "ORDER"):
            fix = f"write {before.upper()} BY"
        elif place > 1 and tokens[place - 2].text.upper() == "BETWEEN":
            fix = f"write BETWEEN {before} AND"
        elif here is not None and here.text == "=>":
            fix = "write >="
        elif ":" in (before, tokens[place - 2].text if place > 1 else ""):
            fix = "write a path with dots: item.name"
        elif before == ",":
            fix = "leave out the comma before it"
        fix = fix or "write a comma between two columns, and AS before a name"
        return f": {word} cannot stand after {before!r}{at}: {fix}"
