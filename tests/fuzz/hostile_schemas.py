"""Schemas that no honest writer would register: deep, wide, long, circular, with large numbers."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Sequence

from google.protobuf import descriptor_pb2
from hushstream.formats.schemas.schema import MAX_TEXT

from .mutate import NUMBERS, mutant

HUGE = (*NUMBERS, 1 << 64, 1 << 70, 10**400)


def hostile(draw: random.Random, corpus: Sequence[bytes]) -> bytes:
    """A mutant of a real schema, or a schema built to be costly; at most as long as is read."""
    if draw.random() < 0.7:
        return mutant(draw, corpus)[:MAX_TEXT]
    built = draw.choice(_WAYS)(draw, draw.choice((3, 40, 130, 400, 3_000, 20_000)))
    return built.encode()[:MAX_TEXT]


def nested(number: int, kind: str = "array", inner: str = '"int"') -> str:
    """An Avro record whose field `user` has nested types."""
    key = "values" if kind == "map" else "items"
    if kind == "union":
        return record('"user"', "[" * number + inner + "]" * number)
    begin = f'{{"type":"{kind}","{key}":'
    return record('"user"', begin * number + inner + "}" * number)


def record(name: str, kind: str, before: str = "") -> str:
    """An Avro record with one field, after the fields ``before``."""
    return f'{{"type":"record","name":"E","fields":[{before}{{"name":{name},"type":{kind}}}]}}'


def chain(number: int) -> str:
    """Avro records, each of which contains the previous one: deep types in a flat text."""
    inner = '{"type":"record","name":"R0","fields":[{"name":"a","type":"int"}]}'
    fields = [f'{{"name":"f0","type":{inner}}},']
    for n in range(1, number):
        one = f'{{"type":"record","name":"R{n}","fields":[{{"name":"a","type":"R{n - 1}"}}]}}'
        fields.append(f'{{"name":"f{n}","type":{one}}},')
    return record('"user"', '"string"', "".join(reversed(fields) if number % 2 else fields))


def product(number: int) -> str:
    """Avro unions that repeat one record, on each level of the path `t.x`."""
    leaf = '{"type":"record","name":"S","fields":[{"name":"q","type":"int"}]}'
    many = ",".join(['"S"'] * number)
    middle = f'{{"type":"record","name":"R","fields":[{{"name":"x","type":[{many}]}}]}}'
    before = f'{{"name":"s","type":{leaf}}},{{"name":"r","type":{middle}}},'
    return record('"t"', "[" + ",".join(['"R"'] * number) + "]", before)


def names(number: int) -> str:
    """Avro types with long names."""
    inner = '{"type":"record","name":"r%d","namespace":"%s","fields":[]}'
    parts = [json.dumps({"name": f"f{n}"})[:-1] + f',"type":{inner % (n, "a" * number)}}},'
             for n in range(max(1, 100_000 // (number + 80)))]  # fmt: skip
    return record('"user"', '"string"', "".join(parts))


def numbers(draw: random.Random, number: int) -> str:
    """An Avro type with an invalid size or invalid symbols."""
    size, large = draw.choice(HUGE), "9" * number
    fixed = f'{{"type":"fixed","name":"F","size":{draw.choice((size, large))}}}'
    enum = f'{{"type":"enum","name":"C","symbols":[{size}, [[]], "{large}"]}}'
    return record('"user"', draw.choice((fixed, enum)))


def fields(draw: random.Random, number: int) -> str:
    """A Protobuf message with many fields: in one oneof, with one name, or in a deep package."""
    name = draw.choice(("a{n}", "user", "b"))
    kind = draw.choice(("int32", "string", "E", "a.b.C"))
    many = "".join(f"{kind} {name.format(n=n)} = {n + 1};" for n in range(number))
    package = ".".join("p" * draw.choice((1, 60, 500)))
    body = draw.choice((f"oneof o {{ {many} }}", many))
    return f'syntax = "proto3"; package {package}; message E {{ {body} }}'


def within(number: int) -> str:
    """Protobuf messages within messages."""
    return 'syntax = "proto3";' + "message E {" * number + "}" * number


def descriptor(draw: random.Random, number: int) -> str:
    """A file descriptor: deep, or with an endless number."""
    if draw.random() < 0.5:
        return base64.b64encode(b"\x80" * number).decode()
    data = descriptor_pb2.DescriptorProto(name="E").SerializeToString()
    for _ in range(min(number, 400)):
        one = b"\x1a" + _size(len(data)) + data
        data = b"\x0a\x01E" + one
    return base64.b64encode(b"\x22" + _size(len(data)) + data).decode()


def _size(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def quotes(number: int) -> str:
    """Unterminated texts that consist of quotes."""
    return '"' + '\\"' * number


Way = Callable[[random.Random, int], str]
_WAYS: tuple[Way, ...] = (
    lambda draw, n: nested(n, draw.choice(("array", "map", "union"))),
    lambda draw, n: chain(n),
    lambda draw, n: product(n),
    lambda draw, n: names(n),
    lambda draw, n: within(n),
    lambda draw, n: quotes(n),
    numbers,
    fields,
    descriptor,
)
