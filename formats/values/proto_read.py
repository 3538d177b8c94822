"""Reader of Protobuf messages of a shape; it refuses fields that the shape lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..bytes_in import BrokenBytes, Bytes, number_of
from .proto_codec import BYTES, DEFAULTS, WIRE
from .shape import SIMPLE, TEXT, ValueShape

Read = Callable[[Bytes], Any]
Take = Callable[[Bytes, int, dict[str, Any]], None]  # bytes, wire type, record so far

_PACKED = ("whole", "real", "number", "truth")


def reader(shape: ValueShape) -> Read:
    """Compile the reader of a record; it raises `BrokenBytes` for other bytes."""
    takers = {number: _taker(name, one) for number, (name, one) in enumerate(shape.fields, 1)}

    def read(data: Bytes) -> dict[str, Any]:
        found = {name: _blank(one) for name, one in shape.fields}
        while data.left:
            key = data.varint()
            take = takers.get(key >> 3)
            if take is None:
                raise BrokenBytes
            take(data, key & 7, found)
        if _MISSING in found.values():  # even a message without fields is written
            raise BrokenBytes
        return found

    return read


_MISSING = object()


def _blank(shape: ValueShape) -> Any:
    if shape.kind == "list":
        return []
    if shape.kind == "map":
        return {}
    if shape.optional:
        return None
    return DEFAULTS.get(shape.kind, _MISSING)


def _taker(name: str, shape: ValueShape) -> Take:
    if shape.kind == "list":
        return _list_taker(name, shape.inner)
    if shape.kind == "map":
        return _map_taker(name, shape.inner)
    wire, value = WIRE.get(shape.kind, BYTES), _value(shape)

    def take(data: Bytes, found_wire: int, found: dict[str, Any]) -> None:
        _expect(found_wire, wire)
        found[name] = value(data)

    return take


def _expect(found: int, wanted: int) -> None:
    if found != wanted:
        raise BrokenBytes


def _value(shape: ValueShape) -> Read:
    """Read one value after its tag."""
    if shape.kind in SIMPLE:
        return _SIMPLE[shape.kind]
    if shape.kind == "scalar":
        inner: Read = _scalar
    elif shape.kind == "record":
        inner = reader(shape)
    else:  # a list within a list or a map has its own message
        items = reader(ValueShape("record", fields=(("items", shape),)))

        def inner(data: Bytes) -> Any:
            return items(data)["items"]

    return lambda data: inner(_part(data))


def _part(data: Bytes) -> Bytes:
    size = data.varint()
    begin = data.at
    data.take(size)
    return Bytes(data.data, begin, data.at)


def _list_taker(name: str, item: ValueShape) -> Take:
    value = _value(item)

    def each(data: Bytes, wire: int, found: dict[str, Any]) -> None:
        _expect(wire, BYTES)
        found[name].append(value(data))

    def packed(data: Bytes, wire: int, found: dict[str, Any]) -> None:
        _expect(wire, BYTES)
        part = _part(data)
        while part.left:
            found[name].append(value(part))

    return packed if item.kind in _PACKED else each


def _map_taker(name: str, item: ValueShape) -> Take:
    entry = reader(ValueShape("record", fields=(("key", TEXT), ("value", item))))
    if item.kind == "list":
        entry = _listed_entry(item)

    def take(data: Bytes, wire: int, found: dict[str, Any]) -> None:
        _expect(wire, BYTES)
        one = entry(_part(data))
        found[name][one["key"]] = one["value"]

    return take


def _listed_entry(item: ValueShape) -> Read:
    """Read an entry whose value is a list: a wrapping message, not a repeated field."""
    around = ValueShape("record", name="List", fields=(("items", item),))
    inner = reader(ValueShape("record", fields=(("key", TEXT), ("value", around))))

    def read(data: Bytes) -> dict[str, Any]:
        one: dict[str, Any] = inner(data)
        return {"key": one["key"], "value": one["value"]["items"]}

    return read


def _whole(data: Bytes) -> int:
    value = data.varint()
    return value - (1 << 64) if value >> 63 else value


_SIMPLE: dict[str, Read] = {
    "text": lambda data: data.text(data.varint()),
    "whole": _whole,
    "real": Bytes.double,
    "number": Bytes.number,
    "truth": lambda data: bool(data.varint()),
}


def _scalar(data: Bytes) -> Any:
    found: Any = _MISSING
    while data.left:
        key = data.varint()
        if key == 0x0A:
            found = data.text(data.varint())
        elif key == 0x10:
            found = _whole(data)
        elif key == 0x18:
            found = bool(data.varint())
        elif key == 0x22:
            found = number_of(data.take(data.varint()))
        else:
            raise BrokenBytes
    if found is _MISSING:
        raise BrokenBytes
    return found
