"""Rules of feedback: which statuses decide a micro-batch, and what waits for them."""

from __future__ import annotations

import numpy as np
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.stages.bound.stage import BoundStage
from hushstream.agents.stages.feedback import Feedback
from hushstream.agents.stages.step import LogFrame
from hushstream.agents.state.memory import MemoryStore
from hushstream.mechanisms.keys import Keys
from hushstream.topics.frames import EventSlice, encode_events
from hushstream.topics.records import Marker, Selected, encode

from ..support import NAMES, beat, deployment, event, start, trigger
from .stepping import commit, ingest


def done(feedback, number, shard=0):
    feedback.apply(encode(Selected(0, number, shard, [], [], True)))


def test_a_micro_batch_waits_for_the_feedback_that_decides_it_over_any_number_of_steps():
    """d = 1: micro-batch 3 waits until trigger 1 has been released."""
    made = deployment(partitioner="murmur2", mechanism=", adaptive_weight = 0.3")
    p = made.pipelines[0]
    assert p.traits.feedback and p.delay == 1
    log = [event(i, "a", "x") for i in range(9)]
    feedback = {"p": Feedback(1)}
    records = [start(p), trigger(p, 1, [3]), trigger(p, 2, [6]), beat([9])]
    stage, store, marker, _ = ingest(made, records, log, feedback)
    marker = commit(store, stage.step(store, marker, log, 9))
    assert marker.applied == 6  # both cuts, and nothing after the second
    for _ in range(3):
        assert stage.step(store, marker, log[6:], 9) is None
    stage.open(store, marker)  # not after a restart either
    assert stage.step(store, marker, log[6:], 9) is None
    done(feedback["p"], 1)
    assert stage.step(store, marker, log[6:], 9).marker.applied == 9


def test_feedback_must_come_from_all_shards():
    feedback = Feedback(2)
    done(feedback, 1, 0)
    assert not feedback.complete(0, 1)
    done(feedback, 1, 0)
    assert not feedback.complete(0, 1)
    done(feedback, 1, 1)
    assert feedback.complete(0, 1) and feedback.complete(0, 0) and not feedback.complete(1, 1)


def test_a_status_counts_from_its_trigger_on():
    feedback = Feedback(1)
    feedback.apply(encode(Selected(0, 3, 0, ["aw=="], [2], False)))  # base64 of b"k"
    keys = Keys.of([b"k", b"other"])
    assert feedback.statuses(0, keys, 2).tolist() == [0, 0]
    assert feedback.statuses(0, keys, 3).tolist() == [2, 0]
    assert feedback.statuses(1, keys, 9).tolist() == [0, 0]
    feedback.forget(1)
    assert feedback.statuses(0, keys, 9).tolist() == [0, 0]


def test_a_repartitioned_stage_waits_at_the_first_frame_that_needs_more_feedback():
    p = deployment(mechanism=", adaptive_weight = 0.3").pipelines[0]
    feedback = {"p": Feedback(1)}
    stage = BoundStage(p, 0, NAMES, 1, ClockLog({"p": 4}), feedback)
    store, marker = MemoryStore(), Marker("abcdef", 0)
    stage.open(store, marker)
    keys, unit = Keys.of([b"k"]), np.zeros((1, 16), np.uint8)

    def frame(offset, batch):
        one = EventSlice(0, batch, unit, keys, np.zeros(1, np.intp), np.zeros((1, 0), np.int64),
                    np.ones(1, np.int8))  # fmt: skip
        return LogFrame(offset, next(encode_events(0, one)))

    frames = [frame(0, 2), frame(1, 3), frame(2, 2)]
    step = stage.step(store, marker, frames, 3)
    assert step.marker.applied == 1
    assert stage.step(store, step.marker, frames[1:], 3) is None
    done(feedback["p"], 1)
    assert stage.step(store, step.marker, frames[1:], 3).marker.applied == 3
