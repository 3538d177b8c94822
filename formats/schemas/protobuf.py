"""Protobuf payloads to columns: a message type is compiled once into a table by field number.

A record's fields may come in any order and number, so each step reads one more field of every
record. Records with many more fields than the others are finished one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..bytes_in import BrokenBytes, Bytes
from .batch import U64, FieldColumn, Payloads, Rows, leaves_of, unzigzag
from .proto_types import ProtoField, ProtoMessage
from .schema import UnusableSchema

Sink = Mapping[str, FieldColumn]

STEPS = 300  # fields read in all records together
MOST_PARTS = 1_000  # parts of one nested message; an encoder writes one part
VARINT, WIDE, BYTES, NARROW = 0, 1, 2, 5  # wire types


class Leaf(NamedTuple):
    """A field that is read."""

    path: str  # of its column
    wire: int  # its wire type; with another it is an unknown field
    convert: Callable[[Any], list[Any]] | None  # raw numbers to values; None for texts
    default: Any  # value if it is absent; None: missing


class Message:
    """A compiled message type.

    Attributes:
        leaves: leaves by field number.
        inner: nested messages, by field number.
        wrong: paths whose type cannot be used.

    Raises:
        UnusableSchema: two fields share a needed name.
    """

    def __init__(self, kind: ProtoMessage | None, wanted: Mapping[str, Any], path: str) -> None:
        self.leaves: dict[int, Leaf] = {}
        self.inner: dict[int, Message] = {}
        self.wrong: list[str] = []
        self._wires: dict[int, int] = {}  # of members of a oneof
        self._rivals: dict[int, list[int]] = {}
        if kind is None:
            self.wrong = list(leaves_of(wanted, path))
            return
        needed = [one for one in kind.fields if one.name in wanted]
        if len({one.name for one in needed}) < len(needed):
            raise UnusableSchema("two fields of a message have one name")
        for one in needed:
            self._add(one, wanted[one.name], f"{path}.{one.name}" if path else one.name)
        groups: dict[str, list[int]] = {}  # oneof -> its needed fields
        for one in kind.fields:
            if one.oneof and (one.number in self.leaves or one.number in self.inner):
                groups.setdefault(one.oneof, []).append(one.number)
        for one in kind.fields:
            known = [n for n in groups.get(one.oneof, ()) if n != one.number]
            if known:
                wire = _NUMBERS[one.kind][0] if one.kind in _NUMBERS else BYTES
                self._wires[one.number] = VARINT if one.kind == "enum" else wire
                self._rivals[one.number] = known

    def _add(self, one: ProtoField, wanted: Mapping[str, Any] | None, path: str) -> None:
        if not one.repeated and wanted is None and (one.kind in _NUMBERS or one.kind == "enum"):
            wire, convert = _NUMBERS.get(one.kind, (VARINT, _int32))
            if one.kind == "enum":
                convert = _symbols(one.symbols)
            self.leaves[one.number] = Leaf(path, wire, convert, _default(one))
        elif not one.repeated and wanted is None and one.kind == "string":
            self.leaves[one.number] = Leaf(path, BYTES, None, _default(one))
        elif not one.repeated and wanted is not None and one.kind == "message":
            self.inner[one.number] = Message(one.message, wanted, path)
        else:
            self.wrong += leaves_of(wanted, path)

    def read(self, batch: Payloads, rows: Rows, sink: Sink) -> Rows:
        """Read a message in each row, up to the row's end; return the good rows."""
        self._begin(rows, sink)
        left = rows
        for _ in range(STEPS):
            left = left[batch.at[left] < batch.end[left]]
            if not left.size:
                break
            left = self._fields(batch, left, sink)
        for row in left.tolist():
            self._finish(batch, row, sink)
        return rows[~batch.bad[rows]]

    def _begin(self, rows: Rows, sink: Sink) -> None:
        """Give each field its default; a repeated message keeps its values."""
        for leaf in self.leaves.values():
            if leaf.default is None:
                continue
            column = sink[leaf.path]
            mine = rows
            if "." in leaf.path:
                absent = [row for row in rows.tolist() if column.values[row] is None]
                mine = np.array(absent, np.intp)
            column.put(mine, [leaf.default] * len(mine))
        for path in self.wrong:
            sink[path].refuse(rows, "wrong_type")

    def clear(self, rows: Rows, sink: Sink) -> None:
        """Clear all that was read in some rows."""
        for leaf in self.leaves.values():
            sink[leaf.path].forget(rows)
        for path in self.wrong:
            sink[path].forget(rows)
        for one in self.inner.values():
            one.clear(rows, sink)

    def _fields(self, batch: Payloads, rows: Rows, sink: Sink) -> Rows:
        """Read one field of each row."""
        rows, keys = batch.varints(rows)
        if not rows.size:
            return rows
        if (keys == keys[0]).all():
            return self._field(batch, rows, int(keys[0]), sink)
        for key in _distinct(keys):
            self._field(batch, rows[keys == key], int(key), sink)
        return rows[~batch.bad[rows]]

    def _field(self, batch: Payloads, rows: Rows, key: int, sink: Sink) -> Rows:
        number, wire = key >> 3, key & 7
        if number == 0 or wire not in (VARINT, WIDE, BYTES, NARROW):
            batch.bad[rows] = True
            return rows[:0]
        leaf, inner = self.leaves.get(number), self.inner.get(number)
        if number in self._rivals and wire == self._wires[number]:
            for rival in self._rivals[number]:
                self._forget(rival, rows, sink)
        if wire == BYTES:
            rows, sizes = batch.varints(rows)
            rows, starts = batch.take(rows, sizes.astype(np.int64))
            if leaf is not None and leaf.wire == BYTES:
                batch.texts(rows, starts, batch.at[rows], sink[leaf.path])
            elif inner is not None:
                rows = _within(inner, batch, rows, starts, sink)
            return rows
        raw: NDArray[Any]
        if wire == VARINT:
            rows, raw = batch.varints(rows)
        else:
            rows, raw = batch.fixed(rows, "<u8" if wire == WIDE else "<u4")
        if leaf is not None and leaf.wire == wire and leaf.convert is not None:
            sink[leaf.path].put(rows, leaf.convert(raw))
        return rows

    def _forget(self, number: int, rows: Rows, sink: Sink) -> None:
        if number in self.leaves:
            sink[self.leaves[number].path].forget(rows)
        else:
            self.inner[number].clear(rows, sink)

    def _finish(self, batch: Payloads, row: int, sink: Sink) -> None:
        """Read the rest of one record; of a repeated occurrence only the last counts."""
        data = Bytes(batch.blob, int(batch.at[row]), int(batch.end[row]))
        last: dict[int, int] = {}
        inner: list[int] = []
        while data.left:
            begin = data.at
            try:
                number, wire = _pass(data)
            except BrokenBytes:
                number = wire = 0
            if number == 0 or len(inner) > MOST_PARTS:
                batch.bad[row] = True
                return
            if number in self.inner and wire == BYTES:
                inner.append(begin)
            elif number in self.leaves or number in self._rivals:
                wanted = self.leaves[number].wire if number in self.leaves else self._wires[number]
                if wire == wanted:
                    last[number] = begin
        one = np.array([row], np.intp)
        for place in sorted([*inner, *last.values()]):
            batch.at[row] = place
            self._fields(batch, one, sink)
        batch.at[row] = data.end


def _within(inner: Message, batch: Payloads, rows: Rows, starts: Any, sink: Sink) -> Rows:
    """Read a nested message; meanwhile its end is the end of its rows."""
    ends, outer = batch.at[rows], batch.end[rows]
    batch.at[rows], batch.end[rows] = starts, ends
    inner.read(batch, rows, sink)
    batch.at[rows], batch.end[rows] = ends, outer
    return rows[~batch.bad[rows]]


def _distinct(keys: U64) -> list[int]:
    if keys.max() < 4096:
        return list(map(int, np.flatnonzero(np.bincount(keys.astype(np.int64)))))
    return list(map(int, np.unique(keys)))


def _pass(data: Bytes) -> tuple[int, int]:
    """Skip a field; return its number and wire type."""
    key = data.varint()
    wire = key & 7
    if wire == VARINT:
        data.varint()
    else:
        data.take(data.varint() if wire == BYTES else {WIDE: 8, NARROW: 4}.get(wire, -1))
    return key >> 3, wire


# -- values ---------------------------------------------------------------------------------------


def _low(raw: U64) -> NDArray[np.uint32]:
    return (raw & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def _int32(raw: U64) -> list[Any]:
    return list(_low(raw).view(np.int32).tolist())


def _sint32(raw: U64) -> list[Any]:
    return list(unzigzag(raw & np.uint64(0xFFFFFFFF)).astype(np.int32).tolist())


def _symbols(symbols: Mapping[int, str]) -> Callable[[U64], list[Any]]:
    return lambda raw: [symbols.get(value, value) for value in _int32(raw)]


_NUMBERS: dict[str, tuple[int, Callable[[Any], list[Any]]]] = {
    "int32": (VARINT, _int32),
    "int64": (VARINT, lambda raw: raw.view(np.int64).tolist()),
    "uint32": (VARINT, lambda raw: _low(raw).tolist()),
    "uint64": (VARINT, lambda raw: raw.tolist()),
    "sint32": (VARINT, _sint32),
    "sint64": (VARINT, lambda raw: unzigzag(raw).tolist()),
    "bool": (VARINT, lambda raw: (raw != 0).tolist()),
    "fixed32": (NARROW, lambda raw: raw.tolist()),
    "sfixed32": (NARROW, lambda raw: raw.view("<i4").tolist()),
    "float": (NARROW, lambda raw: raw.view("<f4").tolist()),
    "fixed64": (WIDE, lambda raw: raw.tolist()),
    "sfixed64": (WIDE, lambda raw: raw.view("<i8").tolist()),
    "double": (WIDE, lambda raw: raw.view("<f8").tolist()),
}


def _default(one: ProtoField) -> Any:
    """The value of an absent field; None if the format distinguishes absence."""
    if one.explicit:
        return None
    if one.kind == "enum":
        return one.symbols.get(0, 0)
    if one.kind in ("double", "float"):
        return 0.0
    return {"string": "", "bool": False}.get(one.kind, 0)


def message_indexes(head: bytes) -> tuple[tuple[int, ...], int]:
    r"""Read the place of a message type in its file from what follows the schema's id.

    Returns the indexes of its enclosing messages and its own, and the number of bytes read. A
    broken place raises `BrokenBytes`.

    >>> message_indexes(b"\x00rest"), message_indexes(bytes([4, 2, 6]))
    (((0,), 1), ((1, 3), 3))
    """
    data = Bytes(head, 0, len(head))

    def number() -> int:
        value = data.zigzag()
        if not 0 <= value <= 1_000:
            raise BrokenBytes
        return value

    found = [number() for _ in range(number())]
    return tuple(found) or (0,), data.at
