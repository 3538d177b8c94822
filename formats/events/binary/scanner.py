"""Values in Avro and Protobuf, scanned by a compiled program for each schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ....mechanisms.columns import I64
from ...schemas.schema import Known, Schema, UnusableSchema
from ..fields import InputFields, PipelineFields
from ..framed import Framing
from ..raw import RawRecord, offsets_of
from ..scanned import Flags, values_of
from ..types import INTEGER, REAL, names_of, paths_of, tree_of
from ..wires import Wire
from .program import Maker, NoProgram, Program

_KEPT = 200  # programs
_TYPES = 4  # message types of one schema that one list of records may mix
_PLACE = 16  # most bytes of a message's place in its file; nearly all take one


class BinaryScanned:
    """`Scanned` in a copy of the values with spare room; numbers are binary, not text."""

    def __init__(self, data: NDArray[np.uint8], rows: int, fields: int) -> None:
        self.data = data
        self.kind = np.zeros((rows, fields), np.uint8)
        self.low = np.zeros((rows, fields), np.int64)
        self.high = np.zeros((rows, fields), np.int64)
        self.whole = np.zeros((rows, fields), np.int64)  # integers, or the bits of reals
        self.known: Flags = np.zeros(rows, bool)

    def integers(self, place: int, wanted: Flags) -> I64:
        return np.where(wanted, self.whole[:, place], 0)

    def numbers(self, place: int, known: Flags) -> NDArray[np.float64]:
        """As `Scanned.numbers`; a record without a finite number becomes unknown."""
        kind, whole = self.kind[:, place], self.whole[:, place].copy()
        out = np.where(known & (kind == INTEGER), whole, 0).astype(np.float64)
        real = known & (kind == REAL)
        out[real] = whole.view(np.float64)[real]
        finite = np.isfinite(out)
        known &= finite
        out[~finite] = 0.0
        return out

    def widen(self, half: int) -> None:
        """Widen four-byte reals, marked by the kind ``half``, to eight bytes."""
        narrow = self.kind == half
        if narrow.any():
            bits = self.whole[narrow].astype(np.uint32).view(np.float32)
            with np.errstate(invalid="ignore"):
                self.whole[narrow] = bits.astype(np.float64).view(np.int64)
            self.kind[narrow] = REAL


class BinaryScanner:
    """`Scanner` of Avro or Protobuf for the pipelines of an input."""

    def __init__(
        self, wire: Wire, fields: InputFields, pipelines: Sequence[PipelineFields]
    ) -> None:
        kinds = paths_of(fields, pipelines)
        self._wire = wire
        self._framing = Framing(wire.kind, fields.max_record_bytes)
        self._tree = names_of(tree_of(kinds))
        self._places = {path: n for n, path in enumerate(sorted(kinds))}
        texts = [n for path, n in self._places.items() if "str" in kinds[path]]
        self._texts = np.array(texts, np.int64)  # fields whose integers are wanted as text
        self._programs: dict[tuple[Schema, bytes], Program | None] = {}
        self._none = Maker(len(kinds)).made()

    def scan(self, records: Sequence[RawRecord], known_ids: Known) -> BinaryScanned:
        from .scan import HALF, WIDTH, scan, spell

        data, begin, end = values_of(records)
        begin, ids = self._framing.begins(data, begin, end, offsets_of(records), known_ids)
        parts = list(self._parts(data, begin, end, ids, known_ids))
        # The first list compiles the loops, whatever is in it.
        parts = parts or [(self._none, np.zeros(0, np.int64), 0)]
        room, texts, by = _room(data, begin, end, [one for one, _, _ in parts],
                                len(begin) * len(self._texts) * WIDTH)  # fmt: skip
        seen = room.view()
        seen.flags.writeable = False
        out = BinaryScanned(seen, len(begin), len(self._places))
        for (one, rows, skip), place in zip(parts, texts, strict=False):
            scan(seen, begin + (skip - by), end - by, rows, self._wire.ordered, one.code, one.jumps,
                 one.symbols, one.begin, place,
                 out.kind, out.low, out.high, out.whole, out.known)  # fmt: skip
        out.widen(HALF)
        spell(room, out.kind, out.low, out.high, out.whole, out.known, self._texts, texts[-1])
        return out

    def _parts(
        self, data: NDArray[np.uint8], begin: I64, end: I64, ids: I64, known_ids: Known
    ) -> Iterator[tuple[Program, I64, int]]:
        """Each program, its rows, and the number of bytes before their values."""
        for number in np.unique(ids).tolist():
            if number < 0:
                continue
            schema, rows = known_ids[number].schema, np.flatnonzero(ids == number)
            for place, mine in self._places_of(data, begin, end, rows):
                program = self._program(schema, place)
                if program is not None:
                    yield program, mine, len(place)

    def _places_of(
        self, data: NDArray[np.uint8], begin: I64, end: I64, rows: I64
    ) -> Iterator[tuple[bytes, I64]]:
        """Rows by message type of their schema, if there are few types."""
        rows = rows[end[rows] > begin[rows]]
        for _ in range(_TYPES):
            if not len(rows):
                return
            at = int(begin[rows[0]])
            place = self._wire.place(data[at : min(at + _PLACE, int(end[rows[0]]))].tobytes())
            if place is None:
                rows = rows[1:]
                continue
            same = begin[rows] + len(place) <= end[rows]
            for n, byte in enumerate(place):
                same &= data[np.minimum(begin[rows] + n, len(data) - 1)] == byte
            yield place, rows[same]
            rows = rows[~same]

    def _program(self, schema: Schema, place: bytes) -> Program | None:
        key = schema, place
        if key not in self._programs:
            if len(self._programs) >= _KEPT:
                self._programs.clear()
            try:
                made = self._wire.program(schema, place, self._tree, self._places)
            except (NoProgram, UnusableSchema, ValueError):
                made = None
            self._programs[key] = made
        return self._programs[key]


def _room(
    data: NDArray[np.uint8], begin: I64, end: I64, programs: Sequence[Program], more: int
) -> tuple[NDArray[np.uint8], list[int], int]:
    """A copy of all values to read, followed by the programs' texts and spare room.

    Returns:
        The copy; where each program's texts begin and, last, where the spare room begins; and the
        offset by which values moved.
    """
    good = begin >= 0
    low = int(begin[good].min()) if good.any() else 0
    high = int(end[good].max()) if good.any() else 0
    texts = [np.frombuffer(one.texts, np.uint8) for one in programs]
    places = (high - low + np.cumsum([0, *map(len, texts)])).tolist()
    room = np.concatenate([data[low:high], *texts, np.zeros(more, np.uint8)])
    return room, places, low
