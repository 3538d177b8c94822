"""Frames: every reason is reached, and a pipeline's counts depend only on its own fields.

Covers: formats/events/objects.py, formats/events/wires.py
"""

from __future__ import annotations

import io
import json
from fractions import Fraction
from typing import Any

import fastavro
import pytest
from hushstream.formats.bytes_in import schema_id
from hushstream.formats.entries import FORMATS
from hushstream.formats.events.decode import Decoded, Decoder, KeysAlone, RawRecord
from hushstream.formats.events.fields import InputFields, NumericField, PipelineFields
from hushstream.formats.events.keys import decode_key
from hushstream.formats.events.reasons import Unread
from hushstream.formats.schemas.schema import Pinned, Schema

FARE = NumericField("fare", Fraction(0), Fraction(50), Fraction(1))
AVRO = {"type": "record", "name": "E", "fields": [
    {"name": "user", "type": "string"}, {"name": "page", "type": ["null", "string", "long"]},
    {"name": "fare", "type": "double"}, {"name": "t", "type": "long"}]}  # fmt: skip
OTHER = {"type": "record", "name": "E", "fields": [
    {"name": "t", "type": "long"}, {"name": "fare", "type": "string"},
    {"name": "page", "type": "string"}, {"name": "user", "type": "string"}]}  # fmt: skip
PROTO = 'syntax = "proto3"; message E { string user = 1; string page = 2; int64 t = 3; }'


def decoder(encoding: str, *pipelines: PipelineFields) -> Decoder:
    fields = InputFields("t", "epoch_us", "UTC", ("user",), 200, encoding)
    readers = pipelines or (PipelineFields(("page",)),)
    return Decoder(fields, readers, [KeysAlone()] * len(readers))  # type: ignore[list-item]


def pinned(encoding: str, text: str, since: int = 0) -> Pinned:
    return Pinned(Schema(FORMATS[encoding].registered, text), since)


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def avro(number: int, schema: Any, value: dict[str, Any]) -> bytes:
    to = io.BytesIO()
    fastavro.schemaless_writer(to, fastavro.parse_schema(schema, _write_hint=False), value)
    return framed(number, to.getvalue())


def log(*values: bytes | None) -> list[RawRecord]:
    return [RawRecord(10 + i, 5, None, value) for i, value in enumerate(values)]


def keys(decoded: Decoded, view: int = 0) -> dict[int, Any]:
    one = decoded.views[view]
    every = [decode_key(key) for key in one.keys.tolist()]
    return {int(row): every[key][0] for row, key in zip(one.rows, one.key, strict=True)}


KNOWN = {
    1: pinned("avro", json.dumps(AVRO)),
    2: pinned("avro", json.dumps(OTHER)),
    3: pinned("avro", "garbage"),
    4: pinned("protobuf", PROTO),
    5: pinned("avro", json.dumps(AVRO), since=1_000),
}
ROW = {"user": "u", "page": "a", "fare": 1.0, "t": 7}


def test_every_frame_has_its_outcome() -> None:
    good = avro(1, AVRO, ROW)
    values = [
        good, None, b"", b"\0\0\0\0", b"{}", b"\1" + good[1:], framed(99, good[5:]),
        framed(3, good[5:]), framed(4, good[5:]), framed(5, good[5:]), good + b"x", good[:-1],
        good + bytes(300), Unread.of("huge_batch", 3),
    ]  # fmt: skip
    decoded = decoder("avro").decode(log(*values), KNOWN)
    assert decoded.bad == {
        1: "null", 2: "malformed", 3: "malformed", 4: "malformed", 5: "malformed",
        6: "unknown_schema", 7: "wrong_schema", 8: "wrong_schema", 9: "unknown_schema",
        10: "malformed", 11: "malformed", 12: "oversized", 13: "huge_batch",
    }  # fmt: skip
    assert keys(decoded) == {0: "a"}
    assert decoder("avro").decode(log(good), None).bad == {0: "unknown_schema"}


def test_schemas_take_turns_and_fields_are_found_by_name() -> None:
    new = ROW | {"fare": "cheap", "page": "b"}
    values = [avro(1, AVRO, ROW), avro(2, OTHER, new)] * 3
    both = [PipelineFields(("page",)), PipelineFields(("page",), (FARE,))]
    decoded = decoder("avro", *both).decode(log(*values), KNOWN)
    assert decoded.bad == {}
    assert keys(decoded) == {0: "a", 1: "b", 2: "a", 3: "b", 4: "a", 5: "b"}
    # Only the pipeline that reads the field with a changed type loses the record.
    assert keys(decoded, 1) == {0: "a", 2: "a", 4: "a"}
    assert decoded.views[1].bad == dict.fromkeys((1, 3, 5), "wrong_type")
    assert {getattr(reason, "path", "") for reason in decoded.views[1].bad.values()} == {"fare"}
    alone = decoder("avro", both[1]).decode(log(*values), KNOWN)
    assert alone.views[0].rows.tolist() == decoded.views[1].rows.tolist()


def test_a_value_of_a_type_that_its_role_cannot_use_is_a_wrong_type() -> None:
    real = {"type": "record", "name": "E", "fields": [
        {"name": "user", "type": "double"}, {"name": "page", "type": "string"},
        {"name": "t", "type": "long"}]}  # fmt: skip
    value = avro(1, real, {"user": 1.5, "page": "a", "t": 7})
    decoded = decoder("avro").decode(log(value), {1: pinned("avro", json.dumps(real))})
    assert decoded.bad == {0: "wrong_type"}


def test_a_null_key_is_missing_and_a_number_stays_one() -> None:
    values = [avro(1, AVRO, ROW | {"page": page}) for page in (None, 5, "5")]
    decoded = decoder("avro").decode(log(*values), KNOWN)
    assert decoded.views[0].bad == {0: "missing_key"}
    assert keys(decoded) == {1: 5, 2: "5"}


def test_protobuf_names_the_message_in_front() -> None:
    text = PROTO + " message F { string page = 1; string user = 2; int64 t = 3; }"
    known = {7: pinned("protobuf", text)}
    first = b"\x0a\x01u\x12\x01a\x18\x07"
    values = [framed(7, b"\0" + first), framed(7, b"\2\0" + first), framed(7, b"\2\2" + first),
              framed(7, b"\2\4" + first), framed(7, b"\xff"), framed(7, b"")]  # fmt: skip
    decoded = decoder("protobuf").decode(log(*values), known)
    assert keys(decoded) == {0: "a", 1: "a", 2: "u"}
    assert decoded.unit[0] == decoded.unit[1] == "u" and decoded.unit[2] == "a"
    assert decoded.bad == dict.fromkeys((3, 4, 5), "wrong_schema")


def test_json_in_a_frame_is_read_like_json_without() -> None:
    known = {7: pinned("json_schema", "{}"), 8: pinned("avro", json.dumps(AVRO))}
    body = json.dumps(ROW).encode()
    values = [framed(7, body), framed(7, b"{"), body, framed(8, body), framed(9, body), None,
              framed(7, json.dumps(ROW | {"page": 1.5}).encode())]  # fmt: skip
    decoded = decoder("json_schema").decode(log(*values), known)
    assert decoded.bad == {
        1: "malformed", 2: "malformed", 3: "wrong_schema", 4: "unknown_schema", 5: "null",
    }  # fmt: skip
    assert (keys(decoded), decoded.views[0].bad) == ({0: "a"}, {6: "wrong_type"})


@pytest.mark.parametrize("value", [None, b"", b"\0\0\0\0", b"\1\0\0\0\1", b"{}      "])
def test_what_has_no_frame_has_no_schema(value: bytes | None) -> None:
    assert schema_id(value) is None
