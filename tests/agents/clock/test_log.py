"""The clock log of a worker: beats come and go, what says where pipelines stand is kept."""

from __future__ import annotations

import pytest
from hushstream.agents.clock.log import ClockLog, entries_of
from hushstream.errors import EngineError
from hushstream.topics.events.decode import RawRecord
from hushstream.topics.records import Beat, ClockRecord, Skipped, encode, is_beat
from hypothesis import given
from hypothesis import strategies as st

from ...support import beat, deployment, start, trigger

P = deployment().pipelines[0]


def logged(kinds: list[str]) -> list[RawRecord]:
    """A clock topic with beats between triggers; offsets have gaps, as commits leave them."""
    records: list[ClockRecord] = [start(P)]
    ordinal = 0
    for place, kind in enumerate(kinds):
        if kind == "trigger" and ordinal < 4:
            ordinal += 1
            records.append(trigger(P, ordinal, [place], index=ordinal))
        else:
            records.append(beat([place]))
    return [RawRecord(2 * place, 0, None, encode(r)) for place, r in enumerate(records)]


@given(
    st.lists(st.sampled_from(["beat", "beat", "trigger"]), max_size=40),
    st.integers(0, 90),
    st.integers(0, 90),
    st.integers(1, 12),
)
def test_a_log_read_without_old_beats_and_restored_is_the_whole_log(kinds, old, place, cut):
    topic = logged(kinds)
    whole = ClockLog({"p": 4}, entries_of(topic, 0))
    log = ClockLog({"p": 4})
    for begin in range(0, len(topic), cut):
        for entry in entries_of(topic[begin : begin + cut], old):
            log.append(*entry)
    log.skip(old)
    assert log.end == whole.end
    for probe in (old, old + 5):
        assert log.since(probe) == whole.since(probe)
        assert log.timelines(probe)["p"].done == whole.timelines(probe)["p"].done
    assert vars(log.over("p")) == vars(whole.over("p"))
    if place < log.base:
        with pytest.raises(EngineError, match="read again"):
            log.since(place)
        log.restore(place, entries_of([r for r in topic if r.offset >= place], place))
    assert log.since(place) == whole.since(place)
    assert log.timelines(place)["p"].done == whole.timelines(place)["p"].done
    log.append(200, beat([99]))
    assert log.since(place)[-1][0] == 200


def test_the_last_beat_of_a_list_is_always_read():
    topic = logged(["beat", "beat", "trigger"])
    assert [place for place, _ in entries_of(topic, 1000)] == [0, 4, 6]


def test_beats_are_told_from_all_other_records_undecoded():
    others = (start(P), trigger(P, 1, [3]), Skipped("p", 1, 2, 3))
    assert [is_beat(encode(r)) for r in (beat([1, 2]), *others)] == [True, False, False, False]


def test_the_clock_log_drops_only_beats():
    records = [start(P), beat([1]), trigger(P, 1, [2]), beat([3])]
    log = ClockLog({"p": 4}, list(enumerate(records)))
    log.prune(3)
    assert [type(r) for _, r in log.since(3)] == [Beat]
    assert log.timelines(3)["p"].done == {0: 1}
    with pytest.raises(EngineError, match="read again"):
        log.since(0)
    log.append(4, beat([4]))
    log.append(4, beat([9]))  # a repeat
    log.restore(0, list(enumerate(records)))
    assert [place for place, _ in log.since(0)] == [0, 1, 2, 3, 4]
    assert log.end == 5


@pytest.mark.parametrize("met", range(1, 10))
def test_records_that_reading_again_has_met_first_are_taken_once(met):
    """The follower brings them a moment later: a trigger twice would look like a gap."""
    topic = logged(["beat", "trigger", "trigger", "beat", "trigger", "trigger", "beat", "beat"])
    whole = entries_of(topic, 0)
    log = ClockLog({"p": 4})
    for entry in whole[:met]:
        log.append(*entry)
    log.prune(2 * met)
    log.restore(0, whole)  # more than the follower has brought
    for entry in whole[met:]:
        log.append(*entry)
    assert log.since(0) == whole and log.end == whole[-1][0] + 1
    assert log.timelines(99)["p"].floor == 1
    assert vars(log.over("p")) == vars(ClockLog({"p": 4}, whole).over("p"))
