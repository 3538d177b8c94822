"""Schemas by id of one partition, kept in its state from their first use on.

The step that first uses a schema writes it in its transaction, with the offset from which on it was
known. So what was counted depends on the state and the raw log alone: it does not matter whether a
registry is later wiped, lies or is gone, and a replay treats the same records as unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from ....formats.bytes_in import HEAD, schema_id
from ....formats.events.decode import RawRecord
from ....formats.events.framed import heads_of
from ....formats.schemas.schema import Known, Pinned, Schema, Verdict, decode_pinned
from ....formats.values.codec import MOST_ID
from ...state.layout import SCHEMA, schema_number, schema_row
from ...state.store import Changes, StateReader, scan_prefix


class SchemaSource(Protocol):
    """Answers for ids that a partition's state does not hold."""

    def pinned(self, topic: str, partition: int) -> Known:
        """List what is known of a partition beforehand; for a replay, that is everything."""

    def seen(self, number: int) -> None:
        """Note an id that a registry has answered once, by which a registry can be probed."""

    def ask(self, topic: str, partition: int, number: int) -> Schema | Verdict:
        """Answer at once; `Verdict.PENDING` if the answer is still to come."""


class NoSchemas:
    """An empty source, for inputs without schemas."""

    def pinned(self, topic: str, partition: int) -> Known:
        """Return no schemas."""
        return {}

    def seen(self, number: int) -> None:
        """Ignore it."""

    def ask(self, topic: str, partition: int, number: int) -> Schema | Verdict:
        """Answer that there is none."""
        return Verdict.UNKNOWN


class KnownSchemas:
    """The schemas of one partition.

    Args:
        source: source of schemas that the state does not hold.
        tag: tag of the rows in the state, one per topic, since offsets are per topic.
    """

    def __init__(
        self, source: SchemaSource, topic: str, partition: int, tag: bytes = SCHEMA
    ) -> None:
        self._source, self._tag = source, tag
        self._place = topic, partition
        self._known: dict[int, Pinned] = {}
        self._fresh: dict[int, Pinned] = {}
        self._opened = False

    def reopen(self) -> None:
        """Forget everything, so that the state is read again."""
        self._known = dict(self._source.pinned(*self._place))
        self._fresh = {}
        self._opened = False

    def ready(
        self, reader: StateReader, records: Sequence[RawRecord], fetched: int
    ) -> tuple[Sequence[RawRecord], int]:
        """Return the records before the first whose schema is pending, and their end offset."""
        self._fresh = {}
        if not self._opened:
            self._tell(reader)
        new = self._new(heads_of(r.value for r in records), reader)
        pending: set[bytes] = set()
        if new:
            since: dict[bytes, int] = {}
            for record in records:
                head = (record.value or b"")[:HEAD]
                if head in new:
                    since.setdefault(head, record.offset)
            for head, offset in since.items():  # as they occur, since not all are asked for at once
                answer = self._source.ask(*self._place, new[head])
                if isinstance(answer, Schema):
                    self._fresh[new[head]] = Pinned(answer, offset)
                elif answer is Verdict.PENDING:
                    pending.add(head)
        for row, record in enumerate(records if pending else ()):
            if (record.value or b"")[:HEAD] in pending:
                return records[:row], record.offset
        return records, fetched

    def _tell(self, reader: StateReader) -> None:
        """Report one id that was answered before this worker started, if there is one."""
        self._opened = True
        for key, _ in scan_prefix(reader, self._tag):
            self._source.seen(schema_number(key))
            return

    def _new(self, heads: Collection[bytes], reader: StateReader) -> dict[bytes, int]:
        """List the ids to ask for, by frame: registry ids that the state does not hold."""
        numbers = {head: number for head in heads if (number := schema_id(head)) is not None}
        new = {head: number for head, number in numbers.items() if number not in self._known}
        named = [schema_row(number, self._tag) for number in new.values()]
        rows = reader.get_many(named) if new else []
        for (head, number), row in zip(list(new.items()), rows, strict=True):
            if row is not None:
                self._known[number] = decode_pinned(row)
                del new[head]
            elif number > MOST_ID:
                del new[head]  # no registry assigns this id, and some answer unclearly
        return new

    @property
    def known(self) -> Known:
        """The schemas of ids in the last list of `ready`."""
        return {**self._known, **self._fresh}

    def rows(self, used: Sequence[RawRecord]) -> Changes:
        """Make the rows of schemas that are used for the first time."""
        if not self._fresh:
            return {}
        numbers = {schema_id(head) for head in heads_of(r.value for r in used)}
        return {
            schema_row(n, self._tag): p.encode() for n, p in self._fresh.items() if n in numbers
        }
