"""Intervals: what was fetched, what was filtered out, and what can no longer be fetched.

Covers: agents/kafka/clients.py

Covers: agents/kafka/intervals.py
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import hushstream.agents.kafka.transport as transport
import pytest
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import GroupAuthorizationFailedError, IllegalStateError, KafkaError
from aiokafka.structs import TopicPartition
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic
from faust.types import TP, Message
from hushstream.agents.kafka.clients import consumer, read_to_end
from hushstream.agents.kafka.intervals import Gone, Interval, Most
from hushstream.agents.kafka.private.of_aiokafka import take
from hushstream.agents.kafka.private.of_faust import FailingApp
from hushstream.agents.kafka.progress import Progress
from hushstream.agents.kafka.transport import credentials, register
from hushstream.deploy.broker import Broker
from hushstream.errors import EngineError, RightError
from hushstream.topics.config.model import Kafka

from ..worker.bench import visible


@pytest.fixture
def topic(broker: Broker, unique: Callable[[str], str]) -> str:
    name = unique("intervals")
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    client.create_topics([NewTopic(name, 1, 1)])[name].result(120)
    return name


def transaction(broker: Broker, topic: str, count: int, commit: bool) -> None:
    options = {"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-id"}
    producer = Producer(options)
    producer.init_transactions(120)
    producer.begin_transaction()
    for n in range(count):
        producer.produce(topic, b"%s-%d" % (b"good" if commit else b"bad", n), partition=0)
    producer.flush(120)  # an abort would drop unsent records
    (producer.commit_transaction if commit else producer.abort_transaction)(120)
    visible(Kafka(bootstrap=broker.bootstrap), topic)


async def intervals(
    broker: Broker, topic: str, start: int, end: int, most: int = transport.MAX_RECORDS
) -> list[Interval]:
    """The intervals that the consumer's thread captures until it reaches ``end``."""
    client = consumer(Kafka(bootstrap=broker.bootstrap))
    await client.start()
    found: list[Interval] = []
    place, gone = TP(topic, 0), Gone(patience=0.0)
    try:
        client.assign([TopicPartition(topic, 0)])
        client.seek(TopicPartition(topic, 0), start)
        until = time.monotonic() + 150
        while not found or found[-1].end < end:
            assert time.monotonic() < until, found
            found += take(client, {place}, lambda: {place: start}, gone, Most(most))
            await asyncio.sleep(0.02)
    finally:
        await client.stop()
    return found


def test_intervals_cover_control_records_and_aborted_data_without_a_gap(broker, topic):
    transaction(broker, topic, 3, commit=True)
    transaction(broker, topic, 4, commit=False)
    transaction(broker, topic, 2, commit=True)
    transaction(broker, topic, 5, commit=False)  # an aborted tail
    end = 3 + 1 + 4 + 1 + 2 + 1 + 5 + 1
    found = asyncio.run(intervals(broker, topic, 0, end))
    assert found[0].start == 0 and found[-1].end == end
    assert all(a.end == b.start for a, b in pairwise(found))
    values = [record.value for one in found for record in one.records]
    assert values == [b"good-0", b"good-1", b"good-2", b"good-0", b"good-1"]
    for one in found:
        assert all(one.start <= record.offset < one.end for record in one.records)


def test_long_lists_are_cut_without_losing_their_place(broker, topic):
    transaction(broker, topic, 25, commit=True)
    found = asyncio.run(intervals(broker, topic, 3, 26, 10))
    assert [(one.start, one.end) for one in found][:2] == [(3, 13), (13, 23)]
    assert found[-1].end == 26 and sum(len(one.records) for one in found) == 22


def test_a_position_that_is_gone_stops_the_worker_and_says_what_to_do(broker, topic):
    transaction(broker, topic, 9, commit=True)
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in client.delete_records([Place(topic, 0, 5)]).values():
        future.result(120)
    with pytest.raises(EngineError, match=r"deleted before it was applied.*restore it"):
        asyncio.run(intervals(broker, topic, 2, 10))


def test_a_position_beyond_the_end_stops_it_too(broker, topic):
    with pytest.raises(EngineError, match=f"{topic}-0"):
        asyncio.run(intervals(broker, topic, 70, 80))


def test_positions_and_commits_come_from_the_shards_alone():
    made = transport.Consumer.__new__(transport.Consumer)
    place = TP("t", 0)
    assert list(made._filter_tps_with_pending_acks()) == []  # before the first assignment
    made.applied = lambda: {place: 7}
    assert list(made._filter_tps_with_pending_acks()) == [place]
    assert (made._new_offset(place), made._new_offset(TP("t", 1))) == (7, None)


class Still(transport.Consumer):
    """A consumer whose flow was stopped for a rebalance and is never resumed."""

    def __init__(self) -> None:
        self.flow_active, self.can_resume_flow = False, asyncio.Event()
        self.progress = Progress("the consumer")

    async def wait(self, *_: object, **__: object) -> None:
        """Wait as Faust does, for ever."""
        await self.can_resume_flow.wait()


def test_a_flow_that_nobody_resumes_is_no_progress():
    async def run() -> None:
        made = Still()
        task = asyncio.ensure_future(made.deliver(lambda: False))
        await asyncio.sleep(0.01)
        assert not task.done() and made.progress.stalled(0.0) and not made.progress.stalled(60)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(run())


class Fetching(transport.Consumer):
    """A consumer that fetches these intervals during a rebalance."""

    def __init__(self, found: list[Interval], lost: TP) -> None:
        self.found, self.lost = found, lost
        self.generation, self.moves, self.flow_active = 3, 1, True
        self.hurry = asyncio.Event()
        self.can_resume_flow, self.suspend_flow = asyncio.Event(), asyncio.Event()
        self.sought: list[tuple[TP, int]] = []
        self.delivered: list[Message] = []
        self.positions = lambda: {TP("t", 0): 5, TP("t", 1): 6, TP("t", 2): 7}

    @property
    def app(self) -> Any:
        """An application with the generation that messages carry."""
        return SimpleNamespace(consumer_generation_id=self.generation)

    @app.setter
    def app(self, value: Any) -> None:
        """Ignore it: Faust's classes declare this as an attribute."""

    def assignment(self) -> set[TP]:
        """All partitions that can be sought."""
        return {TP("t", 0), TP("t", 1), TP("t", 2)}

    flowing_partitions = frozenset({TP("t", 0), TP("t", 1), TP("t", 2)})  # type: ignore[assignment]
    any_paused = False  # type: ignore[assignment]

    @property
    def thread(self) -> Any:
        """The object that fetches."""
        return self

    async def intervals(self, active: set[TP], seconds: float, pause: float) -> list[Interval]:
        """Fetch during a whole rebalance, including its final seeks."""
        self.before, self.paused = list(self.sought), pause
        self.generation += self.moves
        return self.found

    async def seek_to(self, tp: TP, position: int) -> None:
        """Note the seek; a partition of another worker cannot be sought."""
        if tp == self.lost:
            raise IllegalStateError(f"No current assignment for partition {tp}")
        self.sought.append((tp, position))


def test_what_was_fetched_for_an_older_generation_is_fetched_again_where_it_is_still_wanted():
    """The rebalance sought before these records came, so nothing else would fetch them again."""
    mine, lost = TP("t", 1), TP("t", 2)
    made = Fetching([Interval(mine, 6, 9, [], 0), Interval(lost, 7, 8, [], 0)], lost)
    asyncio.run(made._deliver_once())
    assert made.sought == [(mine, 6)] and not made.delivered


def test_a_flow_that_is_resumed_begins_with_a_seek_to_where_the_shards_stand():
    """Faust has emptied its queues by then; what they held is fetched again, once."""
    lost = TP("t", 2)
    made = Fetching([], lost)

    async def run() -> None:
        await made._deliver_once()
        assert made.before == []
        made.stop_flow()
        made.resume_flow()
        assert made.flow_active and made.sought == []
        await made._deliver_once()
        assert made.before == [(TP("t", 0), 5), (TP("t", 1), 6)]  # before the fetch
        await made._deliver_once()
        assert made.before == made.sought and len(made.sought) == 2

    asyncio.run(run())


def test_fetching_pauses_until_it_is_hurried_unless_there_may_be_more():
    async def took(made: Fetching, hurried: float, pause: float = 30.0) -> bool:
        made.pause, loop = lambda: pause, asyncio.get_running_loop()
        begun = loop.time()
        loop.call_later(hurried, made.hurry.set)
        await made._deliver_once()
        return loop.time() - begun >= hurried

    async def run() -> None:
        made = Fetching([], TP("t", 2))
        made.hurry.set()  # for an earlier trigger
        assert await took(made, 0.1) and made.paused == 30.0
        assert not await took(made, 0.2, pause=0.0)
        made.any_paused = True  # its records would keep others from being fetched
        assert not await took(made, 0.2) and made.paused == 0.0
        made = Fetching([Interval(TP("t", 0), 5, 9, [], transport.LITTLE)], TP("t", 2))
        made.callback, made.moves, made.wait_first = Mock(), 0, AsyncMock()
        made.suspend_flow = made._message = Mock()
        assert not await took(made, 0.2)

    asyncio.run(run())


def test_shards_that_stay_are_served_before_a_rebalance_has_ended():
    """Partitions that Faust has paused continue, and the next fetch begins with a seek."""
    stays, comes, gone = TP("t", 0), TP("t", 1), TP("u", 0)
    flows: list[str] = []

    class Paused(Fetching):
        @property
        def app(self) -> Any:
            flow = SimpleNamespace(resume=lambda: flows.append("resume"))
            return SimpleNamespace(consumer_generation_id=self.generation, flow_control=flow)

    made = Paused([], TP("t", 2))
    made._active_partitions, made._paused_partitions = set(), {stays, comes}
    made.flow_active = False
    made.serve({stays, gone})
    assert made._active_partitions == {stays} and made._paused_partitions == {comes}
    assert made.flow_active and flows == ["resume"]
    asyncio.run(made._deliver_once())
    assert made.before == [(TP("t", 0), 5), (TP("t", 1), 6)]


def test_a_group_that_refuses_a_worker_is_heard():
    async def ended(error: BaseException | None) -> asyncio.Task[None]:
        async def work() -> None:
            if error is not None:
                raise error

        task = asyncio.ensure_future(work())
        await asyncio.wait([task])
        return task

    def said(task: object) -> object:
        made = transport.Consumer.__new__(transport.Consumer)
        coordinator = SimpleNamespace(_coordination_task=task)
        made._thread = SimpleNamespace(client=SimpleNamespace(_coordinator=coordinator))
        return made.group_error()

    async def run() -> None:
        assert said(None) is None
        assert "its group task ended" in str(said(await ended(None)))
        cancelled = str(said(await ended(asyncio.CancelledError())))
        assert "its group task was cancelled" in cancelled
        assert "no such session" in str(said(await ended(ValueError("no such session"))))

    asyncio.run(run())


def test_a_member_joins_again_after_an_error_of_its_coordinator(caplog):
    """The library's routine waits until the error is taken, which only its own reads do."""

    async def run() -> None:
        coordinator: Any = GroupCoordinator.__new__(GroupCoordinator)
        loop = asyncio.get_running_loop()
        going = asyncio.ensure_future(asyncio.Event().wait())
        vars(coordinator).update(
            _coordination_task=going, _closing=loop.create_future(), _pending_exception=None,
            _error_consumed_fut=None, _subscription=SimpleNamespace(abort_waiters=lambda _: None),
        )  # fmt: skip
        made = transport.Consumer.__new__(transport.Consumer)
        client = SimpleNamespace(_coordinator=coordinator)
        made._thread = SimpleNamespace(client=client, thread_loop=loop)
        assert made.group_error() is None
        waiting = asyncio.ensure_future(coordinator._push_error_to_user(KafkaError("SyncGroup")))
        await asyncio.sleep(0)
        assert made.group_error() is None
        await asyncio.wait_for(waiting, 5)
        assert made.group_error() is None and "SyncGroup" in caplog.text
        # Workers silence loggers named after their modules, with those of Faust's services.
        assert {one.name for one in caplog.records if "SyncGroup" in one.getMessage()} == {
            "hushstream.kafka"
        }
        denied = GroupAuthorizationFailedError("g")
        waiting = asyncio.ensure_future(coordinator._push_error_to_user(denied))
        await asyncio.sleep(0)
        refused = made.group_error()
        assert isinstance(refused, RightError) and not waiting.done()
        waiting.cancel()
        going.cancel()

    asyncio.run(run())


def test_credentials_follow_the_one_table_of_settings():
    register()
    from faust.transport import drivers

    assert drivers.by_url("hush://localhost:9092") is transport.Transport
    assert credentials(Kafka()) is None
    sasl = Kafka(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="me",
        sasl_password="secret",
    )
    assert (credentials(sasl).username, credentials(sasl).password) == ("me", "secret")


def test_the_client_reads_what_is_committed_and_keeps_shards_where_they_are():
    """Another assignor leaves members without partitions after a broker has died."""

    async def run() -> None:
        register()
        app = FailingApp(
            "t", broker="hush://127.0.0.1:1", web_enabled=False, broker_max_poll_interval=9.0
        )
        thread = app.consumer.thread
        client = thread.make_consumer(app.conf.broker_consumer, 9092)
        assert client._isolation_level == "read_committed"
        assert client._fetch_max_wait_ms == 100
        assert client._partition_assignment_strategy == [app.assignor]
        assert client._group_id == "t"
        await client.stop()
        thread.thread_loop.close()

    asyncio.run(run())


def test_a_log_read_as_arrays_holds_what_it_holds_record_by_record(
    broker: Broker, topic: str
) -> None:
    for count, commit in ((500, True), (300, False), (700, True)):
        transaction(broker, topic, count, commit)
    register()  # like a worker, which reads batches with our parser

    async def read(columns: bool) -> tuple[list[bytes], list[int], list[str]]:
        values, kinds = [], []
        lists = read_to_end(Kafka(bootstrap=broker.bootstrap), topic, 0, None, columns)
        async for records, position, end in lists:
            kinds += [type(records).__name__] if len(records) else []
            values += [record.value for record in records]
            last = [position, end]
        return values, last, kinds

    plain, arrays = asyncio.run(read(False)), asyncio.run(read(True))
    assert arrays[:2] == plain[:2] and len(plain[0]) == 1200 and plain[1] == [1503, 1503]
    assert set(plain[2]) == {"list"} and set(arrays[2]) == {"RawBatch"}
