"""Records one by one: what is made of each does not depend on the others of its list."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import fastavro
import pytest
from hushstream.formats.entries import FORMATS
from hushstream.formats.events.decode import Decoder
from hushstream.formats.events.fields import InputFields, PipelineFields
from hushstream.formats.events.views import MAX_UNIT
from hushstream.formats.schemas.schema import Pinned, Schema

from .binary.test_scanner import by_record
from .binary.values import framed, made, raw, varint
from .test_columns import KeysAlone
from .test_nesting import nested
from .ways import one_by_one

SYMBOLS = ["a", "x" * MAX_UNIT, "y" * (MAX_UNIT + 1), "z" * 1100]
ODD: list[Any] = ["", "a", 'q"q', "é" * 2048, "é" * 2049, "x" * 1025, "x" * 5000, None, True, 1,
       -0.0, 1.5, 1e300, 1 << 62, 1 << 63, 1 << 64, -(1 << 63), 10**400, [1], {"x": 1}]  # fmt: skip
AVRO = {"type": "record", "name": "E", "fields": [
    {"name": "user", "type": [{"type": "enum", "name": "U", "symbols": SYMBOLS}, "string", "long"]},
    {"name": "page", "type": ["null", "string", "long", "boolean", "double"]},
    {"name": "kind", "type": ["null", "string", "boolean"]},
    {"name": "t", "type": ["null", "long", "double"]},
    {"name": "fare", "type": ["null", "double", "long", "string"]},
    {"name": "deep", "type": {"type": "record", "name": "D", "fields": [
        {"name": "next", "type": ["null", "D", {"type": "array", "items": "D"}]}]}}]}  # fmt: skip
PARSED = fastavro.parse_schema(AVRO, _write_hint=False)
_SYMBOLS = " ".join(f"{symbol} = {number};" for number, symbol in enumerate(SYMBOLS))
PROTO = (
    f'syntax = "proto3"; enum U {{ {_SYMBOLS} }} message E {{ U user = 1; string page = 2; '
    "string kind = 3; int64 t = 4; double fare = 5; }"
)


def spoilt(random: Random, value: bytes) -> bytes | None:
    """The value, or some bytes that are none, now and then."""
    at = random.randrange(len(value))
    return random.choice(
        [value] * 8 + [None, value[:at], value + b"x", value[:at] + b"\xff" + value[at + 1 :]]
    )


def of_json(random: Random) -> bytes | None:
    body: dict[str, Any] = {"user": "u", "page": "a", "kind": "k", "t": 5, "fare": 1}
    body |= {name: random.choice(ODD) for name in body if random.random() < 0.2}
    text = json.dumps(body, ensure_ascii=random.random() < 0.5)
    if random.random() < 0.2:
        text = f'{text[:-1]},"{random.choice(list(body))}":{json.dumps(random.choice(ODD))}}}'
    if random.random() < 0.3:
        return spoilt(random, nested(random.choice([2, 61, 62, 63, 64, 65, 66, 900, 990, 2000])))
    return spoilt(random, text.encode())


def of_avro(random: Random) -> bytes | None:
    deep: dict[str, Any] = {"next": None}
    for _ in range(random.choice([0, 0, 1, 20, 30, 31, 32, 33, 34, 63, 64, 65, 66, 100])):
        deep = {"next": random.choice([deep, [deep]])}
    body = {
        "user": random.choice([*SYMBOLS, "u", "é" * 2049, 7]),
        "page": random.choice(["a", "a", None, "", "x" * 1025, True, 1.5, 1 << 62]),
        "kind": random.choice(["k", "k", 'q"q', None, True]),
        "t": random.choice([5, 5, 1 << 62, -1, None, 1e300, 7.5]),
        "fare": random.choice([1.5, 1.5, None, 3, "x" * 5000, float("nan")]),
        "deep": deep,
    }
    to = io.BytesIO()
    fastavro.schemaless_writer(to, PARSED, body)
    return spoilt(random, framed(1, to.getvalue()))


def of_proto(random: Random) -> bytes | None:
    parts = [
        b"\x08" + varint(random.choice([0, 0, 1, 2, 3, 4, -1])),
        b"\x20" + varint(random.choice([5, 5, 1 << 62, -1])),
        b"\x29" + random.choice([b"\0\0\0\0\0\0\xf8\x3f", b"\xff" * 8]),
        b"\x09" + bytes(8),  # another wire type: an unknown field
    ]
    for head in (b"\x12", b"\x1a"):
        text = random.choice(["a", "a", "", "é", 'q"q', "x" * 1025, "x" * 5000]).encode()
        parts.append(head + varint(len(text)) + text)
    if random.random() < 0.1:
        parts.append(b"\x1a\x02\xff\xff")
    if random.random() < 0.1:
        parts *= 70  # more fields than are read together
    random.shuffle(parts)
    return spoilt(random, framed(1, b"\0" + b"".join(parts[random.random() < 0.2 :])))


WAYS: dict[str, tuple[Callable[[Random], bytes | None], str]] = {
    "json": (of_json, ""),
    "avro": (of_avro, json.dumps(AVRO)),
    "protobuf": (of_proto, PROTO),
}


def decoders(encoding: str) -> Iterator[Decoder]:
    yield made(encoding, limit=50_000)
    yield made(encoding, limit=4_000)
    two = InputFields("t", "epoch_s", "UTC", ("user", "kind"), 50_000, encoding)
    yield Decoder(two, [PipelineFields(("page",))], [KeysAlone()])  # type: ignore[list-item]


@pytest.mark.parametrize("encoding", WAYS)
def test_a_record_alone_and_among_others_gives_the_same(encoding: str) -> None:
    make, text = WAYS[encoding]
    random = Random(20)
    known = {1: Pinned(Schema(FORMATS[encoding].registered, text), 0)} if text else {}
    pool = [make(random) for _ in range(300)]
    fates = set[str]()
    for decoder in decoders(encoding):
        alone = [by_record(decoder.decode(raw([value]), known))[0] for value in pool]
        fates |= {reason[0] if reason else "" for *_, reason in alone}
        for size in (2, 2, 5, 5, 30, 30, 63, 64, 100, 100, 300):
            rows = random.sample(range(len(pool)), size)
            among = by_record(decoder.decode(raw([pool[row] for row in rows]), known))
            assert among == [alone[row] for row in rows]
    assert {"", "null", "malformed", "huge_unit", "bad_time"} <= fates


def test_a_symbol_may_be_a_unit_only_up_to_the_limit() -> None:
    """It was one of any size while no record of its list was longer than a unit may be."""
    known = {1: Pinned(Schema("AVRO", json.dumps(AVRO)), 0)}
    rest = b"\2\2a\0\2\12\0\0"
    crowd: list[bytes | None] = [framed(1, bytes([0, 2 * n]) + rest) for n in range(len(SYMBOLS))]
    long = framed(1, b"\2" + varint(2 * 5000) + b"q" * 5000 + rest)
    decoder = made("avro", limit=50_000)
    for values in (crowd, [*crowd, long]):
        found = one_by_one(decoder, raw(values), known)
        assert [row for row in range(len(crowd)) if found.bad.get(row) == "huge_unit"] == [2]
        assert (found.views[2].rows == [0, 1, 3]).all()
