"""Avro encoding of a shape: its schema, and bytes that depend on the value alone."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ..bytes_in import BrokenBytes, Bytes, number_of
from .shape import INT64, ValueShape, names_of

Write = Callable[[Any, bytearray], None]
Read = Callable[[Bytes], Any]

_DOUBLE = struct.Struct("<d")
_NAMES = {"text": "string", "whole": "long", "real": "double", "number": "double"}
SCALARS = ["string", "long", "boolean", "bytes"]
"""Branches of a scalar; bytes are the decimal digits of an integer beyond 64 bits."""


def schema(shape: ValueShape, package: str) -> dict[str, Any]:
    """The schema of a record as plain JSON."""
    body: dict[str, Any] = _type(shape, set())
    return {"type": "record", "name": body["name"], "namespace": package} | body


def _type(shape: ValueShape, known: set[str]) -> Any:
    found = _own(shape, known)
    return ["null", found] if shape.optional else found


def _own(shape: ValueShape, known: set[str]) -> Any:
    if shape.kind == "record":
        if shape.name in known:
            return shape.name
        known.add(shape.name)
        fields = [_field(*one, known) for one in names_of(shape)]
        doc = {"doc": shape.doc} if shape.doc else {}
        return {"type": "record", "name": shape.name, **doc, "fields": fields}
    if shape.kind == "list":
        return {"type": "array", "items": _type(shape.inner, known)}
    if shape.kind == "map":
        return {"type": "map", "values": _type(shape.inner, known)}
    if shape.kind == "scalar":
        return SCALARS
    return _NAMES.get(shape.kind, "boolean")


def _field(name: str, allowed: str, shape: ValueShape, known: set[str]) -> dict[str, Any]:
    doc = shape.doc if shape.kind != "record" else ""
    told = doc if name == allowed else f"{name}. {doc}".rstrip()
    body = {"name": allowed, "type": _type(shape, known)}
    return body | ({"doc": told} if told else {})


# -- writing --------------------------------------------------------------------------------------


def writer(shape: ValueShape) -> Write:
    """Compile the writer of a shape; it raises KeyError or ValueError for any other value."""
    write = _WRITERS[shape.kind](shape)
    if not shape.optional:
        return write

    def perhaps(value: Any, out: bytearray) -> None:
        if value is None:
            out.append(0)
        else:
            out.append(2)
            write(value, out)

    return perhaps


def _long(value: int, out: bytearray) -> None:
    if value not in INT64:
        raise ValueError("an integer beyond 64 bits")
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def _text(value: str, out: bytearray) -> None:
    _blob(value.encode(), out)


def _blob(value: bytes, out: bytearray) -> None:
    _long(len(value), out)
    out += value


def _real(value: float, out: bytearray) -> None:
    out += _DOUBLE.pack(value)


def _truth(value: bool, out: bytearray) -> None:
    out.append(bool(value))


def _scalar(value: Any, out: bytearray) -> None:
    if isinstance(value, str):
        out.append(0)
        _text(value, out)
    elif isinstance(value, bool):
        out.append(4)
        _truth(value, out)
    elif not isinstance(value, int):
        raise ValueError("neither text nor integer nor truth value")
    elif value in INT64:
        out.append(2)
        _long(value, out)
    else:
        out.append(6)
        _blob(b"%d" % value, out)


def _record_writer(shape: ValueShape) -> Write:
    fields = [(name, writer(inner)) for name, inner in shape.fields]

    def write(value: Any, out: bytearray) -> None:
        if len(value) != len(fields):
            raise ValueError(f"{shape.name} has other fields")
        for name, one in fields:
            one(value[name], out)

    return write


def _list_writer(shape: ValueShape) -> Write:
    item = writer(shape.inner)

    def write(value: Any, out: bytearray) -> None:
        if value:
            _long(len(value), out)
            for one in value:
                item(one, out)
        out.append(0)

    return write


def _map_writer(shape: ValueShape) -> Write:
    item = writer(shape.inner)

    def write(value: Any, out: bytearray) -> None:
        if value:
            _long(len(value), out)
            for name in sorted(value):
                _text(name, out)
                item(value[name], out)
        out.append(0)

    return write


_WRITERS: dict[str, Callable[[ValueShape], Write]] = {
    "text": lambda _: _text,
    "whole": lambda _: _long,
    "real": lambda _: _real,
    "number": lambda _: _real,
    "truth": lambda _: _truth,
    "scalar": lambda _: _scalar,
    "record": _record_writer,
    "list": _list_writer,
    "map": _map_writer,
}


# -- reading --------------------------------------------------------------------------------------


def reader(shape: ValueShape) -> Read:
    """Compile the reader of a shape; it raises `BrokenBytes` for other bytes."""
    read = _READERS[shape.kind](shape)
    if not shape.optional:
        return read

    def perhaps(data: Bytes) -> Any:
        return read(data) if _branch(data, 2) else None

    return perhaps


def _branch(data: Bytes, number: int) -> int:
    branch = data.zigzag()
    if not 0 <= branch < number:
        raise BrokenBytes
    return branch


def _read_blob(data: Bytes) -> bytes:
    return data.take(data.zigzag())


def _read_text(data: Bytes) -> str:
    return data.text(data.zigzag())


def _read_truth(data: Bytes) -> bool:
    return bool(data.take(1)[0])


def _read_scalar(data: Bytes) -> Any:
    branch = _branch(data, len(SCALARS))
    if branch == 3:
        return number_of(_read_blob(data))
    return (_read_text, Bytes.zigzag, _read_truth)[branch](data)


def _record_reader(shape: ValueShape) -> Read:
    fields = [(name, reader(inner)) for name, inner in shape.fields]
    return lambda data: {name: read(data) for name, read in fields}


def _list_reader(shape: ValueShape) -> Read:
    item = reader(shape.inner)

    def read(data: Bytes) -> list[Any]:
        found = [item(data) for _ in range(_count(data))]
        _end(data, bool(found))
        return found

    return read


def _map_reader(shape: ValueShape) -> Read:
    item = reader(shape.inner)

    def read(data: Bytes) -> dict[str, Any]:
        found = {_read_text(data): item(data) for _ in range(_count(data))}
        _end(data, bool(found))
        return found

    return read


def _count(data: Bytes) -> int:
    """Number of items; each takes at least one byte."""
    count = data.zigzag()
    if not 0 <= count <= data.left:
        raise BrokenBytes
    return count


def _end(data: Bytes, some: bool) -> None:
    """Read the end of a list; our writer puts all items into one block."""
    if some and data.take(1) != b"\0":
        raise BrokenBytes


_READERS: dict[str, Callable[[ValueShape], Read]] = {
    "text": lambda _: _read_text,
    "whole": lambda _: Bytes.zigzag,
    "real": lambda _: Bytes.double,
    "number": lambda _: Bytes.number,
    "truth": lambda _: _read_truth,
    "scalar": lambda _: _read_scalar,
    "record": _record_reader,
    "list": _list_reader,
    "map": _map_reader,
}
