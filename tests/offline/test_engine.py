"""The engine in memory: stores, logs, and the same result whatever the order of shards."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hushstream.agents.clock.clock import Clock
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.state.folders import discard
from hushstream.agents.state.layout import after
from hushstream.agents.state.memory import MemoryStore
from hushstream.agents.state.rocks import RocksStore
from hushstream.agents.state.store import Overlay, scan_prefix
from hushstream.errors import EngineError
from hushstream.offline.engine import OfflineEngine, Recorded
from hushstream.topics.records import ClockRecord, Snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

from ..support import DAY, NAMES, ORIGIN, SECRET, beat, deployment, event, released, start, trigger

KEYS = st.binary(min_size=1, max_size=3).map(lambda key: b"r" + key)
CHANGES = st.lists(st.dictionaries(KEYS, st.none() | st.binary(max_size=3), max_size=6), max_size=6)


@pytest.fixture(scope="module")
def rocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rocks")


@settings(max_examples=25, deadline=None, derandomize=True)
@given(CHANGES, KEYS, KEYS)
def test_both_stores_and_an_overlay_read_the_same(rocks, batches, low, high):
    discard(rocks / "one")
    memory, disk = MemoryStore(), RocksStore(rocks / "one", None, 1 << 20)
    model: dict[bytes, bytes] = {}
    for number, changes in enumerate(batches):
        seen = Overlay(memory, changes)
        for key, value in changes.items():
            model.pop(key, None)
            if value is not None:
                model[key] = value
        wanted = [(k, model[k]) for k in sorted(model) if low <= k < high]
        assert list(seen.scan(low, high)) == wanted, number
        assert seen.get_many([low, high]) == [model.get(low), model.get(high)]
        memory.write(changes)
        disk.write(changes)
        for store in (memory, disk):
            assert list(store.scan(low, high)) == wanted
            assert store.get_many([low, high]) == [model.get(low), model.get(high)]
            assert list(scan_prefix(store, b"r")) == sorted(model.items())
    disk.close()


def test_the_end_of_a_prefix():
    assert after(b"ab") == b"ac" and after(b"a\xff") == b"b"
    assert after(b"\xff") > b"\xff" * 20


def test_a_state_folder_serves_one_process(tmp_path):
    one = RocksStore(tmp_path / "s", None, 1 << 20)
    with pytest.raises(EngineError, match="in use by another process"):
        RocksStore(tmp_path / "s", None, 1 << 20)
    one.close()
    RocksStore(tmp_path / "s", None, 1 << 20).close()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("delay", [0, 1])
def test_shards_may_run_in_any_order_feedback_included(seed, delay):
    """No order deadlocks, and a direct stream gives the same bytes in every order."""
    made = deployment(
        partitions=1, cells=3, partitioner="murmur2", mechanism=", adaptive_weight = 0.3",
        more=f"feedback_delay = {delay}",
    )  # fmt: skip
    p = made.pipelines[0]
    log = [event(i, f"u{i % 90}", f"p{i % 4}") for i in range(600)]
    records = [start(p), *(trigger(p, n, [150 * n]) for n in range(1, 5))]

    def run(order: random.Random | None) -> list[tuple[bytes, bytes]]:
        engine = OfflineEngine(made, NAMES, SECRET, {("events", 0): log}, list(enumerate(records)))
        if order is not None:
            shuffled(engine, order)
        engine.run()
        return released(engine)

    whole = run(None)
    assert run(random.Random(seed)) == whole
    for number in range(1, 5):
        assert any(b'"trigger":%d' % number in value for _, value in whole)


def shuffled(engine: OfflineEngine, order: random.Random) -> None:
    """Step shards one by one in a random order, until nothing moves."""
    idle = 0
    while idle < 40:
        shard = order.choice(engine._shards)
        idle = 0 if shard.advance(order.choice([1, 50, 20_000]), engine._take) else idle + 1


@pytest.mark.parametrize("seed", range(4))
def test_a_repartitioned_stream_with_feedback_never_deadlocks(seed):
    """A raw partition far ahead of the other must not block the units log with its frames."""
    made = deployment(partitions=2, units=2, cells=2, mechanism=", adaptive_weight = 0.3")
    p = made.pipelines[0]
    logs = [[event(i, f"u{n}-{i % 60}", f"p{i % 3}") for i in range(400)] for n in range(2)]
    records = [start(p), *(trigger(p, n, [100 * n, 100 * n]) for n in range(1, 5)), beat([400] * 2)]
    raw = {("events", n): log for n, log in enumerate(logs)}
    engine = OfflineEngine(made, NAMES, SECRET, raw, list(enumerate(records)))
    shuffled(engine, random.Random(seed))
    engine.run()
    manifests = [o for o in engine.outs[p.release_topic] if b"hush.manifest/2" in (o.value or b"")]
    assert len(manifests) == 4 * 2  # every trigger, both shards


def test_a_replay_whose_shards_are_slower_than_the_live_ones_were_reads_across_snapshots():
    """They still need records that live shards had applied before the snapshot."""
    made = deployment(partitions=1, cells=2, partitioner="murmur2")
    p = made.pipelines[0]
    times = [ORIGIN + (n % 2) * DAY for n in range(800)]
    log = [event(n, f"u{n}", f"p{n % 3}", time) for n, time in enumerate(times)]
    clock = Clock(made, Ledger(), "1.0", "key")
    records: list[ClockRecord] = []

    def add(record: ClockRecord) -> None:
        records.append(record)
        clock.apply(record)

    add(start(p))
    for n in range(1, 9):
        add(trigger(p, n, [100 * n], window=(n - 1) // 4))
        needed = 0 if n < 4 else 4  # clock offset 4: the snapshot after the second trigger
        add(Snapshot(1, clock.offsets, clock.standings(), 1, "", needed=needed))
    entries = list(enumerate(records))
    plain = [(place, one) for place, one in entries if not isinstance(one, Snapshot)]
    whole = OfflineEngine(made, NAMES, SECRET, {("events", 0): log}, plain)
    whole.run()
    slow = OfflineEngine(made, NAMES, SECRET, {("events", 0): log}, entries)
    slow.run()
    assert released(slow) == released(whole)
    assert {json.loads(value)["trigger"] for _, value in released(whole)} == {1, 2, 3, 4}


def test_a_noise_key_of_its_own_changes_the_noise_of_its_pipeline_alone():
    """Digests and places of units stay, because they depend on the deployment's key."""
    made = deployment(pipelines=("p", "q"))
    log = [event(n, f"u{n}", f"p{n % 3}") for n in range(400)]
    entries = list(enumerate([*(start(p) for p in made.pipelines),
                              *(trigger(p, 1, [400]) for p in made.pipelines)]))  # fmt: skip

    def run(own: dict[str, bytes]) -> list[list[bytes | None]]:
        engine = OfflineEngine(
            made, NAMES, SECRET, {("events", 0): log}, entries, Recorded(own=own)
        )
        engine.run()
        return [[out.value for out in engine.outs[p.release_topic]] for p in made.pipelines]

    common, rotated = run({}), run({"q": bytes(range(100, 132))})
    assert run({"q": SECRET}) == common
    assert rotated[0] == common[0] and rotated[1] != common[1]
    assert all(b"hush.manifest" in (one[-1] or b"") for one in rotated)
