"""Attributes in Avro, Protobuf and JSON with a schema: as in JSON, even if a schema comes late.

Covers: agents/stages/ingest/attributes.py, formats/events/attributes.py
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro
import pytest
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Input
from hushstream.agents.stages.ingest.beside import Beside
from hushstream.agents.stages.ingest.stage import IngestStage
from hushstream.agents.stages.step import Step
from hushstream.agents.state.layout import SAID, schema_row
from hushstream.formats.events.raw import RawRecord
from hushstream.formats.schemas.schema import Known, Pinned, Schema, Verdict, decode_pinned
from hushstream.offline.engine import Log, VirtualShard
from hushstream.offline.replay_logs import RecordedSchemas
from hushstream.topics.config.load import loads
from hushstream.topics.records import Beat
from hypothesis import given, settings
from hypothesis import strategies as st

from ....support import NAMES, ORIGIN, SECRET, start
from .test_attributes import TEXT, TURNS, Pieces, Turn, contents, expected

RECORD: dict[str, Any] = {
    "type": "record", "name": "User",
    "fields": [
        {"name": "id", "type": "string"}, {"name": "country", "type": ["null", "string"]},
    ],
}  # fmt: skip
PROTO = 'syntax = "proto3"; message User { string id = 1; optional string country = 2; }'
OBJECT = {"type": "object", "properties": {"id": {"type": "string"}}}
SCHEMAS = {
    "avro": Schema("AVRO", json.dumps(RECORD)),
    "protobuf": Schema("PROTOBUF", PROTO),
    "json_schema": Schema("JSON", json.dumps(OBJECT)),
}
ENCODINGS = tuple(SCHEMAS)
ID = 7


def source_of(encoding: str) -> Input:
    text = TEXT.replace(
        'attributes_of = "events"', f'format = "{encoding}"\nattributes_of = "events"'
    )
    text += '[registry]\nurl = "http://localhost:1"\n'
    (source,) = compile_config(loads(text, environ={})).streams
    return source


SOURCES = {encoding: source_of(encoding) for encoding in ENCODINGS}


def written(encoding: str, unit: str, country: Any, number: int = ID) -> bytes | None:
    """A value after the id of its schema; None deletes what is stated."""
    if country == "gone":
        return None
    head = b"\0" + number.to_bytes(4, "big")
    if encoding == "json_schema":
        return head + json.dumps({"id": unit, "country": country}).encode()
    if encoding == "avro":
        to = io.BytesIO()
        schema = fastavro.parse_schema(RECORD, _write_hint=False)
        fastavro.schemaless_writer(to, schema, {"id": unit, "country": country})
        return head + to.getvalue()
    parts = [(0x0A, unit)] + ([] if country is None else [(0x12, country)])
    return head + b"\0" + b"".join(bytes([tag, len(v)]) + v.encode() for tag, v in parts)


class Late:
    """A registry that answers the second request, and only about this topic."""

    def __init__(self, schema: Schema) -> None:
        self.schema, self.asked = schema, 0

    def pinned(self, topic: str, partition: int) -> Known:
        return {}

    def seen(self, number: int) -> None:
        """Accept the id."""

    def ask(self, topic: str, partition: int, number: int) -> Schema | Verdict:
        assert (topic, partition) == ("users", 0)
        self.asked += 1
        if number != ID:
            return Verdict.UNKNOWN
        return Verdict.PENDING if self.asked == 1 else self.schema


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(max_examples=15, deadline=None)
@given(TURNS, st.integers(1, 9), st.integers(1, 4), st.booleans())
def test_attributes_of_every_format_state_the_same(
    encoding: str, turns: list[Turn], piece: int, step: int, anew: bool
):
    found = contents(
        turns, piece, step, anew, SOURCES[encoding],
        lambda unit, country: written(encoding, unit, country), Late(SCHEMAS[encoding]),
    )  # fmt: skip
    assert found == expected(turns)


class Run:
    """A shard with one record of unit a, after the statements about it."""

    def __init__(self, encoding: str, values: Sequence[bytes | None], schemas: Any) -> None:
        source = SOURCES[encoding]
        (pipe,) = source.pipelines
        stated = [RawRecord(3 * n, 0, b"a", value) for n, value in enumerate(values)]
        body = json.dumps({"user": "a", "t": ORIGIN}).encode()
        beat = Beat(ORIGIN, {"events": [1], "users": [3 * len(stated)]})
        clock = ClockLog({pipe.name: 4}, [(0, start(pipe)), (1, beat)], forgets=False)
        beside = Beside(schemas=schemas, stated=Pieces(stated, 9))
        stage = IngestStage(source, 0, NAMES, SECRET, clock, beside)
        self.shard = VirtualShard(stage, Log([RawRecord(0, 0, b"a", body)]), NAMES.genesis)
        self.reasons: list[str] = []
        self.steps = 0
        self._dead = pipe.dlq_topic
        for _ in range(4):
            self.steps += self.shard.advance(100, self._take)
        self.counted = stage.position == 1

    def _take(self, step: Step) -> None:
        letters = (out for out in step.out if out.topic == self._dead)
        self.reasons += [dict(one.headers)["__streams.errors.reason"].decode() for one in letters]

    def row(self) -> Pinned | None:
        """The schema's row in the state."""
        (row,) = self.shard._store.get_many([schema_row(ID, SAID)])
        return row and decode_pinned(row)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_cannot_be_read_is_a_dead_letter(encoding: str):
    other = next(one for one in ENCODINGS if one != encoding)
    head = b"\0" + ID.to_bytes(4, "big")
    short = {"avro": b"\x02", "protobuf": b"\0\x0a\x05x", "json_schema": b"{"}
    bad = [b"{}", head + short[encoding], written(encoding, "a", "DE", 8), head[:3]]
    run = Run(encoding, bad, Late(SCHEMAS[encoding]))
    assert run.counted
    assert run.reasons == ["malformed", "malformed", "unknown_schema", "malformed"]
    assert Run(encoding, [written(encoding, "a", "DE")], Late(SCHEMAS[other])).reasons == [
        "wrong_schema"
    ]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_schema_is_kept_from_its_first_use_on_apart_from_those_of_records(encoding: str):
    run = Run(encoding, [None, written(encoding, "a", "DE")], Late(SCHEMAS[encoding]))
    assert run.counted and run.row() == Pinned(SCHEMAS[encoding], 3)
    assert run.shard._store.get_many([schema_row(ID)]) == [None]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_records_wait_for_the_schema_of_what_their_units_state(encoding: str):
    class Silent(Late):
        def ask(self, topic: str, partition: int, number: int) -> Schema | Verdict:
            return Verdict.PENDING

    run = Run(encoding, [written(encoding, "a", "DE")], Silent(SCHEMAS[encoding]))
    assert not run.counted and run.reasons == [] and run.row() is None


def test_a_replay_knows_a_schema_from_the_offset_on_at_which_it_was_known():
    value = written("avro", "a", "DE")
    recorded = RecordedSchemas({("users", 0): {ID: Pinned(SCHEMAS["avro"], 3)}})
    assert Run("avro", [value, value], recorded).reasons == ["unknown_schema"]
