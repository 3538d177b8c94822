"""Earlier bugs that gave one bound twice, or put one noise on two contents.

Covers: agents/clock/pinned.py
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import hushstream.agents.stages.aggregate.computation as computation
import msgspec
import numpy as np
import pytest
from hushstream.agents.clock import genesis as admin
from hushstream.agents.clock import pinned
from hushstream.agents.clock.begins import Begins
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.clock.ledger_record import Record
from hushstream.agents.deployment.cluster import topic_specs as specs
from hushstream.agents.stages.bound.codec import UnitCodec
from hushstream.errors import EngineError
from hushstream.mechanisms.columns import Units
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.topics import frames
from hushstream.topics.names import Names

from ..support import NAMES, SECRET, deployment, engine, event, start, trigger

SETTING = Setting(epsilon=8, delta=1e-4, horizon=4)  # type: ignore[arg-type]


def unit_row(mechanism: Any, used: Sequence[int]) -> Units:
    """One unit with one pair."""
    return Units(
        np.array([3]), np.array([0, 1]), np.array([7], np.uint32), np.array([used], np.uint16)
    )


@pytest.mark.parametrize(
    "parameters,used",
    [
        (HistogramParameters(budget=12, adaptive_weight=0, debias=True, debias_cap=400), [300]),
        (HistogramParameters(selection="rounds", budget=32), [5, 300]),
    ],
)
def test_what_is_kept_beside_the_bound_survives_its_row(parameters, used):
    """If counters were cut off at 256, the unit's record count or last round would start anew."""
    mechanism = build(parameters, SETTING)
    codec = UnitCodec(mechanism.traits)
    row = codec.encode(unit_row(mechanism, used))
    assert codec.decode(row).used.tolist() == [used]


def test_a_count_that_does_not_fit_is_never_cut_off():
    codec = UnitCodec(build(HistogramParameters(budget=12, adaptive_weight=0), SETTING).traits)
    with pytest.raises(EngineError, match="does not fit"):
        codec.encode(unit_row(None, [300]))


def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computation, "CHUNK", 7)
    monkeypatch.setattr(frames, "LIMIT", 1500)


def test_a_debiased_release_in_chunks_is_the_release_as_a_whole(monkeypatch):
    """The shared counters have one content at a trigger, whichever chunk reads them."""
    made = deployment(partitioner="murmur2", mechanism=", debias = true, debias_cap = 20")
    (p,) = made.pipelines
    log = [event(i, f"u{i % 900}", f"page {i % 30}") for i in range(20_000)]
    records = [start(p), *(trigger(p, n, [5000 * n]) for n in range(1, 5))]
    whole = engine(made, [log], records)
    small_chunks(monkeypatch)
    cut = engine(made, [log], records)
    rows = [(o.key, o.value) for o in whole.outs[p.release_topic]]
    assert [(o.key, o.value) for o in cut.outs[p.release_topic]] == rows
    released = [json.loads(value) for _, value in rows if b"hush.release/2" in value]
    assert len(released) > 60
    # Two records of each unit are accepted, 1,800 in all: the counters arrived and scale that up.
    last = [one["values"]["count"]["value"] for one in released if one["trigger"] == 4]
    assert sum(last) > 5_000


def test_a_release_whose_rows_depend_on_each_other_is_never_cut(monkeypatch):
    made = deployment(partitioner="murmur2")
    (p,) = made.pipelines
    single = replace(p, mechanism=Single(p.mechanism))
    log = [event(i, f"u{i}", f"page {i}") for i in range(90)]
    made = replace(made, inputs=(replace(made.inputs[0], pipelines=(single,)),))
    small_chunks(monkeypatch)
    monkeypatch.setattr(frames, "LIMIT", 900)
    run = engine(made, [log], [start(p), trigger(p, 1, [90])])
    assert single.mechanism.seen == [90]
    assert len(run.outs[p.release_topic]) == 1  # only the manifest


class Single:
    """A mechanism with a global state that notes how many keys each release has."""

    bound = 4

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.traits = replace(inner.traits, routing="single", load="due", feedback=False)
        self.seen: list[int] = []

    def release(self, closed: Any, noise: Any) -> Any:
        self.seen.append(len(closed.part.key))
        return self._inner.release(closed, noise)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize(
    "changed",
    [
        {"partitioner": "crc32"},
        {"partitioner": "none"},
        {"units": 3, "partitioner": "none"},
        {"cells": 3},
        {"partitions": 3},
    ],
    ids=["partitioner", "no partitioner", "units_partitions", "cells_partitions", "raw"],
)
def test_another_way_to_spread_units_and_keys_is_refused(changed):
    """Units would begin a second bound elsewhere, within the same epoch and charge."""
    before = {"partitions": 2, "units": 2, "cells": 2, "partitioner": "murmur2"}
    if "units" in changed:
        before["partitioner"] = "none"
    old, new = deployment(**before), deployment(**(before | changed))  # type: ignore[arg-type]
    assert [p.config_hash for p in old.pipelines] == [p.config_hash for p in new.pipelines]
    (p,) = old.pipelines
    own = specs.layout(old.inputs[0], p, NAMES)
    cluster = Pinned({**own, NAMES.units("p"): 2})
    ledger = Ledger()
    body = {"config_hash": p.config_hash, "config": p.config, "partitions": own}
    body["placement"] = pinned.placement(old.inputs[0], p)
    ledger.genesis = {"genesis": NAMES.genesis}
    ledger.pipelines = {"p": body | {"topic_ids": {}}}
    assert pinned.verify(cluster, old, ledger) == NAMES  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="cannot change"):
        pinned.verify(cluster, new, ledger)  # type: ignore[arg-type]


class Pinned:
    """A cluster whose topics are unchanged."""

    def __init__(self, topics: dict[str, int]) -> None:
        self._topics = topics

    def topics(self, named: Any = ()) -> dict[str, int]:
        return self._topics

    def partitions(self, topic: str, operation: str = "") -> int:
        return self._topics.get(topic, 0)

    def ids(self, topics: Any) -> dict[str, str]:
        return {}


class Racing(Pinned):
    """A cluster where the clock's owner charges an epoch just before it is fenced."""

    def __init__(self, logs: dict[str, list[bytes]], topics: dict[str, int]) -> None:
        super().__init__(topics)
        self.logs = logs

    @property
    def ledger(self) -> list[bytes]:
        return self.logs[NAMES.ledger]

    def create(self, specs: Any, replication: int) -> list[str]:
        return []

    @property
    def offsets(self) -> Racing:
        return self

    def begins(self, topic: str, partitions: int) -> list[int]:
        return [0] * partitions

    def settle(self, topic: str, seconds: float) -> None:
        assert self.logs[topic]  # what is awaited was written

    def read(self, topic: str) -> list[Any]:
        return [SimpleNamespace(value=lambda v=v: v) for v in self.logs.get(topic, [])]

    def each(self, topic: str, ended: Callable[[int], None]) -> Iterator[Any]:
        yield from self.read(topic)
        ended(len(self.logs.get(topic, [])))

    def __len__(self) -> int:
        return 0  # of queued records

    def producer(self, **options: Any) -> Racing:
        return self

    def init_transactions(self, timeout: float) -> None:
        body = {"pipeline": "p", "epoch": 0}
        self.ledger.append(Ledger.read(self.ledger).next("charge", 2, body).encode())

    def begin_transaction(self) -> None:
        pass

    def commit_transaction(self, timeout: float) -> None:
        pass

    def produce(self, topic: str, value: bytes, on_delivery: Any, **place: Any) -> None:
        log = self.logs.setdefault(topic, [])
        log.append(value)
        at = len(log) - 1
        on_delivery(None, SimpleNamespace(topic=lambda: topic, offset=lambda: at))


def test_declaring_a_pipeline_beside_a_running_clock_keeps_the_chain():
    made = deployment(pipelines=("p", "q"))
    p, names = made.pipelines[0], Names("test", NAMES.genesis)
    body = {"genesis": NAMES.genesis, "format": admin.FORMAT}
    first = Record(0, "0" * 64, "genesis", 1, body)
    ledger = Ledger.read([first.encode()])
    own = admin._pipeline(Pinned({}), made.inputs[0], p, names)  # type: ignore[arg-type]
    declared = ledger.next("pipeline", 1, own | {"number": 0})
    every = [*specs.public_topics(made), *specs.internal_topics(made, names)]
    topics = {s.name: s.partitions for s in every} | {"events": 1}
    cluster = Racing({names.ledger: [first.encode(), declared.encode()]}, topics)
    admin.Beginning(cluster, made, 1, 3, SECRET).begin()  # type: ignore[arg-type]
    read = Ledger.read(cluster.ledger)
    assert [r.kind for r in read.records] == ["genesis", "pipeline", "charge", "pipeline"]
    assert json.loads(cluster.ledger[-1])["body"]["pipeline"] == "q"
    (began,) = cluster.logs[names.begins]
    sealed = msgspec.json.decode(began, type=Begins).seal(SECRET)
    assert read.pipelines["q"]["begins"] == sealed and b"offsets" not in cluster.ledger[-1]
