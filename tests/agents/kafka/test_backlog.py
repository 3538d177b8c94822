"""Records that wait for their step: in order, without a gap, and within their share."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import hushstream.agents.kafka.backlog as module
from faust.types import TP
from hushstream.agents.kafka.backlog import LEAST, SMALL, Backlog, Flight, Queued, Room
from hushstream.agents.kafka.intervals import Interval, joined

MB = 1 << 20


def interval(start: int, end: int, size: int = 0) -> Interval:
    return Interval(TP("t", 0), start, end, [SimpleNamespace(offset=n) for n in range(start, end)],
                    size)  # fmt: skip


def offsets(held: Backlog) -> list[int]:
    return [one.offset for one in held.records]


def offered(held: Backlog) -> tuple[list[int], int]:
    parts, fetched = held.offered()
    return [one.offset for one in joined(parts)], fetched


def test_a_share_is_the_processs_room_by_its_partitions_and_never_less_than_one_fetch():
    room = Room(64 * MB)
    assert room.share == 64 * MB
    room.among = 4
    assert room.share == 16 * MB
    room.among = 1000
    assert room.share == LEAST
    room.among = 0  # before the first assignment
    assert room.share == 64 * MB


def test_intervals_join_without_a_gap():
    held = Backlog(Room(MB))
    assert held.take(interval(0, 4)) and held.take(interval(2, 6)) and held.take(interval(1, 3))
    assert offsets(held) == [0, 1, 2, 3, 4, 5] and held.end == 6
    assert not held.take(interval(8, 9)) and held.end == 6
    held.restart(20)
    assert (held.records, held.end, held.size) == ([], 20, 0)


def test_bytes_and_records_fill_it_and_what_is_released_makes_room(monkeypatch):
    held = Backlog(Room(10 * MB))
    held.take(interval(0, 4, 6 * MB))
    assert not held.full and not held.low
    held.take(interval(4, 5, 5 * MB))
    assert held.full
    held.release(3)  # part of the first interval is left
    assert held.full and offsets(held) == [3, 4]
    held.release(4)
    assert held.size == 5 * MB and held.low and not held.full
    monkeypatch.setattr(module, "MOST", 10)
    held.take(interval(5, 20))
    assert held.full
    held.release(18)
    assert held.low and offsets(held) == [18, 19]


def test_one_step_is_offered_a_part_and_then_the_rest():
    held = Backlog(Room(64 * MB), step=8 * MB)
    for n in range(3):
        held.take(interval(10 * n, 10 * n + 10, 5 * MB))
    assert offered(held) == (list(range(20)), 20)
    held.release(20)
    assert offered(held) == (list(range(20, 30)), 30)
    whole = Backlog(Room(64 * MB))
    for n in range(3):
        whole.take(interval(10 * n, 10 * n + 10, 5 * MB))
    assert whole.offered()[1] == 30


def test_one_step_is_offered_as_many_records_as_it_takes_and_no_interval_more():
    held = Backlog(Room(64 * MB), most=15)
    for n in range(4):
        held.take(interval(10 * n, 10 * n + 10, MB))
    assert offered(held) == (list(range(20)), 20)
    held.release(15)
    assert offered(held) == (list(range(15, 30)), 30)
    assert held.size == 3 * MB and offsets(held) == list(range(15, 40))
    held.take(Interval(TP("t", 0), 40, 50, []))  # aborted records
    held.release(35)
    assert offered(held) == (list(range(35, 40)), 50)
    held.release(40)
    assert offered(held) == ([], 50) and held.low
    held.release(50)
    assert held.size == 0 and offered(held) == ([], 50)


def test_large_steps_take_turns_and_small_ones_wait_for_nobody():
    async def run() -> None:
        flight, running = Flight(10 * MB), list[str]()
        go = {name: asyncio.Event() for name in "abcde"}

        async def step(name: str, size: int) -> None:
            async with flight.taken(size):
                running.append(name)
                try:
                    await go[name].wait()
                finally:
                    running.remove(name)

        async def now() -> list[str]:
            for _ in range(5):
                await asyncio.sleep(0)
            return sorted(running)

        sizes = {"a": 6 * MB, "b": 50 * MB, "c": 3 * MB, "d": SMALL - 1, "e": 4 * MB}
        steps = {name: asyncio.ensure_future(step(name, size)) for name, size in sizes.items()}
        assert await now() == ["a", "d"]  # a smaller step does not overtake the one that came first
        go["a"].set()
        assert await now() == ["b", "d"]  # it runs alone, although it exceeds the limit
        steps["c"].cancel()
        go["b"].set()
        assert await now() == ["d", "e"]
        steps["e"].cancel()
        go["d"].set()
        assert await now() == []
        async with asyncio.timeout(5), flight.taken(10 * MB):
            pass  # cancelled steps hold nothing

    asyncio.run(run())


def test_a_step_that_leaves_early_lets_the_next_one_in():
    async def run() -> None:
        flight = Flight(2 * MB)
        async with asyncio.timeout(5), flight.taken(2 * MB) as leave:
            leave()
            async with flight.taken(2 * MB):
                leave()  # a second call does nothing
                assert flight._used == 2 * MB
        assert flight._used == 0

    asyncio.run(run())


def test_a_step_that_is_cancelled_as_its_turn_comes_gives_it_back():
    async def run() -> None:
        flight = Flight(2 * MB)

        async def step() -> None:
            async with flight.taken(2 * MB):
                pass

        async with asyncio.timeout(5), flight.taken(2 * MB) as leave:
            waiting = asyncio.ensure_future(step())
            await asyncio.sleep(0)
            leave()  # its turn has come, but it has not run since
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled() and flight._used == 0

    asyncio.run(run())


def test_records_that_end_a_micro_batch_are_counted_while_they_wait():
    held = Backlog(Room(MB), is_barrier=lambda value: value == b"|")
    values = [b"a", b"|", b"b", b"|", b"|", b"c"]
    records = [SimpleNamespace(offset=n, value=value) for n, value in enumerate(values)]
    held.take(Interval(TP("t", 0), 0, 4, records[:4], 7))
    held.take(Interval(TP("t", 0), 2, 6, records[2:], 5))
    assert held.waiting == Queued(held.size, 6, 3)
    held.release(2)
    assert held.waiting.barriers == 2
    held.release(4)
    assert held.waiting.barriers == 1
    held.restart(9)
    assert held.waiting == Queued(0, 9, 0)
    plain = Backlog(Room(MB))
    plain.take(Interval(TP("t", 0), 0, 4, records[:4], 7))
    assert plain.waiting == Queued(7, 4, 0)
