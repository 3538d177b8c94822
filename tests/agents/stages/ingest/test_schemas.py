"""Schemas in the state: what was counted stays counted, whatever the registry answers later."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hushstream.agents.stages.ingest.schemas import KnownSchemas, NoSchemas
from hushstream.agents.state.layout import schema_row
from hushstream.agents.state.memory import MemoryStore
from hushstream.formats.events.decode import RawRecord
from hushstream.formats.schemas.schema import Known, Pinned, Schema, Verdict, decode_pinned
from hushstream.offline.engine import OfflineEngine, Recorded
from hushstream.offline.replay_logs import RecordedSchemas

from ....support import NAMES, ORIGIN, SECRET, beat, deployment, start, trigger

FIELDS = [{"name": "user", "type": "string"}, {"name": "page", "type": "string"},
          {"name": "t", "type": "long"}]  # fmt: skip
RECORD: dict[str, Any] = {"type": "record", "name": "E", "fields": FIELDS}
SCHEMA = Schema("AVRO", json.dumps(RECORD))
SWAPPED = Schema("AVRO", json.dumps(RECORD | {"fields": [FIELDS[1], FIELDS[0], FIELDS[2]]}))
SWAP = {'name = "test"\n': 'name = "test"\n[registry]\nurl = "http://localhost:1"\n'}


class Source:
    """A registry with the given answers."""

    def __init__(self, answers: dict[int, Schema | Verdict]) -> None:
        self.answers = answers
        self.asked: list[int] = []
        self.witnesses: list[int] = []

    def pinned(self, topic: str, partition: int) -> Known:
        return {}

    def seen(self, number: int) -> None:
        self.witnesses.append(number)

    def ask(self, topic: str, partition: int, number: int) -> Schema | Verdict:
        assert (topic, partition) == ("events", 0)
        self.asked.append(number)
        return self.answers.get(number, Verdict.UNKNOWN)


def record(offset: int, number: int = 1, user: str = "u", page: str = "a") -> RawRecord:
    to = io.BytesIO()
    value = {"user": user, "page": page, "t": ORIGIN}
    fastavro.schemaless_writer(to, fastavro.parse_schema(RECORD, _write_hint=False), value)
    return RawRecord(offset, 0, None, b"\0" + number.to_bytes(4, "big") + to.getvalue())


def known(source: Any) -> KnownSchemas:
    made = KnownSchemas(source, "events", 0)
    made.reopen()
    return made


def test_a_list_ends_before_the_first_schema_that_is_still_asked_for() -> None:
    source = Source({1: SCHEMA, 2: Verdict.PENDING})
    schemas = known(source)
    log = [record(3), record(4), record(7, 2), record(8)]
    records, fetched = schemas.ready(MemoryStore(), log, 20)
    assert ([r.offset for r in records], fetched) == ([3, 4], 7)
    source.answers[2] = SWAPPED
    records, fetched = schemas.ready(MemoryStore(), log, 20)
    assert (len(records), fetched) == (4, 20)
    assert schemas.known == {1: Pinned(SCHEMA, 3), 2: Pinned(SWAPPED, 7)}


def test_only_what_is_used_is_written_and_then_never_asked_for_again() -> None:
    store, source = MemoryStore(), Source({1: SCHEMA, 2: SWAPPED})
    schemas = known(source)
    log = [record(3), record(4, 2), record(5, 9), RawRecord(6, 0, None, None)]
    schemas.ready(store, log, 20)
    rows = schemas.rows(log[:1])
    assert list(rows) == [schema_row(1)]
    assert decode_pinned(rows[schema_row(1)] or b"") == Pinned(SCHEMA, 3)
    store.write(rows)
    source.answers, source.asked = {1: SWAPPED}, []
    again = known(source)
    again.ready(store, [record(8)], 20)
    assert again.known[1] == Pinned(SCHEMA, 3) and source.asked == []
    assert again.rows([record(8)]) == {}


def test_a_step_that_was_not_committed_leaves_nothing_behind() -> None:
    source = Source({1: SCHEMA})
    schemas = known(source)
    schemas.ready(MemoryStore(), [record(3)], 4)
    source.answers = {1: SWAPPED}
    schemas.reopen()
    schemas.ready(MemoryStore(), [record(3)], 4)
    assert schemas.known == {1: Pinned(SWAPPED, 3)}


def test_without_a_registry_nothing_is_known() -> None:
    schemas = known(NoSchemas())
    records, _ = schemas.ready(MemoryStore(), [record(3)], 4)
    assert len(records) == 1 and schemas.known == {}


@pytest.mark.parametrize("number", [1 << 31, (1 << 32) - 1])
def test_an_id_that_no_registry_has_is_bad_without_being_asked_for(number: int) -> None:
    # A registry answered such ids ambiguously, and six bytes made a worker wait for ever.
    source = Source({number: Verdict.PENDING, 1: SCHEMA})
    log = [RawRecord(0, 0, None, b"\0" + number.to_bytes(4, "big") + b"\2"), record(1)]
    schemas = known(source)
    records, fetched = schemas.ready(MemoryStore(), log, 20)
    assert (len(records), fetched) == (2, 20) and source.asked == [1]
    assert schemas.known == {1: Pinned(SCHEMA, 1)}
    engine = _run(log, source)
    assert engine.counts["p", "invalid:unknown_schema"] == 1 and number not in source.asked


def test_what_the_state_holds_counts_whatever_its_number() -> None:
    store, number = MemoryStore(), (1 << 31) + 5
    store.write({schema_row(number): Pinned(SCHEMA, 2).encode()})
    schemas = known(Source({}))
    schemas.ready(store, [record(3, number)], 4)
    assert schemas.known == {number: Pinned(SCHEMA, 2)}


def test_ids_are_asked_for_in_the_order_of_their_records() -> None:
    source = Source(dict.fromkeys(range(1, 40), Verdict.PENDING))
    numbers = [7, 30, 2, 7, 19, 1, 25]
    known(source).ready(MemoryStore(), [record(n, one) for n, one in enumerate(numbers)], 20)
    assert source.asked == [7, 30, 2, 19, 1, 25]


def test_a_registry_can_be_tried_by_an_id_of_the_state() -> None:
    store, source = MemoryStore(), Source({})
    schemas = known(source)
    schemas.ready(store, [], 1)
    assert source.witnesses == []
    store.write({schema_row(9): Pinned(SCHEMA, 2).encode()})
    schemas.ready(store, [], 1)
    schemas.reopen()
    for _ in range(3):
        schemas.ready(store, [], 1)
    assert source.witnesses == [9]


def test_a_record_that_was_set_aside_stays_so_when_its_schema_comes() -> None:
    """The decision is in the state's log, so a replay decides the same."""
    source = Source({1: SCHEMA, 2: Verdict.UNKNOWN})
    log = [record(n, 1 + n % 2, f"u{n}") for n in range(20)]
    store, schemas = MemoryStore(), known(source)
    schemas.ready(store, log[:10], 10)
    store.write(schemas.rows(log[:10]))
    source.answers[2] = SWAPPED
    schemas.ready(store, log[10:], 20)
    store.write(schemas.rows(log[10:]))
    pinned = {n: decode_pinned(store.get_many([schema_row(n)])[0] or b"") for n in (1, 2)}
    assert pinned[2] == Pinned(SWAPPED, 11)
    replayed = _run(log, RecordedSchemas({("events", 0): pinned}))
    assert replayed.counts["p", "invalid:unknown_schema"] == 5


def _run(log: list[RawRecord], schemas: Any) -> OfflineEngine:
    made = deployment(format="avro", swap=SWAP)
    (p,) = made.pipelines
    ends = len(log)
    clock = [start(p), beat([ends]), *(trigger(p, n, [ends]) for n in (1, 2, 3, 4))]
    engine = OfflineEngine(
        made, NAMES, SECRET, {("events", 0): log}, list(enumerate(clock)), Recorded(schemas=schemas)
    )
    engine.run()
    return engine


def _outcome(engine: OfflineEngine) -> dict[str, Any]:
    topics = ("hush.p.releases.v1", "hush.p.dlq")
    return {topic: [(o.key, o.value, o.headers) for o in engine.outs[topic]] for topic in topics}


def test_a_replay_takes_the_same_records_for_unknown() -> None:
    # The schema became known at offset 30; earlier records were dead letters.
    log = [record(n, 1 + n % 2, f"u{n}", "ab"[n % 2]) for n in range(80)]
    pinned = {1: Pinned(SCHEMA, 0), 2: Pinned(SCHEMA, 30)}
    first = _run(log, RecordedSchemas({("events", 0): pinned}))
    second = _run(log, RecordedSchemas({("events", 0): pinned}))
    assert first.counts["p", "invalid:unknown_schema"] == 15
    assert first.counts["p", "routed"] == 65
    assert _outcome(first) == _outcome(second)
    other = _run(log, RecordedSchemas({("events", 0): {1: Pinned(SCHEMA, 0)}}))
    assert other.counts["p", "invalid:unknown_schema"] == 40


def test_the_engine_waits_for_an_answer_and_goes_on_with_it() -> None:
    source = Source({1: Verdict.PENDING})
    log = [record(n, 1, f"u{n}") for n in range(50)]
    engine = _run(log, source)
    assert engine.counts["p", "routed"] == 0 and not engine.outs["hush.p.dlq"]
    source.answers[1] = SCHEMA
    engine.run()
    assert engine.counts["p", "routed"] == 50
    assert _outcome(engine) == _outcome(_run(log, Source({1: SCHEMA})))
