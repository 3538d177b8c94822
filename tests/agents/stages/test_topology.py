"""The stages in memory: same logs, same bytes, whatever the sharding and the cuts of steps.

Covers: agents/stages/expiry.py
Covers: agents/stages/step.py
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
from hushstream.formats.events.decode import RawRecord
from hushstream.mechanisms.keys import Keys
from hushstream.topics.frames import CellsFrame
from hushstream.topics.releases import MANIFEST, MANIFEST_SCHEMA, ROW, ROW_SCHEMA
from hypothesis import given, settings
from hypothesis import strategies as st

from ...support import (
    DAY,
    HOUR,
    NAMES,
    ORIGIN,
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
    """Events by user, so that a unit's own order does not depend on the number of partitions."""
    logs: list[list[RawRecord]] = [[] for _ in range(partitions)]
    for user, page, time in events:
        log = logs[int(user[1:]) % partitions]
        log.append(event(len(log), user, page, time))
    return logs


def clock(made, logs, quarters=4):
    """Four triggers of the first window, with cuts by event time."""
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
    # The declared partitioner decides the partition of a unit's records.
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
    """Before limits in bytes, a release of these keys took 700 MB in a single step."""
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
    """A stage's step that notes the most memory that it took."""

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
    assert abs(counts(found, 4)["p1"] - truth) < truth  # bounded and noisy


def test_nothing_of_the_next_micro_batch_is_in_a_release():
    """A page whose first records come after the first cut is not in the first release."""
    events = [(f"u{i}", "early", ORIGIN) for i in range(90)]
    events += [(f"u{i}", "late", ORIGIN + 7 * HOUR) for i in range(90)]
    found = run(events)
    assert set(counts(found, 1)) == {"early"}
    assert set(counts(found, 2)) == {"early", "late"}


def test_pipelines_and_charges_have_noise_of_their_own():
    found = run(BASE, pipelines=("p", "q"))
    assert counts(found, 4) != counts(found, 4, "hush.q.releases.v1")
    made = deployment(more='public_keys = ["x", "y", "z", "a", "b"]')
    p = made.pipelines[0]
    one, other = (
        engine(made, [[]], [start(p), trigger(p, 1, [0], charge=c * 32)]) for c in ("ab", "cd")
    )
    assert counts(one, 1) != counts(other, 1)


def test_releases_hold_nothing_but_what_the_mechanism_released():
    """A canary: users, offsets, input counts and headers appear nowhere in public records."""
    made = deployment(mechanism=", adaptive_weight = 0")
    p = made.pipelines[0]
    # Offsets are far above the counts, since the bound cuts most records of each user.
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
    """With public keys and one unit: what it adds to all keys stays within Q = 4."""
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
