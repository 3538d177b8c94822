"""Every parser of what others may write, with real input and the errors that it may raise."""

from __future__ import annotations

import json
import random
import re
import tomllib
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from aiokafka.errors import KafkaError
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c as crc
from hushstream.agents.clock.clock import Clock
from hushstream.agents.clock.ledger import Ledger, totals
from hushstream.agents.clock.log import entries_of
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.kafka.tolerant_batches import TolerantBatches
from hushstream.agents.stages.bound.codec import UnitCodec
from hushstream.agents.stages.feedback import Feedback
from hushstream.agents.stages.step import LogFrame
from hushstream.agents.state.columns import column_of
from hushstream.client.survey import ReportError, Survey
from hushstream.errors import EngineError, HushError
from hushstream.formats.bytes_in import BrokenBytes
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
from hushstream.formats.values.form import Announced, Described
from hushstream.mechanisms.columns import Part, Units
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.spatial.region import Region
from hushstream.reading.proof import FaultError, ReleaseProof, check_ledger
from hushstream.reading.tables import table_of
from hushstream.topics import frames
from hushstream.topics.assembly import Assembly
from hushstream.topics.config.load import loads
from hushstream.topics.config.pipelines.public import read_regions
from hushstream.topics.records import (
    Marker,
    Selected,
    Start,
    TriggerRequest,
    decode_marker,
    decode_request,
    encode,
)
from hushstream.topics.releases import (
    MANIFEST,
    MANIFEST_SCHEMA,
    ROW,
    ROW_SCHEMA,
    decode_public,
)
from hushstream.topics.sql.columns import QuerySource
from hushstream.topics.sql.query import read_query

from ..formats.values.records import bodies, described
from ..reading.signed import TOPIC, world
from ..support import INPUT, ORIGIN, PIPELINE, beat, deployment, engine, event, start, trigger
from .hostile_schemas import chain, hostile
from .mutate import mutant

Mutate = Callable[[random.Random, list[bytes]], bytes]


@dataclass(frozen=True)
class Target:
    """A parser.

    Attributes:
        corpus: real inputs.
        run: feeds it one input.
        allowed: the errors by which it may refuse one.
        mutate: makes a hostile input of real ones.
    """

    corpus: list[bytes]
    run: Callable[[bytes], Any]
    allowed: tuple[type[Exception], ...] = ()
    mutate: Mutate = mutant


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


def framed(form: str) -> Target:
    """Values with the id of a schema: each is used, or is a dead letter with a reason."""
    fields = InputFields("t", "epoch_us", "UTC", ("user",), format=form)
    plain = deployment().pipelines[0]
    decoder = Decoder(fields, [PipelineFields(("page",))], [plain.mechanism])
    text = AVRO if form == "avro" else PROTO
    known = {1: Pinned(Schema(FORMATS[form].registered, text), 0)}
    time = b"\x80\x80\x98\xe2\xa3\xd4\xe1\x05"
    if form == "avro":
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
    """Schemas, as a registry hands them out: records are read by them, or are dead letters."""
    corpus = [AVRO.encode(), PROTO.encode(), b"x" + AVRO.encode(), chain(9).encode()]
    fields = InputFields("t", "epoch_us", "UTC", ("user",))
    mechanism = deployment().pipelines[0].mechanism
    decoders = [
        Decoder(replace(fields, format=form), [PipelineFields(("page",))], [mechanism])
        for form in ("avro", "protobuf")
    ]
    values = [framed(form).corpus for form in ("avro", "protobuf")]
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
        for decoder, real, form in zip(decoders, values, ("AVRO", "PROTOBUF"), strict=True):
            # Zeros and ones go deep into any schema.
            every = [*real, b"\0\0\0\0\1" + bytes(300), b"\0\0\0\0" + b"\1" * 300]
            log = [RawRecord(n, 0, None, value) for n, value in enumerate(every)]
            decoded = decoder.decode(log, {1: Pinned(Schema(form, text), 0)})
            assert set((decoded.bad | decoded.views[0].bad).values()) <= set(REASONS)

    return Target(corpus, run, mutate=hostile)


NAME = b"8 bytes!"


def batches() -> Target:
    """Fetched batches with header names of any bytes: every record comes with its value.

    A broker passes on whole records alone, and aiokafka checks the CRC before it reads one.
    """

    def whole(names: bytes) -> bytes:
        builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
        named = [(NAME.decode(), b"v")] * (len(names) // 8)
        builder.append(0, 1, b"key", b"first", [])
        builder.append(1, 1, b"key", names, named)
        data = bytearray(bytes(builder.build()))
        at = 0
        for begin in range(0, len(names) // 8 * 8, 8):
            at = data.index(NAME, at)
            data[at : at + 8] = names[begin : begin + 8]
            at += 8
        data[17:21] = crc(data[21:]).to_bytes(4, "big")
        return bytes(data)

    def run(names: bytes) -> None:
        if NAME in names:
            return
        found = TolerantBatches(whole(names))
        batch = found.next_batch()
        assert batch.validate_crc() and not found.has_next()
        assert [record.value for record in batch] == [b"first", names]

    def cut(draw: random.Random, corpus: list[bytes]) -> bytes:
        return mutant(draw, corpus)[:4096]

    return Target([b"", b"h\xc3\xa9ader", b"\xff" * 16, b"ok names" * 3], run, mutate=cut)


def torn_batches() -> Target:
    """What a broken disk or line makes of a batch is noticed by its CRC, never read."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for place in range(4):
        builder.append(place, 1, b"key", b"value" * place, [("h", b"v")] * place)
    whole = bytes(builder.build())

    def run(data: bytes) -> None:
        found = TolerantBatches(data)
        while found.has_next():
            batch = found.next_batch()
            if batch is None or not batch.validate_crc():
                return
            assert len(list(batch)) == 4

    return Target([whole], run, (KafkaError, SystemError))  # aiokafka's words for a torn record


def requests() -> Target:
    """Trigger requests: nothing fires that is not due, nothing stops the clock."""
    made = deployment()
    (p,) = made.pipelines
    corpus = [
        encode(TriggerRequest("id", ORIGIN, ["p"])),
        encode(TriggerRequest("id", ORIGIN + (1 << 40), None)),
    ]

    def run(value: bytes) -> None:
        clock = Clock(made, Ledger(), "test", "")
        clock.apply(start(p))
        clock.request(decode_request(value))
        assert all(due.scheduled <= ORIGIN for _, due in clock.due(ORIGIN))

    return Target(corpus, run, (HushError,))


def ledger() -> Target:
    """Records of the ledger, as `verify` and `worker` read them: raw, or next in the chain."""
    charge = {"pipeline": "p", "epoch": 0, "epsilon": "1/3", "delta": "0", "config_hash": "x",
              "mu2": "1/9", "pure_epsilon": "0", "coupling_delta": "0"}  # fmt: skip
    bodies = {"pipeline": {"pipeline": "p", "number": 0}, "charge": charge,
              "refused": {"pipeline": "p", "epoch": 1}}  # fmt: skip
    first = Ledger().next("genesis", ORIGIN, {"id": "ab", "topics": {}}).encode()
    raw = [Ledger.read([first]).next(kind, ORIGIN, body).encode() for kind, body in bodies.items()]
    chained = [json.dumps([kind, body]).encode() for kind, body in bodies.items()]

    def run(value: bytes) -> None:
        read = Ledger.read([first])
        try:
            kind, body = msgspec.json.decode(value, type=tuple[str, dict[str, Any]])
            value = read.next(kind, ORIGIN, body).encode()
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            pass  # as it is
        read.take(value)
        totals(read, ["p"])

    return Target(raw + chained, run, (HushError,))


def clock() -> Target:
    """Records of the clock log."""
    (p,) = deployment().pipelines
    corpus = [encode(one) for one in (beat([7]), start(p), trigger(p, 1, [4]), Start("p", 0, 1))]

    def run(value: bytes) -> None:
        entries_of([LogFrame(0, value)], 0)

    return Target(corpus, run, (EngineError,))


def selected() -> Target:
    """Records of the selected topic."""
    corpus = [
        encode(Selected(0, 1, 0, ["cA==", "cQ=="], [1, 2], False)),
        encode(Selected(0, 1, 0, [], [], True)),
    ]

    def run(value: bytes) -> None:
        feedback = Feedback(2)
        feedback.apply(value)
        feedback.statuses(0, Keys.of([b"p"]), 3)

    return Target(corpus, run, (EngineError,))


def releases() -> Target:
    """Rows and manifests as readers decode them, and the table that is made of them."""
    made = deployment(more='public_keys = ["a"]')
    (p,) = made.pipelines
    ran = engine(made, [[event(0, "u", "a")]], [start(p), trigger(p, 1, [1])])
    found = ran.outs[p.release_topic]
    headers = ((ROW, ROW_SCHEMA.encode()),), ((MANIFEST, MANIFEST_SCHEMA.encode()),)

    def run(value: bytes) -> None:
        whole = []
        for header in headers:
            with suppress(EngineError):
                taken = Assembly("p")
                records = [decode_public(out.headers, out.value) for out in found]
                taken_up = map(taken.take, (decode_public(header, value), *records))
                whole += [release for release in taken_up if release is not None]
        table_of(whole)
        table_of(whole, latest=True)

    return Target([out.value or b"" for out in found], run)


def coded() -> Target:
    """Released records in the wire format of a registry, and what readers are told of them."""
    known: dict[int, Described] = {}
    corpus: list[bytes] = []
    for number, (encoding, kinds) in enumerate(
        (encoding, case)
        for encoding in ("avro", "protobuf", "json_schema")
        for case in (("histogram-sums", "full"), ("phdstream", "region"))
    ):
        for place, (header, shape) in enumerate(described(*kinds).items()):
            one = Described(encoding, 2 * number + place, shape)
            known[one.number] = one
            mine = [body for kind, body in bodies(*kinds) if kind == header]
            corpus += [one.encode(body) for body in (*mine[:6], *mine[-6:])]
            corpus.append(encode(Announced("t", header, encoding, one.number, shape)))
    headers = (((ROW, ROW_SCHEMA.encode()),), ((MANIFEST, MANIFEST_SCHEMA.encode()),))

    def run(value: bytes) -> None:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            told = msgspec.json.decode(value, type=Announced)
            with suppress(BrokenBytes):
                told.described.to_json(corpus[0])
        for header in headers:
            with suppress(EngineError):
                decode_public(header, value, known)

    return Target(corpus, run)


def markers() -> Target:
    """The row that says what a shard has applied."""
    corpus = [encode(Marker("ab", 7, 3, {"p": [1, 2]}, {"p": 4}, "key"))]
    return Target(corpus, decode_marker, (EngineError,))


def units() -> Target:
    """Rows of units: cut or lengthened ones are refused."""
    codec = UnitCodec(deployment().pipelines[0].mechanism)
    fresh = deployment().pipelines[0].mechanism.init_units(1)
    lanes = fresh.used.shape[1]
    full = Units(
        fresh.left, np.array([0, 2]), np.array([5, 9], np.uint32), np.ones((2, lanes), np.uint16)
    )
    corpus = [*codec.encode(fresh), *codec.encode(full)]
    whole, step = len(corpus[0]), (len(corpus[1]) - len(corpus[0])) // 2

    def run(row: bytes) -> None:
        fits = len(row) >= whole and (len(row) - whole) % step == 0
        try:
            codec.decode(column_of([row, None]))
        except EngineError:
            assert not fits
        else:
            assert fits

    return Target(corpus, run)


def arrow() -> list[bytes]:
    """Frames of all kinds, as stages write them."""
    draw = np.random.default_rng(0)
    (p,) = deployment().pipelines
    slices = [
        frames.EventSlice(
            0, 1, draw.integers(0, 256, (n, 16)).astype(np.uint8),
            Keys.of([b"key %d" % i for i in range(1 + n // 2)]), draw.integers(0, 1 + n // 2, n),
            draw.integers(-9, 9, (n, c)), np.ones(n, np.int8),
        )
        for n, c in ((1, 0), (9, 2), (300, 1))
    ]  # fmt: skip
    part = Part(
        Keys.of([b"a", b"bc", b""]),
        np.zeros(3, np.uint8),
        draw.integers(0, 9, (3, 2)),
        np.ones(2, np.int64),
    )
    out = [frame for one in slices for frame in frames.encode_events(3, one)]
    out += frames.encode_cells(1, -2, 5, part)
    return [
        *out,
        frames.encode_barrier(frames.Barrier(0, trigger(p, 1, [4]), np.ones(2, np.int64))),
    ]


def damaged_frames() -> Target:
    """Frames with flipped bits: every one is noticed."""
    known = set(arrow())

    def run(frame: bytes) -> None:
        if frame in known:
            return
        try:
            frames.decode(frame)
        except EngineError:
            return
        raise AssertionError("a damaged frame was read")

    return Target(sorted(known), run, mutate=lambda draw, corpus: _flips(draw, corpus))


def _flips(draw: random.Random, corpus: list[bytes]) -> bytes:
    data = bytearray(draw.choice(corpus))
    for bit in draw.sample(range(8 * len(data)), draw.choice((1, 1, 1, 2, 3))):
        data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def forged_frames() -> Target:
    """Frames with flipped bits under a right checksum: refused, or read within their own bytes."""

    def run(body: bytes) -> None:
        taken = frames.decode(body + b"hsh1" + zlib.crc32(body).to_bytes(4, "big"))
        if isinstance(taken, frames.EventsFrame):
            one = taken.slice
            assert len(one.unit) * 25 <= len(body) + 25
            assert len(one.keys.data) <= len(body)
            one.keys.tolist(), one.keys.take(one.key), one.part(np.arange(len(one.unit)))
        elif isinstance(taken, frames.CellsFrame):
            assert len(taken.part.key.tolist()) <= len(body)

    def mutate(draw: random.Random, corpus: list[bytes]) -> bytes:
        return _flips(draw, corpus) if draw.random() < 0.7 else mutant(draw, corpus)

    return Target([frame[:-8] for frame in arrow()], run, (EngineError,), mutate)


def toml() -> Target:
    """Configurations: a `Config`, or an error that says where."""
    base = INPUT.format(units=1, cells=1, partitioner="none", format="json")
    corpus = [
        (base + PIPELINE.format(name="p", mechanism="", more=more)).encode()
        for more in (VALUED, 'public_keys = [["a"], ["b"]]', "epoch = '7d'")
    ]

    def run(data: bytes) -> None:
        config = loads(data.decode("utf-8", "replace"), environ={})
        compile_config(config, {})

    return Target(corpus, run, (HushError,))


def statements() -> Target:
    """Statements as people write them, damaged: settings, or words on what is wrong."""
    path = Path(__file__).parents[1] / "topics" / "sql" / "statements.toml"
    listed = tomllib.loads(path.read_text("utf-8"))["statement"]
    source = QuerySource("orders", "shop-orders", ("user",), "created")

    def run(data: bytes) -> None:
        read_query(data.decode("utf-8", "replace"), [source])

    def mutate(draw: random.Random, corpus: list[bytes]) -> bytes:
        """Damaged bytes, or words of two statements in another order."""
        if draw.random() < 0.3:
            return mutant(draw, corpus)
        words = [word for _ in "ab" for word in _SQL.findall(draw.choice(every))]
        for _ in range(draw.randint(1, 4)):
            at, by = draw.randint(0, len(words)), draw.randint(0, len(words))
            words[at : at + draw.randint(0, 2)] = words[by : by + draw.randint(0, 3)]
        return b" ".join(words)

    every = [one["sql"].encode() for one in listed]
    read = [one["sql"].encode() for one in listed if "becomes" in one]
    return Target(read, run, (HushError,), mutate)


_SQL = re.compile(rb"'[^']*'|\w+|\S")


def regions() -> Target:
    """Regions as GeoJSON: a `Region`, or a problem with its place."""
    ring = [[0, 0], [1, 0], [1, 1], [0, 0]]
    shapes = [
        {"type": "Polygon", "coordinates": [ring]},
        {"type": "MultiPolygon", "coordinates": [[ring], [[[x + 2, y] for x, y in ring]]]},
        {"type": "FeatureCollection", "features": [
            {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}}]},
    ]  # fmt: skip

    def run(data: bytes) -> None:
        domain = {"region": "{" + data.decode("utf-8", "replace")[1:]}
        problems = read_regions({"pipeline": [{"mechanism": {"domain": domain}}]}, Path())
        assert bool(problems) != isinstance(domain.get("region"), Region)

    return Target([json.dumps(shape).encode() for shape in shapes], run, ())


def surveys() -> Target:
    """Surveys, as devices read them."""
    text = Survey(Fraction(1), Fraction(10), "salt").to_json()
    raw = text.encode() if isinstance(text, str) else text
    return Target(
        [raw], lambda data: Survey.from_json(data.decode()), (ReportError, UnicodeDecodeError)
    )


def seals() -> Target:
    """Headers of rows and manifests that a proof reads, whoever wrote them."""
    whole = world()
    ledger = Ledger.read(whole.ledger)
    sealing, records = check_ledger(ledger), whole.releases[0][:4]
    corpus = [record.headers[1][1] for record in records]

    def run(value: bytes) -> None:
        for record in records:
            headers = (record.headers[0], (record.headers[1][0], value))
            with suppress(FaultError):
                ReleaseProof(ledger, sealing).take(TOPIC, 0, record._replace(headers=headers))

    return Target(corpus, run)


TARGETS: dict[str, Callable[[], Target]] = {
    "events": events,
    "iso events": lambda: events(iso=True),
    "reports": reports,
    "avro": lambda: framed("avro"),
    "protobuf": lambda: framed("protobuf"),
    "schemas": schemas,
    "batches": batches,
    "torn batches": torn_batches,
    "requests": requests,
    "ledger": ledger,
    "clock": clock,
    "selected": selected,
    "releases": releases,
    "coded": coded,
    "markers": markers,
    "units": units,
    "damaged frames": damaged_frames,
    "forged frames": forged_frames,
    "toml": toml,
    "statements": statements,
    "regions": regions,
    "surveys": surveys,
    "seals": seals,
}
