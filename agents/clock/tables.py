"""Look-up tables from topics, kept as of each pipeline's declaration.

A topic of reference data is compacted and changes, but a table decides the key of a record. So
`hush topics` reads the topic once, and writes the table to a topic without deletion, in the
transaction that declares the pipeline. The declared configuration, and with it every charge, has
the digest of the content: different content is a different configuration, which is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from ...errors import EngineError
from ...formats.events.expressions.looked_up import Origin, PublicTable

BYTES = 250_000
"""Bytes of one record, small enough for every broker; lines are far shorter."""


def records_of(pipeline: str, table: PublicTable) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of the records that keep a table.

    Raises:
        EngineError: the table was not read, so no pipeline can be declared with it.
    """
    if table.unread:
        raise EngineError(
            f"pipeline {pipeline!r}: the table of {table.origin} was not read: load the "
            "configuration with its tables, as `hush topics` does"
        )
    parts: list[list[str]] = [[]]
    size = 0
    for line in table.lines():
        if size > BYTES:
            parts.append([])
            size = 0
        parts[-1].append(line)
        size += len(line.encode()) + 1
    for number, lines in enumerate(parts):
        key = [pipeline, *(table.origin or ()), number, len(parts)]
        yield json.dumps(key).encode(), "\n".join(lines).encode()


def tables_of(records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[Any, PublicTable]:
    """Collect the complete tables among records, by pipeline name and origin."""
    parts: dict[Any, dict[int, bytes]] = {}
    found: dict[Any, PublicTable] = {}
    for key, value in records:
        pipeline, topic, match, take, number, count = json.loads(key or b"")
        origin = Origin(topic, match, take)
        mine = parts.setdefault((pipeline, origin), {})
        mine[number] = value or b""
        if len(mine) == count:
            lines = b"\n".join(mine[n] for n in range(count)).split(b"\n")
            found[pipeline, origin] = PublicTable(dict(map(json.loads, lines)), origin)
    return found
