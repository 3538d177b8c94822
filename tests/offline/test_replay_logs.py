"""Logs that a replay reads in passing: the records of the whole log, few at a time.

Covers: offline/raw_log.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hushstream.offline.raw_log as raw_log
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream.agents.kafka.intervals import Interval
from hushstream.agents.kafka.logs import read_topic
from hushstream.agents.stages.step import LogFrame
from hushstream.deploy.broker import Broker
from hushstream.errors import EngineError
from hushstream.formats.events.raw import RawBatch, RawRecord
from hushstream.offline.compare import ReplayOutcome
from hushstream.offline.compare_units import Comparison
from hushstream.offline.engine import Log, OfflineEngine, Recorded, Streaming
from hushstream.offline.raw_log import RawLog
from hushstream.offline.replay_logs import Span, StreamLog, Timed, frame, spans
from hushstream.topics.config.model import Kafka
from hushstream.topics.records import ClockRecord

from ..agents.worker.bench import visible
from ..support import NAMES, SECRET, beat, deployment, event, released, start, trigger


@pytest.fixture(scope="module")
def topic(broker: Broker) -> tuple[Kafka, str]:
    """Sixty records in transactions; every third transaction is aborted, also the last."""
    name = "replay-logs"
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    client.create_topics([NewTopic(name, 1, 1)])[name].result(120)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(120)
    for number in range(12):
        producer.begin_transaction()
        for n in range(5):
            producer.produce(name, b"%d.%d" % (number, n), partition=0)
        producer.flush(120)
        (producer.abort_transaction if number % 3 == 2 else producer.commit_transaction)(120)
    kafka = Kafka(bootstrap=broker.bootstrap)
    visible(kafka, name)
    return kafka, name


def test_a_stream_of_uncommitted_records_holds_aborted_ones_too(topic):
    kafka, name = topic
    (span,) = spans(kafka, name, 1)
    seen: list[Any] = []
    StreamLog(kafka, span, 9, committed=False, seen=seen.append).drain()
    (whole,) = read_topic(kafka, name, 1, committed=False)
    assert seen == whole.records and len(seen) == 60


@pytest.mark.parametrize("most", [1, 7, 500])
def test_a_raw_log_holds_what_a_stream_of_it_holds(topic, most):
    kafka, name = topic
    (span,) = spans(kafka, name, 1)
    (whole,) = read_topic(kafka, name, 1)
    middle = span._replace(begin=2, end=30)
    for one in (span, middle):
        log, found, position = RawLog(kafka, one, most, 1 << 20), [], one.begin
        while position < one.end:
            records, position = log.since(position, 20)
            assert len(records) <= most
            found += [(r.offset, r.timestamp, r.key, r.value) for r in records]
        log.close()
        assert found == [r[:4] for r in whole.records if one.begin <= r.offset < one.end]


def test_a_raw_log_is_read_on_from_what_was_taken_and_makes_no_text_of_records(topic, monkeypatch):
    shown = []
    for kind in (Interval, RawRecord, RawBatch):
        monkeypatch.setattr(kind, "__repr__", lambda one: shown.append(type(one)) or "")
    kafka, name = topic
    (whole,) = read_topic(kafka, name, 1)
    (span,) = spans(kafka, name, 1)
    log, found, position = RawLog(kafka, span, 9, 1 << 20), [], 0
    kinds = set()
    while position < span.end:
        records, reached = log.since(position, 7)
        kinds.add(type(records))
        some = records[: max(len(records) // 2, 1)]
        found += [r.value for r in some]
        position = some[-1].offset + 1 if len(some) < len(records) else reached
    assert found == [r.value for r in whole.records] and log._reader is None
    assert RawBatch in kinds
    records, reached = log.since(position, 7)
    assert (len(records), reached) == (0, span.end) and shown == []


def test_a_raw_log_that_is_too_short_says_so(topic, monkeypatch):
    monkeypatch.setattr(raw_log, "PATIENCE_SECONDS", 1.0)
    kafka, name = topic
    (span,) = spans(kafka, name, 1)
    log = RawLog(kafka, span._replace(end=span.end + 9), 100, 1 << 20)
    with pytest.raises(EngineError, match="ends early"):
        while True:
            log.since(span.end, 100)
    log.close()


def through(log: StreamLog, most: int) -> list[Any]:
    """Read all records as a shard does: from its position, sometimes taking only some."""
    taken: list[Any] = []
    position = 0
    while True:
        records, reached = log.since(position, 20)
        assert len(records) <= most and len(log._held) <= most
        some = records[: max(len(records) // 2, 1)]
        taken += some
        step = some[-1].offset + 1 if len(some) < len(records) else reached
        if step == position and not records:
            return taken
        position = step


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_a_stream_holds_what_reading_the_whole_topic_holds(topic, most):
    kafka, name = topic
    (whole,) = read_topic(kafka, name, 1)
    (span,) = spans(kafka, name, 1)
    assert len(whole.records) == 40 and span.end > whole.records[-1].offset + 1  # the aborted tail
    seen: list[Any] = []
    log = StreamLog(kafka, span, most, seen=seen.append)
    assert through(log, min(most, 20)) == whole.records == seen
    assert log.since(span.end, 5) == ([], span.end) and log._client is None
    middle = span._replace(end=whole.records[17].offset)
    assert through(StreamLog(kafka, middle, most), min(most, 20)) == whole.records[:17]


def test_frames_are_followed_to_the_end_even_if_nobody_asks(topic):
    kafka, name = topic
    (whole,) = read_topic(kafka, name, 1)
    (span,) = spans(kafka, name, 1)
    seen: list[LogFrame] = []
    log = StreamLog(kafka, span, 3, make=frame, seen=seen.append)
    assert len(log.since(0, 20)[0]) == 3
    log.drain()
    assert [f.value for f in seen] == [r.value for r in whole.records]
    assert log._client is None


def test_a_log_that_ends_too_early_is_an_error_only_where_all_of_it_was_used(topic):
    kafka, name = topic
    (span,) = spans(kafka, name, 1)
    longer = span._replace(end=span.end + 1)
    with pytest.raises(EngineError, match="ends before offset"):
        StreamLog(kafka, longer, 100).since(0, 100)
    log = StreamLog(kafka, longer, 100, whole=False)
    assert len(log.since(0, 100)[0]) == 40 and log.end == span.end


def test_what_is_ahead_waits_until_nothing_else_moves(topic):
    kafka, name = topic
    (span,) = spans(kafka, name, 1)
    ahead = True
    log = StreamLog(kafka, span, 4, wait=lambda: ahead)
    assert log.since(0, 4) == ([], 0)
    assert log.insist()
    records, reached = log.since(0, 4)
    assert len(records) == 4 and reached == 4
    assert not log.insist()  # already read, so there is nothing to insist on
    assert log.since(reached, 4) == ([], reached)
    ahead = False
    assert len(log.since(reached, 4)[0]) == 4
    log.close()


def test_an_empty_span_needs_no_broker():
    log = StreamLog(Kafka(bootstrap="127.0.0.1:1"), Span("none", 0, 5, 5), 10)
    assert log.since(0, 10) == ([], 5)


# -- in memory ------------------------------------------------------------------------------------

MADE = deployment(partitions=2, units=1, cells=1, mechanism=", adaptive_weight = 0")
(P,) = MADE.pipelines
LOGS = [[event(i, f"u{n}-{i % 50}", f"p{i % 3}") for i in range(400)] for n in range(2)]
CLOCK = [start(P), *(trigger(P, n, [100 * n] * 2) for n in range(1, 5))]


def run(**options: Any) -> OfflineEngine:
    raw = {("events", n): log for n, log in enumerate(LOGS)}
    made = OfflineEngine(MADE, NAMES, SECRET, raw, list(enumerate(CLOCK)), **options)
    made.run()
    return made


def test_letting_go_of_what_was_read_changes_nothing():
    whole, trimmed = run(), run(streaming=Streaming(trim=True))
    assert released(trimmed) == released(whole) and released(whole)
    assert sum(len(log.records) for log in whole._logs.values()) > 10
    assert sum(len(log.records) for log in trimmed._logs.values()) < 3


class Listed:
    """A clock log that is read in passing, and the offsets that were asked for."""

    def __init__(self, records: list[ClockRecord]) -> None:
        self._records = [Timed(2 * n, record) for n, record in enumerate(records)]
        self.asked: list[int] = []

    def since(self, offset: int, limit: int) -> tuple[list[Timed], int]:
        self.asked.append(offset)
        found = [r for r in self._records if r.offset >= offset][:limit]
        return found, found[-1].offset + 1 if found else offset


@pytest.mark.parametrize("mechanism", ["", ", adaptive_weight = 0"])
def test_a_clock_log_is_read_on_when_the_slowest_shard_needs_it(monkeypatch, mechanism):
    """Over a thousand beats for two partitions of different density; few are held at a time."""
    made = deployment(partitions=2, units=2, cells=2, mechanism=mechanism)
    (p,) = made.pipelines
    logs = [LOGS[0], LOGS[1][:20]]
    clock: list[ClockRecord] = [start(p)]
    for n in range(1, 401):
        clock += [beat([n, min(n, 20)])] * 3
        if n % 100 == 0:
            clock.append(trigger(p, n // 100, [n, 20]))
    raw = {("events", n): log for n, log in enumerate(logs)}
    whole = OfflineEngine(made, NAMES, SECRET, raw, list(enumerate(clock)))
    whole.run()
    monkeypatch.setattr("hushstream.offline.engine.STEP", 50)
    monkeypatch.setattr("hushstream.agents.stages.ingest.stage.ENTRIES", 7)
    monkeypatch.setattr("hushstream.agents.stages.ingest.stage.EVENTS", 15)
    listed = Listed(clock)
    ends = {place: Log(log, len(log)) for place, log in raw.items()}
    found = OfflineEngine(made, NAMES, SECRET, ends, listed, streaming=Streaming(trim=True))
    held = 0
    read = found._read_clock

    def noted() -> bool:
        nonlocal held
        held = max(held, len(found._clock.since(found._clock.base)))
        return read()

    found._read_clock = noted  # type: ignore[method-assign]
    found.run()
    assert released(found) == released(whole) and len(released(whole)) > 8
    assert held < 150 and max(listed.asked) == 2 * len(clock) - 1


def compared(change: Callable[[list[bytes]], list[bytes]], sent_first: bool) -> ReplayOutcome:
    """Compare a units log with the frames sent to it, a frame at a time."""
    place = (NAMES.units("p"), 0)
    sent = [o.value or b"" for o in run(recorded=Recorded(units={place: []})).outs[place[0]]]
    outcome = ReplayOutcome()
    one = Comparison("units-0", outcome)
    found = change(list(sent))
    peak = 0
    for n in range(max(len(sent), len(found))):
        for take, frames in ((one.sent, sent), (one.found, found))[:: 1 if sent_first else -1]:
            if n < len(frames):
                take(frames[n])
        peak = max(peak, one._found.pending, one._expected.pending)
    one.finish()
    assert one._found.pending == one._expected.pending == 0
    assert peak < 800  # of 800 events; those of closed micro-batches are dropped
    return outcome


@pytest.mark.parametrize("sent_first", [True, False])
def test_units_are_compared_as_they_are_read(sent_first):
    outcome = compared(lambda frames: frames, sent_first)
    assert outcome.agrees and outcome.routed == 800
    lost = compared(lambda frames: frames[1:], sent_first)
    assert lost.lost > 50 and not lost.agrees
    doubled = compared(lambda frames: [frames[0], *frames], sent_first)
    assert doubled.doubled > 50 and not doubled.agrees
    late = compared(lambda frames: [*frames, frames[0]], sent_first)
    assert late.differing > 50 and not late.agrees
