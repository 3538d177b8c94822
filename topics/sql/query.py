"""A query compiled to the settings of a pipeline, exactly as a person would write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlglot
from sqlglot import exp

from ...mechanisms.registry import DISTINCT
from .aggregates import Aggregated, aggregate_of, checked
from .columns import QuerySource, aliases, bare, derived_of, number_of, path_of, window_of
from .filters import conditions_of
from .refusal import CLAUSES, QueryError, instead_of, refused, unreadable

MOST = 20_000  # characters of a query
_OF_TABLE = {"this", "db", "catalog", "alias"}
_USED = {"expressions", "from_", "where", "group", "kind", "hint", "operation_modifiers"}


def compile_query(
    text: str,
    sources: Sequence[QuerySource],
    clip: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Compile a query to settings: ``input``, ``key``, ``aggregate``, and what else it states.

    Args:
        text: one SELECT over one input.
        sources: the inputs that it may name.
        clip: bounds of summed fields that the query itself does not bound.

    Returns:
        Settings as a TOML file would state them. ``derive``, ``where``, ``window`` and
        ``mechanism`` are among them where the query says so.

    Raises:
        QueryError: the text is no such query, or a construct has no private meaning; the message
            names it, and what to do instead.

    >>> visits = QuerySource("visits", "visits", ("user",), "t")
    >>> compile_query("SELECT page, COUNT(*) FROM visits GROUP BY page", [visits])
    {'input': 'visits', 'key': ['page'], 'aggregate': [{'kind': 'count'}]}
    """
    select = _parsed(text)
    source, table = _source(select, sources)
    return _Query(select, source, table, clip or {}).settings()


def _parsed(text: str) -> exp.Select:
    if len(text) > MOST:
        raise QueryError(f"a query of {len(text):,} characters is longer than {MOST:,}")
    try:
        found = [one for one in sqlglot.parse(text) if one is not None]
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        words = unreadable(text) or f"cannot be read as SQL: {_first_line(error)}"
        raise QueryError(words) from None
    if len(found) != 1:
        raise QueryError("must be one SELECT")
    if not isinstance(found[0], exp.Select):
        several = isinstance(found[0], exp.SetOperation)
        more = ": write a pipeline for each, or join the topics first" if several else ""
        raise refused(found[0], f"must be one SELECT over one input{more}")
    for name, value in found[0].args.items():
        if value and name not in _USED:
            raise QueryError(CLAUSES.get(name, f"{name.strip('_').upper()} is not possible here"))
    return found[0]


def _first_line(error: Exception) -> str:
    """The text of the parser, without the colours of terminals that it marks a place with."""
    details = getattr(error, "errors", None)
    if details:
        first = details[0]
        return f"{first['description']} (line {first['line']}, column {first['col']})"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _source(
    select: exp.Select, sources: Sequence[QuerySource]
) -> tuple[QuerySource, tuple[str, ...]]:
    """The input that FROM names, by its name or its topic, and how columns may call it."""
    clause = select.args.get("from_")
    known = ", ".join(one.name for one in sources) or "none"
    if clause is None:
        raise QueryError(f"FROM is missing; inputs: {known}")
    given = clause.this
    if not isinstance(given, exp.Table):
        instead = "a query within a query is not possible: name the input, and put all conditions"
        raise refused(given, f"{instead} into one WHERE")
    for part, value in given.args.items():
        if value and part not in _OF_TABLE:
            raise QueryError(CLAUSES.get(part, f"{part.strip('_').upper()} is not possible here"))
    if given.alias_column_names:
        raise refused(given, "columns keep the names of the fields: leave out the list")
    name = ".".join(part.name for part in given.parts)
    found = [one for one in sources if one.name == name]
    found = found or [one for one in sources if one.topic == name]
    if not found:
        raise QueryError(f"FROM {name}: there is no such input or topic; inputs: {known}")
    return found[0], tuple(filter(None, (given.alias, name)))


class _Query:
    """A SELECT over an input."""

    def __init__(
        self,
        select: exp.Select,
        source: QuerySource,
        table: tuple[str, ...],
        clip: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self._select, self._source, self._table, self._clip = select, source, table, clip
        self._aliases = aliases(select)
        self._length: str | None = None
        self._derive: dict[str, dict[str, Any]] = {}
        self._grouped: dict[exp.Expr, str] = {}  # expression of GROUP BY -> column of the key

    def settings(self) -> dict[str, Any]:
        """The pipeline's settings."""
        for expression in self._grouping():
            self._group(bare(expression))
        if not self._grouped:
            raise QueryError(
                "GROUP BY is missing: name the columns of the key. For one total, group by a field "
                "with one value, and list it in public_keys"
            )
        aggregates = self._aggregates()
        found: dict[str, Any] = {"input": self._source.name, "key": list(self._grouped.values())}
        if self._derive:
            found["derive"] = self._derive
        if where := conditions_of(self._select.args.get("where"), self._table):
            found["where"] = where
        found["aggregate"] = [one.setting for one in aggregates] or "keys"
        if self._length:
            found["window"] = {"length": self._length}
        if any(one.units for one in aggregates):
            found["mechanism"] = dict(DISTINCT)
        return found

    def _grouping(self) -> list[exp.Expr]:
        """Expressions of GROUP BY; numbers and aliases stand for columns of SELECT."""
        group = self._select.args.get("group")
        if group is None:
            return []
        for name, value in group.args.items():
            if value and name != "expressions":
                raise QueryError(
                    f"GROUP BY {name.upper()} is not possible: name the columns of one key, and "
                    "write a pipeline for each key"
                )
        return [self._resolved(one) for one in group.expressions]

    def _resolved(self, node: exp.Expr) -> exp.Expr:
        place = number_of(node)
        if place is not None:
            items = self._select.expressions
            if place != int(place) or not 1 <= place <= len(items):
                raise refused(node, f"GROUP BY names a column of SELECT from 1 to {len(items)}")
            item: exp.Expr = items[int(place) - 1]
            return item.this if isinstance(item, exp.Alias) else item
        path = path_of(node, self._table)
        return self._aliases.get(path or "", node)

    def _group(self, node: exp.Expr) -> None:
        """Take one expression of GROUP BY: a window, a field, or a derived column."""
        length = window_of(node, self._source, self._table)
        if length is not None:
            if self._length is not None:
                raise refused(node, "there is one window already")
            self._length = length
            return
        path = path_of(node, self._table)
        if path is not None:
            self._take(node, path)
            return
        if (words := instead_of(node)) is not None:
            raise refused(node, words)
        derived = derived_of(node, self._source, self._table)
        named = [alias for alias, one in self._aliases.items() if bare(one) == node]
        name = named[0] if named else derived.name
        self._take(node, name)
        self._derive[name] = derived.settings

    def _take(self, node: exp.Expr, name: str) -> None:
        if name in self._grouped.values():
            raise refused(node, f"a column of the key is named {name} already: name it with AS")
        self._grouped[node] = name

    def _aggregates(self) -> list[Aggregated]:
        found = []
        for item in self._select.expressions:
            alias = item.alias if isinstance(item, exp.Alias) else None
            node = bare(item.this if alias is not None else item)
            if node in self._grouped:
                if alias is not None and self._grouped[node] != alias:
                    name = self._grouped[node]
                    raise refused(item, f"a column of the key keeps its name: leave out AS; {name}")
                continue
            found.append(self._aggregate(node, alias))
        checked(found)
        return found

    def _aggregate(self, node: exp.Expr, alias: str | None) -> Aggregated:
        if isinstance(node, exp.Star):
            raise QueryError("SELECT *: name the columns of GROUP BY and the aggregates")
        if isinstance(node, exp.Anonymous) and node.name.upper().startswith("TUMBLE"):
            raise refused(node, "every release names its window: leave it out of SELECT")
        if path_of(node, self._table) is not None:
            raise refused(node, "is not in GROUP BY, and single records are never released")
        return aggregate_of(node, alias, self._source, self._table, self._clip)
