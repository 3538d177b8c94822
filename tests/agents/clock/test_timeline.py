"""The position of a pipeline in its clock log."""

from __future__ import annotations

import pytest
from hushstream.agents.clock.timeline import NEVER, Over, Timeline, advance, fold
from hushstream.errors import EngineError
from hushstream.topics.records import Beat, ClockRecord, Retired, Skipped, Start
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ...support import deployment, start, trigger

P = deployment().pipelines[0]
HORIZON = P.mechanism.traits.horizon


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(-5, 5), st.lists(st.integers(0, 3)))
def test_the_open_micro_batch_is_one_more_than_the_triggers_so_far(windows, first, skipped):
    """Windows may interleave: lateness keeps one open while the next begins."""
    log: list[ClockRecord] = [Start("p", first, 0)]
    counts: dict[int, int] = {}
    skipped_set = {s for s in skipped if s not in windows}
    log += [Skipped("p", 0, first + s, 0) for s in sorted(skipped_set)]
    for w in windows:
        if counts.get(w, 0) < HORIZON:
            counts[w] = counts.get(w, 0) + 1
            log += [Beat(1, {}), trigger(P, sum(counts.values()), [0], window=first + w,
                                         index=counts[w])]  # fmt: skip
    found = fold(log, {"p": HORIZON})["p"]
    for w in range(4):
        closed = w in skipped_set or counts.get(w, 0) == HORIZON
        assert found.batch(first + w) == (0 if closed else counts.get(w, 0) + 1)
    assert found.batch(first - 1) == 0
    assert found.batch(first + 99) == 1
    assert found.ordinal == sum(counts.values())
    # A closed window is forgotten once everything below it is closed as well.
    assert all(w >= found.floor for w in found.closed)


def test_nothing_is_open_before_the_start():
    assert Timeline(4).batch(0) == 0


@pytest.mark.parametrize("ordinal,index", [(2, 1), (1, 2), (0, 1), (1, 0)])
def test_a_gap_is_an_error(ordinal, index):
    line = Timeline(HORIZON, first=0)
    with pytest.raises(EngineError, match="gap"):
        line.apply(trigger(P, ordinal, [0], index=index))


def test_a_trigger_twice_is_an_error():
    line = Timeline(HORIZON, first=0)
    line.apply(trigger(P, 1, [0]))
    with pytest.raises(EngineError, match="gap"):
        line.apply(trigger(P, 1, [0]))


def test_records_of_others_move_nothing():
    lines = {"q": Timeline(4)}
    for record in (Start("p", 0, 0), trigger(P, 1, [0]), Beat(1, {})):
        advance(lines, record)
    assert lines == {"q": Timeline(4)}


def test_a_timeline_refuses_gaps():
    for records in ([trigger(P, 2, [0], index=2)], [trigger(P, 1, [0]), trigger(P, 3, [0])]):
        with pytest.raises(EngineError, match="gap"):
            fold([start(P), *records], {"p": 4})


def test_a_timeline_knows_the_open_micro_batch_of_each_window():
    line = Timeline(2)
    assert line.batch(0) == 0  # the pipeline has not started
    line.apply(Start("p", 3, 0))
    assert [line.batch(w) for w in (2, 3, 4)] == [0, 1, 1]
    line.apply(trigger(P, 1, [0], window=3, index=1))
    assert [line.batch(w) for w in (2, 3, 4)] == [0, 2, 1]
    line.apply(Skipped("p", 4, 4, 0))
    assert [line.batch(w) for w in (3, 4, 5)] == [2, 0, 1]


def test_a_retired_pipeline_serves_no_window_from_its_end_on():
    line = Timeline(1)
    for record in (Start("p", 3, 0), Retired("p", 5, 0)):
        line.apply(record)
    assert [line.batch(w) for w in (2, 3, 4, 5, 99)] == [0, 1, 1, 0, 0]
    assert [line.retired(w) for w in (4, 5, 6)] == [False, True, True]
    assert Timeline.at(line.standing(), 1) == line  # a snapshot keeps the end
    for window in (3, 4):
        assert not line.ended and line.over == window
        made = trigger(P, window - 2, [0], window=window, index=1)
        line.apply(replace(made, final=True))
    assert line.ended and line.over == NEVER  # rows of every window may be deleted
    with pytest.raises(EngineError, match="retired it before window 5"):
        line.apply(trigger(P, 3, [0], window=5, index=1))


@pytest.mark.parametrize("window", [5, 9])
def test_an_end_is_never_moved_nor_before_what_was_released(window):
    line = Timeline(4, first=0)
    line.apply(trigger(P, 1, [0], window=6))
    line.apply(Retired("p", 7, 0))
    with pytest.raises(EngineError, match="a second time"):
        line.apply(Retired("p", window, 0))
    other = Timeline(4, first=0)
    other.apply(trigger(P, 1, [0], window=window))
    with pytest.raises(EngineError, match="below a window that it has released"):
        other.apply(Retired("p", 5, 0))


def test_windows_beyond_the_end_are_over_wherever_a_shard_stands():
    over = Over()
    over.apply(Start("p", 0, 0))
    over.apply(Retired("p", 1, 0))
    assert over.floor(0) == 0
    over.apply(trigger(P, 4, [0], window=0, index=4))
    assert (over.floor(3), over.floor(4), over.floor(4, since=1)) == (0, NEVER, NEVER)
    resumed = Over()  # from a snapshot, the only record that knows the end
    resumed.rebase(Timeline(4, first=0, ordinal=4, floor=1, end=1).standing())
    assert resumed.floor(4) == NEVER


def test_records_of_a_refused_window_may_come_until_a_later_trigger_is_closed():
    over = Over()
    for record in (
        Start("p", 0, 0),
        trigger(P, 4, [0], window=0, index=4),
        Skipped("p", 1, 1, 0),
        trigger(P, 5, [0], window=2, index=1),
    ):
        over.apply(record)
    assert over.floor(4) == 2  # nothing of window 1 will be released
    assert [over.met(n) for n in (3, 4, 5)] == [0, 1, 2]
    assert over.met(4, since=2) == 2
    begun = Over()  # at a snapshot, which does not tell whether window 1 was refused after 4
    begun.rebase(Timeline(4, first=0, ordinal=4, floor=2).standing())
    assert (begun.met(4), begun.met(4, since=1), begun.met(5)) == (None, 1, 2)
