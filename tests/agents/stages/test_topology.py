"""The stages in memory: same logs, same bytes, whatever the sharding and the cuts of steps.

Covers: agents/stages/expiry.py
Covers: agents/stages/step.py
Covers: agents/stages/ingest/stage.py
Covers: agents/stages/ingest/slicer.py
Covers: agents/stages/bound/bounder.py
Covers: agents/stages/aggregate/stage.py
Covers: agents/stages/aggregate/computation.py
Covers: agents/stages/aggregate/partial_sums.py
"""

from __future__ import annotations

import json
import tracemalloc
from collections import defaultdict
from typing import Any

import hushstream.agents.stages.topology as topology
import numpy as np
import pytest
from hushstream.agents.stages.aggregate.stage import AggregateStage
from hushstream.agents.stages.bound.stage import BoundStage
from hushstream.agents.stages.ingest.unit_digests import hashed
from hushstream.errors import EngineError
from hushstream.formats.events.decode import RawRecord
from hushstream.mechanisms.keys import Keys
from hushstream.topics.frames import CellsFrame
from hushstream.topics.records import Retired
from hushstream.topics.releases import MANIFEST, MANIFEST_SCHEMA, ROW, ROW_SCHEMA
from hypothesis import given, settings
from hypothesis import strategies as st

from ...support import (
    DAY,
    HOUR,
    NAMES,
    ORIGIN,
    beat,
    counts,
    deployment,
    engine,
    event,
    released,
    start,
    trigger,
)

STAGES = "hushstream.agents.stages"


def workload(n: int, seed: int, spread: int = DAY) -> list[tuple[str, str, int]]:
    rng = np.random.default_rng(seed)
    users = rng.integers(0, 120, n)
    pages = np.minimum(rng.geometric(0.3, n), 9)
    times = np.sort(rng.integers(0, spread, n))
    return [
        (f"u{u}", f"p{p}", ORIGIN + int(t)) for u, p, t in zip(users, pages, times, strict=True)
    ]


def logs_of(events: list[tuple[str, str, int]], partitions: int) -> list[list[RawRecord]]:
    """Events by user, so that a unit's own order is the same for any number of partitions."""
    logs: list[list[RawRecord]] = [[] for _ in range(partitions)]
    for user, page, time in events:
        log = logs[int(user[1:]) % partitions]
        log.append(event(len(log), user, page, time))
    return logs


def clock(made, logs, quarters=4):
    """Four triggers of the first window; cuts by event time."""
    out = [start(p) for p in made.pipelines]
    for number in range(1, quarters + 1):
        until = ORIGIN + number * 6 * HOUR
        cut = [sum(1 for r in log if json.loads(r.value)["t"] < until) for log in logs]
        out += [trigger(p, number, cut) for p in made.pipelines]
    return out


def run(events, partitions=1, **options):
    made = deployment(partitions=partitions, **options)
    logs = logs_of(events, partitions)
    return engine(made, logs, clock(made, logs))


BASE = workload(3000, 0)


@pytest.mark.parametrize("partitions,units,cells", [(1, 3, 1), (3, 1, 2), (2, 4, 3)])
@pytest.mark.parametrize("mechanism", ["", ", adaptive_weight = 0"])
def test_any_sharding_releases_the_same_bytes(partitions, units, cells, mechanism):
    whole = released(run(BASE, mechanism=mechanism))
    parts = released(run(BASE, partitions, units=units, cells=cells, mechanism=mechanism))
    assert whole == parts
    assert len(whole) > 10


def test_direct_and_repartitioned_streams_release_the_same_values():
    # The declared partitioner decides where a unit's records must lie.
    made = deployment(partitions=2, partitioner="murmur2")
    homes = {u: int(hashed(Keys.of([u.encode()]), "murmur2")[0] % 2) for u, _, _ in BASE}
    logs: list[list[RawRecord]] = [[], []]
    for user, page, time in BASE:
        logs[homes[user]].append(event(len(logs[homes[user]]), user, page, time))
    direct = engine(made, logs, clock(made, logs))
    assert counts(direct, 4).keys() == counts(run(BASE), 4).keys()
    assert not any("invalid" in outcome for _, outcome in direct.counts)


@pytest.mark.parametrize("size", [7, 333])
def test_the_size_of_steps_changes_nothing(monkeypatch, size):
    whole = released(run(BASE))
    monkeypatch.setattr(f"{STAGES}.ingest.stage.EVENTS", size)
    monkeypatch.setattr(f"{STAGES}.bound.stage.FRAMES", 3)
    assert released(run(BASE)) == whole  # a step of bound takes all of these small frames
    monkeypatch.setattr(f"{STAGES}.bound.stage.FRAME_BYTES", 0)
    assert released(run(BASE)) == whole


@pytest.mark.parametrize("chunk,spill", [(2, 1), (3, 5), (100, 2)])
def test_spilling_and_releasing_in_chunks_change_nothing(monkeypatch, chunk, spill):
    whole = released(run(BASE))
    monkeypatch.setattr(f"{STAGES}.aggregate.computation.CHUNK", chunk)
    monkeypatch.setattr(f"{STAGES}.aggregate.partial_sums.SPILL", spill)
    monkeypatch.setattr(f"{STAGES}.bound.stage.FRAMES", 2)
    monkeypatch.setattr(f"{STAGES}.bound.stage.FRAME_BYTES", 0)
    monkeypatch.setattr(f"{STAGES}.ingest.stage.EVENTS", 200)
    assert released(run(BASE)) == whole


@pytest.mark.parametrize("size", [1, 40, 3000])
def test_dividing_steps_by_bytes_changes_nothing(monkeypatch, size):
    whole = released(run(BASE))
    for name in ("bound.stage.LARGE", "bound.stage.TOGETHER", "aggregate.computation.CHUNK",
                 "aggregate.partial_sums.SPILL", "aggregate.stage.RELEASED"):  # fmt: skip
        monkeypatch.setattr(f"{STAGES}.{name}_BYTES", size)
    monkeypatch.setattr(f"{STAGES}.ingest.stage.EVENTS", 200)
    assert released(run(BASE)) == whole


@pytest.mark.thorough
def test_a_step_takes_memory_by_a_few_megabytes_of_keys_however_many_come(monkeypatch):
    """Without bounds in bytes a release of these keys took 700 MB, and none of its steps less."""
    most: dict[str, int] = defaultdict(int)
    for stage in (AggregateStage, BoundStage):
        monkeypatch.setattr(stage, "step", measured(stage.step, most, stage.__name__))
    monkeypatch.setattr(f"{STAGES}.ingest.stage.EVENTS", 9000)  # `step_bytes` of such records
    made = deployment(mechanism=", adaptive_weight = 0", units=1, cells=1)
    (p,) = made.pipelines
    log = [event(i, f"u{i}", f"{i * 7919 % 100_003:06d}" + "k" * 1000) for i in range(40_000)]
    tracemalloc.start()
    try:
        found = engine(made, [log], [start(p), trigger(p, 1, [len(log)])])
    finally:
        tracemalloc.stop()
    assert found.counts["p", "manifests"] == 1
    assert set(most) == {"AggregateStage", "BoundStage"}
    assert max(most.values()) < 100 << 20, most


def measured(step: Any, most: dict[str, int], name: str) -> Any:
    """A stage's step that notes the memory that it has taken at most."""

    def run(*given: Any) -> Any:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        out = step(*given)
        most[name] = max(most[name], tracemalloc.get_traced_memory()[1] - before)
        return out

    return run


def test_public_keys_are_released_at_every_trigger_even_without_a_record():
    more = 'public_keys = ["p1", "p2", "nobody"]'
    found = run(BASE, more=more)
    for index in range(1, 5):
        assert set(counts(found, index)) == {"p1", "p2", "nobody"}
    truth = sum(1 for _, page, _ in BASE if page == "p1")
    assert abs(counts(found, 4)["p1"] - truth) < truth  # bounded, and noisy


def test_nothing_of_the_next_micro_batch_is_in_a_release():
    """A page whose only records come after the first cut is not there at the first trigger."""
    events = [(f"u{i}", "early", ORIGIN) for i in range(90)]
    events += [(f"u{i}", "late", ORIGIN + 7 * HOUR) for i in range(90)]
    found = run(events)
    assert set(counts(found, 1)) == {"early"}
    assert set(counts(found, 2)) == {"early", "late"}


def test_a_cut_in_the_middle_of_a_list_splits_it_there():
    made = deployment(mechanism=", adaptive_weight = 0")
    p = made.pipelines[0]
    log = [event(i, f"u{i}", "x") for i in range(200)]
    first = engine(made, [log], [start(p), trigger(p, 1, [60]), trigger(p, 2, [200])])
    alone = engine(made, [log[:60]], [start(p), trigger(p, 1, [60])])
    assert counts(first, 1) == counts(alone, 1)
    assert counts(first, 2)["x"] - counts(first, 1)["x"] > 100


def test_no_event_is_used_before_a_beat_has_passed_it():
    made = deployment(more='public_keys = ["x"]')
    p = made.pipelines[0]
    log = [event(i, f"u{i}", "x") for i in range(200)]
    found = engine(made, [log], [start(p), beat([50])])
    assert found.counts["p", "seen"] == 50


def test_late_and_future_records_are_kept_apart():
    made = deployment()
    p = made.pipelines[0]
    now = ORIGIN + 2 * DAY
    log = [
        event(0, "a", "x", ORIGIN - 1),  # before the first window
        event(1, "a", "x", ORIGIN + 3 * DAY),  # further ahead than five minutes
        event(2, "a", "x", now + 60_000_000),  # within the allowed skew
        event(3, "a", "x", ORIGIN),
    ]
    records = [start(p), beat([4], now)]
    found = engine(made, [log], records)
    assert (found.counts["p", "late"], found.counts["p", "future"]) == (1, 1)
    assert found.counts["p", "seen"] == 2
    reasons = [dict(o.headers)["__streams.errors.reason"] for o in found.outs["hush.p.late"]]
    assert sorted(reasons) == [b"future", b"late"]


@pytest.mark.parametrize("partitioner", ["none", "murmur2"])
def test_records_beyond_the_end_of_a_pipeline_are_neither_used_nor_lost(partitioner):
    made = deployment(partitioner=partitioner)
    p = made.pipelines[0]
    log = [
        event(0, "a", "x", ORIGIN - 1),
        event(1, "a", "x", ORIGIN + DAY - 1),
        event(2, "a", "x", ORIGIN + DAY),
        event(3, "a", "x", ORIGIN + DAY),
        event(4, "a", "x", ORIGIN + 5 * DAY),
    ]
    now = ORIGIN + 4 * DAY
    ended = Retired("p", 1, now)
    # The first record of the second window came before the end was known; nothing releases it.
    records = [start(p), beat([3], now), ended, beat([5], now)]
    found = engine(made, [log], records)
    assert (found.counts["p", "late"], found.counts["p", "future"]) == (1, 1)
    assert (found.counts["p", "retired"], found.counts["p", "seen"]) == (1, 2)
    assert len(found.outs["hush.p.late"]) == 2


def test_a_window_that_had_its_last_trigger_takes_no_more():
    made = deployment()
    p = made.pipelines[0]
    log = [event(i, "a", "x") for i in range(4)]
    cuts = [trigger(p, n, [2]) for n in range(1, 5)]
    found = engine(made, [log], [start(p), *cuts, beat([4])])
    assert found.counts["p", "late"] == 2


def test_bad_records_go_to_the_dead_letters_and_the_rest_goes_on():
    made = deployment(more='public_keys = ["x"]')
    p = made.pipelines[0]
    good = event(2, "a", "x")
    bad = [RawRecord(0, 5, b"k", b"{oops"), RawRecord(1, 5, None, None)]
    found = engine(made, [[*bad, good]], [start(p), beat([3])])
    assert found.counts["p", "seen"] == 1
    letters = found.outs["hush.p.dlq"]
    headers = [dict(o.headers) for o in letters]
    assert [h["__streams.errors.reason"] for h in headers] == [b"malformed", b"null"]
    assert [h["__streams.errors.offset"] for h in headers] == [b"0", b"1"]
    assert letters[0].value == b"{oops" and letters[0].key == b"k"
    assert dict(letters[0].headers)["__streams.errors.timestamp"] == b"5"


def test_several_pipelines_share_the_decoding_of_their_input(monkeypatch):
    import hushstream.formats.events.decode as events

    calls: list[int] = []
    original = events.Decoder.decode

    def counted(self, records, *more):
        calls.append(len(records))
        return original(self, records, *more)

    monkeypatch.setattr(events.Decoder, "decode", counted)
    found = run(BASE[:500], pipelines=("p", "q"))
    assert sum(calls) == 500
    assert counts(found, 4) and counts(found, 4, "hush.q.releases.v1")


def test_pipelines_and_charges_have_noise_of_their_own():
    found = run(BASE, pipelines=("p", "q"))
    assert counts(found, 4) != counts(found, 4, "hush.q.releases.v1")
    made = deployment(more='public_keys = ["x", "y", "z", "a", "b"]')
    p = made.pipelines[0]
    one, other = (
        engine(made, [[]], [start(p), trigger(p, 1, [0], charge=c * 32)]) for c in ("ab", "cd")
    )
    assert counts(one, 1) != counts(other, 1)


def test_a_unit_on_the_wrong_partition_is_refused_as_the_declared_partitioner_says():
    made = deployment(partitions=2, partitioner="crc32")
    p = made.pipelines[0]
    home = int(hashed(Keys.of([b"a"]), "crc32")[0] % 2)
    logs: list[list[RawRecord]] = [[], []]
    logs[home] = [event(0, "a", "x")]
    logs[1 - home] = [event(0, "a", "x"), event(1, "a", "x")]
    found = engine(made, logs, [start(p), beat([len(log) for log in logs])])
    assert found.counts["p", "seen"] == 1
    assert found.counts["p", "invalid:wrong_partition"] == 2


def test_a_trigger_that_was_charged_for_another_configuration_stops_the_stage():
    made = deployment()
    p = made.pipelines[0]
    wrong = trigger(p, 1, [0])
    wrong = type(wrong)(**{**{f: getattr(wrong, f) for f in wrong.__struct_fields__},
                           "config_hash": "other"})  # fmt: skip
    with pytest.raises(EngineError, match="charged another configuration"):
        engine(made, [[]], [start(p), wrong])


def test_a_gap_in_the_clock_log_stops_the_stage():
    made = deployment()
    p = made.pipelines[0]
    with pytest.raises(EngineError, match="gap"):
        engine(made, [[]], [start(p), trigger(p, 2, [0], index=2)])


def test_releases_hold_nothing_but_what_the_mechanism_released():
    """Canary: users, offsets, input counts and headers appear nowhere in what is public."""
    made = deployment(mechanism=", adaptive_weight = 0")
    p = made.pipelines[0]
    # Offsets are far from what is counted: each user's records beyond the bound are cut off.
    log = [event(7_000_000 + i, f"user-canary-{i % 30}", "page") for i in range(4321)]
    cut = [7_000_000 + len(log)]
    found = engine(made, [log], [start(p), *(trigger(p, n, cut) for n in range(1, 5))])
    outs = found.outs[p.release_topic]
    assert outs
    for out in outs:
        name, schema = out.headers[0]
        assert len(out.headers) == 1 and (name, schema.decode()) in {
            (ROW, ROW_SCHEMA),
            (MANIFEST, MANIFEST_SCHEMA),
        }
        assert not any(c in (out.value or b"") for c in (b"canary", b"4321", b"7004321"))
        assert (out.timestamp or 0) * 1000 in p.windows.times(0)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 3))
def test_the_bound_holds_for_any_partitioning_and_cut(seed, partitions, units):
    """Public keys and one unit: what it adds to all keys together stays within Q = 4."""
    rng = np.random.default_rng(seed)
    pages = [f"p{i}" for i in rng.integers(0, 3, 60)]
    made = deployment(partitions=partitions, units=units, cells=2)
    p = made.pipelines[0]
    logs: list[list[RawRecord]] = [[] for _ in range(partitions)]
    for page in pages:
        log = logs[int(rng.integers(partitions))]
        log.append(event(len(log), "only", page))
    total: dict[bytes, int] = defaultdict(int)

    class Spy(AggregateStage):
        def _take(self, frame, marker):
            if isinstance(frame, CellsFrame):
                for key, count in zip(frame.part.key, frame.part.sums[:, 0].tolist(), strict=True):
                    total[key] += count
            return super()._take(frame, marker)

    topology.AggregateStage = Spy
    try:
        engine(made, logs, [start(p), trigger(p, 1, [len(log) for log in logs])])
    finally:
        topology.AggregateStage = AggregateStage
    assert 0 < sum(m * m for m in total.values()) <= 4


@pytest.mark.parametrize("partitioner", ["none", "murmur2"])
def test_a_shard_writes_where_it_says_and_nowhere_else(partitioner, monkeypatch):
    made = deployment(partitions=3, units=2, cells=2, partitioner=partitioner)
    named, seen = topology.Topology(made, NAMES), defaultdict(set)
    make = topology.StageFactory.make

    def watched(self, spec, partition):
        stage = make(self, spec, partition)
        step = stage.step

        def taken(*words):
            done = step(*words)
            for out in done.out if done else ():
                seen[spec.topic, partition].add((out.topic, out.partition))
            return done

        monkeypatch.setattr(stage, "step", taken)
        return stage

    monkeypatch.setattr(topology.StageFactory, "make", watched)
    logs: list[list[RawRecord]] = [[] for _ in range(3)]
    for user, page, time in workload(600, 1):
        log = logs[int(hashed(Keys.of([user.encode()]), "murmur2")[0] % 3)]
        log.append(event(len(log), user, page, time))
    engine(made, logs, clock(made, logs))
    for (topic, partition), places in seen.items():
        spec = named.of(topic, partition)
        own, public = named.written(spec, partition)
        assert places <= own | public
        assert [n for log, n in own if log == spec.changelog] == [partition]
    assert {topic for places in seen.values() for topic, _ in places} == {
        "hush.p.releases.v1", "hush.p.latest.v1", NAMES.selected("p"),
    } | ({NAMES.cells("p")} if partitioner == "none" else set())  # fmt: skip
    own, public = named.written(named.of("events", 1), 1)
    next_, log = NAMES.units if partitioner == "none" else NAMES.cells, NAMES.changelog
    assert own == {(next_("p"), 0), (next_("p"), 1), (log("ingest", "events"), 1)}
    assert public == {("hush.p.dlq", 0), ("hush.p.late", 0)}
