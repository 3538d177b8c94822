"""Avro payloads: the reference reader's values, and hostile bytes without errors.

Covers: formats/schemas/avro_types.py, formats/schemas/batch.py, formats/schemas/schema.py
"""

from __future__ import annotations

import io
import json
import random
from typing import Any

import fastavro
import numpy as np
import pytest
from hushstream.formats.schemas.avro import compile_avro
from hushstream.formats.schemas.avro_types import parse_avro
from hushstream.formats.schemas.batch import FieldColumn, Payloads
from hushstream.formats.schemas.schema import Schema, UnusableSchema

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]


class _World:
    """Random schemas, and random values of them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._names = 0

    def _name(self) -> str:
        self._names += 1
        return f"N{self._names}"

    def kind(self, depth: int = 0) -> Any:
        rng = self.rng
        roll = rng.random()
        if depth > 2 or roll < 0.55:
            return rng.choice(PRIMITIVES)
        if roll < 0.65:
            return {"type": "enum", "name": self._name(), "symbols": ["A", "B", "C"]}
        if roll < 0.7:
            return {"type": "fixed", "name": self._name(), "size": rng.choice([0, 3])}
        if roll < 0.78:
            return {"type": "array", "items": self.kind(depth + 1)}
        if roll < 0.84:
            return {"type": "map", "values": self.kind(depth + 1)}
        if roll < 0.92:
            return ["null", self.kind(9), *(["string"] if rng.random() < 0.3 else [])][:3]
        return self.record(depth + 1)

    def record(self, depth: int = 0) -> dict[str, Any]:
        fields = [{"name": f"f{i}", "type": self.kind(depth)} for i in range(self.rng.randrange(5))]
        return {"type": "record", "name": self._name(), "fields": fields}

    def value(self, kind: Any) -> Any:
        rng = self.rng
        if isinstance(kind, list):
            return self.value(rng.choice(kind))
        if isinstance(kind, dict):
            made: dict[str, Any] = {
                "enum": lambda: rng.choice(kind["symbols"]),
                "fixed": lambda: bytes(kind["size"]),
                "array": lambda: [self.value(kind["items"]) for _ in range(rng.randrange(4))],
                "map": lambda: {
                    f"k{i}": self.value(kind["values"]) for i in range(rng.randrange(3))
                },
                "record": lambda: {f["name"]: self.value(f["type"]) for f in kind["fields"]},
            }
            return made[kind["type"]]()
        return {
            "null": lambda: None,
            "boolean": lambda: rng.random() < 0.5,
            "int": lambda: rng.choice([0, -1, 63, -64, 64, 2**31 - 1, -(2**31)]),
            "long": lambda: rng.choice([0, 1, 2**63 - 1, -(2**63), rng.randrange(-(2**40), 2**40)]),
            "float": lambda: rng.choice([0.0, 1.5, -2.25]),
            "double": lambda: rng.choice([0.1, float("inf"), -1e300]),
            "bytes": lambda: rng.randbytes(rng.randrange(4)),
            "string": lambda: rng.choice(["", "a", "zürich", "x" * 70]),
        }[kind]()


def _paths(schema: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in schema["fields"]:
        kind = one["type"]
        nested = isinstance(kind, dict) and kind["type"] == "record" and kind["fields"]
        found[one["name"]] = _paths(kind) if nested else None
    return found


def _encode(schema: Any, values: list[Any]) -> list[bytes]:
    parsed = fastavro.parse_schema(schema, _write_hint=False)
    out = []
    for value in values:
        to = io.BytesIO()
        fastavro.schemaless_writer(to, parsed, value)
        out.append(to.getvalue())
    return out


def _leaves(wanted: dict[str, Any], path: str = "") -> list[str]:
    out = []
    for name, inner in wanted.items():
        here = f"{path}.{name}" if path else name
        out += [here] if inner is None else _leaves(inner, here)
    return out


def _read(
    schema: Schema, wanted: dict[str, Any], payloads: list[bytes]
) -> tuple[dict[str, FieldColumn], list[bool]]:
    run = compile_avro(parse_avro(schema), wanted)
    sink = {path: FieldColumn(len(payloads)) for path in _leaves(wanted)}
    batch = Payloads(payloads)
    run(batch, np.arange(len(payloads)), sink)
    return sink, batch.bad.tolist()


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else None


def _at(value: Any, path: str) -> Any:
    for step in path.split("."):
        value = value[step]
    return value


@pytest.mark.parametrize("seed", range(40))
def test_the_reference_reader_gives_the_same_values(seed: int) -> None:
    world = _World(seed)
    schema = world.record()
    values = [world.value(schema) for _ in range(60)]
    payloads = _encode(schema, values)
    wanted = _paths(schema)
    columns, bad = _read(Schema("AVRO", json.dumps(schema)), wanted, payloads)
    parsed = fastavro.parse_schema(schema, _write_hint=False)
    expected = [fastavro.schemaless_reader(io.BytesIO(p), parsed, None) for p in payloads]
    assert not any(bad)
    for path, column in columns.items():
        truth = [_at(value, path) for value in expected]
        assert column.values == [_plain(one) for one in truth], path
        strange = {row for row, one in enumerate(truth) if one is not None and _plain(one) is None}
        assert set(column.wrong) == strange and set(column.wrong.values()) <= {"wrong_type"}


@pytest.mark.parametrize("seed", range(25))
def test_hostile_bytes_are_read_alike_alone_and_among_others(seed: int) -> None:
    world = _World(1000 + seed)
    schema = world.record()
    good = _encode(schema, [world.value(schema) for _ in range(12)])
    rng = random.Random(seed)
    payloads = list(good)
    for one in good:
        cut = bytearray(one[: rng.randrange(len(one) + 1)])
        for _ in range(rng.randrange(3)):
            if cut:
                cut[rng.randrange(len(cut))] = rng.randrange(256)
        payloads.append(bytes(cut))
    made, wanted = Schema("AVRO", json.dumps(schema)), _paths(schema)
    together, bad = _read(made, wanted, payloads)
    for row, payload in enumerate(payloads):
        alone, worse = _read(made, wanted, [payload])
        assert worse == [bad[row]]
        if not bad[row]:
            for path, column in alone.items():
                assert repr(column.values[0]) == repr(together[path].values[row])
                assert column.wrong.get(0) == together[path].wrong.get(row)


LIST = {"type": "record", "name": "L", "fields": [
    {"name": "v", "type": "long"}, {"name": "next", "type": ["null", "L"]}]}  # fmt: skip


def test_a_list_within_itself_is_read_as_deep_as_it_is_asked_for() -> None:
    values = {"v": 1, "next": {"v": 2, "next": {"v": 3, "next": None}}}
    schema = Schema("AVRO", json.dumps(LIST))
    columns, bad = _read(schema, {"v": None, "next": {"v": None}}, _encode(LIST, [values]))
    assert (columns["v"].values, columns["next.v"].values, bad) == ([1], [2], [False])


def test_depth_and_number_of_what_nobody_reads_have_limits() -> None:
    schema = Schema("AVRO", json.dumps(LIST))
    _, bad = _read(schema, {"v": None}, [b"\x02\x02" * 5_000 + b"\x02\x00", b"\x02\x00"])
    assert bad == [True, False]
    nothing = {"type": "record", "name": "B", "fields": [
        {"name": "a", "type": {"type": "array", "items": "null"}},
        {"name": "v", "type": "long"}]}  # fmt: skip
    most = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    columns, bad = _read(Schema("AVRO", json.dumps(nothing)), {"v": None}, [most + b"\x00\x02"])
    assert (columns["v"].values, bad) == ([1], [False])


def test_a_block_that_states_its_bytes_is_passed_over() -> None:
    schema = {"type": "record", "name": "B", "fields": [
        {"name": "a", "type": {"type": "array", "items": "string"}},
        {"name": "v", "type": "long"}]}  # fmt: skip
    payload = bytes([3, 8]) + b"\x02x\x02y" + b"\x00\x0e"
    columns, bad = _read(Schema("AVRO", json.dumps(schema)), {"v": None}, [payload])
    assert (columns["v"].values, bad) == ([7], [False])


def test_a_text_that_is_no_text_harms_its_own_field_alone() -> None:
    schema = {"type": "record", "name": "T", "fields": [
        {"name": "a", "type": "string"}, {"name": "b", "type": "string"}]}  # fmt: skip
    payloads = [b"\x02\xff\x02x", b"\x02y\x02z"]
    columns, bad = _read(Schema("AVRO", json.dumps(schema)), {"a": None, "b": None}, payloads)
    assert bad == [False, False]
    assert (columns["a"].values, columns["a"].wrong) == ([None, "y"], {0: "malformed"})
    assert (columns["b"].values, columns["b"].wrong) == (["x", "z"], {})


SYMBOLS = {"type": "enum", "name": "S", "symbols": ["a", "b"]}
LOOSE = {
    "a branch below zero": (["null", "long"], b"\x01\x08"),
    "a symbol below zero": (SYMBOLS, b"\x01"),
    "a truth value of seven": ("boolean", b"\x07"),
    "a number of eleven bytes": ("long", b"\x80" * 10 + b"\x01"),
}


@pytest.mark.parametrize("read", [True, False], ids=["read", "passed over"])
@pytest.mark.parametrize("kind, payload", LOOSE.values(), ids=LOOSE)
def test_bytes_that_the_reference_reader_misreads_are_refused(
    kind: Any, payload: bytes, read: bool
) -> None:
    schema = {"type": "record", "name": "T", "fields": [{"name": "a", "type": kind}]}
    parsed = fastavro.parse_schema(schema, _write_hint=False)
    assert fastavro.schemaless_reader(io.BytesIO(payload), parsed, None)["a"]
    _, bad = _read(Schema("AVRO", json.dumps(schema)), {"a": None} if read else {}, [payload])
    assert bad == [True]


@pytest.mark.parametrize("kind, payload", [LOOSE["a branch below zero"], ("string", b"\x01x")])
def test_what_is_passed_over_in_a_list_is_held_to_its_schema(kind: Any, payload: bytes) -> None:
    many = {"type": "array", "items": kind}
    schema = {"type": "record", "name": "T", "fields": [{"name": "a", "type": many}]}
    block = b"\x02" + payload + b"\x00"
    _, bad = _read(Schema("AVRO", json.dumps(schema)), {}, [block, b"\x00"])
    assert bad == [True, False]


def test_bytes_after_the_end_are_refused() -> None:
    schema = {"type": "record", "name": "T", "fields": [{"name": "a", "type": "long"}]}
    _, bad = _read(Schema("AVRO", json.dumps(schema)), {"a": None}, [b"\x02\x00", b"\x02"])
    assert bad == [True, False]


def test_a_schema_may_use_types_of_those_that_it_refers_to() -> None:
    inner = {"type": "record", "name": "In", "namespace": "a.b", "fields": [
        {"name": "x", "type": "long"}]}  # fmt: skip
    outer = {"type": "record", "name": "Out", "fields": [{"name": "in", "type": "a.b.In"}]}
    schema = Schema("AVRO", json.dumps(outer), (("a.b.In", json.dumps(inner)),))
    columns, _ = _read(schema, {"in": {"x": None}}, [b"\x04"])
    assert columns["in.x"].values == [2]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "7",
        '"nowhere"',
        '{"type":"record","name":"R"}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"R2"}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
        '{"type":"fixed","name":"F","size":-1}',
        '{"type":"enum","symbols":["A"]}',
        "[" * 3000,
    ],
)
def test_what_is_no_schema_is_unusable(text: str) -> None:
    with pytest.raises(UnusableSchema):
        parse_avro(Schema("AVRO", text))
