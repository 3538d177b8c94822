"""Nonces: committed with the content, kept over a crash, lost if the log is rewound below them.

Covers: agents/stages/aggregate/secrets.py
"""

from __future__ import annotations

import copy
import itertools
import json
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.stages.aggregate import computation
from hushstream.agents.stages.aggregate.nonces import close, drawn, load, renewals, steady
from hushstream.agents.stages.aggregate.secrets import Secrets
from hushstream.agents.stages.aggregate.stage import AggregateStage
from hushstream.agents.stages.step import LogFrame, Out, Step
from hushstream.agents.state.layout import index_entries
from hushstream.agents.state.memory import MemoryStore
from hushstream.agents.state.store import Changes
from hushstream.errors import EngineError
from hushstream.topics.records import Marker

from ....support import NAMES, SECRET, deployment, event, trigger
from .test_held_release import cells_of, log_of, small

MADE = deployment(partitioner="murmur2", mechanism=", adaptive_weight = 0")
(P,) = MADE.pipelines


class Shard:
    """One aggregate shard, its committed state, and what it has published."""

    def __init__(self, seed: str) -> None:
        self.store, self.marker, self.outs = MemoryStore(), Marker("abcdef", 0), list[Out]()
        self.random = random.Random(seed)
        self.stage: AggregateStage | None = None

    def open(self) -> AggregateStage:
        clock = ClockLog({"p": 4})
        self.stage = AggregateStage(
            P, 0, NAMES, Secrets(SECRET, drawn(self.random.randbytes)), 1, clock
        )
        self.stage.open(self.store, self.marker)
        return self.stage

    def step(self, log: Sequence[LogFrame]) -> Step | None:
        """Compute one step on committed state without committing it."""
        stage = self.stage or self.open()
        return stage.step(self.store, self.marker, log[stage.position :], len(log))

    def commit(self, step: Step) -> None:
        for key, value in step.rows.items():
            step.local.update(index_entries(key, value))
        self.store.write({**step.rows, **step.local})
        self.marker = step.marker
        self.outs += [out for out in step.out if out.topic == P.release_topic]

    def run(self, log: Sequence[LogFrame], steps: int = 1 << 30) -> None:
        """Step until nothing changes, at most ``steps`` times."""
        for _ in range(steps):
            step = self.step(log)
            if step is None:
                return
            self.commit(step)

    def nonces(self) -> dict[int, str]:
        bodies = (json.loads(out.value or b"") for out in self.outs)
        return {b["trigger"]: b["nonce"] for b in bodies if b["schema"] == "hush.manifest/2"}


def values(outs: Sequence[Out]) -> dict[tuple[int, str], int]:
    """Released counts by trigger and key."""
    bodies = (json.loads(out.value or b"") for out in outs)
    return {
        (b["trigger"], b["key"]["page"]): b["values"]["count"]["value"]
        for b in bodies
        if b["schema"] == "hush.release/2"
    }


@cache
def frames_of(last: str) -> list[LogFrame]:
    """Frames of three triggers; at the end of the log come five more users of one page."""
    log = random.Random(3).sample(log_of(4, 60), 4 * 90 + 60)
    more = [event(n, f"late {n}", last) for n in range(5)]
    return cells_of(MADE, [r._replace(offset=n) for n, r in enumerate([*log, *more])], 3)


def usual() -> list[LogFrame]:
    return frames_of("page 1")


@pytest.fixture(autouse=True)
def _made_whole() -> None:
    """Make the frames, which are cached, before a test limits their size."""
    usual(), frames_of("page 0")


def test_an_opening_begins_a_segment_of_a_window() -> None:
    store, rows = MemoryStore(), dict[bytes, bytes | None]()
    assert load(store, 0) == ()
    for index, nonce in ((1, b"a" * 16), (2, b"a" * 16), (3, b"b" * 16), (4, b"b" * 16)):
        close(store, trigger(P, index, [0]), nonce, rows)
        store.write(rows)
    assert load(store, 0) == ((1, b"a" * 16), (3, b"b" * 16))
    assert renewals(load(store, 0)) == (3,) and load(store, 1) == ()


def test_a_window_whose_nonces_are_missing_stops() -> None:
    rows: Changes = {}
    with pytest.raises(EngineError, match="nonces"):
        close(MemoryStore(), trigger(P, 2, [0]), bytes(16), rows)
    assert not rows


def test_openings_draw_and_simulations_do_not() -> None:
    opening = drawn(random.Random(1).randbytes)
    first, second = opening("p", 0), opening("p", 0)
    one, two = trigger(P, 1, [0]), trigger(P, 2, [0])
    assert first(one) == first(two) != second(one) and len(first(one)) == 16
    assert steady("p", 0)(one) == steady("q", 1)(two) == bytes(16)


def test_the_nonce_is_committed_with_the_closed_content_and_published_later() -> None:
    shard, seen = Shard("order"), list[tuple[bool, bool]]()
    while (step := shard.step(usual())) is not None:
        public = any(out.topic == P.release_topic for out in step.out)
        closing = any(key[:1] == b"n" for key in step.rows)
        seen.append((closing, public))
        shard.commit(step)
    assert (True, True) not in seen and seen[0] == (True, False)
    assert len(set(shard.nonces().values())) == 1  # one opening has one nonce


@pytest.mark.spread(2)
@pytest.mark.parametrize("chunk", [7, 10_000])
def test_a_crash_after_the_close_gives_the_same_bytes(monkeypatch: Any, chunk: int) -> None:
    """For each crash between close and publication, a new opening makes the same release."""
    small(monkeypatch, chunk)
    whole, crashed = Shard("whole"), 0
    whole.run(usual())
    for dies in itertools.count(1):
        shard = Shard("whole")
        shard.run(usual(), dies)
        if len(shard.outs) == len(whole.outs):
            break
        done = len(shard.nonces())
        pending = shard.store.get_many([b"o"]) != [None]
        shard.open()
        shard.run(usual())
        assert len(shard.outs) == len(whole.outs)
        nonces = shard.nonces()
        kept = {t: nonce for t, nonce in nonces.items() if t <= done + pending}
        assert set(kept.values()) <= {whole.nonces()[1]}
        later = {nonce for t, nonce in nonces.items() if t > done + pending}
        assert whole.nonces()[1] not in later and len(later) <= 1
        ends = [n for n, out in enumerate(whole.outs) if b"hush.manifest/2" in (out.value or b"")]
        upto = ends[done + pending - 1] + 1 if done + pending else 0
        assert shard.outs[:upto] == whole.outs[:upto]
        crashed += pending
    assert crashed >= 3


def test_a_transaction_that_fails_leaves_its_nonce_behind() -> None:
    shard = Shard("aborted")
    step = shard.step(usual())
    assert step is not None and load(shard.store, 0) == ()
    tried = Step(shard.marker, rows=dict(step.rows))
    shard.open()
    shard.run(usual())
    assert tried.rows[b"n" + b"\x80" + bytes(7)] != shard.store.get_many([b"n\x80" + bytes(7)])[0]


@pytest.mark.parametrize("opened", [(0,), (0, 1), (0, 1, 2, 3)])
def test_hidden_keys_appear_as_if_every_row_were_read(monkeypatch: Any, opened: Any) -> None:
    """A new nonce voids predictions; compared with a run that reads all rows at every trigger."""
    pairs = [(f"{page} {n}", f"page {page}") for page in range(3, 60) for n in range(page)]
    pairs = random.Random(4).sample(pairs, len(pairs))
    cells = cells_of(MADE, [event(n, *pair) for n, pair in enumerate(pairs)], 3)
    found = []
    for chunk, scan in ((10_000, False), (7, False), (10_000, True)):
        small(monkeypatch, chunk)
        if scan:
            monkeypatch.setattr(computation, "_renewed", lambda trigger, nonces: True)
        shard = Shard("hidden")
        for done in opened:
            while len(shard.nonces()) < done:
                shard.run(cells, 1)
            shard.open()
        shard.run(cells)
        monkeypatch.undo()
        found.append([out.value for out in shard.outs])
    assert found[0] == found[1] == found[2]
    assert len(set(Shard.nonces(shard).values())) == len(opened) - (3 in opened)
    keys = [len([p for p in values(shard.outs) if p[0] == t]) for t in (1, 2, 3)]
    assert keys[0] < keys[1] < keys[2] < 57


def test_a_rewound_shard_puts_no_noise_on_two_contents() -> None:
    """A trigger is released twice; the releases differ by more than their contents do."""
    shard = Shard("first")
    while len(shard.nonces()) < 2:
        shard.run(usual(), 1)
    copied = copy.deepcopy((shard.store, shard.marker))
    shard.run(usual())
    again = Shard("second")
    again.store, again.marker = copied
    other, done = frames_of("page 0"), again.marker.applied
    assert [f.value for f in other[:done]] == [f.value for f in usual()[:done]]
    again.run(other)
    one, two = values(shard.outs), values(again.outs)
    both = {place for place in one.keys() & two.keys() if place[0] == 3}
    assert len(both) == 4
    exact = {"page 0": 5, "page 1": -5}
    told = [place for place in both if two[place] - one[place] == exact.get(place[1], 0)]
    assert len(told) <= 1  # σ is about 1.5; with equal noise, all four would match
    assert shard.nonces()[3] != again.nonces()[3]
