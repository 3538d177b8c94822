"""Targets: events and reports, and the schemas that describe them."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hushstream.agents.deployment.compile import compile_config
from hushstream.formats.entries import FORMATS
from hushstream.formats.events.binary.avro_program import avro_program
from hushstream.formats.events.binary.program import NoProgram
from hushstream.formats.events.binary.proto_program import proto_program
from hushstream.formats.events.decode import Decoder, RawRecord
from hushstream.formats.events.fields import InputFields, PipelineFields
from hushstream.formats.events.reasons import REASONS
from hushstream.formats.schemas.avro import compile_avro
from hushstream.formats.schemas.avro_types import parse_avro
from hushstream.formats.schemas.proto_text import parse_protobuf
from hushstream.formats.schemas.proto_types import message_at
from hushstream.formats.schemas.protobuf import Message
from hushstream.formats.schemas.schema import Pinned, Schema, UnusableSchema
from hushstream.topics.config.load import loads

from ..support import INPUT, ORIGIN, PIPELINE, deployment
from .hostile_schemas import chain, hostile
from .target import Target

VALUED = """aggregate = [
  { kind = "count" }, { kind = "sum", field = "v", low = 0.0, high = 9.0, grid = 0.5 },
]
sign = "s"
"""


ISO = {'time = { field = "t", format = "epoch_us" }': 'time = { field = "t", format = "iso" }'}


def events(iso: bool = False) -> Target:
    """Raw JSON events: each is used, or is a dead letter with a reason."""
    made = deployment(more=VALUED, swap=ISO if iso else {})
    source = made.inputs[0]
    decoder = Decoder(
        source.fields, [p.fields for p in source.pipelines], [p.mechanism for p in source.pipelines]
    )
    time: Any = "2019-03-01T12:00:00.5+01:00" if iso else ORIGIN + 5
    corpus = [
        json.dumps(
            {"user": user, "page": page, "t": time, "v": v, "s": s, "more": [1, {"a": None}]}
        ).encode()
        for user, page, v, s in (("a", "p", 1.5, 1), (7, True, 3, "delete"), ("ä", "", -1e9, None))
    ]
    good = RawRecord(1, 0, None, corpus[0])

    def run(value: bytes) -> None:
        decoded = decoder.decode([good, RawRecord(2, 0, None, value), good])
        (view,) = decoded.views
        bad = decoded.bad | view.bad
        assert set(bad.values()) <= set(REASONS)
        assert set(view.rows.tolist()) | set(bad) >= {0, 2}
        assert not set(view.rows.tolist()) & set(bad)

    return Target(corpus, run)


def reports() -> Target:
    """Reports under local privacy, as records."""
    text = INPUT.format(units=1, cells=1, partitioner="none", format="json") + PIPELINE.format(
        name="p",
        mechanism="",
        more='aggregate = [{ kind = "sum", field = "v", low = 0.0, high = 9.0, grid = 0.5 }]',
    ).replace('key = ["page"]', "").replace('kind = "histogram", budget = 4', 'kind = "topl"')
    (source,) = compile_config(loads(text, environ={}), {"events": 1}).inputs
    (p,) = source.pipelines
    decoder = Decoder(source.fields, [p.fields], [p.mechanism])
    body = {"user": "a", "t": ORIGIN, "slot": 3, "group": 1, "theta": 0, "code": 9}
    survey = getattr(p.mechanism.survey, "number", 0)
    corpus = [json.dumps(body | {"survey": survey}).encode()]

    def run(value: bytes) -> None:
        decoded = decoder.decode([RawRecord(1, 0, None, value)])
        assert len(decoded.views[0].rows) <= 1

    return Target(corpus, run)


AVRO = """{"type": "record", "name": "E", "fields": [
  {"name": "user", "type": ["null", "string", "long"]}, {"name": "page", "type": "string"},
  {"name": "t", "type": "long"}, {"name": "more", "type": {"type": "map", "values": "string"}},
  {"name": "e", "type": {"type": "enum", "name": "C", "symbols": ["x", "y"]}}]}"""


PROTO = """syntax = "proto3"; message E { string user = 1; string page = 2; int64 t = 3;
  repeated E inner = 4; oneof o { string a = 5; E b = 6; } }"""


def framed(encoding: str) -> Target:
    """Values with the id of a schema: each is used, or is a dead letter with a reason."""
    fields = InputFields("t", "epoch_us", "UTC", ("user",), format=encoding)
    plain = deployment().pipelines[0]
    decoder = Decoder(fields, [PipelineFields(("page",))], [plain.mechanism])
    text = AVRO if encoding == "avro" else PROTO
    known = {1: Pinned(Schema(FORMATS[encoding].registered, text), 0)}
    time = b"\x80\x80\x98\xe2\xa3\xd4\xe1\x05"
    if encoding == "avro":
        values = [b"\x02\x02u\x02a" + time + b"\x02\x02k\x02v\x00\x02", b"\x00\x02a\x0e\x00\x00"]
    else:
        inner = b"\x0a\x01u\x12\x01a\x18" + time
        values = [b"\x00" + inner, b"\x02\x00" + inner + b"\x22\x03\x0a\x01x\x32\x00\x2a\x01z"]
    corpus = [b"\0\0\0\0\1" + value for value in values]
    good = RawRecord(1, 0, None, corpus[0])

    def run(value: bytes) -> None:
        decoded = decoder.decode([good, RawRecord(2, 0, None, value), good], known)
        (view,) = decoded.views
        bad = decoded.bad | view.bad
        assert set(bad.values()) <= set(REASONS)
        assert set(view.rows.tolist()) >= {0, 2} and not set(view.rows.tolist()) & set(bad)

    return Target(corpus, run)


def schemas() -> Target:
    """Schemas from a registry: they read records, or make them dead letters."""
    corpus = [AVRO.encode(), PROTO.encode(), b"x" + AVRO.encode(), chain(9).encode()]
    fields = InputFields("t", "epoch_us", "UTC", ("user",))
    mechanism = deployment().pipelines[0].mechanism
    decoders = [
        Decoder(replace(fields, format=encoding), [PipelineFields(("page",))], [mechanism])
        for encoding in ("avro", "protobuf")
    ]
    values = [framed(encoding).corpus for encoding in ("avro", "protobuf")]
    wanted = {"user": None, "t": {"x": None}, "b": {"t": None}}

    def run(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        with suppress(UnusableSchema):
            kind = parse_avro(Schema("AVRO", text))
            compile_avro(kind, wanted)
            with suppress(NoProgram):
                avro_program(kind, wanted, {"user": 0, "t.x": 1, "b.t": 2})
        with suppress(UnusableSchema):
            message = message_at(parse_protobuf(Schema("PROTOBUF", text)), (0,))
            Message(message, wanted, "")
            with suppress(NoProgram):
                proto_program(message, {"user": 0, "a": 1})
        for decoder, real, encoding in zip(decoders, values, ("AVRO", "PROTOBUF"), strict=True):
            # Zeros and ones parse deep into any schema.
            every = [*real, b"\0\0\0\0\1" + bytes(300), b"\0\0\0\0" + b"\1" * 300]
            log = [RawRecord(n, 0, None, value) for n, value in enumerate(every)]
            decoded = decoder.decode(log, {1: Pinned(Schema(encoding, text), 0)})
            assert set((decoded.bad | decoded.views[0].bad).values()) <= set(REASONS)

    return Target(corpus, run, mutate=hostile)
