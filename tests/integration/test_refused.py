"""Windows that the budget does not pay for, and what is deleted of windows that are over."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hushstream.agents.clock.clock import Clock
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.clock.timeline import Over, Timeline
from hushstream.agents.deployment.model import Deployment
from hushstream.agents.stages.aggregate.nonces import steady
from hushstream.agents.stages.aggregate.secrets import Secrets
from hushstream.agents.stages.aggregate.stage import AggregateStage
from hushstream.agents.stages.bound.stage import BoundStage
from hushstream.agents.stages.step import LogFrame
from hushstream.agents.state.layout import index_entries
from hushstream.agents.state.memory import MemoryStore
from hushstream.formats.events.decode import RawRecord
from hushstream.offline.engine import OfflineEngine
from hushstream.topics.frames import Barrier, CellsFrame, decode
from hushstream.topics.records import Beat, ClockRecord, Marker, Skipped, Start, Trigger
from hypothesis import given
from hypothesis import strategies as st

from ..support import DAY, HOUR, NAMES, ORIGIN, SECRET, beat, deployment, event, start, trigger

EARLY = ORIGIN - 1


# -- the clock ------------------------------------------------------------------------------------


def clocked(epochs: int, per_epoch: int = 1, **changes: Any) -> tuple[Clock, Ledger]:
    """A clock whose pipeline can pay for so many epochs."""
    (p,) = deployment().pipelines
    windows = replace(p.windows, per_epoch=per_epoch)
    limit = p.epsilon * epochs + Fraction(1, 100)
    p = replace(p, external=False, limit_epsilon=limit, windows=windows, **changes)
    made = deployment()
    made = replace(made, inputs=(replace(made.inputs[0], pipelines=(p,)),))
    ledger = Ledger()
    ledger.take(ledger.next("genesis", 0, {}).encode())
    clock = Clock(made, ledger, "1.0", "key")
    clock.apply(Start("p", 0, ORIGIN))
    clock.apply(Beat(ORIGIN, {"events": [5]}))
    return clock, ledger


def served(clock: Clock, ledger: Ledger, now: int) -> list[ClockRecord]:
    """The records that the clock's owner writes at a time, in its loop's order."""
    written: list[ClockRecord] = []

    def take(records: Any, record: ClockRecord) -> None:
        for one in records:
            ledger.take(one.encode())
        clock.apply(record)
        written.append(record)

    while found := clock.due(now):
        for p, due in found:
            take(*clock.fire(p, due, now))
            if isinstance(written[-1], Skipped):
                break
    for p, window in clock.unpaid(now):
        take(*clock.refuse(p, window, now))
    return written


def skips(written: Sequence[ClockRecord]) -> list[tuple[int, int]]:
    return [(w.window, w.end) for w in written if isinstance(w, Skipped)]


def test_a_window_that_cannot_be_paid_for_is_refused_before_its_records_come():
    clock, ledger = clocked(epochs=1)
    assert skips(served(clock, ledger, ORIGIN + 6 * HOUR)) == []  # the only charge
    assert skips(served(clock, ledger, ORIGIN + DAY - 6 * 60_000_000)) == []
    # Five minutes before the window begins, its first records are accepted.
    assert skips(served(clock, ledger, ORIGIN + DAY - 4 * 60_000_000)) == [(1, 2)]
    assert clock.timelines["p"].batch(1) == 0 and clock.timelines["p"].batch(0) == 4
    assert skips(served(clock, ledger, ORIGIN + DAY)) == []  # only once
    assert skips(served(clock, ledger, ORIGIN + 2 * DAY)) == [(2, 3)]
    assert [r.kind for r in ledger.records] == ["genesis", "charge", "refused", "refused"]


def test_an_epoch_is_refused_with_all_of_its_windows():
    clock, ledger = clocked(epochs=1, per_epoch=3)
    written = served(clock, ledger, ORIGIN + 4 * DAY)
    assert skips(written) == [(3, 6)]
    assert [w.window for w in written if isinstance(w, Trigger)] == [0] * 4 + [1] * 4 + [2] * 4
    assert skips(served(clock, ledger, ORIGIN + 6 * DAY)) == [(6, 9)]


def test_a_limit_that_is_raised_serves_epochs_that_have_not_begun():
    clock, ledger = clocked(epochs=1)
    assert skips(served(clock, ledger, ORIGIN + DAY + HOUR)) == [(1, 2)]
    again, _ = clocked(epochs=3)
    again._ledger = ledger
    for window in (0, 1):
        for record in _log_of(clock, window):
            again.apply(record)
    written = served(again, ledger, ORIGIN + 2 * DAY + 6 * HOUR)
    assert skips(written) == []
    assert [w.window for w in written if isinstance(w, Trigger)] == [2]


def _log_of(clock: Clock, window: int) -> Iterator[ClockRecord]:
    (p,) = clock._pipelines.values()
    if window == 0:
        yield from (trigger(p, n, [5]) for n in range(1, 5))
    else:
        yield Skipped("p", window, window, ORIGIN, window + 1)


def test_a_pipeline_that_is_triggered_by_request_is_refused_at_its_triggers_only():
    clock, ledger = clocked(epochs=1)
    name, p = next(iter(clock._pipelines.items()))
    clock._pipelines[name] = replace(p, external=True)
    clock.requested["p"] = ORIGIN + DAY + HOUR
    assert skips(served(clock, ledger, ORIGIN + 900 * DAY)) == []
    clock.requested["p"] = ORIGIN + DAY + 6 * HOUR
    assert skips(served(clock, ledger, ORIGIN + 900 * DAY)) == [(1, 2)]


# -- what is over ---------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["final", "skip", "trigger"]), max_size=12), st.data())
def test_what_is_over_for_a_shard_is_what_its_own_timeline_says(kinds, data):
    """A clock log ahead of the shard tells the same, except for windows that were refused."""
    p = deployment().pipelines[0]
    records: list[ClockRecord] = [start(p)]
    window = ordinal = 0
    for kind in kinds:
        if kind == "skip":
            width = data.draw(st.integers(1, 3))
            records.append(Skipped("p", window, window, ORIGIN, window + width))
            window += width
        else:
            last = 5 if kind == "final" else 2
            for index in range(1, last):
                ordinal += 1
                records.append(trigger(p, ordinal, [0], window=window, index=index))
            if kind == "trigger":
                break  # the last one is open
            window += 1
    over = Over()
    assert over.floor(0) is None
    for record in records:
        over.apply(record)
    for closed in range(ordinal + 1):
        mine = Timeline(4)
        for record in records:
            if not isinstance(record, Trigger) or record.ordinal <= closed:
                mine.apply(record)
        assert over.floor(closed) == mine.floor
        assert over.floor(closed, over.floor(max(closed - 1, 0))) == mine.floor


# -- rows -----------------------------------------------------------------------------------------


def log_of(windows: int) -> list[RawRecord]:
    """On each day, 300 events of 60 users."""
    return [
        event(n, f"u{n % 60}", f"page {n % 5}", ORIGIN + n // 300 * DAY)
        for n in range(300 * windows)
    ]


def records_of(made: Deployment, late_skip: bool = False) -> list[ClockRecord]:
    """Day 0 is paid for; day 1 is refused in its middle, or before it begins."""
    (p,) = made.pipelines
    paid = [trigger(p, n, [75 * n]) for n in range(1, 5)]
    skip = Skipped("p", 1, 1, ORIGIN + 400 * DAY, 2)
    if late_skip:
        return [start(p), *paid, beat([450]), skip, beat([600])]
    return [start(p), *paid, skip, beat([600])]


def run_of(
    made: Deployment, log: Sequence[RawRecord], records: Sequence[ClockRecord]
) -> OfflineEngine:
    run = OfflineEngine(made, NAMES, SECRET, {("events", 0): list(log)}, list(enumerate(records)))
    run.run()
    return run


def rows_left(run: OfflineEngine) -> set[bytes]:
    """The tags of all rows in all tables."""
    tags = (b"u", b"t", b"r", b"s", b"d", b"f", b"o", b"h", b"m")
    stores = [shard._store for shard in run._shards]
    return {tag for tag in tags for s in stores if list(s.scan(tag, tag + b"\xff" * 20))}


SHAPES = [
    {"partitioner": "murmur2"},
    {"units": 2, "cells": 2},
    {"units": 2, "mechanism": ", adaptive_weight = 0, debias = true, debias_cap = 20"},
    {"partitioner": "murmur2", "mechanism": ", adaptive_weight = 0, debias = true"},
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("late_skip", [False, True])
def test_nothing_of_a_refused_window_stays_and_nothing_else_changes(shape, late_skip, monkeypatch):
    monkeypatch.setattr("hushstream.agents.stages.aggregate.partial_sums.SPILL", 3)
    monkeypatch.setattr("hushstream.agents.stages.expiry.GARBAGE", 7)
    made = deployment(**shape)
    records = records_of(made, late_skip)
    run = run_of(made, log_of(2), records)
    paid = list(run.outs["hush.p.releases.v1"])
    alone = run_of(made, log_of(1), records[:5])
    assert paid == alone.outs["hush.p.releases.v1"] and len(paid) > 4
    assert rows_left(run) == set()
    assert run.counts["p", "late"] == (150 if late_skip else 300)


def test_a_window_that_is_open_keeps_its_rows():
    made = deployment(units=2)
    (p,) = made.pipelines
    records = [*records_of(made), trigger(p, 5, [900], window=2), beat([900])]
    run = run_of(made, log_of(3), records)
    assert {b"u", b"r"} <= rows_left(run)
    assert any(b'"trigger":1' in (o.value or b"") for o in run.outs["hush.p.releases.v1"][-9:])


# -- frames on their way --------------------------------------------------------------------------


class OneShard:
    """An aggregate shard over frames, with a clock log that grows."""

    def __init__(self, made: Deployment, frames: Sequence[LogFrame]) -> None:
        (p,) = made.pipelines
        self.clock = ClockLog({"p": p.traits.horizon})
        self._frames = frames
        self.store, self.marker = MemoryStore(), Marker("abcdef", 0)
        self.stage = AggregateStage(p, 0, NAMES, Secrets(SECRET, steady), 1, self.clock)
        self.stage.open(self.store, self.marker)

    def knows(self, *records: ClockRecord) -> None:
        for record in records:
            self.clock.append(self.clock.end, record)

    def run(self, to: int, faults: random.Random | None = None) -> list[Any]:
        """The outputs of all steps up to a frame; some steps fail, and some restarts follow."""
        outs: list[Any] = []
        while True:
            place = self.stage.position
            step = self.stage.step(self.store, self.marker, self._frames[place:to], to)
            if step is None:
                return outs
            if faults is None or faults.random() < 0.6:
                for key, value in step.rows.items():
                    step.local.update(index_entries(key, value))
                self.store.write({**step.rows, **step.local}, step.units.columns())
                self.marker = step.marker
                outs += step.out
                if faults is None or faults.random() < 0.6:
                    continue
            self.stage.open(self.store, self.marker)

    def tags(self) -> set[bytes]:
        return {key[:1] for tag in (b"r", b"s", b"d", b"f") for key, _ in _all(self.store, tag)}


def _all(store: MemoryStore, tag: bytes) -> Iterator[tuple[bytes, bytes]]:
    return store.scan(tag, tag + b"\xff" * 20)


def cells(made: Deployment) -> list[LogFrame]:
    """Frames of two days, as if both were served."""
    (p,) = made.pipelines
    records = [start(p), *(trigger(p, n, [75 * n]) for n in range(1, 5)), beat([600])]
    run = run_of(made, log_of(2), records)
    return list(run._logs[NAMES.cells("p"), 0].records)


@pytest.mark.parametrize("seed", range(4))
def test_frames_of_a_refused_window_go_whenever_the_worker_learns_of_it(monkeypatch, seed):
    monkeypatch.setattr("hushstream.agents.stages.aggregate.partial_sums.SPILL", 3)
    monkeypatch.setattr("hushstream.agents.stages.expiry.GARBAGE", 2)
    made = deployment(partitioner="murmur2", mechanism=", adaptive_weight = 0")
    frames, records = cells(made), records_of(made)
    whole = OneShard(made, frames)
    whole.knows(*records)
    wanted = whole.run(len(frames))
    assert whole.tags() == set() and wanted
    late = OneShard(made, frames)
    late.knows(*records[:5])
    assert late.run(len(frames), random.Random(seed)) == wanted
    assert late.tags() == {b"f"}  # of the second day
    late.knows(*records[5:])
    assert late.run(len(frames), random.Random(seed)) == []
    assert late.tags() == set()


def test_frames_that_come_after_everything_was_swept_leave_nothing(monkeypatch):
    """Nothing would sweep again, so their rows would stay for ever."""
    monkeypatch.setattr("hushstream.agents.stages.aggregate.partial_sums.SPILL", 3)
    made = deployment(partitioner="murmur2", mechanism=", adaptive_weight = 0")
    frames = cells(made)
    paid = 1 + max(n for n, frame in enumerate(frames) if isinstance(decode(frame.value), Barrier))
    assert paid < len(frames)
    shard = OneShard(made, frames)
    shard.knows(*records_of(made))
    assert shard.run(paid) and shard.tags() == set()
    assert shard.run(len(frames)) == []
    assert shard.tags() == set()


def test_bound_drops_frames_of_a_refused_window():
    """Otherwise it would send sums, and keep units, of an epoch that is not paid for."""
    made = deployment(mechanism=", adaptive_weight = 0")
    (p,) = made.pipelines
    records = [start(p), *(trigger(p, n, [75 * n]) for n in range(1, 5)), beat([600])]
    frames = list(run_of(made, log_of(2), records)._logs[NAMES.units("p"), 0].records)
    clock = ClockLog({"p": p.traits.horizon}, enumerate(records_of(made)))
    stage = BoundStage(p, 0, NAMES, 1, clock, {})
    store, marker = MemoryStore(), Marker("abcdef", 0)
    stage.open(store, marker)
    sent: list[Any] = []
    for place in range(len(frames)):
        while step := stage.step(store, marker, frames[stage.position : place + 1], place + 1):
            store.write(step.rows, step.units.columns())
            marker, sent = step.marker, sent + [decode(out.value) for out in step.out]
    assert {f.window for f in sent if isinstance(f, CellsFrame)} == {0}
    assert marker.applied == len(frames) and not list(_all(store, b"u"))
