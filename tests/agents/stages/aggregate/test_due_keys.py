"""The rows that a release reads: keys that are due appear, with or without new records."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from hushstream.agents.deployment.model import Deployment
from hushstream.agents.stages.aggregate.key_rows import DueKeys, united
from hushstream.agents.stages.aggregate.nonces import steady
from hushstream.agents.state.layout import due_at
from hushstream.agents.state.memory import MemoryStore
from hushstream.agents.state.store import KeyLimit
from hushstream.formats.events.decode import RawRecord
from hushstream.mechanisms.columns import Part, Rows
from hushstream.mechanisms.keys import Keys
from hushstream.topics.records import ClockRecord

from ....judge.outcomes import outcome, verdict
from ....support import beat, deployment, event, start, trigger

PAGES = 120


def log() -> list[RawRecord]:
    """Pages of very different sizes, all before the first trigger, and no records after it."""
    pairs = [(f"u{page} {n}", f"page {page}") for page in range(PAGES) for n in range(page // 2)]
    return [event(n, user, page) for n, (user, page) in enumerate(pairs)]


def clock(made: Deployment, end: int) -> list[ClockRecord]:
    (p,) = made.pipelines
    return [start(p), *(trigger(p, n, [end]) for n in range(1, 5)), beat([end])]


@pytest.mark.spread(2)
@pytest.mark.parametrize("mechanism", [", adaptive_weight = 0", ', selection = "rounds"'])
def test_keys_appear_without_new_records_as_the_judge_says(mechanism):
    """Otherwise an appearance would prove that a record arrived, and no noise covers that."""
    made, raw = deployment(mechanism=mechanism, cells=2), log()
    found, _ = verdict(made, [raw], clock(made, len(raw)), steady)
    assert found == []
    firsts = set(appearances(made, raw))
    assert {1, 2, 3, 4} <= firsts if "weight" in mechanism else firsts


def appearances(made: Deployment, raw: list[RawRecord]) -> Iterator[int]:
    """The first trigger at which each key appears."""
    ((_, published),) = outcome(made, [raw], clock(made, len(raw)), steady)
    first: dict[str, int] = {}
    for _, value in published:
        body = json.loads(value)
        if "key" in body:
            first.setdefault(body["key"]["page"], body["trigger"])
    yield from first.values()


# -- the index ------------------------------------------------------------------------------------


def indexed(*entries: tuple[int, bytes]) -> MemoryStore:
    """An index of (trigger, key) in window 0; trigger -1 stands for every trigger."""
    store = MemoryStore()
    store.write({due_at(0, due) + key: b"" for due, key in entries})
    return store


def sums(*touched: tuple[bytes, int]) -> Part:
    """Partial sums for some keys and lanes, each 1."""
    lanes = np.array([lane for _, lane in touched], np.uint8)
    ones = np.ones((len(touched), 1), np.int64)
    return Part(Keys.of(key for key, _ in touched), lanes, ones, np.zeros(0, np.int64))


def chooser(**changes: str) -> DueKeys:
    (p,) = deployment(**changes).pipelines
    return DueKeys(p, 0)


def test_keys_that_are_due_now_and_those_due_always_are_read_in_order():
    (p,) = deployment().pipelines
    store = indexed((2, b"c"), (-1, b"b"), (2, b"a"), (3, b"d"), (2, b"b"))
    two = trigger(p, 2, [0])
    assert chooser().due(store, two, None, KeyLimit(9, 99), every=False) == [b"a", b"b", b"c"]
    assert chooser().due(store, two, b"a", KeyLimit(9, 99), every=False) == [b"b", b"c"]
    found = chooser().keys(store, two, sums((b"e", 0)), KeyLimit(9, 99), every=False)
    assert found is not None and found.tolist() == [b"a", b"b", b"c", b"e"]


def test_more_due_keys_than_one_step_may_read_are_told():
    (p,) = deployment().pipelines
    store = indexed(*((1, b"%d" % n) for n in range(5)))
    one = trigger(p, 1, [0])
    assert chooser().keys(store, one, sums(), KeyLimit(4, 99), every=False) is None
    assert chooser().keys(store, one, sums(), KeyLimit(5, 99), every=False) is not None


def test_public_keys_are_read_once_without_an_index():
    (p,) = deployment().pipelines
    made = chooser(more='public_keys = ["x", "y"]')
    assert made.seeds(trigger(p, 1, [0]), None) == [b'["x"]', b'["y"]']
    assert made.seeds(trigger(p, 1, [0]), b'["x"]') == [b'["y"]']
    assert made.seeds(trigger(p, 2, [0]), None) == []


def test_a_stale_entry_of_the_index_is_skipped():
    """The due trigger of a row has moved, but its old entry in the index remains."""
    (p,) = deployment().pipelines
    keys = Keys.of([b"a", b"b", b"c"])
    fresh = p.traits.rows(keys)
    rows = Rows(keys, fresh.state, np.array([3, 2, -1], np.int32))

    def live(*touched: tuple[bytes, int]) -> list[bytes]:
        return chooser().live(trigger(p, 2, [0]), rows, sums(*touched)).key.tolist()

    assert live() == [b"b", b"c"]
    assert live((b"a", 0)) == live((b"a", 0), (b"b", 0), (b"c", 0)) == [b"a", b"b", b"c"]
    # There are as many sums as rows, but two sums are lanes of one key.
    assert live((b"b", 0), (b"b", 1), (b"c", 0)) == [b"b", b"c"]


def test_keys_of_sums_and_further_keys_are_each_there_once_and_in_order():
    assert united(sums((b"a", 0), (b"c", 0)), []).tolist() == [b"a", b"c"]
    assert united(sums((b"a", 0), (b"a", 1)), []).tolist() == [b"a"]
    assert united(sums((b"b", 0)), [b"c", b"a", b"b", b"c"]).tolist() == [b"a", b"b", b"c"]
