"""Large releases: computed first, then published in transactions that follow from their rows."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import hushstream.topics.frames as frames
import msgspec
import numpy as np
import pytest
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.deployment.model import Deployment
from hushstream.agents.stages.aggregate.held_release import (
    Pending,
    held,
    hold,
    kept_manifest,
    public_time,
    published,
)
from hushstream.agents.stages.aggregate.nonces import steady
from hushstream.agents.stages.aggregate.secrets import Secrets
from hushstream.agents.stages.aggregate.stage import AggregateStage
from hushstream.agents.stages.step import LogFrame, Out, Step, route
from hushstream.agents.state.layout import HELD, NONCE, ROW, STATUS, index_entries, shown_of
from hushstream.agents.state.memory import MemoryStore
from hushstream.agents.state.store import Changes, KeyLimit, scan_prefix
from hushstream.errors import EngineError
from hushstream.formats.events.decode import RawRecord
from hushstream.mechanisms.columns import Releases
from hushstream.mechanisms.keys import Keys
from hushstream.offline.engine import OfflineEngine
from hushstream.topics.records import Marker
from hypothesis import given
from hypothesis import strategies as st

from ....support import NAMES, ORIGIN, SECRET, deployment, event, start, trigger

AGGREGATE = "hushstream.agents.stages.aggregate"
RELEASED = 4
PLAIN = ", adaptive_weight = 0"


def log_of(pages: int, hidden: int) -> list[RawRecord]:
    """Pages with 90 users each, and more pages with one user each, which stay hidden."""
    pairs = [(f"u{i}", f"page {i // 90}") for i in range(90 * pages)]
    pairs += [(f"h{i}", f"hidden {i}") for i in range(hidden)]
    return [event(n, user, page) for n, (user, page) in enumerate(pairs)]


def steps_of(made: Deployment, log: Sequence[RawRecord], triggers: int = 1) -> list[Step]:
    """The committed steps of all aggregate shards."""
    (p,) = made.pipelines
    records = [start(p), *(trigger(p, n, [len(log)]) for n in range(1, triggers + 1))]
    run = OfflineEngine(made, NAMES, SECRET, {("events", 0): list(log)}, list(enumerate(records)))
    found: list[Step] = []
    for shard in run._shards:
        if isinstance(shard.stage, AggregateStage):
            shard.advance = _noting(shard.advance, found)  # type: ignore[method-assign]
    run.run()
    return found


def _noting(advance: Any, found: list[Step]) -> Any:
    def both(limit: int, take: Any) -> bool:
        return bool(advance(limit, lambda step: (found.append(step), take(step))))

    return both


def published_by(steps: Sequence[Step], topic: str = "hush.p.releases.v1") -> list[list[Out]]:
    """For each transaction that writes to the release topic, the records that it sends there."""
    sent = [[o for o in step.out if o.topic == topic] for step in steps]
    return [outs for outs in sent if outs]


def small(monkeypatch: pytest.MonkeyPatch, chunk: int, released: int = RELEASED) -> None:
    monkeypatch.setattr(f"{AGGREGATE}.computation.CHUNK", chunk)
    monkeypatch.setattr(f"{AGGREGATE}.stage.RELEASED", released)
    monkeypatch.setattr(frames, "LIMIT", 600)


@pytest.mark.parametrize("pages", [0, 1, 5])
def test_a_window_is_told_once_in_words_of_the_schedule_alone(pages: int) -> None:
    made = deployment(cells=3)
    last = made.pipelines[0].traits.horizon
    for triggers in (last - 1, last):
        steps = steps_of(made, log_of(pages, 40 * pages), triggers)
        told = [text for step in steps for text in step.tells]
        assert told == [
            "pipeline p: window 2019-03-01T00:00:00Z to 2019-03-02T00:00:00Z is released, the last "
            "of 4 releases, by shard 0 of 3"
        ] * (triggers == last)


@pytest.mark.parametrize("mechanism", ["", PLAIN, PLAIN + ", debias = true, debias_cap = 20"])
@pytest.mark.parametrize("chunk", [3, 20, 10_000])
def test_transactions_of_a_release_are_cut_by_released_rows_alone(monkeypatch, chunk, mechanism):
    """The same records in the same transactions, for any number of steps to read the keys."""
    made = deployment(partitioner="murmur2", mechanism=mechanism)
    log = log_of(pages=14, hidden=150)
    small(monkeypatch, 10_000, 10_000)
    (whole,) = published_by(steps_of(made, log))
    small(monkeypatch, chunk)
    steps = steps_of(made, log)
    sent = published_by(steps)
    assert [out for outs in sent for out in outs] == whole
    rows = len(whole) - 1
    assert rows == 14
    assert [len(outs) for outs in sent] == [4, 4, 4, 3]  # the last one has the manifest
    assert (len(steps) > 30) == (chunk == 3)  # so many steps, so few publish


def test_as_many_rows_as_a_transaction_holds_are_one_transaction(monkeypatch):
    made = deployment(partitioner="murmur2", mechanism=PLAIN)
    for chunk in (3, 10_000):
        small(monkeypatch, chunk)
        sent = published_by(steps_of(made, log_of(RELEASED, 40)))
        assert [len(outs) for outs in sent] == [RELEASED + 1]
        sent = published_by(steps_of(made, log_of(0, 40)))
        assert [len(outs) for outs in sent] == [1]  # only a manifest


def test_keys_that_nobody_may_know_of_move_nothing(monkeypatch):
    """Two hundred more hidden keys in the stream change no offset of the release topic."""
    made = deployment(partitioner="murmur2", mechanism=PLAIN)
    small(monkeypatch, 20)
    few, many = (steps_of(made, log_of(9, hidden)) for hidden in (0, 200))
    assert len(many) > len(few) + 5
    shape = [[(o.partition, o.key) for o in outs] for outs in published_by(few)]
    assert [[(o.partition, o.key) for o in outs] for outs in published_by(many)] == shape


def test_only_what_is_published_waits_for_its_time_and_times_are_the_scheduled_ones(monkeypatch):
    made = deployment(partitioner="murmur2")
    (p,) = made.pipelines
    late = replace(p, publish_delay=7_000_000)
    made = replace(made, inputs=(replace(made.inputs[0], pipelines=(late,)),))
    for chunk in (5, 10_000):
        small(monkeypatch, chunk)
        for step in steps_of(made, log_of(9, 50)):
            public = [o for o in step.out if o.topic == p.release_topic]
            one = trigger(p, 1, [0])
            steps = range(one.scheduled, one.time + 9_000_000, 875_000)[-5:]
            moment = next(m for m in steps if m > one.time + 7_000_000)
            assert step.not_before == (moment if public else 0)
            stamps = {(o.timestamp or 0) * 1000 for o in public}
            assert stamps <= {p.windows.times(0)[0]}  # by schedule, not clock or event


@given(st.integers(1, 86_400_000_000), st.integers(0, 10**12), st.integers(1, 30))
def test_a_publication_comes_after_the_delay_and_soon_after_it(delay, late, shards):
    one = trigger(deployment().pipelines[0], 1, [0])
    one = msgspec.structs.replace(one, time=one.scheduled + late)
    times = [public_time(one, delay, shard, shards) for shard in range(shards)]
    assert times == sorted(times)  # shards take turns
    assert delay < times[0] - one.time and times[-1] - one.time <= delay + 2 * max(delay // 8, 1)


@given(st.integers(0, 999_999), st.integers(0, 999_999))
def test_a_trigger_that_fires_a_little_later_moves_no_publication(one, other):
    """The clock's owner shares its process with shards, and their work can make it late."""
    made = trigger(deployment().pipelines[0], 1, [0])
    early, late = (msgspec.structs.replace(made, time=made.scheduled + n) for n in (one, other))
    for shard in range(3):
        assert public_time(early, 8_000_000, shard, 3) == public_time(late, 8_000_000, shard, 3)


def test_shards_take_turns_whoever_of_them_has_more_to_do(monkeypatch):
    """Each shard in turn has all hidden keys; every shard publishes the same at the same time."""
    made = deployment(partitioner="murmur2", mechanism=PLAIN, cells=3)
    (p,) = made.pipelines
    delayed = replace(p, publish_delay=8_000_000)
    made = replace(made, inputs=(replace(made.inputs[0], pipelines=(delayed,)),))
    small(monkeypatch, 20)
    names = [f"hidden {n}" for n in range(600)]
    homes = route(Keys.of([json.dumps([name]).encode() for name in names]), 3)
    seen = []
    for shard in range(3):
        log = log_of(9, 0)
        mine = [name for name, home in zip(names, homes.tolist(), strict=True) if home == shard]
        log += [event(len(log) + n, f"h{n}", name) for n, name in enumerate(mine[:150])]
        public = [step for step in steps_of(made, log) if step.not_before]
        ends = [b"manifest:%d" % n for n in range(3)]
        times = [{s.not_before for s in public if _tells(s, end)} for end in ends]
        assert [len(moments) for moments in times] == [1, 1, 1]
        assert max(times[0]) < max(times[1]) < max(times[2])
        seen.append(sorted(_size(step) for step in public))
    assert seen[0] == seen[1] == seen[2]


def _tells(step: Step, end: bytes) -> bool:
    """Whether a step publishes a shard's manifest."""
    return any((out.key or b"").endswith(end) for out in step.out)


def test_feedback_is_complete_before_it_says_so(monkeypatch):
    made = deployment(partitioner="murmur2")
    small(monkeypatch, 5)
    steps = steps_of(made, log_of(9, 50))
    selected = [
        (n, b'"done":true' in (o.value or b""))
        for n, step in enumerate(steps)
        for o in step.out
        if o.topic == NAMES.selected("p")
    ]
    assert [done for _, done in selected].count(True) == 1 and selected[-1][1]
    assert selected[-1][0] == len(steps) - 1 and len(selected) > 2


def test_nothing_of_a_release_is_left_behind(monkeypatch):
    made = deployment(partitioner="murmur2")
    small(monkeypatch, 5)
    rows: Changes = {}
    for step in steps_of(made, log_of(9, 50), triggers=3):
        rows |= step.rows
    left = {key[:1] for key, value in rows.items() if value is not None}
    assert left == {ROW, STATUS, NONCE}


# -- restarts -------------------------------------------------------------------------------------


def cells_of(made: Deployment, log: Sequence[RawRecord], triggers: int) -> list[LogFrame]:
    """The only cells partition, as the earlier stages write it."""
    (p,) = made.pipelines
    records = [start(p), *(trigger(p, n, [len(log) * n // triggers]) for n in (1, 2, 3))]
    run = OfflineEngine(made, NAMES, SECRET, {("events", 0): list(log)}, list(enumerate(records)))
    run.run()
    return list(run._logs[NAMES.cells("p"), 0].records)


def aggregated(
    made: Deployment, log: Sequence[LogFrame], faults: random.Random | None
) -> list[Out]:
    """What a shard commits that is killed at random: before a commit, or just after one."""
    (p,) = made.pipelines
    store, marker, outs = MemoryStore(), Marker("abcdef", 0), []
    stage = None
    while True:
        if stage is None:
            stage = AggregateStage(p, 0, NAMES, Secrets(SECRET, steady), 1, ClockLog({"p": 4}))
            stage.open(store, marker)
        place = stage.position
        read = log[place : place + (faults.randrange(1, 60) if faults else len(log))]
        step = stage.step(store, marker, read, place + len(read))
        if step is None and stage.position == len(log):
            return outs
        if step is None:
            continue
        if faults and faults.random() < 0.3:
            stage = None
            continue
        for key, value in step.rows.items():
            step.local.update(index_entries(key, value))
        store.write({**step.rows, **step.local})
        marker = step.marker
        outs += step.out
        if faults and faults.random() < 0.3:
            stage = None


@pytest.mark.parametrize("mechanism", ["", PLAIN + ", debias = true, debias_cap = 20"])
def test_what_travels_with_a_publication_does_not_tell_how_much_is_hidden(mechanism):
    """Compares records, changed rows and bytes of public steps; only these wait for their time."""
    made = deployment(partitioner="murmur2", mechanism=mechanism)
    sizes, counts = set(), []
    for hidden in (2, 3000):
        steps = steps_of(made, log_of(pages=6, hidden=hidden), triggers=3)
        public = [step for step in steps if step.not_before]
        assert published_by(public) == published_by(steps)
        sizes.add(tuple(_size(step) for step in public))
        counts.append(sum(len(step.rows) for step in steps if not step.not_before))
    assert len(sizes) == 1
    assert counts[1] > counts[0] + 2900  # hidden keys are written by steps that do not wait


def _size(step: Step) -> tuple[Any, ...]:
    """What can be seen of a step from outside: everything but content and time."""
    sent = [(out.topic, out.partition, len(out.key or b""), out.timestamp) for out in step.out]
    rows = [(len(key), None if value is None else len(value)) for key, value in step.rows.items()]
    return step.not_before, tuple(sent), tuple(rows), len(step.local)


@pytest.mark.spread(2)
@pytest.mark.parametrize("mechanism", ["", PLAIN + ", debias = true, debias_cap = 20"])
def test_a_worker_killed_at_any_point_publishes_the_same_bytes_once(monkeypatch, mechanism):
    made = deployment(partitioner="murmur2", mechanism=mechanism)
    log = random.Random(3).sample(log_of(12, 60), 12 * 90 + 60)
    log = [r._replace(offset=n) for n, r in enumerate(log)]
    monkeypatch.setattr(frames, "LIMIT", 600)
    cells = cells_of(made, log, 3)
    whole = [o for o in aggregated(made, cells, None) if o.topic == "hush.p.releases.v1"]
    assert sum(b"hush.release/2" in (o.value or b"") for o in whole) > 20
    small(monkeypatch, 7)
    for seed in range(6):
        every = aggregated(made, cells, random.Random(seed))
        assert [o for o in every if o.topic == "hush.p.releases.v1"] == whole


# -- held rows ------------------------------------------------------------------------------------

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
VARIANCE = st.floats(0, allow_infinity=False, allow_subnormal=True)


@given(st.data(), st.integers(1, 3), st.integers(1, 5))
def test_held_rows_come_back_in_order_bit_for_bit(data, columns, limit):
    keys = sorted(data.draw(st.sets(st.binary(max_size=3), max_size=12)))
    shape = (len(keys), columns)
    cells = len(keys) * columns
    value = np.array(data.draw(st.lists(I64, min_size=cells, max_size=cells)), np.int64)
    variance = np.array(data.draw(st.lists(VARIANCE, min_size=cells, max_size=cells)), np.float64)
    made = Releases(
        Keys.of(keys), value.reshape(shape), variance.reshape(shape),
        np.zeros(len(keys), np.int32), {},
    )  # fmt: skip
    store, rows, seen = MemoryStore(), {}, []
    hold(made, rows)
    store.write(rows)
    done, more = None, True
    while more:
        part = held(store, done, KeyLimit(limit, 1 << 20))
        some, more = part.releases, part.end is not None
        assert len(some.key) == limit or not more
        assert part.gone == []
        changes: Changes = {}
        published(part, changes)
        store.write(changes)
        seen += zip(some.key.tolist(), some.value.tolist(), some.variance.tolist(), strict=True)
        done = part.end
    wanted = zip(keys, made.value.tolist(), made.variance.tolist(), strict=True)
    assert seen == list(wanted)
    assert not list(scan_prefix(store, HELD))


KEYS = st.sets(st.binary(max_size=2), max_size=9)


@given(st.lists(KEYS, min_size=1, max_size=4), st.integers(1, 4))
def test_the_latest_topic_shows_the_keys_of_the_last_release_and_no_other(rounds, limit):
    """Slice by slice: each key that disappears is named once, at the first release without it."""
    store, shown = MemoryStore(), shown_of(3)
    store.write({shown_of(4) + b"x": b""})  # a key of another window
    before: set[bytes] = set()
    for keys in rounds:
        ordered = sorted(keys)
        rows: Changes = {}
        column = np.zeros((len(ordered), 1))
        status = np.zeros(len(ordered), np.int32)
        hold(Releases(Keys.of(ordered), column.astype(np.int64), column, status, {}), rows)
        store.write(rows)
        sent, gone, done, more = [], [], None, True
        while more:
            part = held(store, done, KeyLimit(limit, 1 << 20), shown)
            done, more = part.end, part.end is not None
            assert len(part.releases.key) + len(part.gone) <= limit
            sent += part.releases.key.tolist()
            gone += part.gone
            changes: Changes = {}
            published(part, changes, shown)
            store.write(changes)
        assert sent == ordered
        assert gone == sorted(before - keys)
        before = set(keys)
    left = [key for key, _ in scan_prefix(store, shown)]
    assert left == [shown + key for key in sorted(before)]
    assert list(scan_prefix(store, shown_of(4)))


def test_what_is_in_progress_survives_and_a_lost_manifest_stops_the_stage():
    (p,) = deployment().pipelines
    store, rows = MemoryStore(), {}
    assert Pending.load(store) is None
    made = Pending(trigger(p, 2, [5], time=ORIGIN), True, b"\x00\xff")
    made.store(rows)
    store.write(rows)
    assert Pending.load(store) == made
    with pytest.raises(EngineError, match="delete the data folder"):
        kept_manifest(store)
