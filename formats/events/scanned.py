"""Findings of compiled loops in many records at once, whatever their format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...mechanisms.columns import I64
from ..schemas.schema import Known
from .fields import InputFields, PipelineFields
from .framed import Framing
from .raw import RawBatch, RawRecord, offsets_of
from .reasons import Unread
from .types import INTEGER, REAL, paths_of

Flags = NDArray[np.bool_]


class Scanned(Protocol):
    """Findings in n records with f needed fields."""

    data: NDArray[np.uint8]  # a read-only buffer with all texts
    # kind, low, high: (n, f) kind of each value, and bounds of its text
    kind: NDArray[np.uint8]
    low: I64
    high: I64
    known: Flags  # (n,) whether a record was understood

    def integers(self, place: int, wanted: Flags) -> I64:
        """(n,) integers of the field at ``place``; 0 in rows that are not wanted."""

    def numbers(self, place: int, known: Flags) -> NDArray[np.float64]:
        """(n,) numbers of the field at ``place``, in known rows.

        A row whose number only the other reader can read is removed from ``known``.
        """


class Scanner(Protocol):
    """A reader of one format."""

    def scan(self, records: Sequence[RawRecord], known_ids: Known) -> Scanned:
        """Scan records of one partition; unusual records are not known.

        ``known_ids`` has schemas by id, for values that begin with one.
        """


class JsonScanned:
    """Findings in JSON, where numbers are texts."""

    def __init__(self, data: NDArray[np.uint8], rows: int, fields: int) -> None:
        self.data = data
        self.kind = np.zeros((rows, fields), np.uint8)
        self.low = np.zeros((rows, fields), np.int64)
        self.high = np.zeros((rows, fields), np.int64)
        self.known: Flags = np.empty(rows, bool)

    def integers(self, place: int, wanted: Flags) -> I64:
        from .json_scan import integers

        out = np.zeros(len(wanted), np.int64)
        integers(self.data, self.low[:, place], self.high[:, place], wanted, out)
        return out

    def numbers(self, place: int, known: Flags) -> NDArray[np.float64]:
        """As `Scanned.numbers`; a row with a decimal that could be rounded becomes unknown."""
        from .json_scan import decimals

        kind = self.kind[:, place]
        out = self.integers(place, known & (kind == INTEGER)).astype(np.float64)
        real = known & (kind == REAL)
        before = real.copy()
        decimals(self.data, self.low[:, place], self.high[:, place], real, out)
        known &= real | ~before
        return out


class JsonScanner:
    """`Scanner` of JSON for an input's pipelines, with or without schema ids (``framing``)."""

    def __init__(
        self, fields: InputFields, pipelines: Sequence[PipelineFields], framing: Framing | None
    ) -> None:
        paths = sorted(paths_of(fields, pipelines))
        self._largest = fields.max_record_bytes
        self._framing = framing
        # Names as written without escapes; records with escaped names go to the other reader.
        names = [json.dumps(path, ensure_ascii=False)[1:-1].encode() for path in paths]
        self._names = np.frombuffer(b"".join(names), np.uint8)
        self._ends = np.cumsum([len(name) for name in names], dtype=np.int64)

    def scan(self, records: Sequence[RawRecord], known_ids: Known) -> JsonScanned:
        from .json_scan import scan

        data, begin, end = values_of(records)
        if self._framing is not None:
            offsets = offsets_of(records)
            begin, _ = self._framing.begins(data, begin, end, offsets, known_ids)
        out = JsonScanned(data, len(begin), len(self._ends))
        found = out.kind, out.low, out.high, out.known
        scan(data, begin, end, self._names, self._ends, self._largest, *found)
        return out


def values_of(records: Sequence[RawRecord]) -> tuple[NDArray[np.uint8], I64, I64]:
    """A buffer with all values, and bounds of each; -1 if there is none to read."""
    if isinstance(records, RawBatch):
        data = records.data.view()
        data.flags.writeable = False  # as below: numba compiles a loop anew for every type
        return data, records.value, records.value_end
    values = [r.value for r in records]
    none = np.fromiter((v is None or isinstance(v, Unread) for v in values), bool, len(values))
    read = [v or b"" for v in values]
    end = np.cumsum(np.fromiter(map(len, read), np.int64, len(read)))
    begin = np.concatenate([np.zeros(1, np.int64), end[:-1]])
    return np.frombuffer(b"".join(read), np.uint8), np.where(none, -1, begin), end
