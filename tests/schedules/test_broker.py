"""The Kafka in memory keeps Kafka's rules: fencing, transactions, isolation, time-outs, outages."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from aiokafka.errors import InvalidTxnState, KafkaTimeoutError, ProducerFenced

from .broker import Broker
from .loop import Process, Stuck, VirtualLoop
from .network import Again
from .rewind import restore, snapshot

PLACE = ("t", 0)


def made() -> Broker:
    broker = Broker(VirtualLoop(Random(1)), Random(1))
    broker.create("t", 1, {})
    broker.create("u", 1, {"message.timestamp.type": "LogAppendTime"})
    return broker


def content(value: bytes) -> list[tuple[Any, ...]]:
    return [(None, value, None, ())]


def values(broker: Broker, committed: bool = True) -> list[bytes]:
    return [r.value for r in broker.logs[PLACE].read(0, 100, committed)[0]]


def passed(broker: Broker, seconds: float = 5.0) -> None:
    broker.loop.run(broker.loop.now + seconds)


def test_records_are_read_once_their_transaction_has_been_marked() -> None:
    broker = made()
    epoch = broker.initialise("x")
    broker.produce("x", epoch, PLACE, content(b"a"), 10.0)
    log = broker.logs[PLACE]
    assert (log.end, log.stable, values(broker), values(broker, False)) == (1, 0, [], [b"a"])
    broker.end("x", epoch, commit=True)
    assert log.stable == 0  # the answer comes before the marker
    with pytest.raises(Again):
        broker.produce("x", epoch, PLACE, content(b"b"), 10.0)
    passed(broker)
    assert (log.end, log.stable, values(broker)) == (2, 2, [b"a"])
    broker.end("x", epoch, commit=True)  # a repetition, since the answer was lost
    passed(broker)
    assert log.end == 2


def test_a_new_owner_fences_the_old_one_and_aborts_what_it_left_open() -> None:
    broker = made()
    old = broker.initialise("x")
    broker.produce("x", old, PLACE, content(b"a"), 10.0)
    with pytest.raises(Again):
        broker.initialise("x")
    with pytest.raises(ProducerFenced):
        broker.end("x", old, commit=True)
    passed(broker)
    new = broker.initialise("x")
    assert new > old and values(broker) == []
    with pytest.raises(ProducerFenced):
        broker.produce("x", old, PLACE, content(b"b"), 10.0)
    broker.produce("x", new, PLACE, content(b"c"), 10.0)
    broker.end("x", new, commit=True)
    passed(broker)
    assert values(broker) == [b"c"]


def test_a_batch_that_a_new_leader_takes_for_known_is_known_to_it_when_it_comes_again() -> None:
    broker = made()
    epoch = broker.initialise("x")
    broker.add("x", epoch, PLACE, 10.0)
    broker.change_leader(PLACE, known=True)
    told = [broker.produce("x", epoch, PLACE, content(b"a"), 10.0, 1)[0].offset for _ in range(2)]
    assert told == [-1, -1] and values(broker, False) == [b"a"]
    assert broker.produce("x", epoch, PLACE, content(b"b"), 10.0, 2)[0].offset == 1


def test_an_unfinished_transaction_times_out() -> None:
    broker = made()
    epoch = broker.initialise("x")
    broker.produce("x", epoch, PLACE, content(b"a"), 8.0)
    passed(broker, 20.0)
    assert values(broker) == [] and broker.logs[PLACE].stable == 2
    with pytest.raises(ProducerFenced):
        broker.end("x", epoch, commit=True)


def test_a_cluster_comes_back_as_it_was_whatever_was_on_its_way() -> None:
    broker = made()
    broker.append(PLACE, None, b"first", None, ())
    decided, open_ = broker.initialise("decided"), broker.initialise("open")
    broker.produce("decided", decided, PLACE, content(b"a"), 10.0)
    broker.produce("open", open_, PLACE, content(b"b"), 10.0)
    broker.end("decided", decided, commit=True)
    kept = snapshot(broker)
    broker.end("open", open_, commit=True)
    passed(broker)
    broker.append(PLACE, None, b"later", None, ())
    broker.trim(PLACE, 1)
    assert values(broker) == [b"first", b"a", b"b", b"later"]
    restore(broker, kept)
    passed(broker)
    log = broker.logs[PLACE]
    assert values(broker) == [b"first", b"a"] and (log.start, log.end, log.stable) == (0, 5, 5)
    with pytest.raises(ProducerFenced):
        broker.produce("open", open_, PLACE, content(b"c"), 10.0)
    new = broker.initialise("open")
    broker.produce("open", new, PLACE, content(b"d"), 10.0)
    broker.end("open", new, commit=True)
    passed(broker)
    assert values(broker) == [b"first", b"a", b"d"]


def test_an_outage_makes_clients_wait_and_then_give_up() -> None:
    broker = made()
    broker.go_down()
    early = broker.call(lambda: 1, patience=3.0)
    late = broker.call(lambda: 2, patience=30.0)
    broker.loop.call_at(10.0, broker.come_back)
    passed(broker, 20.0)
    assert late.result() == 2
    with pytest.raises((KafkaTimeoutError, ConnectionError, Exception)):
        early.result()


def test_the_broker_stamps_what_it_is_told_to_stamp() -> None:
    broker = made()
    assert broker.append(("t", 0), None, b"", 5, ()).timestamp == 5
    assert broker.append(("u", 0), None, b"", 5, ()).timestamp > 1_000_000
    broker.trim(PLACE, 1)
    assert broker.logs[PLACE].start == 1


def test_dead_processes_run_nothing_and_paused_ones_later() -> None:
    loop, ran = VirtualLoop(Random(1)), []
    one, two = Process("one"), Process("two")
    loop.call_later(1.0, ran.append, 1, context=one.context)
    loop.call_later(1.0, ran.append, 2, context=two.context)
    one.dead = two.paused = True
    loop.run(2.0)
    assert ran == []
    loop.call_later(3.0, loop.resume, two)
    loop.run(10.0)
    assert ran == [2]


def test_a_process_that_sleeps_in_a_callback_lets_others_go_on() -> None:
    loop, ran = VirtualLoop(Random(1)), []
    one = Process("one")

    def work() -> None:
        loop.sleep(one, 5.0)
        ran.append(("after", loop.now))

    loop.call_soon(work, context=one.context)
    loop.call_later(1.0, ran.append, "mine", context=one.context)
    loop.call_later(2.0, ran.append, "others")
    loop.run(10.0)
    assert ran == ["others", ("after", 5.0), "mine"]


def test_a_loop_that_turns_for_ever_is_noticed() -> None:
    loop = VirtualLoop(Random(1), most=100)

    async def turn() -> None:
        for _ in range(1000):
            await asyncio.sleep(0)

    asyncio.events._set_running_loop(loop)
    try:
        loop.create_task(turn())
        with pytest.raises(Stuck):
            loop.run(1.0)
    finally:
        asyncio.events._set_running_loop(None)
        loop.kept.clear()


def late(broker: Broker, work: Any, seconds: float = 0.0) -> None:
    broker._late(work)
    passed(broker, seconds)


def test_a_late_end_ends_whatever_its_epoch_has_open() -> None:
    broker = made()
    epoch = broker.initialise("x")
    broker.produce("x", epoch, PLACE, content(b"a"), 10.0)
    broker.end("x", epoch, commit=True)
    passed(broker)
    broker.produce("x", epoch, PLACE, content(b"half"), 10.0)
    late(broker, lambda: broker.end("x", epoch, commit=True), 5.0)
    assert values(broker) == [b"a", b"half"]
    with pytest.raises(InvalidTxnState):  # the partition is not in any transaction now
        broker.produce("x", epoch, PLACE, content(b"rest"), 10.0, serial=3)


def test_an_end_that_begins_an_epoch_ends_nothing_later() -> None:
    broker = made()
    epoch = broker.initialise("x")
    broker.produce("x", epoch, PLACE, content(b"a"), 10.0)
    following = broker.end("x", epoch, commit=True, bump=True)
    assert following == epoch + 1
    with pytest.raises(Again):  # a repetition before the markers are written
        broker.end("x", epoch, commit=True, bump=True)
    passed(broker)
    assert broker.end("x", epoch, commit=True, bump=True) == following
    broker.produce("x", following, PLACE, content(b"half"), 10.0)
    late(broker, lambda: broker.end("x", epoch, commit=True, bump=True), 5.0)
    late(broker, lambda: broker.end("x", epoch, commit=True), 5.0)
    assert values(broker) == [b"a"] and broker.logs[PLACE].stable == 2


def test_a_batch_that_comes_twice_is_appended_once_and_an_added_partition_may_expire() -> None:
    broker = made()
    epoch = broker.initialise("x")
    broker.add("x", epoch, PLACE, 10.0)
    told = broker.produce("x", epoch, PLACE, content(b"a"), 10.0, serial=1)
    assert broker.produce("x", epoch, PLACE, content(b"a"), 10.0, serial=1) == told
    broker.end("x", epoch, commit=True)
    passed(broker)
    assert broker.produce("x", epoch, PLACE, content(b"a"), 10.0, serial=1) == told
    assert values(broker) == [b"a"]
    late(broker, lambda: broker.add("x", epoch, PLACE, 10.0), 20.0)
    with pytest.raises(ProducerFenced):
        broker.end("x", epoch, commit=True)


def test_torn_requests_come_late_in_the_next_transaction_or_twice() -> None:
    broker, came = made(), []
    broker.tears = Random(2)
    assert not broker.tear(lambda: came.append(1))  # otherwise nothing is torn
    broker.torn = 1.0
    held = [broker.tear(lambda: came.append(1)) for _ in range(40)]
    assert 5 < sum(held) < 35 and broker.tore == 40
    assert all(broker.tear(lambda: came.append(1), repeats=False) for _ in range(5))
    passed(broker, 9.0)
    assert len(came) == 45
    while not broker._waiting:
        broker.tear(lambda: came.append(2), into="x")
    passed(broker, 9.0)
    before = came.count(2)
    broker.produce("x", broker.initialise("x"), PLACE, content(b"a"), 10.0)
    passed(broker, 1.0)
    assert came.count(2) == before + 1
