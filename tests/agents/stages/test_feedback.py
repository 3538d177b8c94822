"""Feedback of released keys: the status of a key at a trigger is the same for every reader."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import msgspec
import numpy as np
import pytest
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.kafka.clients import BATCH_BYTES
from hushstream.agents.stages.feedback import Feedback, changed_statuses, finished, needed_from
from hushstream.agents.state.memory import MemoryStore
from hushstream.mechanisms.columns import Releases
from hushstream.mechanisms.keys import Keys
from hushstream.topics.records import Selected
from hypothesis import given
from hypothesis import strategies as st

from ...support import deployment, start, trigger

P = deployment().pipelines[0]
KEY = st.binary(max_size=2)
ROUNDS = st.lists(st.dictionaries(KEY, st.integers(1, 4), max_size=6), min_size=1, max_size=4)


def releases(status: dict[bytes, int]) -> Releases:
    keys = sorted(status)
    n = len(keys)
    values = np.array([status[k] for k in keys], np.int32)
    return Releases(Keys.of(keys), np.zeros((n, 1), np.int64), np.zeros((n, 1)), values, {})


@given(ROUNDS, st.lists(KEY, max_size=5, unique=True))
def test_statuses_as_of_every_trigger_are_those_of_a_plain_history(rounds, asked):
    store, feedback = MemoryStore(), Feedback(1)
    history: list[dict[bytes, int]] = [{}]
    for number, status in enumerate(rounds, 1):
        one = trigger(P, number, [0])
        rows: dict[bytes, bytes | None] = {}
        outs = list(changed_statuses("s", store, one, 0, releases(status), rows))
        before = history[-1]
        told = [msgspec.json.decode(o.value, type=Selected) for o in outs]
        # Only changes are sent.
        assert sum(len(t.keys) for t in told) == sum(before.get(k) != v for k, v in status.items())
        store.write(rows)
        assert not feedback.complete(0, number)
        for out in (*outs, finished("s", one, 0)):
            feedback.apply(out.value or b"")
        assert feedback.complete(0, number)
        history.append(before | status)
    keys = Keys.of(sorted({*asked, *history[-1]}))
    for as_of in range(-1, len(history) + 2):
        known = history[min(max(as_of, 0), len(rounds))]
        assert feedback.statuses(0, keys, as_of).tolist() == [known.get(k, 0) for k in keys]
    assert not feedback.statuses(1, keys, 9).any()
    feedback.forget(1)
    assert not feedback.statuses(0, keys, 9).any() and not feedback.complete(0, 1)


def test_records_of_long_keys_fit_into_a_batch_and_lose_none():
    keys = [b"%04d" % n + b"k" * (1020 if n % 2 else 2) for n in range(3000)]
    rows: dict[bytes, bytes | None] = {}
    made = releases(dict.fromkeys(keys, 1))
    outs = list(changed_statuses("s", MemoryStore(), trigger(P, 1, [0]), 0, made, rows))
    assert max(len(out.value or b"") for out in outs) < BATCH_BYTES - 1000
    told = [msgspec.json.decode(out.value or b"", type=Selected) for out in outs]
    assert [b64decode(key) for one in told for key in one.keys] == sorted(keys)
    short = releases({b"%04d" % n: 1 for n in range(3000)})
    outs = list(changed_statuses("s", MemoryStore(), trigger(P, 1, [0]), 0, short, {}))
    assert [len(msgspec.json.decode(o.value, type=Selected).keys) for o in outs] == [2000, 1000]


def test_a_trigger_is_complete_when_every_shard_is_done():
    feedback, one = Feedback(3), trigger(P, 1, [0])
    assert feedback.complete(0, 0) and feedback.complete(0, -1)
    for shard in (2, 0, 0):
        feedback.apply(finished("s", one, shard).value or b"")
        assert not feedback.complete(0, 1)
    feedback.apply(finished("s", one, 1).value or b"")
    assert feedback.complete(0, 1) and not feedback.complete(0, 2)


def told(feedback: Feedback, window: int, number: int) -> None:
    one = trigger(P, 4 * window + number, [0], window=window)
    rows: dict[bytes, bytes | None] = {}
    for out in changed_statuses("s", MemoryStore(), one, 0, releases({b"k": number}), rows):
        feedback.apply(out.value or b"")
    feedback.apply(finished("s", one, 0).value or b"")


@pytest.mark.parametrize("seen", [0, 1])
def test_what_was_forgotten_is_read_again_and_the_rest_is_never_touched(seen):
    feedback, fresh, keys = Feedback(1), Feedback(1), Keys.of([b"k"])
    for window in range(3):
        for number in (1, 2):
            told(feedback, window, number)
    feedback.forget(2)
    feedback.forget(1)  # this restores nothing
    assert not feedback.complete(1, 1) and feedback.complete(2, 2)
    told(feedback, 1, 1)
    assert not feedback.complete(1, 1)  # nothing is kept of a window that is over
    assert feedback.reopen() == 2
    told(feedback, 1, 2)  # arrives during the second reading, which may include it
    for window in range(3):
        told(fresh, window, 1)
        if window == seen:
            told(fresh, window, 2)
    if seen != 0:
        told(fresh, 0, 2)
    feedback.recall(fresh, 2)
    assert feedback.reopen() is None
    for window in range(3):
        assert feedback.complete(window, 2)
        assert [feedback.statuses(window, keys, n).tolist() for n in (0, 1, 2)] == [[0], [1], [2]]


def test_feedback_is_needed_until_every_shard_has_left_a_window_behind():
    log: list[Any] = [start(P)]
    log += [trigger(P, n, [n], window=(n - 1) // 4) for n in range(1, 13)]  # three windows
    clock = ClockLog({"p": 4}, enumerate(log))
    assert needed_from(clock, "p", [13], []) == 3
    assert needed_from(clock, "p", [13, 5], []) == 1  # one shard has met four triggers
    assert needed_from(clock, "p", [13, 4], []) == 0
    assert needed_from(clock, "p", [13], [12, 8]) == 2
    assert needed_from(clock, "p", [9], [12]) == 2
    assert needed_from(clock, "p", [0], [12]) is None  # one shard has not even met the start
    assert needed_from(clock, "p", [], []) == 3
    assert needed_from(ClockLog({"p": 4}), "p", [], [0]) is None
