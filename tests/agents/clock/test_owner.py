"""The clock's owner: one transaction for charge and trigger, and clocks that are wrong or slow."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import hushstream.agents.clock.owner as owner_module
import hushstream.agents.clock.wall_time as clock_module
import hushstream.agents.kafka.clients as clients
import pytest
from aiokafka.errors import (
    KafkaError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
)
from aiokafka.structs import TopicPartition
from hushstream.agents.clock.clock import Clock
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.clock.wall_time import Pace, WallClock
from hushstream.errors import EngineError, RewoundError
from hushstream.topics.records import Beat, Trigger, TriggerRequest, encode

from ...support import DAY, HOUR, NAMES, ORIGIN
from .bench import (
    FIRST,
    Recorder,
    begun,
    fired,
    owner,
    with_pipeline,
)


def test_a_quiet_clock_that_was_behind_asks_the_broker_and_fires(monkeypatch):
    """Without asking, a clock without beats would never learn the broker's time and never fire."""
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
        """There are no new requests."""

    one._ends, one._requests.read = ends, nothing
    asyncio.run(one._beat())
    assert one._producer.done == []  # too early, and no new records
    wall[0] = (ORIGIN + 7 * HOUR) / 1e6
    asyncio.run(one._beat())
    asyncio.run(one._beat())
    assert one._producer.done.count("ledger") == 1 and clock.timelines["p"].ordinal == 1


def test_it_has_the_logs_that_it_writes_looked_at_before_it_reads_them(monkeypatch):
    asked = []

    async def started(producer: object, places: list[TopicPartition]) -> None:
        asked.extend(places)
        raise EngineError("enough")

    monkeypatch.setattr(owner_module, "start_producer", started)
    monkeypatch.setattr(owner_module, "transactional_producer", lambda *_: Recorder())
    with pytest.raises(EngineError, match="enough"):
        asyncio.run(owner(*begun(), Recorder())._acquire())
    assert asked == [TopicPartition(NAMES.clock, 0), TopicPartition(NAMES.ledger, 0)]


def test_a_request_ends_the_rest_between_two_beats():
    """A trigger's time must not tell how long a beat is, or whether records come."""

    async def rested() -> list[int | None]:
        one = owner(*begun(), Recorder())
        one._pace, asked = Pace(600.0), asyncio.Event()
        beats: list[int | None] = []

        class Requests:
            async def getmany(self, timeout_ms: int) -> dict[str, list[object]]:
                async with asyncio.timeout(timeout_ms / 1000):
                    await asked.wait()
                asked.clear()
                value = encode(TriggerRequest("a", ORIGIN))
                return {"requests": [SimpleNamespace(value=value, timestamp=ORIGIN // 1000)]}

        async def beat() -> None:
            beats.append(one._known.clock.requested.get("p"))
            if len(beats) == 3:
                raise RewoundError("enough")
            asyncio.get_running_loop().call_later(0.1, asked.set)

        one._requests._consumer, one._beat = Requests(), beat
        async with asyncio.timeout(300):
            with pytest.raises(RewoundError):
                await one.run()
        return beats

    assert asyncio.run(rested()) == [None, ORIGIN, ORIGIN]


@pytest.mark.parametrize("came", [True, False])
def test_no_record_moves_the_next_beat(came: bool, monkeypatch):
    """Otherwise one unit's arrival would change which records of others are *future*."""
    clock, ledger = begun()
    one = owner(clock, ledger, Recorder())
    began = one._pace._first
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(monotonic=lambda: began))
    one._wall = SimpleNamespace(
        now=lambda: clock.time, doubtful=lambda: False, agree=lambda moment: None
    )
    written, before = one._producer.done, clock.offsets

    async def ends() -> dict[str, list[int]]:
        return {topic: [end + came for end in ends] for topic, ends in before.items()}

    one._ends = ends
    one._pace.begin()
    asyncio.run(one._advance())
    assert ("commit" in written) is came
    assert one._pace.left(soon=False) == 1000


@pytest.mark.parametrize("near", [True, False])
def test_the_clock_keeps_its_pace_while_a_trigger_is_near(near: bool, monkeypatch):
    clock, ledger = begun(with_pipeline(external=False))
    one = owner(clock, ledger, Recorder())
    waited: list[int] = []

    async def read(timeout_ms: int = 0) -> bool:
        waited.append(timeout_ms)
        return False

    moment = ORIGIN + 6 * HOUR - 1_000_000 * (1 if near else 10)  # before the first trigger
    one._wall = SimpleNamespace(now=lambda: moment)
    one._requests.read = read
    began = time.monotonic()  # from here on, the machine's speed does not matter
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(monotonic=lambda: began))
    one._pace.begin()
    asyncio.run(one._rest())
    assert (waited[0] <= 250) is near


def test_a_charge_and_its_trigger_are_one_transaction_the_charge_first():
    clock, ledger = begun(with_pipeline(external=False))
    ((pipeline, due),) = clock.due(ORIGIN + 6 * HOUR)
    charges, record = clock.fire(pipeline, due, ORIGIN + 6 * HOUR)
    producer = Recorder()
    asyncio.run(owner(clock, ledger, producer)._commit(charges, [record]))
    assert producer.done == ["begin", "ledger", "clock", "commit"]
    assert producer.stamps == [charges[0].time // 1000, None]  # by no clock for the ledger
    assert ("p", 0) in ledger.charges and clock.timelines["p"].done == {0: 1}


def test_a_trigger_whose_charge_was_refused_is_not_committed():
    clock, ledger = begun(with_pipeline(external=False))
    ((pipeline, due),) = clock.due(ORIGIN + 6 * HOUR)
    charges, record = clock.fire(pipeline, due, ORIGIN + 6 * HOUR)
    producer = Recorder()
    send = producer.send

    async def refused(topic: str, value: bytes, **how: object) -> asyncio.Future[object]:
        answer = await send(topic, value, **how)
        if topic == NAMES.ledger:  # the broker takes the trigger but not the charge
            answer = asyncio.get_running_loop().create_future()
            answer.set_exception(OutOfOrderSequenceNumber())
        return answer

    producer.send = refused
    with pytest.raises(OutOfOrderSequenceNumber):
        asyncio.run(owner(clock, ledger, producer)._commit(charges, [record]))
    assert producer.done == ["begin", "ledger", "clock"]
    assert ("p", 0) not in ledger.charges and clock.timelines["p"].done == {}


def test_each_commit_of_a_backlog_is_progress():
    """After an outage or on an external schedule, hundreds of triggers may be due at once."""
    clock, ledger = begun(with_pipeline(external=False))
    ((pipeline, due),) = clock.due(ORIGIN + 6 * HOUR)
    one = owner(clock, ledger, Recorder())
    one.progress.rest()
    charges, record = clock.fire(pipeline, due, ORIGIN + 6 * HOUR)
    asyncio.run(one._commit(charges, [record]))
    assert not one.progress.resting


def test_a_commit_that_nobody_answers_is_given_up_like_one_that_failed(monkeypatch):
    monkeypatch.setattr(clients, "COMMIT_SECONDS", 0.05)
    clock, ledger = begun(with_pipeline(external=False))
    ((pipeline, due),) = clock.due(ORIGIN + 6 * HOUR)
    charges, record = clock.fire(pipeline, due, ORIGIN + 6 * HOUR)
    one = owner(clock, ledger, Recorder())
    one._timeout = 0

    async def commit() -> None:
        one._producer.commit_transaction = asyncio.Event().wait
        await one._commit(charges, [record])

    with pytest.raises(TimeoutError):
        asyncio.run(commit())
    assert not ledger.charges and clock.timelines["p"].done == {}
    assert issubclass(TimeoutError, owner_module.OUTAGES)  # it opens again, and reads both logs


def test_a_transaction_that_failed_has_neither_charged_nor_triggered():
    clock, ledger = begun(with_pipeline(external=False))
    ((pipeline, due),) = clock.due(ORIGIN + 6 * HOUR)
    charges, record = clock.fire(pipeline, due, ORIGIN + 6 * HOUR)
    with pytest.raises(KafkaError):
        asyncio.run(owner(clock, ledger, Recorder(fails=True))._commit(charges, [record]))
    assert not ledger.charges and clock.timelines["p"].done == {}
    assert clock.fire(pipeline, due, ORIGIN + 6 * HOUR) == (charges, record)  # the same again


@pytest.mark.parametrize("log", ["end", "ledger_end"])
def test_a_log_that_was_not_read_to_its_end_gets_no_trigger(log: str):
    """A leader that is cut off may answer readers with an old end offset."""
    clock, ledger = begun(with_pipeline(external=False))
    ((pipeline, due),) = clock.due(ORIGIN + 6 * HOUR)
    charges, record = clock.fire(pipeline, due, ORIGIN + 6 * HOUR)
    producer = Recorder()
    made = owner(clock, ledger, producer)
    setattr(made._known, log, FIRST - 1)
    with pytest.raises(NotLeaderForPartitionError):
        asyncio.run(made._commit(charges, [record]))
    assert "commit" not in producer.done and not ledger.charges


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
    asyncio.run(owner(clock, ledger, producer)._commit(*fired(clock, pipeline, due, now)))
    assert producer.done[-1] == "commit"


def test_a_beat_never_goes_back():
    """After a change of leader, a broker may answer with an older end; the beat does not move."""

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
    made._acquire = made.close = nothing
    monkeypatch.setattr(asyncio, "sleep", nothing)
    asyncio.run(made._again(error))
    assert len(counted) == lost


def test_a_clock_that_leaves_ends_with_its_first_failure(monkeypatch):
    """If it opened again, it would fence the new owner, which would fence it in turn."""

    async def fenced() -> None:
        raise ProducerFenced

    async def again(_: object) -> None:
        raise AssertionError("it was opened again")

    one = owner(*begun(), Recorder())
    monkeypatch.setattr(one, "_beat", fenced)
    monkeypatch.setattr(one, "_again", again)
    with pytest.raises(AssertionError):
        asyncio.run(one.run())
    one.leaving = True
    asyncio.run(one.run())


def test_a_clock_that_leaves_while_brokers_are_away_is_not_opened_after_that(monkeypatch):
    """Another owner has opened the clock by then and would be fenced."""
    one, tries = owner(*begun(), Recorder()), []

    async def away() -> None:
        assert not one.leaving, "it was tried again"
        tries.append(1)
        one.leaving = len(tries) == 2
        raise TimeoutError

    async def nothing(*_: object) -> None:
        pass

    one._acquire, one.close = away, nothing
    monkeypatch.setattr(asyncio, "sleep", nothing)
    assert not asyncio.run(one.open()) and tries == [1, 1]
    assert not asyncio.run(one.open()) and tries == [1, 1]


def test_a_raw_topic_can_never_end_below_what_was_covered():
    clock, ledger = begun()
    made = owner(clock, ledger, Recorder())
    made._partitions = [TopicPartition("events", 0), TopicPartition("new", 0)]
    assert made._covered() == {TopicPartition("events", 0): 5}


def test_a_request_among_triggers_covers_the_records_that_were_sent_before_it():
    """Records arrive and a trigger is requested while another trigger is fired."""
    clock, ledger = begun()
    one, written = owner(clock, ledger, Recorder()), []
    log, asked = [9], [ORIGIN + 6 * HOUR]  # end of the raw topic; requests that have arrived

    async def polled(*_: object) -> bool:
        came = [asked.pop(0)] if asked else []
        for at in came:
            clock.request(TriggerRequest(str(at), at))
        return bool(came)

    async def ends() -> object:
        return {"events": list(log)}

    async def committed(charges: list, records: list) -> None:
        for charge in charges:
            ledger.take(charge.encode())
        for record in records:
            clock.apply(record)
            written.append(record)
        if isinstance(records[-1], Trigger) and len(written) == 2:
            log[0] = 30
            asked.append(ORIGIN + 12 * HOUR)

    async def nothing() -> None:
        """No snapshot is due."""

    one._requests.read, one._ends = polled, ends
    one._commit, one._snapshot = committed, nothing
    asyncio.run(one._beat())
    assert [type(record) for record in written] == [Beat, Trigger, Beat, Trigger]
    covered = [record.offsets for record in written if isinstance(record, Beat)]
    assert covered == [{"events": [9]}, {"events": [30]}]


def test_a_first_window_is_not_chosen_by_a_clock_that_is_behind():
    """That window would be over already, and every empty window since would be charged."""
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
    asyncio.run(one._commit(*fired(clock, pipeline, due, now)))
    assert "late" not in caplog.text
