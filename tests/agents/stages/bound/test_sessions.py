"""Sessions on a bound shard: log and cuts alone decide what each trigger counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.deployment.model import Deployment
from hushstream.agents.stages.bound import sessions
from hushstream.agents.stages.bound.stage import BoundStage
from hushstream.agents.stages.feedback import feedback_of
from hushstream.agents.stages.step import LogFrame
from hushstream.agents.state.layout import after, sessions_of
from hushstream.agents.state.memory import MemoryStore
from hushstream.errors import EngineError
from hushstream.formats.events.expressions.conditions import NumberIn, TextIn
from hushstream.formats.events.fields import NumericField
from hushstream.mechanisms.keys import Keys
from hushstream.topics.frames import (
    Barrier,
    CellsFrame,
    EventSlice,
    decode,
    encode_barrier,
    encode_events,
)
from hushstream.topics.records import Marker, Selected, Skipped, Start, encode

from ....support import DAY, HOUR, NAMES, ORIGIN, deployment, trigger

MINUTE = HOUR // 60
GAP = 30 * MINUTE
MORE = 'session = "30m"\nlateness = "30m"\n'
EVENTS = 'aggregate = [{ kind = "sum", field = "session_events", low = 0, high = 9 }]\n'
Sums = dict[tuple[int, int, bytes], list[int]]  # (window, batch, key) -> sums


def made(more: str = MORE + EVENTS, mechanism: str = ", adaptive_weight = 0") -> Deployment:
    return deployment(cells=1, mechanism=mechanism, more=more)


def frame(
    records: Sequence[tuple[str, str, int]], batch: int = 1, origin: int = 0, window: int = 0
) -> bytes:
    """Records of one window: unit, page, and minutes since the origin."""
    keys, key = Keys.of(json.dumps([page]).encode() for _, page, _ in records).unique()
    unit = np.array([list(user.encode().ljust(16)) for user, _, _ in records], np.uint8)
    time = np.array([[ORIGIN + minute * MINUTE] for _, _, minute in records], np.int64)
    one = EventSlice(window, batch, unit, keys, key, time, np.ones(len(records), np.int8))
    (value,) = encode_events(origin, one)
    return value


def barrier(made: Deployment, ordinal: int, origin: int = 0, window: int = 0) -> bytes:
    p = made.pipelines[0]
    one = trigger(p, ordinal, [9], window)
    return encode_barrier(Barrier(origin, one, np.zeros(0, np.int64)))


class Run:
    """A bound shard that takes a log step by step."""

    def __init__(self, made: Deployment, upstreams: int = 1) -> None:
        self.clock = ClockLog({"p": 4})
        self.feedback = feedback_of(made)
        self.stage = BoundStage(
            made.pipelines[0], 0, NAMES, upstreams, self.clock, self.feedback, "events"
        )
        self.store, self.marker = MemoryStore(), Marker("g", 0)
        self.sums: Sums = {}
        self.counts: Counter[str] = Counter()
        self.barriers: list[int] = []
        self.steps = 0
        self.stage.open(self.store, self.marker)

    def play(self, log: Sequence[bytes], size: int = 1000, crash: bool = False) -> Run:
        most = self.steps + 4 * len(log)
        while self.marker.applied < len(log):
            assert self.steps < most, "its steps get nowhere"
            begin = self.marker.applied
            frames = [LogFrame(n, log[n]) for n in range(begin, min(begin + size, len(log)))]
            step = self.stage.step(self.store, self.marker, frames, begin + len(frames))
            assert step is not None
            self.steps += 1
            if crash and self.steps % 2:
                self.stage.open(self.store, self.marker)  # the transaction was not committed
                continue
            for out in step.out:
                one = decode(out.value or b"")
                if isinstance(one, CellsFrame):
                    rows = zip(one.part.key.tolist(), one.part.sums.tolist(), strict=True)
                    for key, row in rows:
                        place = one.window, one.batch, key
                        before = self.sums.get(place, [0] * len(row))
                        self.sums[place] = [a + b for a, b in zip(before, row, strict=True)]
                elif isinstance(one, Barrier):
                    self.barriers.append(one.trigger.ordinal)
            self.counts.update({what: number for (_, what), number in step.counts.items()})
            self.store.write(step.rows, step.units.columns())
            self.marker = step.marker
        return self

    def open(self) -> int:
        return len(list(self.store.scan(sessions_of(0), after(sessions_of(0)))))


def test_a_trigger_counts_the_sessions_that_ended_before_it() -> None:
    one = made()
    run = Run(one).play([
        frame([("a", "p", 10), ("a", "p", 35), ("b", "p", 100), ("a", "q", 20)]),
        frame([("b", "p", 355), ("b", "p", 362)]),  # still open at six o'clock
        barrier(one, 1),
        frame([("c", "p", 719)], 2),
        barrier(one, 2), barrier(one, 3), barrier(one, 4),
    ])  # fmt: skip
    p, q = b'["p"]', b'["q"]'
    counted = {place: sums[0] for place, sums in run.sums.items()}
    assert counted == {(0, 1, p): 2, (0, 1, q): 1, (0, 2, p): 2}
    middle = 4  # of the interval from 0 to 9; sums are measured from it
    events = {place: sums[1] + middle * sums[0] for place, sums in run.sums.items()}
    assert events == {(0, 1, p): 3, (0, 1, q): 1, (0, 2, p): 3}
    assert run.barriers == [1, 2, 3, 4] and run.open() == 0
    assert run.counts == {"seen": 5, "accepted": 5}


def test_the_last_trigger_of_a_window_closes_all_of_it_and_an_epoch_cuts() -> None:
    one = made()
    run = Run(one).play([
        frame([("a", "p", 24 * 60 - 1)]), frame([("a", "p", 24 * 60 + 1)], window=1),
        *(barrier(one, ordinal) for ordinal in range(1, 5)),
    ])  # fmt: skip
    assert {place: sums[0] for place, sums in run.sums.items()} == {(0, 4, b'["p"]'): 1}
    assert run.open() == 1  # the session of the next epoch
    run = Run(made(MORE + 'epoch = "2d"\n' + EVENTS)).play([
        frame([("a", "p", 24 * 60 - 1)]), frame([("a", "p", 24 * 60 + 1)], window=1),
        *(barrier(one, ordinal) for ordinal in range(1, 5)),
        *(barrier(one, ordinal, window=1) for ordinal in range(5, 9)),
    ])  # fmt: skip
    assert {place: sums[0] for place, sums in run.sums.items()} == {(1, 1, b'["p"]'): 1}


def many(seed: int = 1) -> list[tuple[str, str, int]]:
    random = np.random.default_rng(seed)
    return [
        (f"u{random.integers(40)}", f"p{random.integers(3)}", int(random.integers(24 * 60)))
        for _ in range(400)
    ]


def long_log(
    one: Deployment, upstreams: int, seed: int, records: list[tuple[str, str, int]]
) -> list[bytes]:
    """A log of several upstreams with their frames and barriers mixed at random.

    The cut of each trigger comes after the records that continue its sessions.
    """
    random, logs = np.random.default_rng(seed), []
    for origin in range(upstreams):
        mine = [r for n, r in enumerate(records) if n % upstreams == origin]
        log = []
        for ordinal in range(1, 5):
            new = [r for r in mine if ordinal == min(max(r[2] - 30, 0) // 360 + 1, 4)]
            log += [frame([r], ordinal, origin) for r in new]
            log += [barrier(one, ordinal, origin)]
        logs.append(log)
    mixed = []
    while left := [log for log in logs if log]:
        mixed.append(left[random.integers(len(left))].pop(0))
    return mixed


@pytest.mark.spread(2)
@pytest.mark.parametrize("upstreams", [1, 2])
def test_neither_steps_nor_crashes_nor_other_upstreams_change_what_is_counted(
    monkeypatch: pytest.MonkeyPatch, upstreams: int
) -> None:
    """Each upstream's log and its cuts determine the content of a micro-batch."""
    one, records = made(), many()
    whole = Run(one, upstreams).play(long_log(one, upstreams, 1, records))
    assert sum(sums[0] for sums in whole.sums.values()) > 100
    monkeypatch.setattr(sessions, "ROWS", 7)
    for seed, size, crash in ((1, 5, True), (2, 1, False), (3, 1000, True)):
        run = Run(one, upstreams).play(long_log(one, upstreams, seed, records), size, crash)
        assert run.sums == whole.sums and run.barriers == whole.barriers == [1, 2, 3, 4]
        assert run.open() == 0
    assert run.steps > 40


def test_what_one_unit_adds_is_within_the_bound_whatever_it_sends() -> None:
    """Neighbours differ by one unit's records.

    All other sessions stay the same. The unit's own stay within Σ m² ≤ 4 over pages: the bound
    counts sessions after they end, and no unit's time depends on another's.
    """
    one, others = made(), [r for r in many() if r[0] != "u7"]
    pages = [(f"u{n % 40 if n % 40 != 7 else 0}", "p0", n) for n in range(0, 24 * 60, 3)]
    base = [*others, *pages]
    unit = [("u7", f"p{n % 2}", minute) for n, minute in enumerate(range(0, 24 * 60, 17))]
    unit += [("u7", "p2", 60 * hour) for hour in range(24)]
    without = Run(one).play(long_log(one, 1, 1, base)).sums
    with_it = Run(one).play(long_log(one, 1, 1, sorted([*base, *unit], key=lambda r: r[2]))).sums
    moved: Counter[bytes] = Counter()
    events: Counter[bytes] = Counter()
    for place in {*without, *with_it}:
        a, b = without.get(place, [0, 0]), with_it.get(place, [0, 0])
        assert b[0] >= a[0]
        moved[place[2]] += b[0] - a[0]
        events[place[2]] += abs(b[1] - a[1])
    assert 0 < sum(m * m for m in moved.values()) <= 4
    reach = 5  # a session's events are clipped to [0, 9] and measured from 4
    assert all(events[page] <= reach * m for page, m in moved.items())


def test_frames_and_barriers_wait_for_what_their_bound_depends_on() -> None:
    one = made(MORE, "")
    assert one.pipelines[0].traits.feedback
    run = Run(one)
    log = [frame([("a", "p", 10)]), barrier(one, 1), barrier(one, 2), barrier(one, 3)]
    frames = [LogFrame(n, value) for n, value in enumerate(log)]
    step = run.stage.step(run.store, run.marker, frames, 4)
    assert step is not None and step.marker.applied == 1 and step.more
    run.store.write(step.rows, step.units.columns())
    seen = []
    for released in (0, 1):
        if released:
            told = Selected(0, 1, 0, [], [], True)
            run.feedback["p"].apply(encode(told))
        marker = step.marker
        while (more := run.stage.step(run.store, marker, frames[marker.applied :], 4)) is not None:
            run.store.write(more.rows, more.units.columns())
            if more.marker.applied == marker.applied and not more.more:
                break
            marker = more.marker
            step = more
        seen.append(marker.applied)
    assert seen == [3, 4]  # trigger 3 bounds by the release of trigger 1


def test_no_session_is_closed_for_a_trigger_that_counts_partitions_unknown_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "ROWS", 1)
    one = made()
    run = Run(one).play([frame([("a", "p", 10), ("b", "p", 10)])])
    wide = trigger(one.pipelines[0], 1, [9, 9])
    frames = [LogFrame(1, encode_barrier(Barrier(0, wide, np.zeros(0, np.int64))))]
    with pytest.raises(EngineError, match="start it again"):
        run.stage.step(run.store, run.marker, frames, 2)


def test_a_condition_on_a_text_finds_none_in_what_counts_events() -> None:
    """A value has one type: two conditions of different types exclude each other."""
    pipeline = made().pipelines[0]
    assert pipeline.sessions is not None
    text = TextIn("session_events", ("x",), denied=True)
    number = NumberIn("session_events", (Fraction(3),))
    counted = [
        NumericField(None, Fraction(0), Fraction(1), Fraction(1), where) for where in (text, number)
    ]
    fields = replace(pipeline.sessions.fields, columns=tuple(counted))
    pipeline = replace(pipeline, sessions=replace(pipeline.sessions, fields=fields))
    one = np.array([ORIGIN], np.int64)
    value, _ = sessions.values_of(pipeline, one, one, np.array([3], np.int64))
    assert value.tolist() == [[0, 1]]


def test_sessions_of_a_refused_epoch_are_forgotten() -> None:
    one = made()
    run = Run(one).play([frame([("a", "p", 10)])])
    assert run.open() == 1
    for place, record in enumerate((Start("p", 0, 0), Skipped("p", 0, 0, DAY, 1))):
        run.clock.append(place, record)
    step = run.stage.step(run.store, run.marker, [], 1)
    assert step is not None
    run.store.write(step.rows, step.units.columns())
    assert run.open() == 0 and not step.out
