"""Schemas by id, for one partition: kept in its state from the first use on.

A schema is written in the transaction of the step that first uses it, with the offset from which on
it was known. So what was counted depends on the state and the raw log alone: a registry that is
wiped, lies or is gone later changes nothing, and a replay takes the same records for unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ....topics.events.decode import RawRecord
from ....topics.events.framed import HEAD, heads_of, schema_id
from ....topics.schemas.schema import Known, Pinned, Schema, Verdict, decode_pinned
from ...state.layout import schema_row
from ...state.store import Changes, StateReader


class SchemaSource(Protocol):
    """Answers about ids that a partition's state does not hold."""

    def pinned(self, topic: str, partition: int) -> Known:
        """List what is known of a partition beforehand; a replay knows all of it."""

    def ask(self, number: int) -> Schema | Verdict:
        """Answer at once; `Verdict.PENDING` if the answer is still to come."""


class NoSchemas:
    """A source for inputs without schemas: it knows none."""

    def pinned(self, topic: str, partition: int) -> Known:
        """List none."""
        return {}

    def ask(self, number: int) -> Schema | Verdict:
        """Deny it."""
        return Verdict.UNKNOWN


class KnownSchemas:
    """The schemas of one partition.

    Args:
        source: asked for what the state does not hold.
        topic: the raw topic.
        partition: of it.
    """

    def __init__(self, source: SchemaSource, topic: str, partition: int) -> None:
        self._source = source
        self._place = topic, partition
        self._known: dict[int, Pinned] = {}
        self._fresh: dict[int, Pinned] = {}

    def reopen(self) -> None:
        """Forget everything: the state is read anew."""
        self._known = dict(self._source.pinned(*self._place))
        self._fresh = {}

    def ready(
        self, reader: StateReader, records: Sequence[RawRecord], fetched: int
    ) -> tuple[Sequence[RawRecord], int]:
        """Cut a list before the first record whose schema is still asked for.

        Args:
            reader: committed rows.
            records: in offset order.
            fetched: offset before which they are complete.

        Returns:
            The records that can be read, and the offset before which these are complete.
        """
        self._fresh = {}
        heads = {head for head in heads_of(r.value for r in records) if self._is_new(head, reader)}
        pending: set[bytes] = set()
        if heads:
            since: dict[bytes, int] = {}
            for record in records:
                since.setdefault((record.value or b"")[:HEAD], record.offset)
            for head in heads:
                number = schema_id(head) or 0
                answer = self._source.ask(number)
                if isinstance(answer, Schema):
                    self._fresh[number] = Pinned(answer, since[head])
                elif answer is Verdict.PENDING:
                    pending.add(head)
        for row, record in enumerate(records if pending else ()):
            if (record.value or b"")[:HEAD] in pending:
                return records[:row], record.offset
        return records, fetched

    def _is_new(self, head: bytes, reader: StateReader) -> bool:
        number = schema_id(head)
        if number is None or number in self._known:
            return False
        (row,) = reader.get_many([schema_row(number)])
        if row is None:
            return True
        self._known[number] = decode_pinned(row)
        return False

    @property
    def known(self) -> Known:
        """Schemas of the ids in the list of `ready`."""
        return {**self._known, **self._fresh}

    def rows(self, used: Sequence[RawRecord]) -> Changes:
        """The rows of schemas that are used for the first time.

        Args:
            used: records of the step.
        """
        if not self._fresh:
            return {}
        numbers = {schema_id(head) for head in heads_of(r.value for r in used)}
        return {schema_row(n): p.encode() for n, p in self._fresh.items() if n in numbers}
