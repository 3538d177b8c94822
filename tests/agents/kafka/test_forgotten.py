"""A transaction without an end: a starting broker may forget to write markers.

Covers: agents/kafka/private/of_aiokafka_describe.py
Covers: agents/kafka/private/of_aiokafka_ends.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from aiokafka.structs import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream.agents.kafka import forgotten as forgotten_module
from hushstream.agents.kafka.clients import consumer, start_producer, transactional_producer
from hushstream.agents.kafka.forgotten import HalfEnded
from hushstream.agents.kafka.patience import through_outages
from hushstream.agents.kafka.private import of_aiokafka_ends as ends_module
from hushstream.agents.kafka.private.of_aiokafka_describe import Traces, describe
from hushstream.agents.kafka.private.of_aiokafka_producer import new_epochs, producer_id
from hushstream.agents.kafka.progress import Progress
from hushstream.deploy.broker import Broker
from hushstream.deploy.settings import BrokerNode
from hushstream.errors import EngineError
from hushstream.topics.config.model import Kafka

Place = TopicPartition
# Levels of transaction.version: 2 gives each transaction its own epoch, 0 does not.
LEVELS = (2, pytest.param(0, marks=pytest.mark.thorough))


@pytest.fixture(scope="module", params=LEVELS)
def lax(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker that accepts records of transactions that its coordinator has not heard of."""
    overrides = {"transaction.partition.verification.enable": "false"}
    features = {"transaction.version": request.param}
    with Broker(quiet=True, overrides=overrides, node=BrokerNode(features=features)) as running:
        yield running


class World:
    """Two partitions, and producers with one transactional id."""

    def __init__(self, broker: Broker, unique: Callable[[str], str]) -> None:
        self.kafka = Kafka(bootstrap=broker.bootstrap)
        self.name = unique("writer")
        names = unique("state"), unique("out")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for done in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            done.result()
        self.state, self.out = (Place(name, 0) for name in names)

    async def started(self, *places: Place) -> Any:
        producer = transactional_producer(self.kafka, self.name, 10_000)
        try:
            await start_producer(producer, places)
        except HalfEnded:
            await producer.stop()
            raise
        return producer

    async def written(
        self, producer: Any, value: bytes, *untold: Place, commit: bool = True
    ) -> None:
        """End a record in each partition, without telling the coordinator of ``untold`` ones."""
        manager = producer._txn_manager
        await producer.begin_transaction()
        for place in (self.out, self.state):
            if place in untold:
                manager._txn_partitions.add(place)
            await producer.send_and_wait(place.topic, value, partition=0)
        if set(untold) != {self.state, self.out}:
            await (producer.commit_transaction() if commit else producer.abort_transaction())

    async def until_read(self, place: Place, *values: bytes) -> None:
        """Wait for a marker, since a commit returns before the marker is written."""
        for _ in range(200):
            found = await self.read(place)
            if len(found) >= len(values):
                break
            await asyncio.sleep(0.05)
        assert found == list(values)

    async def read(self, place: Place) -> list[bytes]:
        """All committed records before the last stable offset."""
        client = consumer(self.kafka)
        await client.start()
        try:
            client.assign([place])
            await client.seek_to_beginning()
            end = (await client.end_offsets([place]))[place]
            found = []
            while await client.position(place) < end:
                found += [r.value for r in (await client.getmany(timeout_ms=500)).get(place, [])]
            return found
        finally:
            await client.stop()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


@pytest.fixture
def world(lax: Broker, unique: Callable[[str], str]) -> World:
    return World(lax, unique)


async def forgotten(world: World, *untold: Place, commit: bool = True) -> None:
    """Write one complete transaction, and a second one that lacks ends in ``untold``."""
    first = await world.started()
    await world.written(first, b"1")
    for place in (world.state, world.out):
        await world.until_read(place, b"1")
    await world.written(first, b"2", *untold, commit=commit)
    await first.stop()


def test_unless_it_is_ended_the_next_commit_would_commit_it(world):
    async def work() -> None:
        await forgotten(world, world.state, world.out)
        assert await world.read(world.state) == [b"1"]
        second = await world.started()  # checks no partition
        await world.written(second, b"again")
        await second.stop()
        await world.until_read(world.state, b"1", b"2", b"again")

    run(work())


def test_what_was_forgotten_is_aborted_and_done_again(world):
    async def work() -> None:
        await forgotten(world, world.state, world.out)
        second = await world.started(world.state, world.out)
        await world.written(second, b"again")
        await second.stop()
        for place in (world.state, world.out):
            await world.until_read(place, b"1", b"again")

    run(work())


async def opened(world: World, patience: float) -> Any:
    """Start a producer as a shard does, with patience in seconds."""
    found: list[Any] = []

    async def acquire() -> None:
        found.append(await world.started(world.state, world.out))

    async def nothing() -> None:
        """Let nothing go."""

    await through_outages(Progress("it"), acquire, nothing, int(patience * 1e6))
    return found[0]


@pytest.mark.parametrize("commit", [True, False])
def test_what_has_an_end_in_one_partition_alone_ends_likewise_in_the_others(world, commit, caplog):
    caplog.set_level("WARNING", "hushstream.kafka")

    async def work() -> None:
        await forgotten(world, world.state, commit=commit)
        second = await world.started()
        told = new_epochs(second)
        await second.stop()
        if not told:
            return  # covered by the next test
        third = await opened(world, 30)
        await world.written(third, b"3")
        await third.stop()
        seen = [b"1", *([b"2"] if commit else []), b"3"]
        for place in (world.state, world.out):
            await world.until_read(place, *seen)
        where = f"{world.out.topic}-0 and hangs in {world.state.topic}-0"
        assert f"{where}: it is {'committed' if commit else 'aborted'} there" in caplog.text

    run(work())


def test_what_has_an_unknown_end_in_one_partition_alone_is_refused(world, monkeypatch):
    """The marker may be far from the partition's end, or be another transaction's."""
    monkeypatch.setattr(ends_module, "TAIL", 0)

    async def work() -> None:
        await forgotten(world, world.state)
        where = f"{world.out.topic}-0 and hangs in {world.state.topic}-0"
        with pytest.raises(HalfEnded, match=where):
            await world.started(world.state, world.out)
        with pytest.raises(EngineError, match=f"^a transaction has ended in {where}: brokers"):
            await opened(world, 1.5)
        assert await world.read(world.state) == [b"1"]

    run(work())


def test_a_leader_that_does_not_know_of_its_successor_is_asked_again(world, monkeypatch, caplog):
    """A broker that is cut off still shows the transaction whose end it did not get."""
    caplog.set_level("WARNING", "hushstream.kafka")
    answers: list[dict[Place, Any]] = []

    async def outdated(client: Any, node: int, places: Any, number: int) -> dict[Place, Any]:
        found = await describe(client, node, places, number)
        if len(answers) < 2:
            epoch = found[world.state].epoch - 1
            found[world.state] = Traces(open=True, epoch=epoch)
        answers.append(found)
        return found

    async def work() -> None:
        first = await world.started()
        await world.written(first, b"1")
        for place in (world.state, world.out):
            await world.until_read(place, b"1")
        await first.stop()
        monkeypatch.setattr(forgotten_module, "describe", outdated)
        second = await opened(world, 30)
        assert len(answers) >= 3
        await world.written(second, b"2")
        await second.stop()
        for place in (world.state, world.out):
            await world.until_read(place, b"1", b"2")

    run(work())
    assert sum("hangs in" in line for line in caplog.messages) == 1


def test_a_partition_is_asked_for_one_producer_alone(world):
    async def work() -> None:
        await forgotten(world, world.state, world.out)
        client = await world.started()
        asked = [world.state, world.out]
        found = await describe(client.client, 1, asked, producer_id(client))
        assert all(isinstance(one, Traces) and one.open for one in found.values())
        assert list(found) == asked
        assert not await describe(client.client, 1, asked, producer_id(client) + 1000)
        unknown = await describe(client.client, 1, [Place("none", 0)], producer_id(client))
        assert unknown == {Place("none", 0): 3}
        await client.stop()

    run(work())


def test_what_the_brokers_had_answered_is_committed(world):
    async def answered() -> bool:
        return True

    async def work() -> None:
        await forgotten(world, world.state, world.out)
        second = transactional_producer(world.kafka, world.name, 10_000)
        await start_producer(second, [world.state], [world.out], answered)
        await world.until_read(world.state, b"1", b"2")
        await world.written(second, b"3")
        await second.stop()
        for place in (world.state, world.out):
            await world.until_read(place, b"1", b"2", b"3")

    run(work())
