"""Rules of the protocol that need several stages, in memory; each test fails without its rule."""

from __future__ import annotations

import numpy as np
import pytest
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.stages.aggregate.nonces import steady
from hushstream.agents.stages.aggregate.secrets import Secrets
from hushstream.agents.stages.aggregate.stage import AggregateStage
from hushstream.agents.stages.bound.stage import BoundStage
from hushstream.agents.stages.feedback import Feedback
from hushstream.agents.stages.ingest.beside import Beside
from hushstream.agents.stages.ingest.stage import IngestStage
from hushstream.agents.stages.step import LogFrame
from hushstream.agents.state.memory import MemoryStore
from hushstream.errors import EngineError, RewoundError
from hushstream.mechanisms.keys import Keys
from hushstream.offline.engine import Log, OfflineEngine
from hushstream.topics.frames import (
    Barrier,
    CellsFrame,
    EventsFrame,
    EventSlice,
    decode,
    encode_barrier,
    encode_events,
)
from hushstream.topics.records import Marker

from ..support import (
    DAY,
    HOUR,
    NAMES,
    ORIGIN,
    SECRET,
    beat,
    counts,
    deployment,
    engine,
    event,
    released,
    start,
    trigger,
)
from .stepping import commit, ingest

# -- beats and cuts -------------------------------------------------------------------------------


def test_a_cut_behind_an_aborted_tail_is_reached_without_another_record():
    """Offsets 3..9 hold control records and aborted data, so only the interval's end shows it."""
    made = deployment()
    p = made.pipelines[0]
    log = [event(i, f"u{i}", "x") for i in range(3)]
    stage, store, marker, _ = ingest(made, [start(p), trigger(p, 1, [9])], log)
    step = stage.step(store, marker, log, 3)  # the list ends before the cut: no barrier yet
    assert not any(isinstance(decode(o.value), Barrier) for o in step.out)
    marker = commit(store, step)
    step = stage.step(store, marker, [], 9)  # an empty interval reaches the cut
    assert [type(decode(o.value)) for o in step.out] == [Barrier]
    assert step.marker.applied == 9


def test_an_idle_partition_sends_its_barriers():
    made = deployment(partitions=2, more='public_keys = ["x"]')
    p = made.pipelines[0]
    log = [event(i, f"u{i}", "x") for i in range(5)]
    found = engine(made, [log, []], [start(p), trigger(p, 1, [5, 0])])
    assert set(counts(found, 1)) == {"x"}


def test_a_record_takes_the_first_micro_batch_whose_cut_lies_above_it_however_late_it_is_read():
    """It is read before, between and after both triggers; the release is the same."""
    made = deployment(mechanism=", adaptive_weight = 0")
    p = made.pipelines[0]
    log = [event(i, f"u{i}", "x") for i in range(300)]
    records = [start(p), beat([90]), trigger(p, 1, [150]), beat([170]), trigger(p, 2, [300])]

    def outs(pieces):
        stage, store, marker, _ = ingest(made, records, log)
        found = []
        for end in pieces:
            step = stage.step(store, marker, log[marker.applied : end], end)
            if step is not None:
                marker = commit(store, step)
                found += step.out
        return found

    def batches(found):
        sizes: dict[int, int] = {}
        for out in found:
            taken = decode(out.value)
            if isinstance(taken, EventsFrame):
                number = taken.slice.batch
                sizes[number] = sizes.get(number, 0) + len(taken.slice.unit)
        return sizes

    assert batches(outs([300])) == {1: 150, 2: 150}
    assert batches(outs([10, 151, 152, 299, 300])) == {1: 150, 2: 150}
    assert batches(outs(range(1, 301, 13))) == {1: 150, 2: 150}


def test_future_is_judged_by_the_first_beat_that_covers_a_record():
    """Whenever the shard reads it: a later beat, which would allow it, changes nothing."""
    made = deployment()
    p = made.pipelines[0]
    log = [event(0, "a", "x", ORIGIN + DAY)]
    records = [start(p), beat([1], ORIGIN), beat([1], ORIGIN + 9 * DAY)]
    found = engine(made, [log], records)
    assert found.counts["p", "future"] == 1 and not found.counts["p", "seen"]


def test_late_is_judged_by_the_clock_log_alone():
    made = deployment()
    p = made.pipelines[0]
    log = [event(i, "a", "x", ORIGIN) for i in range(2)]
    triggers = [trigger(p, n, [1]) for n in range(1, 5)]
    found = engine(made, [log], [start(p), *triggers, beat([2])])
    assert found.counts["p", "late"] == 1 and found.counts["p", "seen"] == 1


CLOCK = ClockLog({"p": 4})  # no record yet


# -- barriers -------------------------------------------------------------------------------------


def cells_of(made, log, records, partition=0):
    """Frames that one first stage sends to a cells partition of a direct pipeline."""
    clock = ClockLog({p.name: p.traits.horizon for p in made.pipelines}, enumerate(records))
    stage = IngestStage(made.inputs[0], partition, NAMES, SECRET, clock, Beside())
    store, marker = MemoryStore(), Marker("abcdef", 0)
    stage.open(store, marker)
    step = stage.step(store, marker, log, len(log))
    return [o.value for o in step.out if "cells" in o.topic]


def aggregate(made, frames, upstreams=2):
    p = made.pipelines[0]
    stage = AggregateStage(p, 0, NAMES, Secrets(SECRET, steady), upstreams, CLOCK)
    store, marker, outs = MemoryStore(), Marker("abcdef", 0), []
    stage.open(store, marker)
    log = [LogFrame(n, value) for n, value in enumerate(frames)]
    while (step := stage.step(store, marker, log[stage.position :], len(log))) is not None:
        marker = commit(store, step)
        outs.append((stage.position, step))
    return outs


def barrier(p, number, origin, cut=(0, 0)):
    return encode_barrier(Barrier(origin, trigger(p, number, cut), np.zeros(0, np.int64)))


PUBLIC = deployment(partitions=2, more='public_keys = ["x"]', mechanism=", adaptive_weight = 0")


def test_a_release_waits_for_the_barriers_of_all_upstream_partitions():
    p = PUBLIC.pipelines[0]
    assert aggregate(PUBLIC, [barrier(p, 1, 0), barrier(p, 2, 0)]) == []
    outs = aggregate(PUBLIC, [barrier(p, 1, 0), barrier(p, 2, 0), barrier(p, 1, 1)])
    assert {position for position, _ in outs} == {3}  # at exactly that position of the log


def test_a_shard_keeps_the_time_of_the_last_release_that_it_has_published():
    p = PUBLIC.pipelines[0]
    outs = aggregate(PUBLIC, [barrier(p, number, 0) for number in (1, 2)], upstreams=1)
    told = [(step.marker.closed.get("p", 0), step.marker.released) for _, step in outs]
    times = [0, *(trigger(p, number, (0, 0)).scheduled // 1000 for number in (1, 2))]
    assert {closed for closed, _ in told} == {0, 1, 2}
    assert all(released == times[closed] for closed, released in told)


def test_a_repartitioned_stage_passes_a_barrier_on_once_all_upstreams_have_sent_it():
    p = PUBLIC.pipelines[0]
    stage, store, marker = BoundStage(p, 0, NAMES, 2, CLOCK, {}), MemoryStore(), Marker("abcdef", 0)
    frames = [barrier(p, 1, 0), barrier(p, 2, 0), barrier(p, 1, 1)]
    first = stage.step(store, marker, [LogFrame(n, f) for n, f in enumerate(frames[:2])], 2)
    assert first.out == []
    then = stage.step(store, first.marker, [LogFrame(2, frames[2])], 3)
    assert [decode(o.value).trigger.ordinal for o in then.out] == [1] * p.cells_partitions


def test_a_missing_barrier_stops_the_stage():
    p = PUBLIC.pipelines[0]
    with pytest.raises(
        RewoundError, match="that of trigger 1 was expected, that of trigger 2 came"
    ):
        aggregate(PUBLIC, [barrier(p, 2, 0)])
    stage = BoundStage(p, 0, NAMES, 2, CLOCK, {})
    with pytest.raises(RewoundError, match="barrier is missing"):
        stage.step(MemoryStore(), Marker("abcdef", 0), [LogFrame(0, barrier(p, 2, 0))], 1)


def test_frames_ahead_of_the_open_micro_batch_touch_nothing_of_its_release():
    """One upstream is a whole micro-batch ahead; not even the existence of a key may show."""
    made = deployment(units=2)
    p = made.pipelines[0]
    early = [event(i, f"u{i}", "early") for i in range(150)]
    late = [event(150 + i, f"u{i}", "late") for i in range(150)]
    log = early + late
    alone = engine(made, [early], [start(p), trigger(p, 1, [150])])
    both = engine(made, [log], [start(p), trigger(p, 1, [150]), trigger(p, 2, [300])])
    first = [o for o in released(both) if b'"trigger":1' in o[1]]
    assert first == released(alone) and first


def test_a_key_or_unit_of_another_partition_is_refused():
    made = deployment(units=2, cells=2)
    p = made.pipelines[0]
    keys = Keys.of([b"k"])
    unit = np.zeros((1, 16), np.uint8)
    one = EventSlice(0, 1, unit, keys, np.zeros(1, np.intp), np.zeros((1, 0), np.int64),
                np.ones(1, np.int8))  # fmt: skip
    (frame,) = encode_events(0, one)
    wrong = BoundStage(p, 1, NAMES, 1, CLOCK, {})  # the digest of zeros belongs to partition 0
    with pytest.raises(EngineError, match="wrong units partition"):
        wrong.step(MemoryStore(), Marker("abcdef", 0), [LogFrame(0, frame)], 1)
    right = BoundStage(p, 0, NAMES, 1, CLOCK, {"p": Feedback(2)})
    good = right.step(MemoryStore(), Marker("abcdef", 0), [LogFrame(0, frame)], 1)
    (out,) = good.out
    stage = AggregateStage(p, 1 - out.partition, NAMES, Secrets(SECRET, steady), 1, CLOCK)
    stage.open(MemoryStore(), Marker("abcdef", 0))
    with pytest.raises(EngineError, match="wrong cells partition"):
        stage.step(MemoryStore(), Marker("abcdef", 0), [LogFrame(0, out.value)], 1)
    assert isinstance(decode(out.value), CellsFrame)


# -- state after steps that failed --------------------------------------------------------------


def test_a_failed_step_does_not_free_unit_rows_of_an_epoch_that_is_open_again():
    """The last trigger was computed but not committed; the repeated step is shorter."""
    made = deployment(partitioner="murmur2", mechanism=", adaptive_weight = 0")
    p = made.pipelines[0]
    log = [event(i, "a" if i < 2 else "b", f"p{i % 8}", ORIGIN + HOUR) for i in range(10)]
    last = [trigger(p, n, [10]) for n in range(1, 5)]
    stage, store, marker, _ = ingest(made, [start(p), beat([2]), *last], log)
    marker = commit(store, stage.step(store, marker, log[:2], 2))
    rows = list(store.scan(b"u", b"v"))
    assert len(rows) == 1
    failed = stage.step(store, marker, log[2:], 10)
    assert failed.marker.clock == 6  # up to the last trigger; its transaction fails
    stage.open(store, marker)
    redone = stage.step(store, marker, log[2:4], 4)
    commit(store, redone)
    assert len(list(store.scan(b"u", b"v"))) == 2  # else the first one would begin a second bound


def test_a_failed_step_of_the_units_stage_frees_nothing_either():
    p = deployment().pipelines[0]
    records = [start(p), *(trigger(p, n, (0,)) for n in range(1, 5))]
    stage = BoundStage(p, 0, NAMES, 1, ClockLog({"p": 4}, enumerate(records)), {})
    store, marker = MemoryStore(), Marker("abcdef", 0)
    stage.open(store, marker)
    frames = [LogFrame(n, barrier(p, n + 1, 0, (0,))) for n in range(4)]
    row = b"u" + (0).to_bytes(2, "big") + (1 << 63).to_bytes(8, "big") + b"x" * 16
    store.write({row: b"row"})
    failed = stage.step(store, marker, frames, 4)  # saw the last trigger
    assert failed.marker.closed == {"p": 4} and not failed.rows
    stage.open(store, marker)
    redone = stage.step(store, marker, frames[:1], 1)
    assert not redone.rows
    marker = commit(store, redone)
    marker = commit(store, stage.step(store, marker, frames[1:], 4))
    assert stage.step(store, marker, [], 4).rows == {row: None}  # the last trigger is committed now


# -- epochs of several windows --------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 5, 7, 1000])
def test_units_use_up_a_shared_bound_in_log_order_wherever_steps_end(monkeypatch, size):
    """Two windows share an epoch; the log alone decides which records are accepted."""
    made = deployment(
        partitioner="murmur2", mechanism=", adaptive_weight = 0",
        more='epoch = "2d"\npublic_keys = ["x", "y"]',
    )  # fmt: skip
    p = made.pipelines[0]
    rng = np.random.default_rng(3)
    days, pages = rng.integers(0, 2, 300), rng.integers(0, 2, 300)
    log = [
        event(i, f"u{i % 40}", "xy"[page], ORIGIN + int(day) * DAY)
        for i, (day, page) in enumerate(zip(days, pages, strict=True))
    ]
    ends = [trigger(p, n + 1 + 4 * w, [300], window=w) for w in (0, 1) for n in range(4)]
    whole = engine(made, [log], [start(p), *ends])
    monkeypatch.setattr("hushstream.agents.stages.ingest.stage.EVENTS", size)
    assert released(engine(made, [log], [start(p), *ends])) == released(whole)
    assert whole.counts["p", "accepted"] < 300  # the bound did cut records


# -- the same path, any number of virtual shards --------------------------------------------------


def test_logs_of_the_engine_in_memory():
    log = Log([event(2, "a", "x"), event(5, "a", "x")])
    assert log.end == 6 and Log().end == 0 and Log([], 7).end == 7
    assert [r.offset for r in log.since(3, 10)[0]] == [5]
    assert [r.offset for r in log.since(0, 1)[0]] == [2]


def test_progress_counts_every_event_once_per_pipeline():
    made = deployment(pipelines=("p", "q"))
    log = [event(i, f"u{i}", "x") for i in range(40)]
    told: list[int] = []
    records = [*(start(p) for p in made.pipelines), beat([40])]
    entries = list(enumerate(records))
    run = OfflineEngine(made, NAMES, SECRET, {("events", 0): log}, entries)
    run.run(told.append)
    assert sum(told) >= 80
