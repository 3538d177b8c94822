"""Protobuf payloads: the values of Google's library, and hostile bytes without errors.

Covers: formats/schemas/proto_types.py, formats/schemas/proto_text.py
"""

from __future__ import annotations

import base64
import random
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hushstream.formats.schemas.batch import FieldColumn, Payloads
from hushstream.formats.schemas.proto_text import parse_protobuf
from hushstream.formats.schemas.proto_types import SCALARS, message_at
from hushstream.formats.schemas.protobuf import STEPS, Message, message_indexes
from hushstream.formats.schemas.schema import Schema, UnusableSchema

TEXT = """
// A comment; with "quotes" and a brace {
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
option java_package = "x.y";
enum Colour { option allow_alias = true; RED = 0; GREEN = 1; BLUE = -2; reserved 7 to 9; }
message Other { int64 x = 1; }
message Event {
  reserved 99, 100 to 200;
  string user = 1;
  sint64 at = 2 [deprecated = true, (a.b) = { c: 1 }];
  optional double fare = 3;
  Colour colour = 4;
  repeated string tags = 5;
  map<string, int32> counts = 6;
  message Inner { string zone = 1; Deep deep = 2; message Deep { uint32 n = 1; } }
  Inner inner = 7;
  oneof what { string left = 8; int32 right = 9; Inner both = 10; }
  google.protobuf.Timestamp when = 11;
  bytes blob = 12;
  fixed64 big = 13;
  float small = 14;
  bool yes = 15;
}
service Nothing { rpc Do (Event) returns (Other) { option x = 1; } }
"""
EVENT = {
    "user": None, "at": None, "fare": None, "colour": None, "tags": None, "counts": None,
    "inner": {"zone": None, "deep": {"n": None}}, "left": None, "right": None,
    "both": {"zone": None}, "when": {"seconds": None}, "blob": None, "big": None, "small": None,
    "yes": None, "absent": None,
}  # fmt: skip
KIND = descriptor_pb2.FieldDescriptorProto


def _field(name: str, number: int, kind: str, **more: Any) -> Any:
    value = SCALARS.index(kind) + 1
    return KIND(name=name, number=number, type=value, label=more.pop("label", 1), **more)


def _descriptor() -> descriptor_pb2.FileDescriptorProto:
    """The schema's file descriptor, as a compiler would make it."""
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto", package="shop.v1", syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )  # fmt: skip
    colour = file.enum_type.add(name="Colour")
    for name, number in (("RED", 0), ("GREEN", 1), ("BLUE", -2)):
        colour.value.add(name=name, number=number)
    file.message_type.add(name="Other").field.append(_field("x", 1, "int64"))
    event = file.message_type.add(name="Event")
    inner = event.nested_type.add(name="Inner")
    deep = inner.nested_type.add(name="Deep")
    deep.field.append(_field("n", 1, "uint32"))
    inner.field.append(_field("zone", 1, "string"))
    within = ".shop.v1.Event.Inner"
    inner.field.append(_field("deep", 2, "message", type_name=f"{within}.Deep"))
    entry = event.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.extend([_field("key", 1, "string"), _field("value", 2, "int32")])
    event.oneof_decl.add(name="what")
    event.oneof_decl.add(name="_fare")
    event.field.extend([
        _field("user", 1, "string"), _field("at", 2, "sint64"),
        _field("fare", 3, "double", oneof_index=1, proto3_optional=True),
        _field("colour", 4, "enum", type_name=".shop.v1.Colour"),
        _field("tags", 5, "string", label=3),
        _field("counts", 6, "message", label=3, type_name=".shop.v1.Event.CountsEntry"),
        _field("inner", 7, "message", type_name=within),
        _field("left", 8, "string", oneof_index=0), _field("right", 9, "int32", oneof_index=0),
        _field("both", 10, "message", oneof_index=0, type_name=within),
        _field("when", 11, "message", type_name=".google.protobuf.Timestamp"),
        _field("blob", 12, "bytes"), _field("big", 13, "fixed64"), _field("small", 14, "float"),
        _field("yes", 15, "bool"),
    ])  # fmt: skip
    return file


def _event_type() -> Any:
    pool = descriptor_pool.DescriptorPool()
    from google.protobuf import timestamp_pb2

    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(_descriptor().SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.v1.Event"))


EVENT_TYPE = _event_type()
SCHEMAS = {
    "text": Schema("PROTOBUF", TEXT),
    "descriptor": Schema(
        "PROTOBUF", base64.standard_b64encode(_descriptor().SerializeToString()).decode()
    ),
}


def _random(rng: random.Random) -> Any:
    made = EVENT_TYPE()
    if rng.random() < 0.9:
        made.user = rng.choice(["u1", "", "zürich", "x" * 200])
    made.at = rng.choice([0, -1, 2**62, -(2**63)])
    if rng.random() < 0.5:
        made.fare = rng.choice([0.0, -1.5])
    made.colour = rng.choice([0, 1, -2, 77])
    made.tags.extend(["t"] * rng.randrange(3))
    if rng.random() < 0.3:
        made.counts["k"] = 3
    if rng.random() < 0.6:
        made.inner.zone = rng.choice(["", "east"])
        if rng.random() < 0.5:
            made.inner.deep.n = 2**32 - 1
        made.inner.SetInParent()
    roll = rng.randrange(4)
    if roll == 0:
        made.left = "l"
    elif roll == 1:
        made.right = -5
    elif roll == 2:
        made.both.zone = "b"
    if rng.random() < 0.5:
        made.when.seconds = 1_700_000_000
    made.big, made.small, made.yes = rng.randrange(2**64), 0.5, rng.random() < 0.5
    return made


def _present(made: Any, name: str) -> bool:
    plain = name in ("user", "at", "colour", "big", "small", "yes")
    return plain or made.HasField(name)


def _truth(made: Any, path: str) -> Any:
    *parents, leaf = path.split(".")
    for step in parents:
        if not made.HasField(step):
            return None
        made = getattr(made, step)
    if leaf == "colour":
        return {0: "RED", 1: "GREEN", -2: "BLUE"}.get(made.colour, made.colour)
    if not parents and not _present(made, leaf):
        return None
    return getattr(made, leaf)


def _read(schema: Schema, payloads: list[bytes]) -> tuple[dict[str, FieldColumn], list[bool]]:
    kind = message_at(parse_protobuf(schema), (1,))
    paths: list[str] = []

    def walk(tree: dict[str, Any], prefix: str) -> None:
        for name, inner in tree.items():
            walk(inner, f"{prefix}{name}.") if inner else paths.append(prefix + name)

    walk(EVENT, "")
    sink = {path: FieldColumn(len(payloads)) for path in paths}
    batch = Payloads(payloads)
    Message(kind, EVENT, "").read(batch, np.arange(len(payloads)), sink)
    return sink, batch.bad.tolist()


@pytest.mark.parametrize("encoding", SCHEMAS)
@pytest.mark.parametrize("seed", range(4))
def test_the_reference_library_gives_the_same_values(encoding: str, seed: int) -> None:
    rng = random.Random(seed)
    made = [_random(rng) for _ in range(200)]
    columns, bad = _read(SCHEMAS[encoding], [one.SerializeToString() for one in made])
    assert not any(bad)
    for path in set(columns) - {"tags", "counts", "blob", "absent"}:
        assert columns[path].values == [_truth(one, path) for one in made], path
        assert columns[path].wrong == {}
    for path in ("tags", "counts", "blob"):
        assert set(columns[path].wrong.values()) == {"wrong_type"}
    assert columns["absent"].values == [None] * 200


@pytest.mark.parametrize("seed", range(30))
def test_joined_messages_are_merged_as_the_reference_merges_them(seed: int) -> None:
    # Two concatenated messages are one: the last value counts, and nested messages are merged.
    rng = random.Random(seed)
    payloads, truth = [], []
    for many in (2, 2, 3, 40):
        data = b"".join(_random(rng).SerializeToString() for _ in range(many))
        payloads.append(data)
        one = EVENT_TYPE()
        one.ParseFromString(data)
        truth.append(one)
    columns, bad = _read(SCHEMAS["text"], payloads)
    assert not any(bad)
    for path in set(columns) - {"tags", "counts", "blob", "absent"}:
        assert columns[path].values == [_truth(one, path) for one in truth], path


@pytest.mark.spread(3)
@pytest.mark.parametrize("seed", range(30))
def test_hostile_bytes_are_read_alike_alone_and_among_others(seed: int) -> None:
    rng = random.Random(seed)
    payloads = []
    for _ in range(20):
        data = bytearray(_random(rng).SerializeToString() * rng.choice([1, 1, 40]))
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        payloads.append(bytes(data[: rng.randrange(len(data) + 1)]))
    together, bad = _read(SCHEMAS["text"], payloads)
    for row, payload in enumerate(payloads):
        alone, worse = _read(SCHEMAS["text"], [payload])
        assert worse == [bad[row]]
        if not bad[row]:
            for path, column in alone.items():
                assert repr(column.values[0]) == repr(together[path].values[row]), path
                assert column.wrong.get(0) == together[path].wrong.get(row)


def test_a_message_that_comes_without_end_is_refused_and_a_number_is_not() -> None:
    part = bytes([7 << 3 | 2, 2, 1 << 3 | 2, 0])
    at = bytes([2 << 3, 2])
    columns, bad = _read(SCHEMAS["text"], [part * 2_000, at * 100_000, part])
    assert bad == [True, False, False]
    assert columns["at"].values[1] == 1


DISPUTED = {
    "a group": (b"\x9b\x06\x9c\x06", False),
    "a field number of 2^29": (b"\x80\x80\x80\x80\x10\x01", True),
    "a key of ten bytes": (b"\x88" + b"\x80" * 8 + b"\x00\x01", True),
    "a length of six bytes": (b"\x0a\x81\x80\x80\x80\x80\x00a", True),
}


@pytest.mark.parametrize("field, good", DISPUTED.values(), ids=DISPUTED)
def test_fields_about_which_implementations_disagree_have_one_verdict(
    field: bytes, good: bool
) -> None:
    # The first fields are read for all records at once, later ones record by record.
    _, bad = _read(SCHEMAS["text"], [field, b"\x10\x01" * STEPS + field])
    assert bad == [not good] * 2


def test_what_older_writers_sent_is_read_by_their_own_schema() -> None:
    old = Schema("PROTOBUF", 'syntax = "proto2"; message Event { optional int32 n = 3; }')
    columns = {"n": FieldColumn(2)}
    batch = Payloads([bytes([24, 5]), b""])
    kind = message_at(parse_protobuf(old), (0,))
    Message(kind, {"n": None}, "").read(batch, np.arange(2), columns)
    assert columns["n"].values == [5, None]


def test_types_of_other_files_are_found() -> None:
    other = 'syntax = "proto3"; package o; message Part { string zone = 1; }'
    text = 'syntax = "proto3"; import "o.proto"; message E { o.Part part = 1; }'
    schema = Schema("PROTOBUF", text, (("o.proto", other),))
    columns = {"part.zone": FieldColumn(1)}
    kind = message_at(parse_protobuf(schema), (0,))
    batch = Payloads([b"\x0a\x03\x0a\x01z"])
    Message(kind, {"part": {"zone": None}}, "").read(batch, np.arange(1), columns)
    assert columns["part.zone"].values == ["z"]


def test_the_place_of_a_message_is_read_and_checked() -> None:
    assert message_indexes(b"\x00") == ((0,), 1)
    file = parse_protobuf(SCHEMAS["text"])
    assert message_at(file, (1, 0, 0)).name == "shop.v1.Event.Inner.Deep"
    for place in ((2,), (0, 0)):
        with pytest.raises(UnusableSchema):
            message_at(file, place)
    for broken in (b"", b"\x01", b"\x04\x02", b"\xff" * 12):
        with pytest.raises(ValueError):
            message_indexes(broken)


@pytest.mark.parametrize(
    "text",
    [
        "message", "message M {", "message M { int32 a = ; }", "message M { int32 a = x; }",
        "message M { group G = 1 { } }", 'edition = "2023"; message M {}', "message M } ", "$",
        "message M { " * 40 + "}" * 40, "option x = ) ;",
        base64.b64encode(b"\x22\x05\x0a").decode(),
    ],
)  # fmt: skip
def test_what_is_no_schema_is_unusable(text: str) -> None:
    with pytest.raises(UnusableSchema):
        parse_protobuf(Schema("PROTOBUF", text))
