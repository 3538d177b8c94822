"""Where a pipeline stands in its clock log."""

from __future__ import annotations

import pytest
from hushstream.agents.clock.timeline import Timeline, advance, fold
from hushstream.errors import EngineError
from hushstream.topics.records import Beat, ClockRecord, Skipped, Start
from hypothesis import given
from hypothesis import strategies as st

from ...support import deployment, trigger

P = deployment().pipelines[0]
HORIZON = P.mechanism.horizon


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(-5, 5), st.lists(st.integers(0, 3)))
def test_the_open_micro_batch_is_one_more_than_the_triggers_so_far(windows, first, skipped):
    """Windows may interleave (lateness keeps one open while the next begins)."""
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
    # Closed windows are forgotten once everything below them is closed too.
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
