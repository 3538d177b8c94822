"""The clock: charges before triggers, one cut for what was missed, requests that repeat.

Covers: agents/clock/wall_time.py
Covers: agents/clock/clock.py
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import hushstream.agents.clock.owner as owner_module
import hushstream.agents.clock.wall_time as clock_module
import pytest
from aiokafka.errors import KafkaError, OutOfOrderSequenceNumber, ProducerFenced
from aiokafka.structs import TopicPartition
from hushstream.agents.clock.clock import Clock
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.clock.owner import ClockOwner
from hushstream.agents.clock.snapshots import Snapshots
from hushstream.agents.clock.timeline import Timeline, fold
from hushstream.agents.clock.wall_time import ClockLead, WallClock
from hushstream.agents.deployment.model import Deployment
from hushstream.agents.kafka.progress import Progress
from hushstream.errors import EngineError, LedgerError, RewoundError
from hushstream.topics.config.model import Kafka
from hushstream.topics.records import Skipped, Start, Trigger, TriggerRequest, decode_clock, encode

from ...support import DAY, HOUR, NAMES, ORIGIN, beat, deployment, start, trigger

MADE = deployment()
P = MADE.pipelines[0]


def with_pipeline(**changes) -> Deployment:
    source = MADE.inputs[0]
    return replace(MADE, inputs=(replace(source, pipelines=(replace(P, **changes),)),))


def begun(made: Deployment = MADE, epochs: int = 0) -> tuple[Clock, Ledger]:
    ledger = Ledger()
    ledger.take(ledger.next("genesis", 1, {"genesis": "abcdef"}).encode())
    clock = Clock(made, ledger, "1.0", "key")
    clock.apply(start(made.pipelines[0]))
    clock.apply(beat([5], ORIGIN))
    return clock, ledger


def fire_all(clock: Clock, ledger: Ledger, now: int) -> list:
    """What the owner would commit at this time, in order."""
    written = []
    while found := clock.due(now):
        for pipeline, due in found:
            charges, record = clock.fire(pipeline, due, now)
            for charge in charges:
                ledger.take(charge.encode())
            clock.apply(record)
            written += [*charges, record]
            if isinstance(record, Skipped):
                break
    return written


def test_an_epoch_is_charged_once_and_before_its_first_trigger():
    clock, ledger = begun(with_pipeline(external=False))
    written = fire_all(clock, ledger, ORIGIN + DAY + 6 * HOUR)
    kinds = [getattr(w, "kind", None) or (w.window, w.index) for w in written]
    assert kinds == ["charge", (0, 1), (0, 2), (0, 3), (0, 4), "charge", (1, 1)]
    charges = {r.body["epoch"]: r for r in ledger.charges.values()}
    for record in written:
        if isinstance(record, Trigger):
            assert record.charge == charges[record.epoch].hash()
            assert record.charge_seq == charges[record.epoch].seq
    assert [w.ordinal for w in written if isinstance(w, Trigger)] == [1, 2, 3, 4, 5]
    assert [w.final for w in written if isinstance(w, Trigger)] == [False] * 3 + [True, False]
    assert [w.epochs for w in written if isinstance(w, Trigger)] == [1, 1, 1, 1, 2]


@pytest.mark.parametrize("limit", [None, Fraction(1, 10)], ids=["charged", "refused"])
def test_the_ledger_does_not_tell_how_late_a_trigger_was_fired(limit):
    """It is public, and the clock's owner is late where its process has much to count."""
    made, heads = with_pipeline(external=False, limit_epsilon=limit), set()
    for late in (1, 250_000, 7_654_321, 59_999_999):
        clock, ledger = begun(made)
        fire_all(clock, ledger, ORIGIN + 6 * HOUR + late)
        assert ledger.records[-1].time == ORIGIN + 6 * HOUR
        heads.add(ledger.head)
    assert len(heads) == 1


def test_a_charge_is_one_of_its_kind():
    """An epoch that another opening charges anew, its ledger lost, has another hash and noise."""
    hashes = set()
    for salt in ("one", "other"):
        ledger = begun()[1]
        clock = Clock(with_pipeline(external=False), ledger, "1.0", "key", salt)
        clock.apply(start(P))
        fire_all(clock, ledger, ORIGIN + 6 * HOUR)
        hashes.add(ledger.charges["p", 0].hash())
    assert len(hashes) == 2


def test_every_opening_of_a_clock_has_a_salt_of_its_own(monkeypatch):
    logs = logs_of(*begun(with_pipeline(external=False)))
    owners = [reading(monkeypatch, logs) for _ in range(2)]
    for one in owners:
        asyncio.run(acquired(one))
    salts = {one._clock._salt for one in owners}
    assert len(salts) == 2 and all(len(salt) == 32 for salt in salts)


def test_triggers_that_were_missed_come_at_once_with_the_same_cut():
    clock, ledger = begun(with_pipeline(external=False))
    written = fire_all(clock, ledger, ORIGIN + DAY)
    assert {tuple(w.offsets["events"]) for w in written if isinstance(w, Trigger)} == {(5,)}
    assert [w.scheduled for w in written if isinstance(w, Trigger)] == [
        ORIGIN + n * 6 * HOUR for n in range(1, 5)
    ]
    assert fire_all(clock, ledger, ORIGIN + DAY) == []


def test_an_exhausted_budget_is_refused_and_nothing_is_triggered():
    made = with_pipeline(external=False, limit_epsilon=P.epsilon * 3 / 2)
    clock, ledger = begun(made)
    written = fire_all(clock, ledger, ORIGIN + 3 * DAY)
    assert [w.window for w in written if isinstance(w, Trigger)] == [0] * 4
    assert [w.window for w in written if isinstance(w, Skipped)] == [1, 2]
    assert [r.kind for r in ledger.records] == ["genesis", "charge", "refused", "refused"]
    assert clock.timelines["p"].batch(1) == 0  # its data are dropped


def test_a_refused_epoch_stays_refused_and_is_written_once():
    made = with_pipeline(external=False, limit_epsilon=Fraction(1, 10))
    clock, ledger = begun(made)
    fire_all(clock, ledger, ORIGIN + 6 * HOUR)
    assert [r.kind for r in ledger.records] == ["genesis", "refused"]
    again = Clock(made, ledger, "1.0", "key")
    again.apply(start(made.pipelines[0]))
    written = fire_all(again, ledger, ORIGIN + 6 * HOUR)
    assert [type(w) for w in written] == [Skipped]


def test_an_epoch_that_was_refused_is_not_paid_for_when_the_limit_is_raised():
    clock, ledger = begun(with_pipeline(external=False, limit_epsilon=Fraction(1, 10)))
    fire_all(clock, ledger, ORIGIN + 6 * HOUR)
    raised = with_pipeline(external=False, limit_epsilon=None)
    again = Clock(raised, ledger, "1.0", "key")
    again.apply(start(raised.pipelines[0]))
    written = fire_all(again, ledger, ORIGIN + DAY + 6 * HOUR)
    kinds = [getattr(w, "kind", None) or (type(w), w.window) for w in written]
    assert kinds == [(Skipped, 0), "charge", (Trigger, 1)]


def test_the_time_of_the_clock_is_that_of_its_latest_record():
    """A new owner goes on from there: records may lie in the log in another order of time."""
    clock, _ = begun()
    for time in (ORIGIN + 3 * HOUR, ORIGIN + HOUR):
        clock.apply(beat([5], time))
    assert clock.time == ORIGIN + 3 * HOUR


def test_a_new_owner_that_finds_the_charge_does_not_pay_again():
    made = with_pipeline(external=False)
    clock, ledger = begun(made)
    first = fire_all(clock, ledger, ORIGIN + 6 * HOUR)
    again = Clock(made, ledger, "1.0", "key")
    for record in [start(P), beat([9], ORIGIN), first[-1]]:
        again.apply(record)
    written = fire_all(again, ledger, ORIGIN + 12 * HOUR)
    assert [w.index for w in written] == [2]
    assert written[0].charge == first[-1].charge


@pytest.mark.parametrize(
    "changes,fingerprint,message",
    [({"config_hash": "new"}, "key", "another configuration"), ({}, "other", "noise key")],
)
def test_an_open_epoch_keeps_its_configuration_and_key(changes, fingerprint, message):
    clock, ledger = begun(with_pipeline(external=False))
    fire_all(clock, ledger, ORIGIN + 6 * HOUR)
    made = with_pipeline(external=False, **changes)
    again = Clock(made, ledger, "1.0", fingerprint)
    again.apply(start(P))
    with pytest.raises(EngineError, match=message):
        fire_all(again, ledger, ORIGIN + 12 * HOUR)


def test_requests_are_deduplicated_never_go_back_and_wait_for_their_time():
    clock, ledger = begun()
    now = ORIGIN + 400 * DAY
    assert fire_all(clock, ledger, now) == []  # nobody asked
    clock.request(TriggerRequest("a", ORIGIN + 12 * HOUR))
    assert len([w for w in fire_all(clock, ledger, now) if isinstance(w, Trigger)]) == 2
    clock.request(TriggerRequest("a", ORIGIN + 12 * HOUR))
    clock.request(TriggerRequest("b", ORIGIN + 6 * HOUR))
    clock.request(TriggerRequest("c", ORIGIN + DAY, ["another"]))
    assert fire_all(clock, ledger, now) == []
    clock.request(TriggerRequest("d", ORIGIN + 3000 * DAY))  # far in the future: only what is due
    written = fire_all(clock, ledger, ORIGIN + DAY)
    assert [w.index for w in written if isinstance(w, Trigger)] == [3, 4]


def test_a_first_window_is_started_once():
    made = with_pipeline(external=False)
    clock = Clock(made, Ledger(), "1.0", "key")
    (first,) = clock.starts(ORIGIN + 5 * DAY + 1)
    assert first == Start("p", 5, ORIGIN + 5 * DAY + 1, "key")
    assert clock.due(ORIGIN + 9 * DAY) == []  # nothing before it has started
    clock.apply(first)
    assert clock.starts(ORIGIN + 6 * DAY) == []


def test_the_wall_clock_neither_jumps_nor_goes_back(monkeypatch):
    wall, tick = [1000.0], [50.0]
    monkeypatch.setattr(clock_module.time, "time", lambda: wall[0])
    monkeypatch.setattr(clock_module.time, "monotonic", lambda: tick[0])
    clock = WallClock()
    assert clock.now() == 1000_000_000
    wall[0], tick[0] = 5000.0, 51.0  # somebody set the clock an hour ahead
    assert clock.now() == 1001_000_000
    wall[0], tick[0] = 10.0, 52.0  # and then far back
    assert clock.now() == 1002_000_000
    wall[0], tick[0] = 1004.0, 53.0  # a second ahead: followed slowly
    assert 1003_000_000 < clock.now() < 1004_000_000
    assert WallClock(floor=9_999_000_000).now() == 9_999_000_000  # never behind the clock log


def test_a_wall_clock_that_was_set_is_followed_where_the_broker_agrees(monkeypatch):
    wall, tick = [1000.0], [50.0]
    monkeypatch.setattr(clock_module.time, "time", lambda: wall[0])
    monkeypatch.setattr(clock_module.time, "monotonic", lambda: tick[0])
    clock = WallClock()
    assert not clock.doubtful()
    wall[0], tick[0] = 5000.0, 51.0  # it began an hour behind, and was set right
    assert clock.now() == 1001_000_000
    assert clock.doubtful() and not clock.doubtful()  # one question, and not one at each beat
    clock.agree(1500_000_000)  # the broker says less: that much has come, and no more
    assert clock.now() == 1500_000_000
    tick[0] += 11
    assert clock.doubtful()
    clock.agree(9000_000_000)  # the broker says more: then this clock decides
    assert clock.now() == 5000_000_000
    clock.agree(1000_000_000)
    assert clock.now() == 5000_000_000  # never back
    tick[0] += 11
    wall[0] += 11
    assert not clock.doubtful()


def test_a_quiet_clock_that_was_behind_asks_the_broker_and_fires(monkeypatch):
    """Without a beat it would never learn the broker's time, and fire nothing until a restart."""
    clock, ledger = begun()
    clock.request(TriggerRequest("a", ORIGIN + 6 * HOUR))
    one = owner(clock, ledger, Recorder())
    behind = (ORIGIN - 2 * DAY) / 1e6
    wall = [behind]
    monkeypatch.setattr(clock_module.time, "time", lambda: wall[0])
    one._wall = WallClock()

    async def ends() -> object:
        return clock.offsets

    async def nothing(*_: object) -> None:
        """No request is new."""

    one._ends, one._read_requests = ends, nothing
    asyncio.run(one._beat())
    assert one._producer.done == []  # too early, and nothing new
    wall[0] = (ORIGIN + 7 * HOUR) / 1e6
    asyncio.run(one._beat())
    asyncio.run(one._beat())
    assert one._producer.done.count("ledger") == 1 and clock.timelines["p"].ordinal == 1


def test_a_moment_of_the_clock_log_is_the_time_and_not_the_time_since_the_last_look(monkeypatch):
    """Else a shard that was idle would publish before the public time."""
    tick = [50.0]
    monkeypatch.setattr(clock_module.time, "time", lambda: 950.0 + tick[0])
    monkeypatch.setattr(clock_module.time, "monotonic", lambda: tick[0])
    clock = WallClock()
    tick[0] += 40  # nobody looked for forty seconds
    clock.reach(1040_000_000)
    assert clock.now() == 1040_000_000
    clock.reach(1050_000_000)
    assert clock.now() == 1050_000_000  # a wall clock that was set back is not followed


def test_a_timeline_refuses_gaps():
    for records in ([trigger(P, 2, [0], index=2)], [trigger(P, 1, [0]), trigger(P, 3, [0])]):
        with pytest.raises(EngineError, match="gap"):
            fold([start(P), *records], {"p": 4})


def test_a_timeline_knows_the_open_micro_batch_of_each_window():
    line = Timeline(2)
    assert line.batch(0) == 0  # not started
    line.apply(Start("p", 3, 0))
    assert [line.batch(w) for w in (2, 3, 4)] == [0, 1, 1]
    line.apply(trigger(P, 1, [0], window=3, index=1))
    assert [line.batch(w) for w in (2, 3, 4)] == [0, 2, 1]
    line.apply(Skipped("p", 4, 4, 0))
    assert [line.batch(w) for w in (3, 4, 5)] == [2, 0, 1]


def test_clock_records_survive_their_encoding():
    for record in (start(P), beat([1, 2]), trigger(P, 1, [3]), Skipped("p", 1, 2, 3)):
        assert decode_clock(encode(record)) == record


# -- the owner ------------------------------------------------------------------------------------


class Recorder:
    """A producer that notes what is done, and may fail at its commit."""

    def __init__(self, fails: bool = False, broker: int = ORIGIN + 6 * HOUR, kind: int = 1) -> None:
        self.done: list[str] = []
        self.stamps: list[object] = []
        self._fails = fails
        self._answer = SimpleNamespace(timestamp=broker // 1000, timestamp_type=kind, offset=7)

    async def begin_transaction(self) -> None:
        self.done.append("begin")

    async def send(self, topic: str, value: bytes, **how: object) -> asyncio.Future[object]:
        self.stamps.append(how.get("timestamp_ms"))
        self.done.append(topic.rsplit(".", 2)[-1] if "clock" in topic else "ledger")
        answer = asyncio.get_running_loop().create_future()
        answer.set_result(self._answer)
        return answer

    async def abort_transaction(self) -> None:
        self.done.append("abort")

    async def commit_transaction(self) -> None:
        if self._fails:
            raise KafkaError("the broker went away")
        self.done.append("commit")


def owner(clock: Clock, ledger: Ledger, producer: Recorder) -> ClockOwner:
    made = ClockOwner.__new__(ClockOwner)
    made._names, made._deployment, made._kafka = NAMES, MADE, Kafka()
    made.progress = Progress("the clock")
    made._clock, made._ledger, made._producer = clock, ledger, producer
    made._on_record = lambda *_: None
    made._wall = WallClock()
    made._lead, made._witness, made._known_end = ClockLead(NAMES.clock, 5_000_000), None, 0
    made._keep, made._snapshots, made._trim, made._markers = 0, Snapshots(0), None, None
    return made


def test_a_charge_and_its_trigger_are_one_transaction_the_charge_first():
    clock, ledger = begun(with_pipeline(external=False))
    ((pipeline, due),) = clock.due(ORIGIN + 6 * HOUR)
    charges, record = clock.fire(pipeline, due, ORIGIN + 6 * HOUR)
    producer = Recorder()
    asyncio.run(owner(clock, ledger, producer)._commit(charges, [record]))
    assert producer.done == ["begin", "ledger", "clock", "commit"]
    assert producer.stamps == [charges[0].time // 1000, None]  # the ledger's by no clock
    assert ("p", 0) in ledger.charges and clock.timelines["p"].done == {0: 1}


def test_a_trigger_whose_charge_was_refused_is_not_committed():
    clock, ledger = begun(with_pipeline(external=False))
    ((pipeline, due),) = clock.due(ORIGIN + 6 * HOUR)
    charges, record = clock.fire(pipeline, due, ORIGIN + 6 * HOUR)
    producer = Recorder()
    send = producer.send

    async def refused(topic: str, value: bytes, **how: object) -> asyncio.Future[object]:
        answer = await send(topic, value, **how)
        if topic == NAMES.ledger:  # the broker takes the trigger's record, and not the charge's
            answer = asyncio.get_running_loop().create_future()
            answer.set_exception(OutOfOrderSequenceNumber())
        return answer

    producer.send = refused
    with pytest.raises(OutOfOrderSequenceNumber):
        asyncio.run(owner(clock, ledger, producer)._commit(charges, [record]))
    assert producer.done == ["begin", "ledger", "clock"]
    assert ("p", 0) not in ledger.charges and clock.timelines["p"].done == {}


def test_each_commit_of_a_backlog_is_progress():
    """Hundreds of triggers may be due at once, after an outage or on an external schedule."""
    clock, ledger = begun(with_pipeline(external=False))
    ((pipeline, due),) = clock.due(ORIGIN + 6 * HOUR)
    one = owner(clock, ledger, Recorder())
    one.progress.rest()
    charges, record = clock.fire(pipeline, due, ORIGIN + 6 * HOUR)
    asyncio.run(one._commit(charges, [record]))
    assert not one.progress.resting


def test_a_transaction_that_failed_has_neither_charged_nor_triggered():
    clock, ledger = begun(with_pipeline(external=False))
    ((pipeline, due),) = clock.due(ORIGIN + 6 * HOUR)
    charges, record = clock.fire(pipeline, due, ORIGIN + 6 * HOUR)
    with pytest.raises(KafkaError):
        asyncio.run(owner(clock, ledger, Recorder(fails=True))._commit(charges, [record]))
    assert not ledger.charges and clock.timelines["p"].done == {}
    assert clock.fire(pipeline, due, ORIGIN + 6 * HOUR) == (charges, record)  # the same again


@pytest.mark.parametrize(
    "ahead,kind,message", [(5_001_000, 1, "5.0 s ahead of the broker's"), (0, 0, "LogAppendTime")]
)
def test_a_clock_that_is_ahead_of_the_broker_charges_and_triggers_nothing(ahead, kind, message):
    clock, ledger = begun(with_pipeline(external=False))
    now = ORIGIN + 6 * HOUR
    ((pipeline, due),) = clock.due(now)
    charges, record = clock.fire(pipeline, due, now)
    producer = Recorder(broker=now - ahead, kind=kind)
    with pytest.raises(EngineError, match=message):
        asyncio.run(owner(clock, ledger, producer)._commit(charges, [record]))
    assert producer.done == ["begin", "ledger", "clock", "abort"]
    assert not ledger.charges and clock.timelines["p"].done == {}


@pytest.mark.parametrize("ahead", [5_000_000, 0, -1_000_000, -90_000_000])
def test_a_clock_within_the_bound_or_behind_goes_on(ahead):
    clock, ledger = begun(with_pipeline(external=False))
    now = ORIGIN + 6 * HOUR
    ((pipeline, due),) = clock.due(now)
    producer = Recorder(broker=now - ahead)
    asyncio.run(owner(clock, ledger, producer)._commit(*_fired(clock, pipeline, due, now)))
    assert producer.done[-1] == "commit"


def _fired(clock, pipeline, due, now):
    charges, record = clock.fire(pipeline, due, now)
    return charges, [record]


def test_a_beat_never_goes_back():
    """A broker that answers with an older end, after a change of leader, moves nothing."""

    class Ends:
        async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
            return dict.fromkeys(partitions, 3)

    clock, ledger = begun()
    made = owner(clock, ledger, Recorder())
    made._partitions, made._asker = [TopicPartition("events", 0)], Ends()
    assert asyncio.run(made._ends()) == {"events": [5]}


@pytest.mark.parametrize(("error", "lost"), [(KafkaError("gone"), 1), (ProducerFenced(), 0)])
def test_a_lost_transaction_is_counted_unless_the_clock_has_only_moved(monkeypatch, error, lost):
    async def nothing(*_: object) -> None:
        pass

    clock, ledger = begun()
    made, counted = owner(clock, ledger, Recorder()), []
    made._on_lost = lambda: counted.append(1)
    made._acquire = made._let_go = nothing
    monkeypatch.setattr(asyncio, "sleep", nothing)
    asyncio.run(made._again(error))
    assert len(counted) == lost


# -- a cluster that went back ---------------------------------------------------------------------


def reading(monkeypatch, logs: dict[str, list[bytes]]) -> ClockOwner:
    """An owner that reads these logs."""

    async def read(kafka: object, topic: str, partition: int, start: int | None = None):
        values = logs[topic.rpartition(".")[2]]
        yield [SimpleNamespace(offset=n, value=v) for n, v in enumerate(values)], len(values), 0

    async def enough(kafka: object, topic: str, partition: int, position: int) -> None:
        if len(logs[topic.rpartition(".")[2]]) < position:
            raise RewoundError(topic)

    async def first(*_: object) -> int:
        return 0

    monkeypatch.setattr(owner_module, "read_to_end", read)
    monkeypatch.setattr(owner_module, "check_reached", enough)
    monkeypatch.setattr(owner_module, "beginning", first)
    made = owner(Clock(MADE, Ledger(), "1.0", "key"), Ledger(), Recorder())
    made._kafka, made._version, made._fingerprint = None, "1.0", "key"
    return made


def logs_of(clock: Clock, ledger: Ledger) -> dict[str, list[bytes]]:
    """Ledger and clock log after one trigger."""
    ((pipeline, due),) = clock.due(ORIGIN + 6 * HOUR)
    (charge,), record = clock.fire(pipeline, due, ORIGIN + 6 * HOUR)
    ledger.take(charge.encode())
    records = [start(P), beat([5], ORIGIN), record]
    return {
        "v1": [r.encode() for r in ledger.records],
        "clock": [encode(one) for one in records],
    }


async def acquired(made: ClockOwner) -> None:
    await made._read_logs()


def test_an_owner_refuses_a_ledger_that_has_not_paid_for_a_trigger(monkeypatch):
    logs = logs_of(*begun(with_pipeline(external=False)))
    asyncio.run(acquired(reading(monkeypatch, logs)))
    logs["v1"] = logs["v1"][:1]
    with pytest.raises(LedgerError, match="never charged by this ledger"):
        asyncio.run(acquired(reading(monkeypatch, logs)))


def test_an_owner_that_slept_between_the_logs_reads_what_was_charged_meanwhile(monkeypatch):
    logs = logs_of(*begun(with_pipeline(external=False)))
    made, charge = reading(monkeypatch, logs), logs["v1"].pop()

    async def sleep(*_: object) -> int:
        if charge not in logs["v1"]:
            logs["v1"].append(charge)
        return 0

    monkeypatch.setattr(owner_module, "beginning", sleep)
    asyncio.run(acquired(made))
    assert [r.encode() for r in made._ledger.records] == logs["v1"]
    assert made._clock.due(ORIGIN + 6 * HOUR) == []  # it is fired, and paid for


@pytest.mark.parametrize("log", ["v1", "clock"])
def test_an_owner_that_reads_again_misses_what_it_has_known(monkeypatch, log):
    """The broker was away, and came back with an older disk."""
    logs = logs_of(*begun(with_pipeline(external=False)))
    made = reading(monkeypatch, logs)
    asyncio.run(acquired(made))
    asyncio.run(acquired(made))
    logs[log].pop()
    with pytest.raises(RewoundError):
        asyncio.run(acquired(made))


def test_a_raw_topic_can_never_end_below_what_was_covered():
    clock, ledger = begun()
    made = owner(clock, ledger, Recorder())
    made._partitions = [TopicPartition("events", 0), TopicPartition("new", 0)]
    assert made._covered() == {TopicPartition("events", 0): 5}


# -- requests, and clocks behind ------------------------------------------------------------------


def test_a_cancelled_request_fires_nothing_more():
    clock, ledger = begun()
    clock.request(TriggerRequest("a", ORIGIN + DAY))
    assert len(fire_all(clock, ledger, ORIGIN + 6 * HOUR)) == 2  # a charge, a trigger
    clock.request(TriggerRequest("b", 0, ["another"], cancel=True))
    clock.request(TriggerRequest("c", 0, cancel=True))
    assert fire_all(clock, ledger, ORIGIN + DAY) == []
    clock.request(TriggerRequest("d", ORIGIN + 12 * HOUR))
    assert len(fire_all(clock, ledger, ORIGIN + DAY)) == 1


def test_a_request_too_far_ahead_is_ignored_whoever_sent_it(caplog):
    clock, ledger = begun()
    made = owner(clock, ledger, Recorder())
    now = made._wall.now()

    class Requests:
        async def getmany(self, timeout_ms: int) -> dict[object, list[object]]:
            def record(stamp: int, at: int) -> object:
                return SimpleNamespace(
                    timestamp=stamp // 1000, value=encode(TriggerRequest("x", at))
                )

            later = now + 500 * DAY
            return {0: [record(now, later), record(later, later), record(now, now + HOUR)]}

    made._consumer = Requests()
    asyncio.run(made._read_requests())
    assert clock.requested == {"p": now + HOUR}
    assert caplog.text.count("more than a day ahead") == 2


def test_a_first_window_is_not_chosen_by_a_clock_that_is_behind():
    """It would be one that is over, and every empty one since would be charged."""
    made, producer = with_pipeline(external=False), Recorder()
    clock = Clock(made, Ledger(), "1.0", "key")
    one = owner(clock, Ledger(), producer)
    one._deployment = made
    producer._answer.timestamp = (one._wall.now() + 90 * DAY) // 1000
    (first,) = clock.starts(one._wall.now())
    with pytest.raises(EngineError, match="behind the broker's: a pipeline would begin"):
        asyncio.run(one._commit([], [first]))
    assert producer.done[-1] == "abort"


def test_an_external_schedule_is_never_late(caplog):
    clock, ledger = begun()
    clock.request(TriggerRequest("a", ORIGIN + 6 * HOUR))
    now = ORIGIN + 6 * HOUR
    ((pipeline, due),) = clock.due(now)
    one = owner(clock, ledger, Recorder())
    one._producer._answer.timestamp = (one._wall.now() + 90 * DAY) // 1000
    asyncio.run(one._commit(*_fired(clock, pipeline, due, now)))
    assert "late" not in caplog.text
