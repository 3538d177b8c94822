"""Steps of the bound stage: how many frames they take, and how small frames share their sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.stages.bound import stage
from hushstream.agents.stages.bound.bounder import Bounder
from hushstream.agents.stages.step import LogFrame, Step
from hushstream.agents.state.memory import MemoryStore
from hushstream.errors import EngineError
from hushstream.mechanisms.keys import Keys
from hushstream.topics.frames import (
    Barrier,
    CellsFrame,
    EventsFrame,
    EventSlice,
    decode,
    encode_barrier,
    encode_events,
)
from hushstream.topics.records import ClockRecord, Marker, Skipped, Start

from ....support import NAMES, deployment, trigger

PAGES = Keys.of([b'["p%d"]' % n for n in range(6)])


def events(seed: int, batch: int, origin: int = 0) -> bytes:
    random = np.random.default_rng(seed)
    unit = np.zeros((20, 16), np.uint8)
    unit[:, 0], unit[:, 1] = random.integers(0, 9, 20), seed
    value, sign = np.empty((20, 0), np.int64), np.ones(20, np.int8)
    one = EventSlice(0, batch, unit, PAGES, random.integers(0, 6, 20), value, sign)
    (frame,) = encode_events(origin, one)
    return frame


def step(values: list[bytes], upstreams: int = 1) -> list[CellsFrame | Barrier]:
    """The output of one step."""
    made = deployment(cells=2, mechanism=", adaptive_weight = 0").pipelines[0]
    bound = stage.BoundStage(made, 0, NAMES, upstreams, ClockLog({"p": 4}), {})
    reader = MemoryStore()
    bound.open(reader, Marker("g", 0))
    frames = [LogFrame(place, value) for place, value in enumerate(values)]
    found = bound.step(reader, Marker("g", 0), frames, len(frames))
    assert found is not None and found.marker.applied == len(frames)
    return [decode(out.value) for out in found.out]  # type: ignore[misc]


def sums(sent: list[CellsFrame | Barrier]) -> Counter[tuple[int, bytes]]:
    total: Counter[tuple[int, bytes]] = Counter()
    for one in sent:
        if isinstance(one, CellsFrame):
            for key, row in zip(one.part.key.tolist(), one.part.sums[:, 0].tolist(), strict=True):
                total[one.batch, key] += row
    return total


def test_small_frames_of_one_step_share_their_sums(monkeypatch):
    """Otherwise each frame would send its own sums to every cells partition."""
    made = deployment().pipelines[0]
    barrier = encode_barrier(Barrier(0, trigger(made, 1, [600]), np.zeros(0, np.int64)))
    log = [*(events(n, 1) for n in range(30)), barrier, *(events(n, 2) for n in range(30, 60))]
    together = step(log)
    kinds = [type(one) for one in together]
    assert kinds == [CellsFrame] * 2 + [Barrier] * 2 + [CellsFrame] * 2  # its sums come before it
    assert {one.batch for one in together[:2]} == {1} and {one.batch for one in together[4:]} == {2}
    monkeypatch.setattr(stage, "TOGETHER", 1)
    apart = step(log)
    assert len(apart) > 100 and sums(apart) == sums(together) and len(sums(apart)) == 12


def test_frames_of_all_upstreams_share_their_sums_up_to_the_last_barrier(monkeypatch):
    """Otherwise a trigger would take frames to every cells partition for each raw partition."""
    made, raw = deployment().pipelines[0], 40
    log = list[bytes]()
    for n in range(raw):
        barrier = Barrier(n, trigger(made, 1, [600] * raw), np.zeros(0, np.int64))
        log += [events(n, 1, n), encode_barrier(barrier), events(n + raw, 2, n)]
    sent = step(log, raw)
    last = [type(one) for one in sent].index(Barrier)
    assert [type(one) for one in sent[last:]] == [Barrier] * 2 + [CellsFrame] * 2
    first = [one for one in sent[:last] if isinstance(one, CellsFrame) and one.batch == 1]
    assert len(first) == 2 and last < 2 * raw  # batches stay in the order of the log
    monkeypatch.setattr(stage, "TOGETHER", 1)
    assert sums(step(log, raw)) == sums(sent)


def test_frames_that_are_joined_are_bound_as_one_after_the_other():
    """The bound depends only on the order of the log, a micro-batch only on the records in it."""
    made = deployment(mechanism=", adaptive_weight = 0").pipelines[0]
    log = [decode(events(n, 1 + (n // 8) % 2)) for n in range(48)]
    slices = [one.slice for one in log if isinstance(one, EventsFrame)]
    slices = [one._replace(unit=one.unit * (np.arange(16) == 0)) for one in slices]  # nine in all
    assert [(one.batch, len(one.unit)) for one in stage.runs(slices)] == [(1, 160), (2, 160)] * 3

    def bound(some: Iterable[EventSlice]) -> tuple[object, ...]:
        step = Step(Marker("g", 0))
        Bounder(made, NAMES, 0, None).absorb(MemoryStore(), some, step)
        return dict(zip(*(c.tolist() for c in step.units.columns()), strict=True)), step.out

    assert bound(stage.runs(slices)) == bound(slices)
    assert bound([*slices[7::-1], *slices[8:]]) != bound(slices)  # else order would not matter


def test_a_step_takes_many_small_frames_and_few_large_ones():
    def taken(number: int, size: int) -> int:
        frames = [LogFrame(place, bytes(size)) for place in range(number)]
        found = stage.offered(frames)
        assert found == frames[: len(found)]
        return len(found)

    assert taken(10, 1 << 18) == 10 and taken(100, 1 << 18) == stage.FRAMES
    assert taken(100, 1 << 20) * (1 << 20) == stage.LARGE_BYTES
    assert taken(3, stage.LARGE_BYTES + 1) == 1  # a step must make progress
    assert taken(9_000, 1_000) == stage.MOST_FRAMES
    assert stage.FRAMES < taken(9_000, 8_192) < stage.MOST_FRAMES
    assert taken(9_000, 8_192) * 8_192 == stage.FRAME_BYTES


def test_a_shard_that_knows_fewer_partitions_stops_before_it_closes_without_them():
    made = deployment().pipelines[0]
    wide = encode_barrier(Barrier(0, trigger(made, 1, [600, 5]), np.zeros(0, np.int64)))
    one = stage.BoundStage(made, 0, NAMES, 1, ClockLog({"p": 4}), {}, "events")
    with pytest.raises(EngineError, match="after this worker has started: start it again"):
        one.step(MemoryStore(), Marker("g", 0), [LogFrame(0, wide)], 1)
    two = stage.BoundStage(made, 0, NAMES, 2, ClockLog({"p": 4}), {}, "events")
    found = two.step(MemoryStore(), Marker("g", 0), [LogFrame(0, wide)], 1)
    assert found is not None and found.marker.upstream == {"p": [1, 0]} and not found.out


CAPPED = 'delta = 1e-4, per_unit = { epsilon = 12, delta = 2e-4, period = "4d" } }'


def refused_then_used(early: bool) -> tuple[dict[bytes, bytes], Counter[tuple[int, bytes]]]:
    """Rows and sums after three steps when the clock refuses the first window.

    Args:
        early: whether the refusal is read before the frame of that window instead of after it.
    """
    made = deployment(cells=1, mechanism=", adaptive_weight = 0", swap={"delta = 1e-4 }": CAPPED})
    clock = ClockLog({"p": 4})
    bound = stage.BoundStage(made.pipelines[0], 0, NAMES, 1, clock, {})
    reader, marker = MemoryStore(), Marker("g", 0)
    bound.open(reader, marker)
    told: list[ClockRecord] = [Start("p", 0, 0), Skipped("p", 0, 0, 1)]
    clock.append(0, told[0])
    total: Counter[tuple[int, bytes]] = Counter()
    for window in range(3):
        if window == (0 if early else 1):
            clock.append(1, told[1])
        frame = LogFrame(window, events_of(window))
        step = bound.step(reader, marker, [frame], window + 1)
        assert step is not None
        marker = step.marker
        reader.write(step.rows, step.units.columns())
        total += sums([decode(out.value) for out in step.out])  # type: ignore[misc]
    return dict(reader.scan(b"u", b"v")), total


def events_of(window: int) -> bytes:
    """Three units with four records each, one for each of four keys."""
    unit = np.zeros((12, 16), np.uint8)
    unit[:, 0] = np.arange(12) % 3
    one = EventSlice(window, 1, unit, PAGES, np.arange(12) // 3, np.empty((12, 0), np.int64),
                     np.ones(12, np.int8))  # fmt: skip
    (frame,) = encode_events(0, one)
    return frame


def test_what_a_purse_pays_does_not_depend_on_how_much_of_the_clock_was_read():
    """A worker behind the clock, one that is up to date, and a replay must refuse the same."""
    early, late = refused_then_used(True), refused_then_used(False)
    assert early[0] and early == late
