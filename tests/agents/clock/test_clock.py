"""The clock: charges before triggers, one cut for all missed triggers, repeated requests."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hushstream.agents.clock.clock import Clock
from hushstream.agents.clock.ledger import Ledger
from hushstream.errors import EngineError, LedgerError
from hushstream.topics.config.pipelines.schedule import Due
from hushstream.topics.records import (
    Retired,
    Skipped,
    Start,
    Trigger,
    TriggerRequest,
    WiderTrigger,
    decode_clock,
    encode,
)

from ...support import DAY, HOUR, ORIGIN, beat, deployment, start, trigger
from .bench import (
    P,
    begun,
    fire_all,
    retire,
    with_pipeline,
)


def test_an_epoch_is_charged_once_and_before_its_first_trigger():
    clock, ledger = begun(with_pipeline(external=False))
    written = fire_all(clock, ledger, ORIGIN + DAY + 6 * HOUR)
    kinds = [getattr(w, "kind", None) or (w.window, w.index) for w in written]
    assert kinds == ["charge", (0, 1), (0, 2), (0, 3), (0, 4), "charge", (1, 1)]
    charges = {r.body["epoch"]: r for r in ledger.charges.values()}
    for record in written:
        if isinstance(record, Trigger):
            assert record.charge == charges[record.epoch].hash()
            assert record.charge_seq == charges[record.epoch].seq
    assert [w.ordinal for w in written if isinstance(w, Trigger)] == [1, 2, 3, 4, 5]
    assert [w.final for w in written if isinstance(w, Trigger)] == [False] * 3 + [True, False]
    assert [w.epochs for w in written if isinstance(w, Trigger)] == [1, 1, 1, 1, 2]


def test_a_window_of_the_calendar_is_closed_by_its_own_last_trigger():
    """March has 31 triggers and April has 30; both are in one epoch, which is charged once."""
    made = deployment(
        more='epoch = "2 months"',
        swap={
            'window = { length = "1d", origin = "2019-03-01T00:00:00Z" }':
            'window = { length = "1 month", origin = "2019-03-01T00:00:00Z" }',
            'every = "6h"': 'every = "1d"',
            'schedule = "external"\n': "",
        },
    )  # fmt: skip
    (pipeline,) = made.pipelines
    clock, ledger = begun(made)
    written = fire_all(clock, ledger, ORIGIN + 62 * DAY)
    triggers = [w for w in written if isinstance(w, Trigger)]
    assert [(w.window, w.index) for w in triggers if w.final] == [(0, 31), (1, 30)]
    assert [(w.window, w.index, w.epoch) for w in triggers][-1] == (2, 1, 1)
    assert len(ledger.charges) == 2 and pipeline.traits.horizon == 31
    timeline = clock.timelines[pipeline.name]
    assert (timeline.floor, timeline.closed, timeline.done) == (2, set(), {2: 1})


@pytest.mark.parametrize("limit", [None, Fraction(1, 10)], ids=["charged", "refused"])
def test_the_ledger_does_not_tell_how_late_a_trigger_was_fired(limit):
    """The ledger is public, and the clock's owner is late when its process has much to count."""
    made, heads = with_pipeline(external=False, limit_epsilon=limit), set()
    for late in (1, 250_000, 7_654_321, 59_999_999):
        clock, ledger = begun(made)
        fire_all(clock, ledger, ORIGIN + 6 * HOUR + late)
        assert ledger.records[-1].time == ORIGIN + 6 * HOUR
        heads.add(ledger.head)
    assert len(heads) == 1


def test_a_charge_is_one_of_its_kind():
    """If the ledger is lost and an epoch is charged anew, the charge has another hash and noise."""
    hashes = set()
    for salt in ("one", "other"):
        ledger = begun()[1]
        clock = Clock(with_pipeline(external=False), ledger, "1.0", "key", salt)
        clock.apply(start(P))
        fire_all(clock, ledger, ORIGIN + 6 * HOUR)
        hashes.add(ledger.charges["p", 0].hash())
    assert len(hashes) == 2


def test_triggers_that_were_missed_come_at_once_with_the_same_cut():
    clock, ledger = begun(with_pipeline(external=False))
    written = fire_all(clock, ledger, ORIGIN + DAY)
    assert {tuple(w.offsets["events"]) for w in written if isinstance(w, Trigger)} == {(5,)}
    assert [w.scheduled for w in written if isinstance(w, Trigger)] == [
        ORIGIN + n * 6 * HOUR for n in range(1, 5)
    ]
    assert fire_all(clock, ledger, ORIGIN + DAY) == []


def test_an_exhausted_budget_is_refused_and_nothing_is_triggered():
    made = with_pipeline(external=False, limit_epsilon=P.epsilon * 5 / 4)
    clock, ledger = begun(made)
    written = fire_all(clock, ledger, ORIGIN + 3 * DAY)
    assert [w.window for w in written if isinstance(w, Trigger)] == [0] * 4
    assert [w.window for w in written if isinstance(w, Skipped)] == [1, 2]
    assert [r.kind for r in ledger.records] == ["genesis", "charge", "refused", "refused"]
    assert clock.timelines["p"].batch(1) == 0  # the window's data are dropped


def test_a_refused_epoch_stays_refused_and_is_written_once():
    made = with_pipeline(external=False, limit_epsilon=Fraction(1, 10))
    clock, ledger = begun(made)
    fire_all(clock, ledger, ORIGIN + 6 * HOUR)
    assert [r.kind for r in ledger.records] == ["genesis", "refused"]
    again = Clock(made, ledger, "1.0", "key")
    again.apply(start(made.pipelines[0]))
    written = fire_all(again, ledger, ORIGIN + 6 * HOUR)
    assert [type(w) for w in written] == [Skipped]


def test_an_epoch_that_was_refused_is_not_paid_for_when_the_limit_is_raised():
    clock, ledger = begun(with_pipeline(external=False, limit_epsilon=Fraction(1, 10)))
    fire_all(clock, ledger, ORIGIN + 6 * HOUR)
    raised = with_pipeline(external=False, limit_epsilon=None)
    again = Clock(raised, ledger, "1.0", "key")
    again.apply(start(raised.pipelines[0]))
    written = fire_all(again, ledger, ORIGIN + DAY + 6 * HOUR)
    kinds = [getattr(w, "kind", None) or (type(w), w.window) for w in written]
    assert kinds == [(Skipped, 0), "charge", (Trigger, 1)]


def test_the_time_of_the_clock_is_that_of_its_latest_record():
    """A new owner continues from it, although times in the log may be out of order."""
    clock, _ = begun()
    for time in (ORIGIN + 3 * HOUR, ORIGIN + HOUR):
        clock.apply(beat([5], time))
    assert clock.time == ORIGIN + 3 * HOUR


def test_a_new_owner_that_finds_the_charge_does_not_pay_again():
    made = with_pipeline(external=False)
    clock, ledger = begun(made)
    first = fire_all(clock, ledger, ORIGIN + 6 * HOUR)
    again = Clock(made, ledger, "1.0", "key")
    for record in [start(P), beat([9], ORIGIN), first[-1]]:
        again.apply(record)
    written = fire_all(again, ledger, ORIGIN + 12 * HOUR)
    assert [w.index for w in written] == [2]
    assert written[0].charge == first[-1].charge


@pytest.mark.parametrize(
    "changes,fingerprint,message",
    [({"config_hash": "new"}, "key", "another configuration"), ({}, "other", "noise key")],
)
def test_an_open_epoch_keeps_its_configuration_and_key(changes, fingerprint, message):
    clock, ledger = begun(with_pipeline(external=False))
    fire_all(clock, ledger, ORIGIN + 6 * HOUR)
    made = with_pipeline(external=False, **changes)
    again = Clock(made, ledger, "1.0", fingerprint)
    again.apply(start(P))
    with pytest.raises(EngineError, match=message):
        fire_all(again, ledger, ORIGIN + 12 * HOUR)


def test_a_pipeline_with_a_key_of_its_own_starts_is_charged_and_fires_under_that_one():
    made = with_pipeline(external=False, own_key="its own")
    clock, ledger = Clock(made, Ledger(), "1.0", "key"), Ledger()
    (first,) = clock.starts(ORIGIN)
    assert first.key_fingerprint == "its own"
    clock, ledger = begun(made)
    *_, trigger = fire_all(clock, ledger, ORIGIN + 6 * HOUR)
    (charge,) = ledger.charges.values()
    assert (charge.body["key_fingerprint"], trigger.key_fingerprint) == ("its own", "its own")


def test_requests_are_deduplicated_never_go_back_and_wait_for_their_time():
    clock, ledger = begun()
    now = ORIGIN + 400 * DAY
    assert fire_all(clock, ledger, now) == []  # no request was sent
    clock.request(TriggerRequest("a", ORIGIN + 12 * HOUR))
    assert len([w for w in fire_all(clock, ledger, now) if isinstance(w, Trigger)]) == 2
    clock.request(TriggerRequest("a", ORIGIN + 12 * HOUR))
    clock.request(TriggerRequest("b", ORIGIN + 6 * HOUR))
    clock.request(TriggerRequest("c", ORIGIN + DAY, ["another"]))
    assert fire_all(clock, ledger, now) == []
    clock.request(TriggerRequest("d", ORIGIN + 3000 * DAY))  # far in the future: only what is due
    written = fire_all(clock, ledger, ORIGIN + DAY)
    assert [w.index for w in written if isinstance(w, Trigger)] == [3, 4]


def test_a_first_window_is_started_once():
    made = with_pipeline(external=False)
    clock = Clock(made, Ledger(), "1.0", "key")
    (first,) = clock.starts(ORIGIN + 5 * DAY + 1)
    assert first == Start("p", 5, ORIGIN + 5 * DAY + 1, "key")
    assert clock.due(ORIGIN + 9 * DAY) == []  # nothing before it has started
    clock.apply(first)
    assert clock.starts(ORIGIN + 6 * DAY) == []


def test_no_window_precedes_one_without_a_stated_end():
    """Before the origin, a century of triggers of an earlier window would be overdue."""
    swap = {'length = "1d"': "endless = true", 'schedule = "external"': ""}
    made = deployment(swap=swap, mechanism=", adaptive_weight = 0")
    clock = Clock(made, Ledger(), "1.0", "key")
    (first,) = clock.starts(ORIGIN - DAY)
    assert first.window == 0
    clock.apply(first)
    assert clock.due(ORIGIN) == [] and clock.unpaid(ORIGIN - DAY) == []
    ((_, due),) = clock.due(ORIGIN + 6 * HOUR)
    assert due == Due(0, 1, ORIGIN + 6 * HOUR)


def test_clock_records_survive_their_encoding():
    for record in (
        start(P),
        beat([1, 2]),
        trigger(P, 1, [3]),
        Skipped("p", 1, 2, 3),
        Retired("p", 4, 5),
    ):
        assert decode_clock(encode(record)) == record


def test_a_cancelled_request_fires_nothing_more():
    clock, ledger = begun()
    clock.request(TriggerRequest("a", ORIGIN + DAY))
    assert len(fire_all(clock, ledger, ORIGIN + 6 * HOUR)) == 2  # a charge and a trigger
    clock.request(TriggerRequest("b", 0, ["another"], cancel=True))
    clock.request(TriggerRequest("c", 0, cancel=True))
    assert fire_all(clock, ledger, ORIGIN + DAY) == []
    clock.request(TriggerRequest("d", ORIGIN + 12 * HOUR))
    assert len(fire_all(clock, ledger, ORIGIN + DAY)) == 1


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("noted", [False, True])
def test_no_epoch_at_or_beyond_the_end_is_charged_or_triggered(external, noted):
    """The boundary is exact, for any request, and even before the clock log has the end."""
    made = with_pipeline(external=external)
    clock, ledger = begun(made)
    retire(ledger, 2, made)
    if noted:
        for record in clock.retirements(ORIGIN):
            clock.apply(record)
        assert clock.timelines["p"].end == 2 and clock.retirements(ORIGIN) == []
    now = ORIGIN + 9 * DAY
    clock.request(TriggerRequest("a", now))
    written = fire_all(clock, ledger, now)
    assert {w.epoch for w in written if isinstance(w, Trigger)} == {0, 1}
    assert [w.index for w in written if isinstance(w, Trigger)] == [1, 2, 3, 4] * 2
    assert set(ledger.charges) == {("p", 0), ("p", 1)}
    assert clock.due(now) == [] and clock.unpaid(now) == []


def test_a_trigger_beyond_the_end_is_refused_even_if_somebody_makes_one():
    made = with_pipeline(external=False)
    clock, ledger = begun(made)
    retire(ledger, 1, made)
    clock.fire(made.pipelines[0], Due(0, 1, ORIGIN + 6 * HOUR), ORIGIN + DAY)
    with pytest.raises(LedgerError, match="retired before epoch 1"):
        clock.fire(made.pipelines[0], Due(1, 1, ORIGIN + 30 * HOUR), ORIGIN + 2 * DAY)


def test_an_epoch_beyond_the_end_is_not_refused_for_lack_of_budget():
    made = with_pipeline(external=False, limit_epsilon=P.epsilon)
    clock, ledger = begun(made)
    retire(ledger, 1, made)
    fire_all(clock, ledger, ORIGIN + DAY)
    assert clock.unpaid(ORIGIN + 5 * DAY) == []


def test_a_retired_pipeline_says_so_once_in_the_clock_log():
    clock, ledger = begun()
    assert clock.retirements(ORIGIN) == []
    retire(ledger, 3)
    (record,) = clock.retirements(ORIGIN + HOUR)
    assert record == Retired("p", 3, ORIGIN + HOUR)
    clock.apply(record)
    assert clock.retirements(ORIGIN + HOUR) == []


@pytest.mark.parametrize("now", [ORIGIN - DAY, ORIGIN + 5 * DAY + 1])
def test_a_follower_begins_where_the_other_ends_however_late_its_worker_is(now):
    made = with_pipeline(external=False, follows="o")
    clock = Clock(made, Ledger(), "1.0", "key")
    (first,) = clock.starts(now)
    assert first.window == 0  # its windows begin where those of the other pipeline end
    clock.apply(first)
    assert clock.timelines["p"].batch(-1) == 0 and clock.timelines["p"].batch(0) == 1


def test_triggers_since_a_growth_have_a_tag_of_their_own():
    clock, ledger = begun(with_pipeline(external=False))
    ((pipeline, due),) = clock.due(ORIGIN + 6 * HOUR)
    assert type(clock.fire(pipeline, due, ORIGIN + 6 * HOUR)[1]) is Trigger
    ledger.grown.append({"topic": "events", "from": 1, "to": 2, "triggers": {P.name: 0}})
    assert type(clock.fire(pipeline, due, ORIGIN + 6 * HOUR)[1]) is WiderTrigger
