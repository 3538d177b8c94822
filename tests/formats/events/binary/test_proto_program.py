"""Protobuf by columns: on any input the answers are those of reading each record.

Covers: formats/events/binary/proto_program.py
"""

from __future__ import annotations

import struct

import pytest
from hushstream.formats.events.columns import LEAST
from hushstream.formats.schemas.schema import Pinned, Schema

from .proto_lists import PROTO, WHOLE, proto_list, proto_of
from .values import HUGE, LISTS, WHERE, agree, framed, made, never, raw, varint


@pytest.mark.parametrize("lists", [LISTS // 3, pytest.param(LISTS, marks=pytest.mark.thorough)])
def test_both_ways_agree_on_every_record_in_protobuf(lists: int) -> None:
    read = 0
    for seed in range(lists):
        how = ("epoch_s", "epoch_ms", "epoch_us", "record")[seed // 4 % 4]
        read += agree(made("protobuf", how=how), *proto_list(seed))
        agree(made("protobuf", how=how, where=WHERE), *proto_list(seed))
    assert read > lists * 20


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
    # An omitted boolean is false.
    assert found.views[1].keys.tolist() == [b'["b",false]'] and len(found.views[1].rows) == LEAST
    assert found.views[0].value[0, 0] == 50


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
