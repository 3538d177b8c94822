"""The one transaction of a step: the table is written after it, zombies are fenced."""

from __future__ import annotations

import asyncio

import hushstream.agents.kafka.clients as clients
import hushstream.agents.worker.shards.shard as shard_module
import hushstream.agents.worker.tables.local_state as local_state
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from confluent_kafka import Producer
from hushstream.agents.state.layout import MARKER
from hushstream.topics.records import Marker, encode

from ..bench import applied, interval, until


def test_the_table_changes_only_after_the_commit(bench):
    """A failed transaction leaves no trace in the table or in the next attempt."""

    async def run() -> None:
        shard = bench.shard()
        await shard.open()
        shard.deliver(interval(0, 2))
        await applied(shard, 2)
        producer = shard._producers.steps
        seen: list[list[bytes | None]] = []

        async def fails() -> None:
            seen.append(shard._state.table.get_many([b"n"]))
            raise KafkaError("the broker went away")

        producer.commit_transaction = fails
        shard.deliver(interval(2, 6))
        await until(lambda: bench.seeks == [2])  # it has reopened and asks for them again
        assert seen == [[b"2"]]
        assert shard._state.table.get_many([b"n"]) == [b"2"]
        assert shard._producers.steps is not producer
        assert (shard.applied, shard.wanted) == (2, 2)
        shard.deliver(interval(2, 6))
        await applied(shard, 6)
        await shard.close()

    asyncio.run(run())
    assert bench.published() == [b"%d" % n for n in range(6)]
    copies = bench.published(committed=False)
    assert len(copies) > 6 and set(copies) == set(bench.published())  # the aborted copies are equal


def test_a_batch_that_the_broker_refuses_for_good_is_never_left_out_of_a_commit(bench):
    """For example, a new leader may not expect the sequence number of a batch."""

    async def run() -> None:
        shard = bench.shard()
        await shard.open()
        shard.deliver(interval(0, 2))
        await applied(shard, 2)
        numbers = shard._producers.steps._txn_manager._sequence_numbers
        numbers[TopicPartition(bench.out, 0)] += 7  # for the step's output, not its marker
        shard.deliver(interval(2, 6))
        await until(lambda: bench.seeks == [2])  # it has reopened, from committed state
        shard.deliver(interval(2, 6))
        await applied(shard, 6)
        await shard.close()

    asyncio.run(run())
    assert bench.published() == [b"%d" % n for n in range(6)]
    assert bench.failures == []


def test_a_shard_that_was_answered_by_a_leader_of_before_publishes_nothing(bench, monkeypatch):
    """A leader that is cut off may answer readers with an old end offset; see `transact`."""
    monkeypatch.setattr(shard_module, "FENCED_SECONDS", 0.1)

    async def run() -> None:
        before = bench.shard("one")
        await before.open()
        before.deliver(interval(0, 2))
        await applied(before, 2)
        log = TopicPartition(f"{bench.name}-log", 0)
        async with clients.reader(bench.kafka) as client:
            old = (await client.end_offsets([log]))[log]
        before.deliver(interval(2, 4))
        await applied(before, 4)
        await before.close()

        async def older(*place, columns):
            monkeypatch.setattr(local_state, "read_to_end", clients.read_to_end)
            async for records, position, _ in clients.read_to_end(*place):
                yield [one for one in records if one.offset < old], min(position, old), old

        shard = bench.shard("two")
        monkeypatch.setattr(local_state, "read_to_end", older)
        await shard.open()
        assert shard.applied == 2
        shard.deliver(interval(2, 4))
        await until(lambda: bench.seeks == [4])  # it has read again, to the end
        shard.deliver(interval(4, 5))
        await applied(shard, 5)
        await shard.close()

    asyncio.run(run())
    assert bench.published(committed=False) == [b"%d" % n for n in range(5)]


def test_a_shard_that_is_closed_while_it_opens_again_does_not_try_once_more(bench):
    """It would fence the worker to which a rebalance has moved it."""

    async def run() -> None:
        shard, attempts = bench.shard(), list[int]()
        await shard.open()

        async def unanswered(_answered: object) -> None:
            attempts.append(1)
            raise TimeoutError

        shard._producers.start = unanswered
        opening = asyncio.ensure_future(shard._open_again())
        await until(lambda: attempts != [])
        await shard.close()
        await asyncio.wait_for(opening, 10)
        assert attempts == [1]

    asyncio.run(run())


def test_a_zombie_is_fenced_and_can_publish_nothing(bench, monkeypatch):
    monkeypatch.setattr(shard_module, "FENCED_SECONDS", 3600.0)  # it would reopen after that time

    async def run() -> None:
        zombie = bench.shard("one")
        await zombie.open()
        zombie.deliver(interval(0, 3))
        await applied(zombie, 3)
        owner = bench.shard("two")
        await owner.open()
        assert owner.applied == 3
        before = zombie._state.table.get_many([b"n"])
        zombie.deliver(interval(3, 9))
        owner.deliver(interval(3, 5))
        await applied(owner, 5)
        await asyncio.sleep(0.5)
        assert zombie.applied == 3 and zombie._state.table.get_many([b"n"]) == before
        await zombie.close(patience=0.1)
        await owner.close()

    asyncio.run(run())
    assert bench.published() == [b"%d" % n for n in range(5)]


def test_a_commit_that_nobody_answers_is_given_up_and_made_again(bench, monkeypatch):
    """The coordinator's partition has lost its leader, and the library retries for ever."""
    limits = iter([0.5])
    monkeypatch.setattr(shard_module, "within", lambda _: asyncio.timeout(next(limits, 600.0)))

    async def run() -> None:
        shard = bench.shard()
        await shard.open()
        shard._producers.steps.commit_transaction = (
            asyncio.Event().wait
        )  # all is sent, nothing is told
        shard.deliver(interval(0, 3))
        outages: list[bool] = []
        monkeypatch.setattr(shard.progress, "outage", outages.append)
        await until(lambda: bench.seeks == [0])
        assert outages[0] and not outages[-1]  # it is not ready meanwhile
        shard.deliver(interval(0, 3))
        await applied(shard, 3)
        await shard.close()

    asyncio.run(run())
    assert bench.published() == [b"%d" % n for n in range(3)] and bench.failures == []


def test_rows_of_an_aborted_transaction_are_not_restored(bench):
    async def run() -> None:
        shard = bench.shard()
        await shard.open()
        shard.deliver(interval(0, 2))
        await applied(shard, 2)
        await shard.close()

    asyncio.run(run())
    producer = Producer(
        {"bootstrap.servers": bench.kafka.bootstrap, "transactional.id": f"{bench.name}.id"}
    )
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce(f"{bench.name}-log", b"999", b"n", partition=0)
    marker = encode(Marker(bench.genesis, 999))
    producer.produce(f"{bench.name}-log", marker, MARKER, partition=0)
    producer.flush(120)  # the records are in the log; the next owner's opening aborts them
    del producer

    async def reopen() -> None:
        other = bench.shard("two")
        await other.open()
        assert (other.applied, other._state.table.get_many([b"n"])) == (2, [b"2"])
        await other.close()

    asyncio.run(reopen())
