"""The gate: which records a release takes, which are set aside, and what stops the stage.

Covers: agents/stages/ingest/slicer.py, agents/stages/ingest/beside.py
"""

from __future__ import annotations

import pytest
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.stages.ingest.beside import Beside
from hushstream.agents.stages.ingest.stage import IngestStage
from hushstream.agents.stages.ingest.unit_digests import hashed
from hushstream.agents.state.memory import MemoryStore
from hushstream.errors import EngineError
from hushstream.formats.events.decode import RawRecord
from hushstream.mechanisms.keys import Keys
from hushstream.topics.records import Marker, Retired

from ....support import (
    DAY,
    NAMES,
    ORIGIN,
    SECRET,
    beat,
    counts,
    deployment,
    engine,
    event,
    start,
    trigger,
)
from ..test_topology import BASE, run


def test_a_cut_in_the_middle_of_a_list_splits_it_there():
    made = deployment(mechanism=", adaptive_weight = 0")
    p = made.pipelines[0]
    log = [event(i, f"u{i}", "x") for i in range(200)]
    first = engine(made, [log], [start(p), trigger(p, 1, [60]), trigger(p, 2, [200])])
    alone = engine(made, [log[:60]], [start(p), trigger(p, 1, [60])])
    assert counts(first, 1) == counts(alone, 1)
    assert counts(first, 2)["x"] - counts(first, 1)["x"] > 100


def test_no_event_is_used_before_a_beat_has_passed_it():
    made = deployment(more='public_keys = ["x"]')
    p = made.pipelines[0]
    log = [event(i, f"u{i}", "x") for i in range(200)]
    found = engine(made, [log], [start(p), beat([50])])
    assert found.counts["p", "seen"] == 50


def test_late_and_future_records_are_kept_apart():
    made = deployment()
    p = made.pipelines[0]
    now = ORIGIN + 2 * DAY
    log = [
        event(0, "a", "x", ORIGIN - 1),  # before the first window
        event(1, "a", "x", ORIGIN + 3 * DAY),  # more than five minutes ahead
        event(2, "a", "x", now + 60_000_000),  # within the allowed skew
        event(3, "a", "x", ORIGIN),
    ]
    records = [start(p), beat([4], now)]
    found = engine(made, [log], records)
    assert (found.counts["p", "late"], found.counts["p", "future"]) == (1, 1)
    assert found.counts["p", "seen"] == 2
    reasons = [dict(o.headers)["__streams.errors.reason"] for o in found.outs["hush.p.late"]]
    assert sorted(reasons) == [b"future", b"late"]


@pytest.mark.parametrize("partitioner", ["none", "murmur2"])
def test_records_beyond_the_end_of_a_pipeline_are_neither_used_nor_lost(partitioner):
    made = deployment(partitioner=partitioner)
    p = made.pipelines[0]
    log = [
        event(0, "a", "x", ORIGIN - 1),
        event(1, "a", "x", ORIGIN + DAY - 1),
        event(2, "a", "x", ORIGIN + DAY),
        event(3, "a", "x", ORIGIN + DAY),
        event(4, "a", "x", ORIGIN + 5 * DAY),
    ]
    now = ORIGIN + 4 * DAY
    ended = Retired("p", 1, now)
    # The first record of the second window came before the end was known; nothing releases it.
    records = [start(p), beat([3], now), ended, beat([5], now)]
    found = engine(made, [log], records)
    assert (found.counts["p", "late"], found.counts["p", "future"]) == (1, 1)
    assert (found.counts["p", "retired"], found.counts["p", "seen"]) == (1, 2)
    assert len(found.outs["hush.p.late"]) == 2


def test_a_window_that_had_its_last_trigger_takes_no_more():
    made = deployment()
    p = made.pipelines[0]
    log = [event(i, "a", "x") for i in range(4)]
    cuts = [trigger(p, n, [2]) for n in range(1, 5)]
    found = engine(made, [log], [start(p), *cuts, beat([4])])
    assert found.counts["p", "late"] == 2


def test_bad_records_go_to_the_dead_letters_and_the_rest_goes_on():
    made = deployment(more='public_keys = ["x"]')
    p = made.pipelines[0]
    good = event(2, "a", "x")
    bad = [RawRecord(0, 5, b"k", b"{oops"), RawRecord(1, 5, None, None)]
    found = engine(made, [[*bad, good]], [start(p), beat([3])])
    assert found.counts["p", "seen"] == 1
    letters = found.outs["hush.p.dlq"]
    headers = [dict(o.headers) for o in letters]
    assert [h["__streams.errors.reason"] for h in headers] == [b"malformed", b"null"]
    assert [h["__streams.errors.offset"] for h in headers] == [b"0", b"1"]
    assert letters[0].value == b"{oops" and letters[0].key == b"k"
    assert dict(letters[0].headers)["__streams.errors.timestamp"] == b"5"


def test_several_pipelines_share_the_decoding_of_their_input(monkeypatch):
    import hushstream.formats.events.decode as events

    calls: list[int] = []
    original = events.Decoder.decode

    def counted(self, records, *more):
        calls.append(len(records))
        return original(self, records, *more)

    monkeypatch.setattr(events.Decoder, "decode", counted)
    found = run(BASE[:500], pipelines=("p", "q"))
    assert sum(calls) == 500
    assert counts(found, 4) and counts(found, 4, "hush.q.releases.v1")


def test_a_unit_on_the_wrong_partition_is_refused_as_the_declared_partitioner_says():
    made = deployment(partitions=2, partitioner="crc32")
    p = made.pipelines[0]
    home = int(hashed(Keys.of([b"a"]), "crc32")[0] % 2)
    logs: list[list[RawRecord]] = [[], []]
    logs[home] = [event(0, "a", "x")]
    logs[1 - home] = [event(0, "a", "x"), event(1, "a", "x")]
    found = engine(made, logs, [start(p), beat([len(log) for log in logs])])
    assert found.counts["p", "seen"] == 1
    assert found.counts["p", "invalid:wrong_partition"] == 2


def test_a_trigger_that_was_charged_for_another_configuration_stops_the_stage():
    made = deployment()
    p = made.pipelines[0]
    wrong = trigger(p, 1, [0])
    wrong = type(wrong)(**{**{f: getattr(wrong, f) for f in wrong.__struct_fields__},
                           "config_hash": "other"})  # fmt: skip
    with pytest.raises(EngineError, match="charged another configuration"):
        engine(made, [[]], [start(p), wrong])


def test_a_gap_in_the_clock_log_stops_the_stage():
    made = deployment()
    p = made.pipelines[0]
    with pytest.raises(EngineError, match="gap"):
        engine(made, [[]], [start(p), trigger(p, 2, [0], index=2)])


def test_a_marker_has_the_time_of_the_last_clock_entry_that_it_passed():
    made = deployment(more='public_keys = ["x"]')
    p = made.pipelines[0]
    log = [event(i, f"u{i}", "x") for i in range(9)]
    passed = []
    for entries in ([start(p), beat([4], 7)], [start(p), beat([4], 7), beat([9], 8)]):
        found = engine(made, [log], entries)
        (marker,) = [s._marker for s in found._shards if isinstance(s.stage, IngestStage)]
        passed.append((marker.clock, marker.passed))
    assert passed == [(2, 7), (3, 8)]


def test_a_beat_that_only_moves_other_partitions_counts_as_used_without_a_step():
    made = deployment(partitions=2)
    p = made.pipelines[0]
    clock = ClockLog({p.name: p.traits.horizon})
    stage = IngestStage(made.inputs[0], 1, NAMES, SECRET, clock, Beside())
    store, marker = MemoryStore(), Marker("abcdef", 0)
    stage.open(store, marker)
    clock.append(0, start(p))
    for second in range(1, 301):
        clock.append(second, beat([second, 0], ORIGIN + second * 1_000_000))
        step = stage.step(store, marker, [], 0)
        marker = marker if step is None else step.marker
    assert marker.clock < 300 and stage.clock_position == 301
    assert stage.watermark == {p.name: ORIGIN + 300_000_000}
