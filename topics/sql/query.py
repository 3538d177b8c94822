"""A query compiled to the settings of a pipeline, exactly as a person would write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .aggregates.lifted import lifted
from .aggregates.stated import Scope, left_out
from .casts import casts_of
from .columns import QuerySource
from .outer.flat import flattened
from .outer.kept import ROWS, after_release
from .outer.outer import check_outer, split
from .outer.viewed import ReleasedColumns, check_values, view_of
from .parsing.parsed import parsed
from .refusal import QueryError
from .select import SelectOfInput
from .source import source_of
from .typed import check_types


def compile_query(
    text: str, sources: Sequence[QuerySource], clip: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Compile a query to settings; see `read_query`, which also returns the rest of its content.

    >>> visits = QuerySource("visits", "visits", ("user",), "t")
    >>> compile_query("SELECT page, COUNT(*) FROM visits GROUP BY page", [visits])
    {'input': 'visits', 'key': ['page'], 'aggregate': [{'kind': 'count'}]}
    """
    found = read_query(text, sources, clip)
    if found.over is not None:
        raise QueryError(
            "HAVING, LIMIT, and what is computed from released values, are a [[view]]: leave them "
            "out of query; `hush sql` with the whole query writes the pipeline and its view"
        )
    return found.settings


class Query(NamedTuple):
    """A query as a pipeline.

    Attributes:
        settings: settings of the pipeline, as a TOML file would state them.
        view: name of the view that the query creates, which names the pipeline; None: none.
        notes: parts of the query without effect here, or with less than in their own system.
        over: settings of the query's view over the pipeline, without name and source; None: no
            view.
    """

    settings: dict[str, Any]
    view: str | None
    notes: tuple[str, ...]
    over: dict[str, Any] | None = None


def read_query(
    text: str, sources: Sequence[QuerySource], clip: Mapping[str, Mapping[str, Any]] | None = None
) -> Query:
    """Read a query: ``input``, ``key``, ``aggregate``, and further settings.

    Args:
        text: one SELECT over one input.
        sources: the inputs that it may name.
        clip: bounds of summed fields that the query does not bound.

    Returns:
        Its settings include ``derive``, ``where``, ``window``, ``mechanism`` and ``budget`` if the
        query states them.

    Raises:
        QueryError: the text is not such a query, or a construct has no private meaning; the
            message names it, and what to do instead.
    """
    read = parsed(text, [part for one in sources for part in one.words])
    asked = after_release(read.select, sources)
    parts = split(asked)
    select = lifted(flattened(parts.inner))
    source, table = source_of(select, sources)
    found = SelectOfInput(select, read, Scope(source, table, clip or {}), sources)
    settings = found.settings()
    check_types(settings, source)
    found.notes += casts_of(select, table, settings.get("key", ()))
    found.notes += left_out(settings, select)
    if asked is not read.select:
        found.notes.append(ROWS)
    view, over = read.said.view, None
    if parts.outer is not None:
        key = settings.get("key", [])
        check_outer(key, source.unit, parts.outer)
        over = view_of(parts, ReleasedColumns(tuple(key), found.columns))
        check_values(over, settings.get("aggregate", []))
        if settings.get("aggregate") == "keys":
            raise QueryError("keys alone have no numbers, and a view needs some: add COUNT(*)")
    named = None if view is None else _pipeline_name(view)
    return Query(settings, named, tuple(found.notes), over)


def _pipeline_name(view: str) -> str:
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in view.lower())
    return plain.strip("-") or "view"
