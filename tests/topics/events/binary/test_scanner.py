"""Avro and Protobuf by columns: on whatever input, the answers are those of reading each record.

Covers: topics/events/binary/scan.py, topics/events/binary/program.py, topics/events/scanned.py
Covers: topics/events/binary/avro_program.py, topics/events/binary/proto_program.py
"""

from __future__ import annotations

import io
import json
import os
import struct
from collections.abc import Callable, Mapping
from fractions import Fraction
from random import Random
from typing import Any

import fastavro
import numpy as np
import pytest
from hushstream.agents.stages.ingest.unit_digests import UnitDigests
from hushstream.topics.events.columns import LEAST, ColumnDecoder, UnitTexts
from hushstream.topics.events.decode import Decoded, Decoder, RawRecord
from hushstream.topics.events.fields import InputFields, NumericField, PipelineFields
from hushstream.topics.events.raw import RawBatch
from hushstream.topics.schemas.schema import FORMATS, Pinned, Schema

from ...schemas.test_avro import _World as World

pytest.importorskip("numba")
from ..test_columns import Plain, placed, told

FARE = NumericField("fare", Fraction(0), Fraction(100), Fraction(1, 4))
LISTS = int(os.environ.get("HUSH_RECORDS", "30000")) // 250
NEEDED = ("user", "page", "kind", "t", "fare")
TEXTS = ["", "a", "b", "é", "\u2028", "𝄞", "x" * 40, 'q"q', "b\\s", "new\nline", "\x7f", "é" * 600]
INTEGERS = [0, 1, -1, 7, 63, -64, 2**31 - 1, -(2**31)]
LONGS = [*INTEGERS, 10**12, 1_700_000_000_000, 2**53 + 1, 2**63 - 1, -(2**63)]
REALS = [0.0, 1.5, -2.25, 12.125, 1e300, float("inf"), float("nan"), -0.0, 0.1]


def made(form: str, limit: int = 3_000, how: str = "epoch_ms", **pipeline: Any) -> Decoder:
    fields = InputFields(None if how == "record" else "t", how, "UTC", ("user",), limit, form)
    one = PipelineFields(("page",), (FARE,), **pipeline)
    two = PipelineFields(("page", "kind"), ())
    none = PipelineFields((), ())
    return Decoder(fields, [one, two, none], [Plain()] * 3)  # type: ignore[list-item]


def columns_of(decoder: Decoder) -> ColumnDecoder:
    found = decoder._columns
    assert found is not None
    return found


def raw(values: list[bytes | None]) -> list[RawRecord]:
    return [RawRecord(n, 1000 + n, None, value) for n, value in enumerate(values)]


def agree(decoder: Decoder, values: list[bytes | None], known: Mapping[int, Pinned]) -> int:
    """Compare both ways; return how many records the loops read by themselves."""
    records = raw(values)
    fast, slow = columns_of(decoder).decode(records, known), decoder.decode_each(records, known)
    assert told(fast) == told(slow), values
    good = [row for row in range(len(values)) if row not in slow.bad]
    for one, other in zip(placed(fast), placed(slow), strict=True):
        assert (one[good] == other[good]).all()
    assert isinstance(fast.unit, UnitTexts)
    return len(values) - len(fast.unit.rest)


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def varint(value: int, longer: int = 0) -> bytes:
    """A number of variable length, with zeros behind it that say nothing."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    for _ in range(longer):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


HUGE = [varint(n) for n in (2**63 - 1, 2**63, 2**64 - 1, 2**40, 2**31)]
JUNK = [
    *HUGE,
    b"\xff" * 10,
    b"\xff" * 11,
    b"\x80" * 9 + b"\x7f",
    b"\x80\x00",
    b"\0",
    b"\1",
    b"\xff",
]


def spoilt(random: Random, payload: bytes) -> bytes:
    """A value with some of its bytes changed."""
    out = bytearray(payload)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        at = random.randrange(len(out) + 1)
        change = random.random()
        if change < 0.3:
            out[at:at] = random.choice(JUNK)
        elif change < 0.5:
            del out[at : at + random.choice((1, 1, 2, 9))]
        elif change < 0.6:
            del out[at:]
        elif change < 0.7:
            out += random.choice(JUNK)
        elif at < len(out):
            out[at] = random.choice((out[at] ^ 1 << random.randrange(8), random.randrange(256)))
    return bytes(out)


# -- Avro -----------------------------------------------------------------------------------------

Kind = Any
LOGICAL = {"type": "long", "logicalType": "timestamp-millis"}
FITTING: dict[str, list[Kind]] = {
    "user": ["string", "long", "int", ["null", "string"], ["string", "long"]],
    "page": ["string", "int", "boolean", "enum", ["null", "string"], ["boolean", "string"]],
    "kind": ["boolean", "long", "enum", "string"],
    "t": ["long", LOGICAL, "int", ["null", "long"]],
    "fare": ["double", "float", "int", "long", ["null", "double"], ["int", "float"]],
}
STRANGE: list[Kind] = ["null", "bytes", "string", "double", "boolean", "fixed", "array", "record"]


class Writer(World):
    """Schemas as producers have them, and now and then others; values of all of them."""

    def event(self) -> dict[str, Any]:
        """A schema with the needed fields among others."""
        fields = []
        for name in NEEDED:
            if self.rng.random() < 0.02:
                continue
            odd = self.rng.random() < 0.03
            fields.append({"name": name, "type": self.filled(
                self.rng.choice(STRANGE if odd else FITTING[name]))})  # fmt: skip
        others = range(self.rng.randrange(5))
        fields.extend({"name": f"f{n}", "type": self.kind(0)} for n in others)
        self.rng.shuffle(fields)
        return {"type": "record", "name": self._name(), "fields": fields}

    def filled(self, kind: Kind) -> Kind:
        """A type that needs a name or parts, with them."""
        if kind == "enum":
            symbols = ["A", "B", "long_one"][: self.rng.randrange(1, 4)]
            return {"type": "enum", "name": self._name(), "symbols": symbols}
        if kind == "fixed":
            return {"type": "fixed", "name": self._name(), "size": 2}
        if kind == "array":
            return {"type": "array", "items": "long"}
        return self.record(2) if kind == "record" else kind

    def value(self, kind: Any) -> Any:
        """A value; texts and numbers are those that are hard to read."""
        if kind == "string":
            return self.rng.choice(TEXTS) if self.rng.random() < 0.3 else self.rng.choice("abc")
        if kind == "long":
            hard = self.rng.random() < 0.1
            return self.rng.choice(LONGS) if hard else self.rng.randrange(2 * 10**12)
        if kind == "int":
            return self.rng.choice(INTEGERS)
        if kind in ("double", "float"):
            hard = self.rng.choice(REALS[:4] if kind == "float" else REALS)
            return hard if self.rng.random() < 0.3 else self.rng.randrange(400) / 4
        if isinstance(kind, dict) and kind.get("logicalType"):
            return self.rng.randrange(2 * 10**12)
        return super().value(kind)


def in_avro(schema: Any, value: Any) -> bytes:
    to = io.BytesIO()
    fastavro.schemaless_writer(to, schema, value)
    return to.getvalue()


def avro_list(seed: int, size: int = 250) -> tuple[list[bytes | None], dict[int, Pinned]]:
    """Values of four schemas that take turns, plain and spoilt, and what their ids stand for."""
    world = Writer(seed)
    random = world.rng
    schemas = [world.event() for _ in range(4)]
    parsed = [fastavro.parse_schema(one, _write_hint=False) for one in schemas]
    known = {n: Pinned(Schema("AVRO", json.dumps(one)), 0) for n, one in enumerate(schemas)}
    known[3] = known[3]._replace(since=size // 2)
    known[7] = Pinned(Schema("PROTOBUF", "syntax = 'proto3';"), 0)
    known[8] = Pinned(Schema("AVRO", "garbage"), 0)
    values: list[bytes | None] = []
    for _ in range(size):
        which = random.randrange(4) if random.random() < 0.2 else seed % 4
        payload = in_avro(parsed[which], world.value(schemas[which]))
        if random.random() < 0.35:
            payload = spoilt(random, payload)
        number = random.choice((which, random.randrange(10))) if random.random() < 0.1 else which
        values.append(framed(number, payload))
    values[5], values[6], values[7], values[8] = None, b"", b"\0\0\0", framed(0, b"")
    values[9] = framed(0, bytes(3_000))
    return values, known


def test_both_ways_agree_on_every_record_in_avro() -> None:
    read = 0
    for seed in range(LISTS):
        how = ("epoch_s", "epoch_ms", "epoch_us", "record")[seed // 4 % 4]
        read += agree(made("avro", how=how), *avro_list(seed))
    assert read > LISTS * 20  # or the agreement says little about the loops


# -- Protobuf -------------------------------------------------------------------------------------

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
        if random.random() < 0.5:  # the first of its file, which is named by one byte
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
        """Fields in order, sometimes in another, missing, twice, or of another wire type."""
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
        if random.random() < 0.1:  # of a newer schema
            out += varint(random.choice((17, 5_000)) << 3 | 2) + varint(2) + b"xy"
        return out


def proto_list(seed: int, size: int = 250) -> tuple[list[bytes | None], dict[int, Pinned]]:
    """As `avro_list`."""
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


def test_both_ways_agree_on_every_record_in_protobuf() -> None:
    read = 0
    for seed in range(LISTS):
        how = ("epoch_s", "epoch_ms", "epoch_us", "record")[seed // 4 % 4]
        read += agree(made("protobuf", how=how), *proto_list(seed))
    assert read > LISTS * 20


# -- both -----------------------------------------------------------------------------------------

LIST_OF: dict[str, Callable[[int], tuple[list[bytes | None], dict[int, Pinned]]]] = {
    "avro": avro_list,
    "protobuf": proto_list,
}


def by_record(found: Decoded) -> list[Any]:
    """What is said of each record, in the order of the list."""
    times, units, views, bad = told(found)
    seen: list[dict[int, Any]] = []
    for rows, keys, value, sign, own in views:
        each = zip(keys, value, sign, strict=True)
        seen.append(dict(zip(rows, each, strict=True)) | own)
    return [
        (times.get(row), units.get(row), [view.get(row) for view in seen], bad.get(row))
        for row in range(len(found.time))
    ]


@pytest.mark.parametrize("form", LIST_OF)
def test_what_is_made_of_a_record_does_not_depend_on_its_neighbours(form: str) -> None:
    for seed in range(6):
        values, known = LIST_OF[form](seed)
        known = {number: pinned._replace(since=0) for number, pinned in known.items()}
        decoder = made(form)
        whole = by_record(columns_of(decoder).decode(raw(values), known))
        order = list(range(len(values)))
        Random(seed).shuffle(order)
        moved = by_record(columns_of(decoder).decode(raw([values[n] for n in order]), known))
        assert [whole[n] for n in order] == moved
        for row in range(0, len(values), 25):
            alone = by_record(columns_of(decoder).decode(raw([values[row]]), known))
            assert alone == [whole[row]]


@pytest.mark.parametrize("form", LIST_OF)
def test_records_in_one_buffer_are_read_like_records_apart(form: str) -> None:
    values, known = LIST_OF[form](2)
    whole = [value or b"" for value in values]
    ends = np.cumsum([len(value) + 1 for value in whole]) + 10  # a zero behind each: no headers
    begins = ends - [len(value) for value in whole]
    begins[[value is None for value in values]] = -1
    offsets = np.arange(len(values))
    none = np.full(len(values), -1)
    data = np.frombuffer(b"\xff" * 11 + b"\0".join(whole) + bytes(5), np.uint8)
    batch = RawBatch(data, offsets, offsets + 1000, none, none, begins, ends, ends, ends + 1)
    decoder = made(form)
    apart = told(columns_of(decoder).decode(raw(values), known))
    assert told(columns_of(decoder).decode(batch, known)) == apart
    part = [entry for n, entry in enumerate(by_record(decoder.decode(batch, known))) if n >= 100]
    assert by_record(decoder.decode(batch[100:], known)) == part


@pytest.mark.parametrize("form", LIST_OF)
def test_both_ways_agree_on_a_list_of_public_keys_and_at_the_limit_of_a_record(form: str) -> None:
    values, known = LIST_OF[form](1)
    agree(made(form, allowed=frozenset([b'["a"]', b"[0]"])), values, known)
    for limit in (30, 31, 32):
        agree(made(form, limit=limit), values, known)


def test_short_lists_and_inputs_that_the_loops_do_not_know_go_the_other_way() -> None:
    values, known = avro_list(0)
    assert type(made("avro").decode(raw(values[: LEAST - 1]), known).unit) is list
    nested = InputFields("a.t", "epoch_ms", "UTC", ("user",), 100, "protobuf")
    assert Decoder(nested, [PipelineFields(())], [Plain()])._columns is None  # type: ignore[list-item]


def never(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_of(decoder), "_each", lambda *_: pytest.fail("one by one"))


EVERY = {
    "type": "record", "name": "E", "fields": [
        {"name": "inner", "type": {"type": "record", "name": "I", "fields": [
            {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
            {"name": "b", "type": "bytes"}, {"name": "x", "type": "boolean"}]}},
        {"name": "user", "type": ["null", "long"]},
        {"name": "skipped", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "page", "type": {"type": "enum", "name": "V", "symbols": ["A", "B"]}},
        {"name": "kind", "type": "boolean"},
        {"name": "nothing", "type": ["null", {"type": "array", "items": "I"}]},
        {"name": "fare", "type": "float"},
        {"name": "t", "type": LOGICAL}]}  # fmt: skip


def test_plain_records_in_avro_never_go_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    within = {"m": {"k": [1, 2], "l": []}, "b": b"\xff", "x": True}
    row = {"inner": within, "user": -(2**63), "skipped": b"xyz", "page": "B", "kind": False,
           "nothing": [within] * 3, "fare": 12.5, "t": 17}  # fmt: skip
    value = framed(1, in_avro(fastavro.parse_schema(EVERY, _write_hint=False), row))
    decoder = made("avro")
    never(decoder, monkeypatch)
    found = decoder.decode(raw([value] * LEAST), {1: Pinned(Schema("AVRO", json.dumps(EVERY)), 0)})
    assert list(found.unit) == [-(2**63)] * LEAST and found.time[3] == 17_000
    assert found.views[1].keys.tolist() == [b'["B",false]'] and len(found.views[1].rows) == LEAST
    assert found.views[0].value[0, 0] == 50


def test_fields_within_records_are_found_in_avro(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "record", "name": "O", "fields": [
        {"name": "who", "type": ["null", {"type": "record", "name": "W", "fields": [
            {"name": "x", "type": "string"}, {"name": "id", "type": "string"}]}]},
        {"name": "at", "type": {"type": "record", "name": "T", "fields": [
            {"name": "ms", "type": "long"}]}}]}  # fmt: skip
    fields = InputFields("at.ms", "epoch_ms", "UTC", ("who.id",), 500, "avro")
    decoder = Decoder(fields, [PipelineFields(("who.x",))], [Plain()])  # type: ignore[list-item]
    parsed = fastavro.parse_schema(schema, _write_hint=False)
    rows = [{"who": {"x": "p", "id": f"u{n}"}, "at": {"ms": n}} for n in range(LEAST)]
    known = {1: Pinned(Schema("AVRO", json.dumps(schema)), 0)}
    values: list[bytes | None] = [framed(1, in_avro(parsed, row)) for row in rows]
    agree(decoder, [*values, framed(1, in_avro(parsed, {"who": None, "at": {"ms": 1}}))], known)
    never(decoder, monkeypatch)
    assert list(decoder.decode(raw(values), known).unit) == [f"u{n}" for n in range(LEAST)]


def test_plain_records_in_protobuf_never_go_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """syntax = "proto3"; enum V { a = 0; b = 1; } message Other { string x = 1; }
    message E { string skipped = 1; sint64 user = 2; V page = 3; bool kind = 70000;
    optional float fare = 5; fixed64 t = 6; repeated int32 list = 7; Other part = 8; }"""
    value = framed(1, b"\2\2" + b"\x0a\x01x" + b"\x10\x01" + b"\x18\x01" + b"\x2d"
                   + struct.pack("<f", 12.5) + b"\x31" + (17).to_bytes(8, "little")
                   + b"\x3a\x02\1\2" + b"\x42\x00")  # fmt: skip
    decoder = made("protobuf")
    never(decoder, monkeypatch)
    found = decoder.decode(raw([value] * LEAST), {1: Pinned(Schema("PROTOBUF", text), 0)})
    assert list(found.unit) == [-1] * LEAST and found.time[3] == 17_000
    # What a writer leaves out is false.
    assert found.views[1].keys.tolist() == [b'["b",false]'] and len(found.views[1].rows) == LEAST
    assert found.views[0].value[0, 0] == 50


def avro_of(kinds: Mapping[str, Any], *more: Any) -> Pinned:
    plain = {"user": "string", "page": "string", "kind": "string", "t": "long", "fare": "double"}
    fields = [{"name": n, "type": kinds.get(n, kind)} for n, kind in plain.items()]
    text = json.dumps({"type": "record", "name": "E", "fields": [*fields, *more]})
    return Pinned(Schema("AVRO", text), 0)


BODY = b"\x02u\x02a\x02k\x0a" + struct.pack("<d", 2.0)  # of the plain one


def test_lengths_and_counts_without_end_are_left_to_the_other_way() -> None:
    lists = {"name": "l", "type": {"type": "array", "items": "string"}}
    maps = {"name": "m", "type": {"type": "map", "values": "null"}}
    hollow = {"name": "h", "type": {"type": "array", "items": "null"}}
    known = {1: avro_of({}, lists), 2: avro_of({}, maps), 3: avro_of({}, hollow)}
    ends = [b"\0", b"\2\0\0", b"\4\0\0\0", b"\1\2\0\0", b"\3\4\0\0\0", b"\1\3\0\0", b"\2", b""]
    ends += [more + rest for more in HUGE for rest in (b"", b"\0", b"\1\0")]
    values: list[bytes | None] = [framed(n, BODY + end) for n in known for end in ends]
    assert agree(made("avro"), values * 2, known) >= 8


def test_a_schema_that_names_itself_or_grows_without_end_is_left_to_the_other_way() -> None:
    again = {"name": "r", "type": ["null", {"type": "record", "name": "R", "fields": [
        {"name": "next", "type": ["null", "R"]}]}]}  # fmt: skip
    wide: Any = "int"
    for depth in range(8):
        fields = [{"name": f"a{n}", "type": wide if n == 0 else f"W{depth - 1}" if depth else "int"}
                  for n in range(6)]  # fmt: skip
        wide = {"type": "record", "name": f"W{depth}", "fields": fields}
    known = {1: avro_of({}, again), 2: avro_of({}, {"name": "w", "type": ["null", wide]})}
    values: list[bytes | None] = [framed(n, BODY + end) for n in known
                                  for end in (b"\0", b"\2\0", b"\2\2\0", b"")]  # fmt: skip
    assert agree(made("avro"), values * 2, known) == 0


def test_symbols_that_are_no_plain_text_are_left_to_the_other_way() -> None:
    enum = {"type": "enum", "name": "V", "symbols": ["A", 'q"', "\n"]}
    known = {1: avro_of({"page": enum}), 2: avro_of({"page": enum | {"symbols": ["A", "é"]}})}
    body = BODY.replace(b"\x02a", b"%b", 1)
    values: list[bytes | None] = [framed(n, body % bytes([v])) for n in known for v in (0, 2, 4, 6)]
    assert agree(made("avro"), values * 2, known) == 4


def test_every_integer_is_one_unit_and_one_key() -> None:
    """Another way to write it would be another unit, with a bound of its own."""
    numbers = [*LONGS, *(10**n for n in range(19)), *(-(10**n) for n in range(19))]
    known = {1: avro_of({"user": "long", "page": "long"})}
    two = [varint(n << 1 ^ n >> 63) * 2 for n in numbers]
    values: list[bytes | None] = [framed(1, one + BODY[4:]) for one in two]
    assert agree(made("avro"), values, known) == len(values)
    found = columns_of(made("avro")).decode(raw(values), known)
    assert list(found.unit) == numbers


PROTO = (
    "message E { string user = 1; string page = 2; V kind = 3; int64 t = 4; double fare = 5;"
    " oneof some { string left = 6; int32 right = 7; } }"
)
WHOLE = b"\x0a\x01u\x12\x01a\x18\x01\x20\x05\x29" + struct.pack("<d", 2.0)


def proto_of(text: str, enum: str = "a = 0; b = 1;") -> Pinned:
    return Pinned(Schema("PROTOBUF", f'syntax = "proto3"; {text} enum V {{ {enum} }}'), 0)


def test_what_an_enum_does_not_name_is_a_number() -> None:
    known = {1: proto_of(PROTO), 2: proto_of(PROTO, "a = 0; c = -1; d = 2147483647;")}
    numbers = [0, 1, 2, -1, 2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**64 - 1]
    values: list[bytes | None] = [
        framed(n, b"\0" + WHOLE.replace(b"\x18\x01", b"\x18" + varint(value)))
        for n in known for value in numbers
    ]  # fmt: skip
    assert agree(made("protobuf"), values * 4, known) == 36


def test_a_member_of_a_group_takes_back_what_another_one_has_set() -> None:
    group = "oneof some { string user = 1; int32 other = 9; } "
    text = PROTO.replace("string user = 1;", group)
    both = PROTO.replace("string user = 1; string page = 2;",
                         "oneof some { string user = 1; string page = 2; }")  # fmt: skip
    known = {1: proto_of(text), 2: proto_of(both)}
    tails = [b"", b"\x48\x01", b"\x48\x01\x0a\x01v", b"\x4a\x00", b"\x48"]
    values: list[bytes | None] = [framed(n, b"\0" + WHOLE + t) for n in known for t in tails]
    assert agree(made("protobuf"), values * 8, known) >= 8


def test_the_last_of_a_field_that_comes_twice_counts() -> None:
    twice = [b"\x0a\x01v", b"\x12\x01b", b"\x12\x01\xff", b"\x10\x01", b"\x20\x06", b"\x0a\x00",
             b"\x18\x00", b"\x18\x05", b"\x29" + struct.pack("<d", 1.0)]  # fmt: skip
    values: list[bytes | None] = [framed(1, b"\0" + part + WHOLE) for part in twice]
    values += [framed(1, b"\0" + WHOLE + part) for part in twice]
    agree(made("protobuf"), values * 4, {1: proto_of(PROTO)})


def test_wire_types_and_numbers_that_do_not_exist_are_left_to_the_other_way() -> None:
    keys = [number << 3 | wire for number in (0, 1, 2, 20) for wire in range(8)]
    values: list[bytes | None] = [
        framed(1, b"\0" + WHOLE + varint(key) + rest)
        for key in [*keys, 2**32 | 10, 2**63, 2**64 - 6, 2**64 - 1]
        for rest in (b"", b"\0", b"\1\1", bytes(4), bytes(8), b"\xff" * 10, HUGE[1])
    ]
    agree(made("protobuf"), values, {1: proto_of(PROTO)})


@pytest.mark.parametrize(
    "text",
    [
        PROTO.replace("string page = 2", "string page = 1"),
        PROTO.replace("string page = 2", "string user = 2"),
        PROTO.replace("string page = 2", "repeated string page = 2"),
        PROTO.replace("string page = 2", "bytes page = 2"),
        PROTO.replace("double fare = 5", "int64 fare = 4"),
        PROTO.replace("string page = 2", "string page = 0"),
        PROTO.replace("string page = 2", f"string page = {1 << 70}"),
        PROTO.replace("string page = 2;", ""),
        "message E {}",
        "",
    ],
)
def test_a_message_type_that_is_out_of_the_ordinary_is_left_to_the_other_way(text: str) -> None:
    assert agree(made("protobuf"), [framed(1, b"\0" + WHOLE)] * 70, {1: proto_of(text)}) == 0


def test_many_message_types_of_one_file_are_told_apart() -> None:
    rest = "string kind = 3; int64 t = 4; double fare = 5;"
    two = [f"string user = {1 + n % 2}; string page = {2 - n % 2};" for n in range(7)]
    text = " ".join(f"message M{n} {{ {one} {rest} }}" for n, one in enumerate(two))
    heads = [b"\0", *(bytes([2, 2 * n]) for n in range(8)), b"\x82\0\2", b"\xff\xff", b"\2"]
    values: list[bytes | None] = [framed(1, head + WHOLE.replace(b"\x18\x01", b"\x1a\x01k"))
                                  for head in heads] * 9  # fmt: skip
    assert 9 < agree(made("protobuf"), values, {1: proto_of(text)}) < 72


@pytest.mark.parametrize("form", LIST_OF)
def test_programs_are_kept_for_some_schemas_and_made_again(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hushstream.topics.events.binary import scanner

    monkeypatch.setattr(scanner, "_KEPT", 2)
    decoder = made(form)
    for seed in (0, 1, 0):
        agree(decoder, *LIST_OF[form](seed))
    assert len(columns_of(decoder)._scanner._programs) <= 2  # type: ignore[attr-defined]
    assert set(FORMATS) >= set(LIST_OF)


def test_units_are_hashed_as_the_text_that_they_stand_for() -> None:
    known = {1: avro_of({"user": "long"})}
    values: list[bytes | None] = [framed(1, varint(n << 1) + BODY[2:]) for n in range(LEAST)]
    found = columns_of(made("avro")).decode(raw(values), known)
    here, other = (UnitDigests(bytes(32), "crc32", 3, 1) for _ in range(2))
    for one, two in zip(here.look(found.unit), other.look(list(range(LEAST))), strict=True):
        assert (one == two).all()
