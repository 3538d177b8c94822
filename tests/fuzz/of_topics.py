"""Targets: Kafka's batches, records of internal topics, releases."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

import msgspec
from aiokafka.errors import KafkaError
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c as crc
from hushstream.agents.clock.clock import Clock
from hushstream.agents.clock.ledger import Ledger, totals
from hushstream.agents.clock.log import entries_of
from hushstream.agents.kafka.batches.tolerant import TolerantBatches
from hushstream.agents.stages.feedback import Feedback
from hushstream.agents.stages.step import LogFrame
from hushstream.errors import EngineError, HushError
from hushstream.formats.bytes_in import BrokenBytes
from hushstream.formats.values.codec import Announced, Described
from hushstream.mechanisms.keys import Keys
from hushstream.reading.proof import FaultError, ReleaseProof, check_ledger
from hushstream.reading.tables import table_of
from hushstream.topics.assembly import Assembly
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

from ..formats.values.records import bodies, described
from ..reading.signed import TOPIC, world
from ..support import ORIGIN, beat, deployment, engine, event, start, trigger
from .mutate import mutant
from .target import Target

NAME = b"8 bytes!"


def batches() -> Target:
    """Fetched batches with header names of any bytes: every record keeps its value.

    A broker passes on only whole records, and aiokafka checks the CRC before it reads one.
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
    """Batches damaged by a disk or a line: their CRC fails, and they are never read."""
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

    return Target([whole], run, (KafkaError, SystemError))  # aiokafka's errors for a torn record


def requests() -> Target:
    """Trigger requests: nothing fires unless it is due, and nothing stops the clock."""
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
    """Records of the ledger, as `verify` and `worker` read them: raw, or chained."""
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
            pass  # unchanged
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
    """Rows and manifests as readers decode them, and the table of them."""
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
    """Released records in the wire format of a registry, and their announced schemas."""
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
    """The marker, which says what a shard has applied."""
    corpus = [encode(Marker("ab", 7, 3, {"p": [1, 2]}, {"p": 4}, "key"))]
    return Target(corpus, decode_marker, (EngineError,))


def seals() -> Target:
    """Headers of rows and manifests that a proof reads, from any writer."""
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
