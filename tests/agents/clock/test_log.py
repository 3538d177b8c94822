"""A worker's clock log: it drops old beats and keeps the records that move pipelines."""

from __future__ import annotations

from collections import Counter

import pytest
from hushstream.agents.clock.clock import Clock
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.clock.log import ClockLog, entries_of
from hushstream.errors import EngineError
from hushstream.formats.events.decode import RawRecord
from hushstream.topics.records import (
    Beat,
    ClockRecord,
    Skipped,
    Snapshot,
    decode_clock,
    encode,
    is_beat,
    is_snapshot,
)
from hypothesis import given
from hypothesis import strategies as st

from ...support import beat, deployment, start, trigger

MADE = deployment()
P = MADE.pipelines[0]
HORIZON = P.mechanism.traits.horizon


def logged(kinds: list[str]) -> list[RawRecord]:
    """A clock topic with beats between triggers; offsets have gaps, as commits leave."""
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
        log.restore(0, None, place, entries_of(topic, place))
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


def test_what_was_dropped_is_kept_as_timelines_and_can_be_read_again():
    records = [start(P), beat([1]), trigger(P, 1, [2]), beat([3])]
    log = ClockLog({"p": 4}, list(enumerate(records)))
    log.prune(3)
    assert [type(r) for _, r in log.since(3)] == [Beat]
    assert log.timelines(3)["p"].done == {0: 1}
    with pytest.raises(EngineError, match="read again"):
        log.since(0)
    with pytest.raises(EngineError, match="not read up to this position yet"):
        log.opening(5, ["p"])
    log.append(4, beat([4]))
    assert log.opening(5, ["p"]) == 5
    log.append(4, beat([9]))  # a repeated beat
    with pytest.raises(EngineError, match="read again"):
        log.timelines(2)
    log.restore(0, None, 0, list(enumerate(records)))
    assert [place for place, _ in log.since(0)] == [0, 1, 2, 3, 4]
    assert log.end == 5


def test_a_place_is_known_by_the_entry_before_it():
    records = [start(P), beat([1], 5), trigger(P, 1, [2]), beat([3], 9), beat([4], 11)]
    places = [0, 2, 4, 6, 8]  # between them, markers of transactions
    entries = list(zip(places, records, strict=True))
    log = ClockLog({"p": 4}, entries)
    assert [log.passed(place) for place in (3, 7, 8, 9)] == [5, 9, 0, 11]
    log.prune(7)
    assert [log.passed(place) for place in (3, 5, 7, 9)] == [None, None, 9, 11]
    log.prune(9)
    assert [log.passed(place) for place in (7, 8, 9, 10)] == [None, None, 11, 0]
    log.restore(0, None, 2, entries)  # read again
    assert [log.passed(place) for place in (3, 5, 7, 9)] == [5, records[2].time, 9, 11]
    log.prune(9)
    log.restore(9, None, 9, ())  # the log read again counts, and not what was known before
    assert log.passed(9) is None
    log.restore(6, None, 6, entries[3:])  # what was before it is trimmed
    assert [log.passed(place) for place in (5, 6, 7)] == [None, None, 9]


@pytest.mark.parametrize("met", range(1, 10))
def test_records_that_reading_again_has_met_first_are_taken_once(met):
    """The follower delivers them a moment later; a second copy would look like a gap."""
    topic = logged(["beat", "trigger", "trigger", "beat", "trigger", "trigger", "beat", "beat"])
    whole = entries_of(topic, 0)
    log = ClockLog({"p": 4})
    for entry in whole[:met]:
        log.append(*entry)
    log.prune(2 * met)
    log.restore(0, None, 0, whole)  # more than the follower has delivered
    for entry in whole[met:]:
        log.append(*entry)
    assert log.since(0) == whole and log.end == whole[-1][0] + 1
    assert log.timelines(99)["p"].floor == 1
    assert vars(log.over("p")) == vars(ClockLog({"p": 4}, whole).over("p"))


# -- snapshots ------------------------------------------------------------------------------------


def with_snapshots(windows: list[int], every: int) -> list[tuple[int, ClockRecord]]:
    """Triggers of interleaving windows; after every few, a snapshot that needs the one before."""
    clock = Clock(MADE, Ledger(), "1.0", "key")
    entries: list[tuple[int, ClockRecord]] = []
    before = 0

    def add(record: ClockRecord) -> None:
        entries.append((3 * len(entries), record))
        clock.apply(record)

    add(start(P))
    add(beat([1]))
    done: Counter[int] = Counter()
    for n, window in enumerate(windows, 1):
        if window == 9:  # an epoch that is refused
            refused = 5 + n
            add(Skipped("p", refused, refused, n, refused + 1))
        elif done[window] < HORIZON:
            done[window] += 1
            add(trigger(P, sum(done.values()), [n], window=window, index=done[window]))
        if n % every == 0:
            said = Snapshot(n, clock.offsets, clock.standings(), 1, "", needed=before)
            add(said)
            before = entries[-1][0]
    return entries


@given(st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 9]), max_size=40), st.integers(1, 7))
def test_a_log_that_begins_with_a_snapshot_says_the_same_as_the_whole_log(windows, every):
    entries = with_snapshots(windows, every)
    whole = ClockLog({"p": HORIZON}, [e for e in entries if not isinstance(e[1], Snapshot)])
    end = entries[-1][0] + 1
    for at, (place, record) in enumerate(entries):
        if not isinstance(record, Snapshot):
            continue
        log = ClockLog({"p": HORIZON})
        log.begin(place, record)
        for entry in entries[at:]:
            log.append(*entry)
        assert log.since(place) == whole.since(place)
        assert log.timelines(end) == whole.timelines(end)
        assert log.timelines(place) == whole.timelines(place)
        # The last snapshot states what all shards have closed; no shard needs anything older.
        least = max(record.pipelines["p"].ordinal, log.over("p")._least)
        for ordinal in range(least, whole.timelines(end)["p"].ordinal + 1):
            assert log.over("p").floor(ordinal) == whole.over("p").floor(ordinal)
        if least:
            with pytest.raises(EngineError, match="trimmed above"):
                log.over("p").floor(least - 1)
        with pytest.raises(EngineError, match="read again"):
            log.since(place - 1)


@given(st.lists(st.sampled_from([0, 0, 1, 2]), min_size=8, max_size=30))
def test_windows_that_all_shards_have_left_behind_are_forgotten(windows):
    over = ClockLog({"p": HORIZON}, with_snapshots(windows, 2)).over("p")
    assert len(over._final) <= sum(n >= HORIZON for n in Counter(windows).values())
    assert all(w >= (over._first or 0) for w in over._final)


def test_a_snapshot_is_the_same_after_it_was_written_and_read():
    for _, record in with_snapshots([0, 0, 1, 9, 1, 2], 2):
        assert decode_clock(encode(record)) == record
        assert is_snapshot(encode(record)) == isinstance(record, Snapshot)


@pytest.mark.parametrize("lost", [0, 2, 3, 4, 5, 6, 7])
def test_a_record_that_is_missing_before_a_snapshot_is_seen(lost):
    entries = with_snapshots([0, 0, 1, 9, 1, 0], 6)
    assert isinstance(entries[8][1], Snapshot)
    del entries[lost]  # any record but the beat, which moves no timeline
    with pytest.raises(EngineError, match=r"gap|contradicts"):
        ClockLog({"p": HORIZON}, entries)


def test_a_shard_that_has_committed_nothing_begins_where_its_pipelines_had_not_begun():
    entries = with_snapshots([0, 0, 1, 1], 2)
    place, snapshot = next(e for e in entries if isinstance(e[1], Snapshot))
    log = ClockLog({"p": HORIZON, "q": 4})
    log.begin(place, snapshot)
    assert log.opening(place, ["p"]) == place  # a replay opens before it reads further
    log.append(place, snapshot)
    assert log.opening(0, ["q"]) == place and log.opening(place + 1, ["p"]) == place + 1
    for lacking, names in ((0, ["p"]), (0, ["p", "q"]), (1, ["q"])):
        with pytest.raises(EngineError, match="read again"):
            log.opening(lacking, names)


def test_a_shard_of_an_added_partition_begins_where_its_partition_counts():
    log = ClockLog({"p": 4})
    for place, record in enumerate((start(P), beat([3]), trigger(P, 1, [4]))):
        log.append(place, record)
    assert log.opening(0, ["p"], ("events", 0)) == 0
    assert log.opening(0, ["p"], ("other", 5)) == 0  # of an input that was added later
    assert log.opening(0, ["p"], ("events", 1)) == log.end == 3  # no beat covers it yet
    log.append(3, beat([4, 2]))
    log.append(4, beat([5, 2]))
    assert log.opening(0, ["p"], ("events", 1)) == 3 and log.reached("events", 1) == 2
    assert log.timelines(3)["p"].ordinal == 1
    log.prune(2)
    assert log.opening(0, ["p"], ("events", 1)) == 3
    with pytest.raises(EngineError, match="dropped below this position"):
        log.opening(0, ["p"], ("events", 0))
    log.prune(4)  # it may have missed the dropped record that covered it first
    with pytest.raises(EngineError, match="dropped below this position"):
        log.opening(0, ["p"], ("events", 1))


def test_without_old_beats_nobody_says_that_a_partition_was_added():
    log = ClockLog({"p": 4})
    log.append(0, start(P))
    log.skip(1)
    log.append(2, beat([3]))
    log.append(3, beat([3, 1]))
    with pytest.raises(EngineError, match="dropped below this position"):
        log.opening(0, ["p"], ("events", 1))
    log.restore(0, None, 0, [(0, start(P)), (2, beat([3])), (3, beat([3, 1]))])
    assert log.opening(0, ["p"], ("events", 1)) == 3
