"""Protobuf encoding of a shape: its file, and bytes that depend on the value alone.

They equal the official library's deterministic serialisation: fields ordered by number, defaults
left out, maps sorted by key.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from .shape import INT64, SIMPLE, ValueShape, names_of

_DOUBLE = struct.Struct("<d")
VARINT, WIDE, BYTES = 0, 1, 2  # wire types
_NAMES = {"text": "string", "whole": "int64", "real": "double", "number": "double", "truth": "bool"}
WIRE = {"text": BYTES, "whole": VARINT, "real": WIDE, "number": WIDE, "truth": VARINT}
_LISTS = {"text": "Texts", "whole": "Wholes", "real": "Reals", "number": "Reals", "truth": "Truths"}
DEFAULTS: dict[str, Any] = {"text": "", "whole": 0, "real": 0.0, "number": 0, "truth": False}
SCALAR = """message Scalar {
  oneof kind {
    string text = 1;
    int64 whole = 2;
    bool truth = 3;
    bytes large = 4;  // an integer beyond 64 bits, its decimal digits
  }
}
"""

Put = Callable[[Any, bytearray], None]


def schema(shape: ValueShape, package: str) -> str:
    """The text of the file; the record is its first message."""
    made: dict[str, str] = {}
    _message(shape, made)
    head = f'syntax = "proto3";\npackage {package};\n\n'
    return head + "\n".join(reversed(made.values()))


def _message(shape: ValueShape, made: dict[str, str]) -> str:
    """Make the messages that a shape needs, nested ones first; return its name."""
    if shape.kind == "scalar":
        made.setdefault("Scalar", SCALAR)
        return "Scalar"
    name = shape.name if shape.kind == "record" else _list_name(shape)
    if name in made:
        return name
    lines = [f"// {shape.doc}"] if shape.doc else []
    lines.append(f"message {name} {{")
    rows = names_of(shape) if shape.kind == "record" else [("", "items", shape)]
    for number, (given, allowed, inner) in enumerate(rows, 1):
        told = given if given not in ("", allowed) else ""
        doc = inner.doc if inner.kind != "record" else ""
        note = f"  // {' '.join(filter(None, (told and f'{_line(told)}.', doc)))}".rstrip()
        note = note if told or doc else ""
        lines.append(f"  {_type(inner, made)} {allowed} = {number};{note}")
    made[name] = "\n".join([*lines, "}", ""])
    return name


def _line(text: str) -> str:
    """A name within a comment of one line."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _type(shape: ValueShape, made: dict[str, str]) -> str:
    if shape.kind == "list":
        return f"repeated {_item(shape.inner, made)}"
    if shape.kind == "map":
        return f"map<string, {_item(shape.inner, made)}>"
    name = _item(shape, made)
    return f"optional {name}" if shape.optional and shape.kind in SIMPLE else name


def _item(shape: ValueShape, made: dict[str, str]) -> str:
    return _NAMES[shape.kind] if shape.kind in SIMPLE else _message(shape, made)


def _list_name(shape: ValueShape) -> str:
    """Name of the message that wraps a list within a list or a map."""
    inner = shape.inner
    if inner.kind in SIMPLE:
        return _LISTS[inner.kind]
    return f"{inner.name or _list_name(inner)}List"


# -- writing --------------------------------------------------------------------------------------


def writer(shape: ValueShape) -> Put:
    """Compile the writer of a record; it raises KeyError or ValueError for any other value."""
    if shape.kind == "scalar":
        return _scalar
    if shape.kind != "record":
        return _field_writer(1, shape)
    fields = [(name, _field_writer(n, one)) for n, (name, one) in enumerate(shape.fields, 1)]

    def write(value: Any, out: bytearray) -> None:
        if len(value) != len(fields):
            raise ValueError(f"{shape.name} has other fields")
        for name, put in fields:
            put(value[name], out)

    return write


def _field_writer(number: int, shape: ValueShape) -> Put:
    if shape.kind == "list":
        return _list_writer(number, shape.inner)
    if shape.kind == "map":
        return _map_writer(number, shape.inner)
    put = _tagged(number, shape)
    default = DEFAULTS.get(shape.kind)

    def write(value: Any, out: bytearray) -> None:
        if value is None:
            if not shape.optional:
                raise ValueError("a value is missing")
        elif shape.optional or shape.kind not in SIMPLE or not _is(value, default):
            put(value, out)

    return write


def _is(value: Any, default: Any) -> bool:
    """Whether a value is its type's default; negative zero is not."""
    return bool(value == default) and (
        not isinstance(value, float) or math.copysign(1.0, value) > 0
    )


def _tagged(number: int, shape: ValueShape) -> Put:
    """Write a single value with its tag, even if it is the default."""
    wire = WIRE.get(shape.kind, BYTES)
    tag = _varint(number << 3 | wire)
    if shape.kind in SIMPLE:
        simple = _SIMPLE[shape.kind]

        def write(value: Any, out: bytearray) -> None:
            out += tag
            simple(value, out)

        return write
    inner = writer(shape)

    def within(value: Any, out: bytearray) -> None:
        part = bytearray()
        inner(value, part)
        _part(tag, part, out)

    return within


def _list_writer(number: int, item: ValueShape) -> Put:
    if item.kind in ("text", "record", "scalar", "list", "map"):
        put = _tagged(number, item)

        def each(value: Any, out: bytearray) -> None:
            for one in value:
                put(one, out)

        return each
    tag, simple = _varint(number << 3 | BYTES), _SIMPLE[item.kind]

    def packed(value: Any, out: bytearray) -> None:
        if not value:
            return
        part = bytearray()
        for one in value:
            simple(one, part)
        _part(tag, part, out)

    return packed


def _map_writer(number: int, item: ValueShape) -> Put:
    tag, put = _varint(number << 3 | BYTES), _tagged(2, item)

    def write(value: Any, out: bytearray) -> None:
        for name in sorted(value):
            part = bytearray(b"\x0a")
            _text(name, part)
            put(value[name], part)
            _part(tag, part, out)

    return write


def _part(tag: bytes, part: bytes | bytearray, out: bytearray) -> None:
    """Write a length-delimited part: its tag, length and bytes."""
    out += tag
    out += _varint(len(part))
    out += part


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _text(value: str, out: bytearray) -> None:
    _part(b"", value.encode(), out)


def _whole(value: int, out: bytearray) -> None:
    if value not in INT64:
        raise ValueError("an integer beyond 64 bits")
    out += _varint(value & (1 << 64) - 1)


def _real(value: float, out: bytearray) -> None:
    out += _DOUBLE.pack(value)


def _truth(value: bool, out: bytearray) -> None:
    out.append(bool(value))


_SIMPLE: dict[str, Put] = {
    "text": _text, "whole": _whole, "real": _real, "number": _real, "truth": _truth,
}  # fmt: skip


def _scalar(value: Any, out: bytearray) -> None:
    if isinstance(value, str):
        out.append(0x0A)
        _text(value, out)
    elif isinstance(value, bool):
        out.append(0x18)
        _truth(value, out)
    elif not isinstance(value, int):
        raise ValueError("neither text nor integer nor truth value")
    elif value in INT64:
        out.append(0x10)
        _whole(value, out)
    else:
        _part(b"\x22", b"%d" % value, out)
