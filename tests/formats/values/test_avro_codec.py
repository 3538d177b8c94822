"""Avro as another implementation writes and reads it."""

from __future__ import annotations

import io
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hushstream.formats.bytes_in import BrokenBytes, Bytes
from hushstream.formats.values.avro_codec import SCALARS, reader, schema, writer
from hushstream.formats.values.shape import (
    NUMBER,
    SCALAR,
    TEXT,
    WHOLE,
    ValueShape,
    listed,
    mapped,
    maybe,
    names_of,
    record,
)
from hushstream.topics.releases import MANIFEST, ROW

from .records import bodies, described

PLACES = [("histogram-sums", "full"), ("phdstream", "region"), ("tops", "plain"), ("topl", "full")]


def renamed(shape: ValueShape, value: Any) -> Any:
    """A record with the names that Avro allows."""
    if value is None:
        return None
    if shape.kind == "record":
        return {allowed: renamed(inner, value[name]) for name, allowed, inner in names_of(shape)}
    if shape.kind == "list":
        return [renamed(shape.inner, one) for one in value]
    if shape.kind == "map":
        return {name: renamed(shape.inner, one) for name, one in value.items()}
    return value


@pytest.mark.parametrize("header", [ROW, MANIFEST])
@pytest.mark.parametrize("case,change", PLACES)
def test_another_implementation_writes_the_same_bytes_and_reads_them(
    case: str, change: str, header: str
) -> None:
    shape = described(case, change)[header]
    parsed = parse_schema(schema(shape, "hush.p"))
    write = writer(shape)
    for body in [b for h, b in bodies(case, change) if h == header][:40]:
        mine, theirs = bytearray(), io.BytesIO()
        write(body, mine)
        named = renamed(shape, body)
        schemaless_writer(theirs, parsed, named)
        assert bytes(mine) == theirs.getvalue()
        assert schemaless_reader(io.BytesIO(bytes(mine)), parsed, None) == named


ODD = record(
    "Odd",
    [
        ("a.b", TEXT), ("a_b", WHOLE), ("9", maybe(NUMBER)), ("key", SCALAR),
        ("lists", listed(listed(WHOLE))), ("map", mapped(listed(TEXT))),
        ("self", maybe(record("Part", [("x", NUMBER)]))),
        ("again", record("Part", [("x", NUMBER)])),
    ],
)  # fmt: skip


@pytest.mark.parametrize("key", ["é", -5, True, 1 << 62, -(1 << 63), 1 << 63, -(10**400)])
def test_odd_names_and_keys_of_any_size(key: Any) -> None:
    body = {
        "a.b": "x", "a_b": -7, "9": 0.5, "key": key, "lists": [[1], [], [2, 3]],
        "map": {"z": ["1"], "a": []}, "self": None, "again": {"x": 3},
    }  # fmt: skip
    out = bytearray()
    writer(ODD)(body, out)
    data = Bytes(bytes(out), 0, len(out))
    found = reader(ODD)(data)
    assert found == body and not data.left and type(found["key"]) is type(key)
    assert type(found["again"]["x"]) is int
    theirs = schemaless_reader(io.BytesIO(bytes(out)), parse_schema(schema(ODD, "n")), None)
    assert theirs["a_b_2"] == -7 and theirs["x9"] == 0.5
    large = isinstance(key, int) and not -(1 << 63) <= key < 1 << 63
    assert theirs["key"] == (str(key).encode() if large else key)


def test_every_cut_and_every_wrong_branch_is_refused() -> None:
    out = bytearray()
    writer(ODD)(
        {"a.b": "x", "a_b": 1, "9": None, "key": "k", "lists": [[1]], "map": {"a": ["b"]},
         "self": {"x": 1}, "again": {"x": 2}}, out)  # fmt: skip
    for cut in range(len(out)):
        with pytest.raises(BrokenBytes):
            reader(ODD)(Bytes(bytes(out[:cut]), 0, cut))
    for shape, blob in (
        (SCALAR, bytes([2 * len(SCALARS)])),
        (maybe(TEXT), b"\4"),
        (listed(WHOLE), b"\1\2\0"),
        (listed(WHOLE), b"\2\0\2\0"),
    ):
        with pytest.raises(BrokenBytes):
            reader(shape)(Bytes(blob, 0, len(blob)))
    with pytest.raises(ValueError, match="neither"):
        writer(SCALAR)(1.5, bytearray())
