"""Protobuf schemas as types, from the text of a .proto file or from a file descriptor."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..bytes_in import Bytes
from .schema import UnusableSchema

SCALARS = (
    "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string",
    "group", "message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
"""Names of types by their number in a descriptor, starting at 1."""
MOST_DEPTH = 32  # of messages within messages
MOST_NAME = 1_000  # characters of a complete name
MOST_STEPS = 64  # nested scopes in which a name is looked up


@dataclass(eq=False)
class ProtoField:
    """A field of a message."""

    name: str
    number: int
    kind: str  # a scalar type, "message" or "enum"; "" until its type's name is resolved
    type_name: str = ""
    repeated: bool = False  # whether it is a list or a map
    explicit: bool = False  # whether its absence differs from its default
    oneof: str = ""  # name of its oneof, of which only the last field is kept; empty if none
    message: ProtoMessage | None = None
    symbols: dict[int, str] = field(default_factory=dict)


@dataclass(eq=False)
class ProtoMessage:
    """A message type; those defined in it stand in the order of the file."""

    name: str  # full name, with package and enclosing messages
    fields: list[ProtoField] = field(default_factory=list)
    inner: list[ProtoMessage] = field(default_factory=list)


@dataclass(eq=False)
class ProtoFile:
    """One file: its messages in order, and its enums by complete name."""

    package: str = ""
    syntax: str = "proto2"
    messages: list[ProtoMessage] = field(default_factory=list)
    enums: dict[str, dict[int, str]] = field(default_factory=dict)

    def full(self, *steps: str) -> str:
        """The full name of something in this file; raises `UnusableSchema` if it is too long."""
        name = ".".join(step for step in (self.package, *steps) if step)
        if len(name) > MOST_NAME or name.count(".") >= MOST_STEPS:
            raise UnusableSchema("a name is too long")
        return name


def every_message(messages: list[ProtoMessage]) -> Iterator[ProtoMessage]:
    """All messages, including nested ones."""
    for one in messages:
        yield one
        yield from every_message(one.inner)


def resolve(files: list[ProtoFile]) -> None:
    """Resolve the types that fields name; an unknown type becomes an opaque message.

    If two definitions share a name, the last one wins.
    """
    messages = {m.name: m for f in files for m in every_message(f.messages)}
    enums = {name: symbols for f in files for name, symbols in f.enums.items()}
    for message in messages.values():
        scopes = _scopes(message.name)
        for one in message.fields:
            if one.type_name:
                _connect(one, scopes, messages, enums)


def _connect(
    one: ProtoField,
    scopes: list[str],
    messages: dict[str, ProtoMessage],
    enums: dict[str, dict[int, str]],
) -> None:
    plain = one.type_name
    names = [plain[1:]] if plain.startswith(".") else [scope + plain for scope in scopes]
    for name in names:
        if name in messages:
            one.kind, one.message, one.explicit = "message", messages[name], True
            return
        if name in enums:
            one.kind, one.symbols = "enum", enums[name]
            return
    one.kind, one.message, one.explicit = "message", None, True


def _scopes(name: str) -> list[str]:
    """The scopes in which a message's names are looked up, innermost first.

    >>> _scopes("a.B")
    ['a.B.', 'a.', '']
    """
    steps = name.split(".")
    return ["".join(f"{step}." for step in steps[:n]) for n in range(len(steps), -1, -1)]


# -- descriptors ----------------------------------------------------------------------------------


def from_descriptor(text: str) -> ProtoFile | None:
    """Decode a base64 file descriptor, as some clients register it; None if it is not one.

    Raises `UnusableSchema` if it is cut short, or not a descriptor.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    file = ProtoFile()
    try:
        _file(data, file)
    except ValueError as error:
        raise UnusableSchema("not a file descriptor") from error
    return file


def _parts(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of an encoded message."""
    rest = Bytes(data, 0, len(data))
    while rest.left:
        key = rest.varint()
        wire = key & 7
        if wire == 0:
            yield key >> 3, rest.varint()
        else:
            size = rest.varint() if wire == 2 else {1: 8, 5: 4}.get(wire, -1)
            yield key >> 3, rest.take(size)


def _signed(value: int | bytes) -> int:
    number = int(value)
    return number - (1 << 64) if number >> 63 else number


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError
    return value


def _file(data: bytes, file: ProtoFile) -> None:
    parts = list(_parts(data))
    for number, value in parts:
        if number == 2:
            file.package = _bytes(value).decode()
        elif number == 12:
            file.syntax = _bytes(value).decode()
    for number, value in parts:
        if number == 4:
            file.messages.append(_message(_bytes(value), file, ()))
        elif number == 5:
            _enum(_bytes(value), file, ())


def _message(data: bytes, file: ProtoFile, around: tuple[str, ...]) -> ProtoMessage:
    if len(around) >= MOST_DEPTH:
        raise UnusableSchema("messages are nested too deeply")
    parts = list(_parts(data))
    name = next((_bytes(value).decode() for number, value in parts if number == 1), "")
    made = ProtoMessage(file.full(*around, name))
    for number, value in parts:
        if number == 2:
            made.fields.append(_field(_bytes(value), file.syntax))
        elif number == 3:
            made.inner.append(_message(_bytes(value), file, (*around, name)))
        elif number == 4:
            _enum(_bytes(value), file, (*around, name))
    return made


def _field(data: bytes, syntax: str) -> ProtoField:
    found = dict(_parts(data))
    kind = found.get(5, 0)
    if not isinstance(kind, int) or not 1 <= kind <= len(SCALARS):
        raise ValueError
    word = SCALARS[kind - 1]
    member = 9 in found and not found.get(17)
    return ProtoField(
        _bytes(found.get(1, b"")).decode(),
        int(found.get(3, 0)),
        "" if word in ("message", "enum", "group") else word,
        _bytes(found.get(6, b"")).decode(),
        repeated=found.get(4) == 3,
        explicit=syntax == "proto2" or 9 in found,
        oneof=f"#{found[9]!r}" if member else "",
    )


def _enum(data: bytes, file: ProtoFile, around: tuple[str, ...]) -> None:
    name, symbols = "", dict[int, str]()
    for number, value in _parts(data):
        if number == 1:
            name = _bytes(value).decode()
        elif number == 2:
            found = dict(_parts(_bytes(value)))
            symbols.setdefault(_signed(found.get(2, 0)), _bytes(found.get(1, b"")).decode())
    file.enums[file.full(*around, name)] = symbols


# -- both -----------------------------------------------------------------------------------------


def message_at(file: ProtoFile, indexes: tuple[int, ...]) -> ProtoMessage:
    """Find a message by the indexes of itself and its enclosing messages; else `UnusableSchema`."""
    messages, found = file.messages, None
    for index in indexes:
        if not 0 <= index < len(messages):
            raise UnusableSchema("no message at this place")
        found = messages[index]
        messages = found.inner
    if found is None:
        raise UnusableSchema("no message is named")
    return found


def well_known() -> ProtoFile:
    """The well-known messages that every compiler includes, if they have plain fields."""
    file = ProtoFile("google.protobuf", "proto3")
    seconds, nanos = ProtoField("seconds", 1, "int64"), ProtoField("nanos", 2, "int32")
    for name in ("Timestamp", "Duration"):
        file.messages.append(ProtoMessage(file.full(name), [seconds, nanos]))
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String"):
        fields = [ProtoField("value", 1, name.lower())]
        file.messages.append(ProtoMessage(file.full(f"{name}Value"), fields))
    return file
