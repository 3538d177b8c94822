"""Sessions of a query: each belongs to one privacy unit, which the query must name."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlglot import exp

from ..columns import QuerySource, bare
from ..parsing.spoken import CALLED
from ..refusal import QueryError, call_of, refused
from .windows import check_fixed, duration_of

_CALLS = (CALLED, "SESSION_WINDOW")


def pause_of(node: exp.Expr, source: QuerySource, table: Sequence[str]) -> str | None:
    """The longest pause of the sessions that an expression of GROUP BY states; None for others.

    Raises `QueryError` for sessions on anything but the event time.
    """
    node = bare(node)
    if call_of(node) not in _CALLS:
        return None
    if len(node.expressions) != 2:
        raise refused(node, "must be SESSION(time, INTERVAL '30' MINUTE)")
    time, pause = node.expressions
    check_fixed(node, time, source, table)
    return duration_of(pause)


def check_units(source: QuerySource, named: Collection[str]) -> None:
    """Refuse (`QueryError`) sessions that may span several units.

    Args:
        named: columns that partition or group sessions.
    """
    if missing := [path for path in source.unit if path not in named]:
        raise QueryError(
            f"SESSION is of one privacy unit: a session of several ends when all of them are "
            f"silent, so it rests on all of their records, and no bound holds for one of them. "
            f"Add {missing[0]} to GROUP BY, or write TABLE {source.name} PARTITION BY {missing[0]}"
        )


def note(source: QuerySource, key: Sequence[str]) -> str:
    """Explain what a count of sessions counts."""
    of = " and ".join([*source.unit, *key])
    return (
        f"a session is of one {of} and counts as one record: session_events are its records, "
        "session_length its seconds"
    )
