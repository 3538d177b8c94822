"""Numbers of frames: what a sender repeats after a crash has the same ones, and a receiver stops
at any other frame that comes twice or is missing."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.stages.aggregate.nonces import steady
from hushstream.agents.stages.aggregate.secrets import Secrets
from hushstream.agents.stages.aggregate.stage import AggregateStage
from hushstream.agents.stages.bound.stage import BoundStage
from hushstream.agents.stages.step import NUMBER, LogFrame, Out, Received, Sent, Step
from hushstream.agents.state.memory import MemoryStore
from hushstream.errors import RewoundError
from hushstream.mechanisms.keys import Keys
from hushstream.topics.frames import Barrier, EventSlice, encode_barrier, encode_events
from hushstream.topics.records import Marker, decode_marker, encode
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ...support import NAMES, SECRET, deployment, trigger

TOPICS = {"t": ("p", 3), "u": ("q", 1)}
AGAIN = "came twice"
GONE = "is missing"


def frame(number: int | None) -> LogFrame:
    return LogFrame(0, b"", () if number is None else ((NUMBER, b"%d" % number),))


def sent(marker: Marker, places: list[tuple[str, int]]) -> Step:
    outs = [Out(topic, partition, None, b"") for topic, partition in places]
    step = Sent(TOPICS).number(marker, Step(replace(marker, sent={}), outs))
    assert step is not None
    return step


def number(out: Out) -> int | None:
    return next((int(value) for name, value in out.headers if name == NUMBER), None)


places = st.lists(st.sampled_from([("t", 0), ("t", 1), ("t", 2), ("u", 0), ("dead", 0)]))


@given(st.lists(st.tuples(places, st.booleans()), max_size=8))
def test_each_partition_gets_the_numbers_from_one_on_whatever_is_repeated(steps):
    """A step that fails leaves nothing; the next one begins from the same marker."""
    marker, got = Marker("g", 0), dict[tuple[str, int], list[int | None]]()
    for wanted, fails in steps:
        step = sent(marker, wanted)
        if fails:
            continue
        marker = decode_marker(encode(step.marker))
        for out in step.out:
            got.setdefault((out.topic, out.partition), []).append(number(out))
    for (topic, _), numbers in got.items():
        from_one = list(range(1, len(numbers) + 1))
        assert numbers == ([None] * len(numbers) if topic == "dead" else from_one)


def test_nothing_to_send_keeps_the_numbers():
    marker = Marker("g", 0, sent={"p": [1, 2, 3], "old": [4]})
    assert sent(marker, []).marker.sent == {"p": [1, 2, 3], "q": [0], "old": [4]}
    assert Sent(TOPICS).number(marker, None) is None


@given(st.integers(0, 5), st.integers(0, 7))
def test_only_the_next_number_is_taken(last, came):
    received = Received("p", Marker("g", 0, received={"p": [7, last]}), 2)
    if came == last + 1:
        received.take(1, received.check(1, frame(came)))
        assert received.last == {"p": [7, came]}
        return
    with pytest.raises(RewoundError, match=AGAIN if came <= last else GONE) as refused:
        received.check(1, frame(came))
    own = str(refused.value).split(":")[0]
    assert not re.search(r"\d", own)  # how many frames there are depends on raw data


def test_a_shard_that_was_added_begins_with_one():
    received = Received("p", Marker("g", 0, received={"p": [7]}, transaction="x"), 2)
    with pytest.raises(RewoundError, match=GONE):
        received.check(1, frame(2))
    assert received.check(1, frame(1)) == received.check(4, frame(1)) == 1


def test_an_earlier_version_may_run_between_two_of_this_one():
    """It sends frames without numbers, and its markers keep none; then any number may come."""
    old = Marker("g", 0, transaction="x")
    step = sent(old, [("t", 0), ("t", 0), ("t", 1)])
    assert [number(out) for out in step.out] == [None, 2, None]
    assert step.marker.sent == {"p": [2, 1, -1], "q": [-1]}
    again = sent(replace(step.marker, transaction="y"), [("t", 0), ("t", 1), ("t", 2)])
    assert [number(out) for out in again.out] == [3, 2, None]
    for received in (Received("p", old, 1), Received("p", Marker("g", 0, received={"p": [57]}), 1)):
        if received.last == {"p": [57]}:
            received.take(0, received.check(0, frame(None)))
        received.take(0, received.check(0, frame(9)))
        with pytest.raises(RewoundError, match=AGAIN):
            received.check(0, frame(9))


def stages(made):
    p, clock = made.pipelines[0], ClockLog({"p": 4})
    yield BoundStage(p, 0, NAMES, 2, clock, {})
    yield AggregateStage(p, 0, NAMES, Secrets(SECRET, steady), 2, clock)


PUBLIC = deployment(partitions=2, more='public_keys = ["x"]', mechanism=", adaptive_weight = 0")


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(("came", "how"), [(1, AGAIN), (3, GONE)])
def test_both_stages_that_read_frames_stop(which, came, how):
    stage = list(stages(PUBLIC))[which]
    p, marker = PUBLIC.pipelines[0], Marker("abcdef", 0)

    def barrier(place: int, number: int, ordinal: int) -> LogFrame:
        made = Barrier(0, trigger(p, ordinal, (0, 0)), np.zeros(0, np.int64))
        return LogFrame(place, encode_barrier(made), ((NUMBER, b"%d" % number),))

    stage.open(MemoryStore(), marker)
    with pytest.raises(RewoundError, match=how):
        stage.step(MemoryStore(), marker, [barrier(0, 1, 1), barrier(1, came, 2)], 2)
    stage.open(MemoryStore(), marker)  # what was taken in memory alone comes again
    stage.step(MemoryStore(), marker, [barrier(0, 1, 1), barrier(1, 2, 2)], 2)


def test_a_bound_shard_commits_what_it_has_taken_and_sent():
    p, marker = PUBLIC.pipelines[0], Marker("abcdef", 0)
    one = EventSlice(0, 1, np.zeros((1, 16), np.uint8), Keys.of([b'["x"]']), np.zeros(1, np.intp),
                np.zeros((1, 0), np.int64), np.ones(1, np.int8))  # fmt: skip
    (value,) = encode_events(1, one)
    stage = next(stages(PUBLIC))
    stage.open(MemoryStore(), marker)
    step = stage.step(MemoryStore(), marker, [LogFrame(0, value, ((NUMBER, b"1"),))], 1)
    assert step.marker.received == {"p": [0, 1]}
    assert [number(out) for out in step.out] == [1]
    assert sum(step.marker.sent["p"]) == 1 and len(step.marker.sent["p"]) == p.cells_partitions
