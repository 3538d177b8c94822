"""Avro by columns: on any input the answers are those of reading each record.

Covers: formats/events/binary/avro_program.py
"""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest
from hushstream.formats.events.columns import LEAST
from hushstream.formats.events.decode import Decoder
from hushstream.formats.events.fields import InputFields, PipelineFields
from hushstream.formats.schemas.schema import Pinned, Schema

from ..test_columns import KeysAlone
from ..ways import by_columns
from .avro_lists import BODY, LOGICAL, avro_list, avro_of, in_avro
from .values import HUGE, LISTS, LONGS, WHERE, agree, framed, made, never, raw, varint

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


@pytest.mark.parametrize("lists", [LISTS // 3, pytest.param(LISTS, marks=pytest.mark.thorough)])
def test_both_ways_agree_on_every_record_in_avro(lists: int) -> None:
    read = 0
    for seed in range(lists):
        how = ("epoch_s", "epoch_ms", "epoch_us", "record")[seed // 4 % 4]
        read += agree(made("avro", how=how), *avro_list(seed))
        agree(made("avro", how=how, where=WHERE), *avro_list(seed))
    assert read > lists * 20  # else the agreement would say little about the loops


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
    decoder = Decoder(fields, [PipelineFields(("who.x",))], [KeysAlone()])  # type: ignore[list-item]
    parsed = fastavro.parse_schema(schema, _write_hint=False)
    rows = [{"who": {"x": "p", "id": f"u{n}"}, "at": {"ms": n}} for n in range(LEAST)]
    known = {1: Pinned(Schema("AVRO", json.dumps(schema)), 0)}
    values: list[bytes | None] = [framed(1, in_avro(parsed, row)) for row in rows]
    agree(decoder, [*values, framed(1, in_avro(parsed, {"who": None, "at": {"ms": 1}}))], known)
    never(decoder, monkeypatch)
    assert list(decoder.decode(raw(values), known).unit) == [f"u{n}" for n in range(LEAST)]


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
    """A second encoding of a number would be a second unit, with its own bound."""
    numbers = [*LONGS, *(10**n for n in range(19)), *(-(10**n) for n in range(19))]
    known = {1: avro_of({"user": "long", "page": "long"})}
    two = [varint(n << 1 ^ n >> 63) * 2 for n in numbers]
    values: list[bytes | None] = [framed(1, one + BODY[4:]) for one in two]
    assert agree(made("avro"), values, known) == len(values)
    found = by_columns(made("avro"), raw(values), known)
    assert list(found.unit) == numbers
