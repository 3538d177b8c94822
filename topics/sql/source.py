"""The input that FROM names."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from sqlglot import exp

from .columns import QuerySource
from .refusal import CLAUSES, QueryError, refused

_OF_TABLE = {"this", "db", "catalog", "alias"}


def source_of(
    select: exp.Select, sources: Sequence[QuerySource]
) -> tuple[QuerySource, tuple[str, ...]]:
    """The input that FROM names, by name or topic, and the names that may qualify its columns."""
    clause = select.args.get("from_")
    public = [one.name for one in sources if one.public]
    sources = [one for one in sources if not one.public]
    known = ", ".join(one.name for one in sources) or "none"
    if clause is None:
        raise QueryError(f"FROM is missing; inputs: {known}")
    given = clause.this
    if not isinstance(given, exp.Table):
        raise refused(
            given, "FROM must name an input: FROM " + (sources[0].name if sources else "")
        )
    for part, value in given.args.items():
        if value and part not in _OF_TABLE:
            raise QueryError(CLAUSES.get(part, f"{part.strip('_').upper()} is not possible here"))
    if given.alias_column_names and given.alias.upper() == "SAMPLE":
        raise QueryError(CLAUSES["sample"].replace("TABLESAMPLE", "SAMPLE"))
    if given.alias_column_names:
        raise refused(given, "columns keep the names of the fields: leave out the list")
    name = ".".join(part.name for part in given.parts)
    found = [one for one in sources if one.name == name]
    found = found or [one for one in sources if one.topic == name]
    last = name.rpartition(".")[2]  # `project.dataset.table`, or catalog, schema and table
    found = found or [one for one in sources if last in (one.name, one.topic)]
    if not found and name in public:
        raise QueryError(
            f"FROM {name}: it is a public table, and has no records that count: write FROM "
            f"{sources[0].name if sources else 'input'} JOIN {name}"
        )
    if not found:
        names = [part for one in sources for part in (one.name, one.topic)]
        near = difflib.get_close_matches(last, names, 1, 0.6)
        near = near or [one for one in names if one.lower() == last.lower()]
        hint = f"did you mean {near[0]}? " if near else ""
        raise QueryError(f"FROM {name}: there is no such input or topic; {hint}inputs: {known}")
    if (of := found[0].attributes_of) is not None:
        raise QueryError(
            f"FROM {name}: it states attributes of units, and has no records that count: write "
            f"FROM {of} LEFT JOIN {name}"
        )
    return found[0], tuple(dict.fromkeys(filter(None, (given.alias, name, last))))
