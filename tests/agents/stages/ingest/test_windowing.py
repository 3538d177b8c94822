"""Windows by arrival: a fixed number of triggers each, for any times of events."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hushstream.agents.clock.clock import Clock
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.clock.timeline import Timeline
from hushstream.agents.deployment.model import Pipeline
from hushstream.agents.stages.ingest.windowing import by_window, placed
from hushstream.errors import ConfigError
from hushstream.formats.events.decode import RawRecord
from hushstream.offline.engine import OfflineEngine
from hushstream.offline.simulate import simulate
from hushstream.topics.config.load import loads
from hushstream.topics.records import ClockRecord, Skipped, Start, Trigger, TriggerRequest
from hypothesis import given, settings
from hypothesis import strategies as st

from ....support import (
    DAY,
    HOUR,
    INPUT,
    NAMES,
    ORIGIN,
    PIPELINE,
    SECRET,
    beat,
    deployment,
    event,
    released,
)

LENGTH = 'window = { length = "1d", origin = "2019-03-01T00:00:00Z" }'
ARRIVAL = 'window = { horizon = 4, origin = "2019-03-01T00:00:00Z" }'
TIMES = (0, ORIGIN - 400 * DAY, ORIGIN, ORIGIN + 3 * DAY, ORIGIN + 900 * DAY)


def made(more: str = 'public_keys = ["x"]', wall: bool = False, **options: Any) -> Any:
    return deployment(more=more, swap=_swap(wall), **options)


def _swap(wall: bool) -> dict[str, str]:
    return {LENGTH: ARRIVAL, **({'schedule = "external"': ""} if wall else {})}


def log(count: int, page: str = "x", unit: str = "u{}") -> list[RawRecord]:
    """Events with all kinds of times, out of order."""
    return [event(n, unit.format(n), page, TIMES[n * 7 % len(TIMES)]) for n in range(count)]


def test_events_count_where_they_arrive_and_none_is_late_or_in_the_future():
    d = made()
    p = d.pipelines[0]
    clock, _ = clock_log(d, [10 * n for n in range(1, 9)])
    run = OfflineEngine(d, NAMES, SECRET, {("events", 0): log(80)}, list(enumerate(clock)))
    run.run()
    assert run.counts["p", "seen"] == 80
    assert not run.counts["p", "late"] and not run.counts["p", "future"]
    bodies = [json.loads(value) for _, value in released(run)]
    bodies.sort(key=lambda b: (b["window"]["start"], b["trigger"]))
    assert [(b["window"]["start"], b["trigger"]) for b in bodies] == [
        (f"2019-03-0{day}T00:00:00Z", n) for day in (1, 2) for n in range(1, 5)
    ]
    for n, body in enumerate(bodies):
        count = body["values"]["count"]
        # Each window starts from zero.
        assert abs(count["value"] - 10 * (n % 4 + 1)) < 6 * count["stddev"]
        assert body["final"] == (body["trigger"] == p.traits.horizon)


def clock_log(d: Any, cuts: list[int]) -> tuple[list[Any], Ledger]:
    """The records that the clock writes on schedule, with one trigger at each cut."""
    ledger = Ledger()
    ledger.take(ledger.next("genesis", 1, {"genesis": "abcdef"}).encode())
    clock = Clock(d, ledger, "test", "key")
    out: list[ClockRecord] = [Start("p", 0, ORIGIN)]
    clock.apply(out[0])
    for n, cut in enumerate(cuts, 1):
        now = ORIGIN + 6 * HOUR * n
        clock.request(TriggerRequest(str(n), now))
        steps: list[ClockRecord] = [beat([cut], now)]
        clock.apply(steps[0])
        for pipeline, due in clock.due(now):
            charges, record = clock.fire(pipeline, due, now)
            for charge in charges:
                ledger.take(charge.encode())
            clock.apply(record)
            steps.append(record)
        out += steps
    return out, ledger


def test_each_window_has_its_own_charge_and_its_own_bound():
    """One unit keeps sending: a budget of 4 pays for two records in each window, and no more."""
    d = made()
    clock, ledger = clock_log(d, [10 * n for n in range(1, 9)])
    assert sorted(epoch for _, epoch in ledger.charges) == [0, 1]
    raw = {("events", 0): log(80, unit="same")}
    run = OfflineEngine(d, NAMES, SECRET, raw, list(enumerate(clock)))
    run.run()
    assert run.counts["p", "seen"] == 80 and run.counts["p", "accepted"] == 4


def test_windows_that_share_an_epoch_share_the_bound():
    d = made('public_keys = ["x"]\nepoch = "2d"')
    clock, ledger = clock_log(d, [10 * n for n in range(1, 9)])
    assert len(ledger.charges) == 1
    run = OfflineEngine(
        d, NAMES, SECRET, {("events", 0): log(80, unit="same")}, list(enumerate(clock))
    )
    run.run()
    # A pair is a key in a window: two records in the first window use the whole budget.
    assert run.counts["p", "accepted"] == 2


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=8, max_size=8), st.integers(0, 2**32))
def test_what_is_released_depends_on_places_in_the_log_alone(steps, seed):
    """Records in the same places but with other times give the same bytes."""
    d = made(mechanism=", adaptive_weight = 0")
    cuts = np.cumsum(steps).tolist()
    clock, _ = clock_log(d, cuts)
    rng = np.random.default_rng(seed)
    found = []
    for times in (np.full(cuts[-1], ORIGIN), rng.choice(np.array(TIMES), cuts[-1])):
        raw = [event(n, f"u{n % 50}", "x", int(t)) for n, t in enumerate(times)]
        run = OfflineEngine(d, NAMES, SECRET, {("events", 0): raw}, list(enumerate(clock)))
        run.run()
        found.append([(o.key, o.value) for o in run.outs["hush.p.releases.v1"]])
    assert found[0] == found[1] and len(found[0]) == 16


def wall() -> Pipeline:
    pipeline: Pipeline = made(wall=True).pipelines[0]
    return pipeline


def trigger_of(p: Pipeline, ordinal: int, window: int, index: int) -> Trigger:
    return Trigger(
        0, {}, p.name, ordinal, window, index, index == 4, 0, window, 1, "", p.config_hash, ""
    )


def test_after_a_refused_epoch_nothing_is_kept_for_a_window_that_has_not_begun():
    p, timeline = wall(), Timeline(4)
    assert not p.external
    timeline.apply(Start("p", 0, ORIGIN))
    beats = ORIGIN + np.array([0, 5, 23, 25, 47, 49]) * HOUR
    time = np.zeros(6, np.int64)
    assert placed(p, timeline, time, beats)[0].tolist() == [0] * 6
    for n in range(1, 5):
        timeline.apply(trigger_of(p, n, 0, n))
    assert placed(p, timeline, time[3:], beats[3:])[0].tolist() == [1, 1, 1]
    timeline.apply(Skipped("p", 1, 1, 0, 2))
    windows, future = placed(p, timeline, time[3:], beats[3:])
    assert windows.tolist() == [1, 1, 2] and not future.any()
    assert [timeline.batch(w) for w in (1, 2)] == [0, 1]  # records of window 1 are dropped


def test_before_a_pipeline_has_started_every_record_is_too_early():
    p, timeline = wall(), Timeline(4)
    windows, _ = placed(p, timeline, np.zeros(2, np.int64), np.full(2, ORIGIN))
    assert {timeline.batch(int(w)) for w in windows} == {0}


def test_by_event_time_windows_follow_the_events():
    p, timeline = deployment().pipelines[0], Timeline(4)
    time = ORIGIN + np.array([-1, 0, DAY, 400 * DAY])
    windows, future = placed(p, timeline, time, np.full(4, ORIGIN))
    assert windows.tolist() == [-1, 0, 1, 400]
    assert future.tolist() == [False, False, True, True]


def test_slots_of_event_time_need_windows_of_event_time():
    value = 'inputs = { value = "amount" }\n'
    value += 'aggregate = [{ kind = "sum", field = "amount", low = 0, high = 9 }]'
    text = 'mechanism = { kind = "histogram", budget = 4 }'
    with pytest.raises(ConfigError, match="slots of event time"):
        deployment(more=value, swap=_swap(False) | {text: 'mechanism = { kind = "tops" }',
                                                   'key = ["page"]': ""})  # fmt: skip


@pytest.mark.parametrize("schedule", ["", 'schedule = "external"'])
def test_a_file_in_order_of_time_gives_the_same_counts_by_arrival(schedule):
    """If every event arrives at its own time, both kinds of windows are the same."""
    rng = np.random.default_rng(1)
    data = [
        {"user": f"u{n}", "page": "x", "t": ORIGIN + int(rng.integers(1, 48 * HOUR))}
        for n in range(900)
    ]
    found = []
    for window in (LENGTH, ARRIVAL):
        text = INPUT.format(units=2, cells=2, partitioner="none", format="json")
        text += PIPELINE.format(name="p", mechanism="", more='public_keys = ["x"]')
        text = text.replace(LENGTH, window).replace('schedule = "external"', schedule)
        reports, engine_ = simulate(loads(text, environ={}), data, "events", SECRET)
        counts = reports["p"].counts
        assert counts["seen"] == counts["accepted"] == 900
        bodies = [json.loads(o.value or b"") for o in engine_.outs["hush.p.releases.v1"]]
        rows = [b for b in bodies if b["schema"] == "hush.release/2"]
        found.append([(b["window"], b["trigger"], b["values"]["count"]["stddev"]) for b in rows])
        for window_, report in enumerate(reports["p"].windows):
            assert report["window"] == window_ and report["linf"] < 6 * 8
    assert found[0] == found[1] and len(found[0]) == 8


CAP = "delta = 1e-4, per_unit = { epsilon = 12, delta = 2e-4 } }"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=20))
def test_a_unit_pays_out_of_its_purse_in_the_order_of_the_log(records: list[tuple[int, int]]):
    """Otherwise a refusal would depend on where a step ended, and so on other units' records."""
    p = deployment(swap={"delta = 1e-4 }": CAP}).pipelines[0]
    windows = np.array([window for window, _ in records], np.int64)
    units = np.zeros((len(records), 16), np.uint8)
    units[:, 0] = [unit for _, unit in records]
    wanted = np.ones(len(records), bool)
    taken = [rows.tolist() for rows in by_window(p, windows, units, wanted)]
    assert all(len({records[n][0] for n in rows}) == 1 for rows in taken)
    order = [n for rows in taken for n in rows]
    for unit in range(2):
        mine = [n for n, (_, whose) in enumerate(records) if whose == unit]
        assert [n for n in order if records[n][1] == unit] == mine
