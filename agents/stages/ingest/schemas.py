"""Schemas by id, for one partition: kept in its state from the first use on.

A schema is written in the transaction of the step that first uses it, with the offset from which on
it was known. So what was counted depends on the state and the raw log alone: a registry that is
wiped, lies or is gone later changes nothing, and a replay takes the same records for unknown.
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
    """Answers about ids that a partition's state does not hold."""

    def pinned(self, topic: str, partition: int) -> Known:
        """List what is known of a partition beforehand; a replay knows all of it."""

    def seen(self, number: int) -> None:
        """Take an id for one that was answered once: a registry can be tried by it."""

    def ask(self, topic: str, partition: int, number: int) -> Schema | Verdict:
        """Answer a partition at once; `Verdict.PENDING` if the answer is still to come."""


class NoSchemas:
    """A source for inputs without schemas: it knows none."""

    def pinned(self, topic: str, partition: int) -> Known:
        """List none."""
        return {}

    def seen(self, number: int) -> None:
        """Forget it."""

    def ask(self, topic: str, partition: int, number: int) -> Schema | Verdict:
        """Deny it."""
        return Verdict.UNKNOWN


class KnownSchemas:
    """The schemas of one partition.

    Args:
        source: asked for what the state does not hold.
        tag: of the rows in the state: each topic has offsets of its own.
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
        """Forget everything: the state is read anew."""
        self._known = dict(self._source.pinned(*self._place))
        self._fresh = {}
        self._opened = False

    def ready(
        self, reader: StateReader, records: Sequence[RawRecord], fetched: int
    ) -> tuple[Sequence[RawRecord], int]:
        """Cut records before the first whose schema is asked for; return them and their end."""
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
            for head, offset in since.items():  # as they occur: of many not all are asked at once
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
        """Name one id that was answered before this worker started, if there is any."""
        self._opened = True
        for key, _ in scan_prefix(reader, self._tag):
            self._source.seen(schema_number(key))
            return

    def _new(self, heads: Collection[bytes], reader: StateReader) -> dict[bytes, int]:
        """The ids to ask for, by frame: those that registries give and the state does not hold."""
        numbers = {head: number for head in heads if (number := schema_id(head)) is not None}
        new = {head: number for head, number in numbers.items() if number not in self._known}
        named = [schema_row(number, self._tag) for number in new.values()]
        rows = reader.get_many(named) if new else []
        for (head, number), row in zip(list(new.items()), rows, strict=True):
            if row is not None:
                self._known[number] = decode_pinned(row)
                del new[head]
            elif number > MOST_ID:
                del new[head]  # no registry has it, and some give an unclear answer
        return new

    @property
    def known(self) -> Known:
        """Schemas of the ids in the list of `ready`."""
        return {**self._known, **self._fresh}

    def rows(self, used: Sequence[RawRecord]) -> Changes:
        """The rows of schemas that are used for the first time."""
        if not self._fresh:
            return {}
        numbers = {schema_id(head) for head in heads_of(r.value for r in used)}
        return {
            schema_row(n, self._tag): p.encode() for n, p in self._fresh.items() if n in numbers
        }
