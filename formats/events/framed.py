"""Values that begin with the id of their writer's schema, and are read by that schema.

The frame is a zero byte, four bytes of the id and, for Protobuf, the place of the message type;
then comes the encoded value. Schemas are passed in: ids are resolved where there is a network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..bytes_in import HEAD, schema_id
from ..schemas.batch import FieldColumn, Payloads
from ..schemas.schema import Known, Schema, UnusableSchema
from .fields import InputFields, PipelineFields
from .reasons import Bad, Reason, Unread
from .types import names_of, paths_of, tree_of, types_of
from .wires import Run, Wire

_KEPT = 1_000  # compiled schemas
_NEVER = np.iinfo(np.int64).max  # exceeds every offset


def heads_of(values: Iterable[bytes | None]) -> set[bytes]:
    """The distinct frames of values, to see quickly which ids occur."""
    return {value[:HEAD] for value in values if value}


class Framing:
    """Frames of an input's values; values of more than ``largest`` bytes are not read."""

    def __init__(self, kind: str, largest: int) -> None:
        self._kind = kind
        self._largest = largest

    def refusal(self, value: bytes | None, offset: int, known: Known) -> str:
        """The reason why a value's frame cannot be used; empty if it can."""
        if value is None:
            return "null"
        if isinstance(value, Unread):
            return value.reason
        if len(value) > self._largest:
            return "oversized"
        number = schema_id(value)
        if number is None:
            return "malformed"
        pinned = known.get(number)
        if pinned is None or offset < pinned.since:
            return "unknown_schema"
        return "" if pinned.schema.kind == self._kind else "wrong_schema"

    def payload(self, value: bytes | None, offset: int, known: Known) -> bytes | None:
        """The encoded value without its frame; an `Unread` if it cannot be read."""
        reason = self.refusal(value, offset, known)
        if reason == "null" or value is None:
            return None
        return Unread.of(reason, offset) if reason else value[HEAD:]

    def begins(
        self,
        data: NDArray[np.uint8],
        begin: NDArray[np.int64],
        end: NDArray[np.int64],
        offsets: NDArray[np.int64],
        known: Known,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The place after the frame of each value in ``data``, and the id in the frame.

        Both are -1 where `refusal` gives or may give a reason; ``begin`` is -1 without a value.
        """
        size = end - begin
        good = (begin >= 0) & (size >= HEAD) & (size <= self._largest)
        places = np.where(good, begin, 0)[:, None] + np.arange(HEAD)
        heads = data[np.minimum(places, max(len(data) - 1, 0))] if len(data) else places * 0 + 1
        good &= heads[:, 0] == 0
        numbers = heads[:, 1:].astype(np.int64) @ (1 << np.array([24, 16, 8, 0], np.int64))
        since = np.full(len(begin), _NEVER)
        for number in np.unique(numbers[good]).tolist():
            pinned = known.get(number)
            if pinned is not None and pinned.schema.kind == self._kind:
                since[numbers == number] = pinned.since
        good &= since <= offsets
        return np.where(good, begin + HEAD, -1), np.where(good, numbers, -1)


class Columns(NamedTuple):
    """Fields of records."""

    by_path: Mapping[str, FieldColumn]
    size: int

    def column(self, path: str, role: str) -> tuple[list[Any], Bad]:
        """Values of a path; a value whose type does not suit the role is a fault."""
        found = self.by_path[path]
        values = found.values
        faults: Bad = {row: Reason.at(word, path) for row, word in found.wrong.items()}
        allowed = types_of(role) | {type(None)}
        if set(map(type, values)) - allowed:
            values = list(values)
            for row, value in enumerate(values):
                if type(value) not in allowed:
                    values[row] = None
                    faults.setdefault(row, Reason.at("wrong_type", path))
        for row in found.wrong:
            values[row] = None
        return values, faults


class FramedReader:
    """Reader of values in Avro or Protobuf, into columns for the pipelines of an input."""

    def __init__(
        self, wire: Wire, fields: InputFields, pipelines: Sequence[PipelineFields]
    ) -> None:
        paths = paths_of(fields, pipelines)
        self._wire, self._wanted, self._paths = wire, names_of(tree_of(paths)), tuple(paths)
        self._readers = len(pipelines)
        self._framing = Framing(wire.kind, fields.max_record_bytes)
        self._compiled: dict[tuple[Schema, bytes], Run | None] = {}

    def read(
        self, values: Sequence[bytes | None], offsets: Sequence[int], known: Known
    ) -> list[tuple[Columns, Bad]]:
        """As `ObjectReader.read`."""
        size = len(values)
        sink = {path: FieldColumn(size) for path in self._paths}
        bad: Bad = {}
        for (schema, place), rows in self._groups(values, offsets, known, bad).items():
            run = self._run_of(schema, place)
            if run is None:
                bad.update(dict.fromkeys(rows, Reason("wrong_schema")))
            else:
                self._run(run, HEAD + len(place), values, rows, sink, bad)
        columns = Columns(sink, size)
        return [(columns, bad), *((columns, {}) for _ in range(self._readers))]

    def _groups(
        self, values: Sequence[bytes | None], offsets: Sequence[int], known: Known, bad: Bad
    ) -> dict[tuple[Schema, bytes], list[int]]:
        """Rows by schema and message type; the rest goes to ``bad``."""
        by_head: dict[bytes, list[int]] = {}
        width = HEAD + self._wire.head
        for row, value in enumerate(values):
            by_head.setdefault((value or b"")[:width], []).append(row)
        groups: dict[tuple[Schema, bytes], list[int]] = {}
        for head, rows in by_head.items():
            number = schema_id(head)
            pinned = None if number is None else known.get(number)
            shared = self._wire.place(head[HEAD:])
            for row in rows:
                value = values[row]
                reason = self._framing.refusal(value, offsets[row], known)
                if reason or pinned is None or value is None:
                    bad[row] = reason
                    continue
                place = shared or self._wire.place(value[HEAD : HEAD + 64])
                if place is None:
                    bad[row] = Reason("wrong_schema")
                else:
                    groups.setdefault((pinned.schema, place), []).append(row)
        return groups

    def _run_of(self, schema: Schema, place: bytes) -> Run | None:
        """The compiled schema; None if it cannot be used."""
        key = (schema, place)
        if key not in self._compiled:
            if len(self._compiled) >= _KEPT:
                self._compiled.clear()
            try:
                self._compiled[key] = self._wire.reader(schema, place, self._wanted)
            except UnusableSchema:
                self._compiled[key] = None
        return self._compiled[key]

    def _run(
        self,
        run: Run,
        skip: int,
        values: Sequence[bytes | None],
        rows: list[int],
        sink: Mapping[str, FieldColumn],
        bad: Bad,
    ) -> None:
        whole = len(rows) == len(values)
        batch = Payloads([values[row] or b"" for row in rows], skip)
        mine = sink if whole else {path: FieldColumn(len(rows)) for path in sink}
        run(batch, np.arange(len(rows)), mine)
        for row in np.flatnonzero(batch.bad).tolist():
            bad[rows[row]] = "malformed"
        if whole:
            return
        place = np.array(rows, np.intp)
        for path, column in mine.items():
            sink[path].put(place, column.values)
            sink[path].wrong.update({rows[row]: word for row, word in column.wrong.items()})
