"""Lists of records in Protobuf, written byte by byte."""

from __future__ import annotations

import struct
from random import Random

from hushstream.formats.schemas.schema import Pinned, Schema

from .values import LONGS, NEEDED, REALS, TEXTS, framed, spoilt, varint

WIRES = {
    "int32": 0, "int64": 0, "uint32": 0, "uint64": 0, "sint32": 0, "sint64": 0, "bool": 0, "V": 0,
    "fixed32": 5, "sfixed32": 5, "float": 5, "fixed64": 1, "sfixed64": 1, "double": 1,
    "string": 2, "bytes": 2, "Part": 2,
}  # fmt: skip
SUITABLE = {
    "user": ["string", "int64", "uint64", "sint32", "fixed64", "V", "sfixed64", "uint32"],
    "page": ["string", "bool", "V", "int32", "sint64", "fixed32", "sfixed32"],
    "kind": ["V", "bool", "int64", "string"],
    "t": ["int64", "uint64", "sint64", "fixed64", "sfixed64", "uint32"],
    "fare": ["double", "float", "int32", "sint32", "uint64"],
}
LABELS = ["", "", "", "optional ", "optional ", "repeated "]


class Message:
    """A message type and its values, written byte by byte."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.fields: list[tuple[int, str]] = []
        numbers = random.sample([*range(1, 17), 2047, 2048, 70_000, (1 << 29) - 1], 9)
        lines = [self._line(name, numbers.pop()) for name in NEEDED if random.random() < 0.99]
        lines += [self._line(f"f{n}", numbers.pop()) for n in range(random.randrange(4))]
        if random.random() < 0.2:
            members = [lines.pop().removeprefix("optional ").removeprefix("repeated ")
                       for _ in range(random.randrange(1, 3))]  # fmt: skip
            lines.append(f"oneof some {{ {' '.join(members)} }}")
        random.shuffle(lines)
        self.text = (
            'syntax = "proto3"; enum V { a = 0; b = 1; c = -2; d = 900; }'
            "message Part { int32 x = 1; } message First { string user = 1; }"
            f"message E {{ {' '.join(lines)} }}"
        )
        if random.random() < 0.5:  # then `E` is the file's first message, which one byte names
            self.text = self.text.replace("message First { string user = 1; }", "")
            self.text = self.text.replace("message Part { int32 x = 1; }", "")
            self.text += "message Part { int32 x = 1; }"

    @property
    def head(self) -> bytes:
        return b"\2\4" if "First" in self.text else b"\0"

    def _line(self, name: str, number: int) -> str:
        odd = self.random.random() < 0.02 or name not in SUITABLE
        kind = self.random.choice(list(WIRES) if odd else SUITABLE[name])
        self.fields.append((number, kind))
        label = self.random.choice(LABELS if odd else LABELS[:5])
        return f"{label}{kind} {name} = {number};"

    def _value(self, kind: str) -> bytes:
        random = self.random
        wire, hard = WIRES[kind], random.random() < 0.1
        if wire == 2:
            text = random.choice(TEXTS) if random.random() < 0.2 else random.choice("abc")
            data = b"\x08\x05" if kind == "Part" else text.encode()
            return varint(len(data)) + data
        if kind in ("float", "double"):
            real = random.choice(REALS) if hard and kind == "double" else random.randrange(400) / 4
            return struct.pack("<f" if kind == "float" else "<d", real)
        number = random.choice(LONGS) if hard else random.randrange(2 * 10**12)
        if kind in ("V", "bool", "int32", "sint32"):
            number = random.choice((0, 0, 1, 1, 2, 3, -2 if kind == "V" else 4, 900))
        if wire:
            width = 4 if wire == 5 else 8
            return (number % (1 << 8 * width)).to_bytes(width, "little")
        return varint(number, longer=random.choice((0,) * 20 + (1, 4)))

    def value(self) -> bytes:
        """Fields in order, sometimes shuffled, missing, doubled, or with another wire type."""
        random, fields = self.random, list(self.fields)
        if random.random() < 0.2:
            random.shuffle(fields)
        if random.random() < 0.1:
            fields += random.choices(fields, k=random.randrange(3))
        out = b""
        for number, kind in fields:
            if random.random() < 0.05:
                continue
            given = random.choice(list(WIRES)) if random.random() < 0.01 else kind
            out += varint(number << 3 | WIRES[given]) + self._value(given)
        if random.random() < 0.1:  # a field of a newer schema
            out += varint(random.choice((17, 5_000)) << 3 | 2) + varint(2) + b"xy"
        return out


def proto_list(seed: int, size: int = 250) -> tuple[list[bytes | None], dict[int, Pinned]]:
    """Plain and spoilt values of four alternating messages, and the schemas by id."""
    random = Random(f"{seed} proto")
    kinds = [Message(random) for _ in range(4)]
    known = {n: Pinned(Schema("PROTOBUF", one.text), 0) for n, one in enumerate(kinds)}
    known[3] = known[3]._replace(since=size // 2)
    known[7] = Pinned(Schema("AVRO", "{}"), 0)
    known[8] = Pinned(Schema("PROTOBUF", "garbage {"), 0)
    heads = [b"\0", b"\2\2", b"\2\4", b"\4\2\0", b"", b"\xff" * 12, b"\1", b"\x82\x00\x02"]
    values: list[bytes | None] = []
    for _ in range(size):
        which = random.randrange(4) if random.random() < 0.2 else seed % 4
        head = random.choice(heads) if random.random() < 0.04 else kinds[which].head
        payload = kinds[which].value()
        payload = spoilt(random, payload) if random.random() < 0.35 else payload
        number = random.randrange(10) if random.random() < 0.05 else which
        values.append(framed(number, head + payload))
    values[5], values[6], values[7], values[8] = None, b"", b"\0\0\0", framed(0, b"")
    values[9] = framed(0, bytes(3_000))
    return values, known


PROTO = (
    "message E { string user = 1; string page = 2; V kind = 3; int64 t = 4; double fare = 5;"
    " oneof some { string left = 6; int32 right = 7; } }"
)
WHOLE = b"\x0a\x01u\x12\x01a\x18\x01\x20\x05\x29" + struct.pack("<d", 2.0)


def proto_of(text: str, enum: str = "a = 0; b = 1;") -> Pinned:
    return Pinned(Schema("PROTOBUF", f'syntax = "proto3"; {text} enum V {{ {enum} }}'), 0)
