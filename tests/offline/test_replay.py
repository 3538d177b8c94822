"""Replay: what it compares, and its detection of each kind of fault in a log.

Covers: offline/compare.py, offline/compare_units.py, agents/clock/paid.py
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.clock.paid import Clocked
from hushstream.agents.deployment.published.statement import charge_body
from hushstream.agents.kafka.logs import PartitionLog
from hushstream.agents.kafka.set_aside import mark
from hushstream.agents.stages.step import LogFrame, Out
from hushstream.errors import ConfigError, EngineError, LedgerError
from hushstream.formats.events.decode import RawRecord
from hushstream.offline.compare import (
    ReleaseCheck,
    ReplayOutcome,
    compare_dead_letters,
    compare_names,
)
from hushstream.offline.compare_units import Comparison
from hushstream.offline.engine import OfflineEngine, Recorded
from hushstream.offline.replay import select
from hushstream.offline.replay_reach import named_offsets
from hushstream.topics.frames import EventsFrame, decode, encode_events
from hushstream.topics.records import Trigger
from hushstream.topics.signatures import Sealing

from ..reading.signed import KEY, OTHER, world
from ..support import NAMES, ORIGIN, SECRET, beat, deployment, engine, event, start, trigger

# Without feedback, so that the first stage can run to its end by itself.
MADE = deployment(partitions=2, units=2, cells=2, mechanism=", adaptive_weight = 0")
P = MADE.pipelines[0]
TOPIC = P.release_topic


def workload() -> list[list[RawRecord]]:
    logs = [[event(i, f"u{n}-{i % 80}", f"p{i % 3}") for i in range(240)] for n in range(2)]
    logs[0].append(RawRecord(240, 7, b"k", b"{bad"))
    logs[1].append(event(240, "u", "p", ORIGIN - 1))
    return logs


TRIGGERS = [trigger(P, n, [60 * n, 60 * n]) for n in range(1, 5)]
CLOCK = [start(P), *TRIGGERS, beat([241, 241])]
RUN = engine(MADE, workload(), CLOCK)


def published(outs) -> PartitionLog:
    """A release topic of one partition that holds these records, in order."""
    records = [
        RawRecord(n, -1 if o.timestamp is None else o.timestamp, o.key, o.value, tuple(o.headers))
        for n, o in enumerate(outs)
    ]
    return PartitionLog(0, records)


WHOLE = published(RUN.outs[TOPIC])


def compare_releases(p, triggers, windows, outs, committed, uncommitted, outcome):
    """Compare as a replay does: expected records first, then both views of the topic."""
    check = ReleaseCheck(p, triggers, windows)
    for out in outs:
        check.expect(out)
    for kept, logs in ((True, committed), (False, uncommitted)):
        for partition, log in enumerate(logs):
            for record in log.records:
                check.take(partition, record, kept)
    check.finish(outcome)


def judge(committed: PartitionLog, uncommitted: PartitionLog | None = None, windows=None):
    outcome = ReplayOutcome()
    compare_releases(
        P, TRIGGERS, windows, RUN.outs[TOPIC], [committed], [uncommitted or committed], outcome
    )
    return outcome


def figures(outcome: ReplayOutcome) -> tuple[int, int, int, int]:
    return outcome.lost, outcome.doubled, outcome.differing, outcome.pending


def without(log: PartitionLog, place: int) -> PartitionLog:
    return log._replace(records=log.records[:place] + log.records[place + 1 :])


def test_what_was_published_as_it_should_be_agrees():
    outcome = judge(WHOLE)
    assert figures(outcome) == (0, 0, 0, 0) and outcome.agrees
    assert outcome.compared == len(WHOLE.records) > 10
    assert outcome.figures()["agrees"] is True


def test_a_missing_record_is_lost_wherever_later_ones_are_there():
    assert figures(judge(without(WHOLE, 0))) == (1, 0, 0, 0)


def test_what_has_not_come_yet_is_pending():
    last = [r for r in WHOLE.records if b'"trigger":4' in (r.value or b"")]
    head = [r for r in WHOLE.records if r not in last]
    assert figures(judge(PartitionLog(0, head))) == (0, 0, 0, len(last))


def test_a_record_that_is_there_twice_is_doubled():
    assert figures(judge(WHOLE._replace(records=[*WHOLE.records, WHOLE.records[0]]))) == (
        0,
        1,
        0,
        0,
    )


@pytest.mark.parametrize(
    "change",
    [
        {"value": WHOLE.records[0].value.replace(b'"final":false', b'"final":true')},
        {"timestamp": WHOLE.records[0].timestamp + 1},
        {"headers": (("trace", b"1"),)},
    ],
    ids=["value", "timestamp", "headers"],
)
def test_any_other_byte_differs(change):
    changed = WHOLE.records[0]._replace(**change)
    records = [changed, *WHOLE.records[1:]]
    assert figures(judge(WHOLE._replace(records=records))) == (0, 0, 1, 0)


def test_a_record_on_another_partition_differs():
    outcome = ReplayOutcome()
    logs = [PartitionLog(0, []), WHOLE]
    compare_releases(P, TRIGGERS, None, RUN.outs[TOPIC], logs, logs, outcome)
    assert outcome.differing == len(WHOLE.records)


def test_a_release_that_nothing_accounts_for_differs():
    strange = WHOLE.records[0]._replace(key=b"p|2019-03-01T00:00:00Z|strange")
    assert judge(WHOLE._replace(records=[*WHOLE.records, strange])).differing == 1


@pytest.mark.parametrize(
    "value", [b"{not json", b"[1]", b"null", b'{"trigger": null}', None, b"\xff"]
)
def test_what_is_no_release_at_all_differs_and_stops_nothing(value):
    strange = WHOLE.records[0]._replace(value=value)
    outcome = judge(WHOLE._replace(records=[*WHOLE.records, strange]))
    assert (outcome.differing, outcome.lost) == (1, 0) and outcome.compared == len(WHOLE.records)


def test_aborted_copies_must_be_the_same_bytes():
    same = WHOLE._replace(records=[WHOLE.records[0], *WHOLE.records])
    outcome = judge(WHOLE, same)
    assert outcome.agrees and outcome.aborted == 1
    other = WHOLE.records[0]._replace(value=WHOLE.records[0].value.replace(b"1", b"2"))
    outcome = judge(WHOLE, WHOLE._replace(records=[other, *WHOLE.records]))
    assert outcome.differing == 1 and outcome.aborted == 0


def test_windows_can_be_chosen():
    assert judge(WHOLE, windows={0}).compared == len(WHOLE.records)
    assert judge(WHOLE, windows={1}).compared == 0


@pytest.mark.parametrize("topic", ["hush.p.dlq", "hush.p.late"])
def test_dead_and_late_records_are_compared_too(topic):
    outs = RUN.outs[topic]
    assert len(outs) == 1

    def compared(log: PartitionLog) -> ReplayOutcome:
        outcome = ReplayOutcome()
        compare_dead_letters(topic, outs, log, outcome)
        return outcome

    whole = published(outs)
    assert compared(whole).compared == 1
    at_another_time = PartitionLog(0, [whole.records[0]._replace(timestamp=1_700_000_000_000)])
    assert (compared(at_another_time).compared, compared(at_another_time).agrees) == (1, True)
    assert compared(whole._replace(records=whole.records * 2)).doubled == 1
    assert compared(PartitionLog(0, [])).pending == 1
    changed = whole.records[0]._replace(value=b"other")
    found = compared(PartitionLog(0, [changed]))
    assert (found.differing, found.lost) == (1, 1)


def test_dead_letters_of_a_shared_topic_name_pipelines_that_the_ledger_knows():
    (letter,) = published(RUN.outs["hush.p.dlq"]).records
    named = [
        letter._replace(headers=(*letter.headers, ("__streams.errors.pipeline", name)))
        for name in (b"p", b"q")
    ]
    log = PartitionLog(0, [*named, letter._replace(headers=mark(5))])
    for known, differing in ((["p", "q"], 0), (["p"], 1), ([], 2)):
        outcome = ReplayOutcome()
        compare_names("hush.d.events.dlq", log, known, outcome)
        assert outcome.differing == differing
    assert "of pipeline 'q'" in outcome.problems[-1]


def test_what_was_read_before_a_pipeline_was_declared_is_not_lost():
    """Earlier workers set nothing aside for it; from its first copy on, all workers did."""
    source, bad = (b"events", b"0"), (10, 100, 200)
    logs = [[event(i, f"u{i}", "p") for i in range(240)], []]
    for offset in bad:
        logs[0][offset] = RawRecord(offset, 7, b"k", b"{bad")
    outs = engine(MADE, logs, [start(P), beat([240, 0])]).outs["hush.p.dlq"]

    def lost(there: set[int], sure: int) -> int:
        outcome = ReplayOutcome()
        log = published([out for at, out in zip(bad, outs, strict=True) if at in there])
        compare_dead_letters("hush.p.dlq", outs, log, outcome, {}, {source: sure})
        assert outcome.compared == len(there) and not outcome.differing
        return outcome.lost

    assert (lost({100, 200}, 150), lost({100, 200}, 0)) == (0, 1)
    assert lost({10, 200}, 150) == lost({200}, 60) == 1
    read = Clocked()
    for record in (beat([30, 20]), start(P), beat([50, 50])):
        read.take(record)
    assert read.begun == {"p": {"events": [30, 20]}}
    assert named_offsets(read.begun["p"]) == {source: 30, (b"events", b"1"): 20}


# -- units logs -----------------------------------------------------------------------------------


def units_logs() -> tuple[dict, dict]:
    """The first stage's records for the units topic, and the log that they make."""
    name = NAMES.units("p")
    given = {(name, n): [] for n in range(2)}
    raw = {("events", n): log for n, log in enumerate(workload())}
    run = OfflineEngine(MADE, NAMES, SECRET, raw, list(enumerate(CLOCK)), Recorded(units=given))
    run.run()
    sent = {(name, n): [o for o in run.outs[name] if o.partition == n] for n in range(2)}
    logs = {
        place: [LogFrame(i, o.value) for i, o in enumerate(outs)] for place, outs in sent.items()
    }
    return sent, logs


def judge_units(change) -> ReplayOutcome:
    sent, logs = units_logs()
    place = (NAMES.units("p"), 0)
    logs[place] = change(logs[place])
    outcome = ReplayOutcome()
    for (topic, partition), outs in sent.items():
        check = Comparison(f"{topic}-{partition}", outcome)
        for out in outs:
            check.sent(out.value or b"")
        for frame in logs[topic, partition]:
            check.found(frame.value)
        check.finish()
    return outcome


def is_events(frame: LogFrame) -> bool:
    return isinstance(decode(frame.value), EventsFrame)


def cut_anew(frames: list[LogFrame]) -> list[LogFrame]:
    """The events of some frames, in frames of one event each."""
    out = []
    for frame in frames:
        taken = decode(frame.value)
        if isinstance(taken, EventsFrame):
            for row in range(len(taken.slice.unit)):
                out += list(encode_events(taken.origin, taken.slice.part([row])))
        else:
            out.append(frame.value)
    return [LogFrame(n, value) for n, value in enumerate(out)]


def test_units_logs_agree_however_they_were_framed():
    outcome = judge_units(lambda frames: frames)
    assert outcome.agrees and outcome.routed == 480 and outcome.problems == []
    assert judge_units(cut_anew).agrees


def test_an_event_lost_or_doubled_on_the_way_is_seen():
    frames = units_logs()[1][NAMES.units("p"), 0]
    first = next(n for n, f in enumerate(frames) if is_events(f))
    size = len(decode(frames[first].value).slice.unit)
    lost = judge_units(lambda f: f[:first] + f[first + 1 :])
    assert lost.lost == size and not lost.agrees
    doubled = judge_units(lambda f: [f[first], *f])
    assert doubled.doubled == size
    moved = judge_units(lambda f: [*f[:first], *f[first + 1 :], f[first]])
    assert moved.lost == size  # after its own barrier it is never counted
    other = judge_units(lambda f: f[:first] + units_logs()[1][NAMES.units("p"), 1])
    assert not other.agrees


def test_a_units_log_that_is_behind_is_no_fault():
    assert judge_units(lambda frames: frames[:2]).agrees


def test_a_replay_from_the_units_log_gives_the_same_releases():
    _, logs = units_logs()
    raw = {("events", n): log for n, log in enumerate(workload())}
    run = OfflineEngine(MADE, NAMES, SECRET, raw, list(enumerate(CLOCK)), Recorded(units=logs))
    run.run()
    assert sorted(run.outs[TOPIC]) == sorted(RUN.outs[TOPIC])


# -- clock log and ledger -------------------------------------------------------------------------


def paid() -> Ledger:
    ledger = Ledger()
    ledger.take(ledger.next("genesis", 1, {"genesis": "abcdef"}).encode())
    ledger.take(ledger.next("charge", 2, charge_body(P, 0, "1.0", "key")).encode())
    return ledger


def entries(*records):
    return list(enumerate(records))


def check_clock(entries, ledger: Ledger) -> None:
    read = Clocked()
    for _, record in entries:
        read.take(record)
    read.check_paid(ledger)


def test_a_trigger_must_name_the_charge_that_paid_for_it():
    ledger = paid()
    charge = ledger.records[-1]
    good = trigger(P, 1, [5, 5], charge=charge.hash())
    check_clock(entries(start(P), good), ledger)
    with pytest.raises(LedgerError, match="another charge"):
        check_clock(entries(trigger(P, 1, [5, 5])), ledger)
    with pytest.raises(LedgerError, match="never charged"):
        check_clock(entries(trigger(P, 5, [5, 5], window=1, index=1)), ledger)
    other = replace(P, config_hash="other")
    with pytest.raises(LedgerError, match="another configuration"):
        check_clock(entries(trigger(other, 1, [5, 5], charge=charge.hash())), ledger)
    check_clock(entries(replace_epochs(good, 0)), ledger)  # 0: before triggers stated it
    with pytest.raises(LedgerError, match="states 2 epochs, 1 were charged"):
        check_clock(entries(replace_epochs(good, 2)), ledger)


def replace_epochs(trigger: Trigger, epochs: int) -> Trigger:
    return msgspec.structs.replace(trigger, epochs=epochs)


def test_a_cut_may_not_lie_below_what_has_been_used():
    with pytest.raises(EngineError, match="goes back"):
        check_clock(entries(beat([5, 9]), beat([6, 8])), paid())


def test_pipelines_can_be_chosen():
    made = deployment(pipelines=("p", "q"))
    assert [p.name for p in select(made, ["q"]).pipelines] == ["q"]
    assert select(made, []) is made
    with pytest.raises(ConfigError, match="pipeline 'z' is unknown; expected one of p, q"):
        select(made, ["q", "z"])


def test_a_signature_that_does_not_hold_differs():
    """A replay cannot sign, so it removes a signature only if it holds."""
    whole = world()
    sealing = Sealing(Ledger.read(whole.ledger).records[0].hash(), KEY.public)
    made = deployment(
        cells=3, swap={"cells_partitions": "release_partitions = 2\ncells_partitions"}
    )
    (p,) = made.pipelines

    def compared(public: str) -> ReplayOutcome:
        outcome, seals = ReplayOutcome(), Sealing(sealing.genesis, public)
        check = ReleaseCheck(p, [], None, sealing=seals)
        for partition, log in enumerate(world(sealing=sealing).releases):
            for one in log:
                check.expect(Out(TOPIC, partition, one.key, one.value, one.timestamp, one.headers))
        for partition, log in enumerate(whole.releases):
            for one in log:
                check.take(partition, one, True)
        check.finish(outcome)
        return outcome

    assert compared(KEY.public).agrees and compared(KEY.public).compared > 40
    assert compared(OTHER.public).differing == 24
