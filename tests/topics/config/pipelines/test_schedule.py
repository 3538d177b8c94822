"""Windows, epochs and triggers: random schedules, cron rules, the order of due triggers."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hushstream.errors import ConfigError
from hushstream.topics.config.pipelines.schedule import Due, Schedule
from hushstream.topics.config.toml.values import format_duration, parse_duration, parse_instant
from hypothesis import given
from hypothesis import strategies as st

HOUR = 3_600_000_000
DAY = 24 * HOUR
MINUTE = HOUR // 60


@dataclass
class Progress:
    """A pipeline's state in the clock."""

    floor: int = 0
    done: Mapping[int, int] = field(default_factory=dict)
    closed: Container[int] = frozenset()


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    every, horizon = draw(st.integers(1, 50)), draw(st.integers(1, 12))
    return Schedule(
        origin=draw(st.integers(-(10**6), 10**6)),
        length=every * horizon,
        per_epoch=draw(st.integers(1, 5)),
        every=every,
        horizon=horizon,
        lateness=draw(st.integers(0, 300)),
    )


@given(schedules(), st.integers(-(10**7), 10**7))
def test_each_time_lies_in_exactly_one_window_and_epoch(schedule: Schedule, time: int) -> None:
    window = schedule.window(time)
    assert schedule.start(window) <= time < schedule.start(window + 1)
    assert schedule.epoch(window) * schedule.per_epoch + schedule.ordinal(window) == window
    assert 0 <= schedule.ordinal(window) < schedule.per_epoch
    assert schedule.windows(np.array([time], np.int64)).tolist() == [window]


@given(schedules(), st.integers(1, 30), st.integers(-(10**7), 10**7))
def test_each_time_lies_in_as_many_windows_as_they_have_hops(
    schedule: Schedule, hops: int, time: int
) -> None:
    hopping = replace(schedule, hops=hops)
    held = hopping.holding(time)
    assert len(held) == hops
    near = range(held.start - 2, held.stop + 2)
    assert list(held) == [n for n in near if hopping.opens(n) <= time < hopping.end(n)]
    assert all(hopping.opened(hopping.opens(n)) == n for n in held)


@given(schedules(), st.integers(-1000, 1000))
def test_triggers_are_equally_many_and_the_last_one_ends_the_window(
    schedule: Schedule, window: int
) -> None:
    times = schedule.times(window)
    assert len(times) == schedule.horizon
    assert sorted(set(times)) == list(times)
    assert times[0] > schedule.start(window)
    assert times[-1] == schedule.start(window + 1) + schedule.lateness


@given(schedules(), st.integers(-20, 20), st.integers(0, 400), st.data())
def test_due_is_what_a_full_search_finds(
    schedule: Schedule, floor: int, later: int, data: st.DataObject
) -> None:
    now = schedule.start(floor) + later
    last = schedule.window(now)
    several = st.integers(0, schedule.horizon)
    done = {w: data.draw(several) for w in range(floor, min(last, floor + 3) + 1)}
    closed = set(data.draw(st.lists(st.integers(floor, floor + 4), max_size=2)))
    expected = [
        (time, window, index)
        for window in range(floor, last + 1)
        for index, time in enumerate(schedule.times(window), 1)
        if time <= now and index > done.get(window, 0) and window not in closed
    ]
    state = Progress(floor, done, closed)
    due = schedule.due(state, now)
    assert [(d.scheduled, d.window, d.index) for d in due] == sorted(expected)
    assert schedule.due(state, now, 3) == due[:3]


def test_a_cron_rule_counts_from_the_start_of_each_window() -> None:
    origin = parse_instant("2019-03-01T00:00:00Z")
    schedule = Schedule(origin, DAY, cron="0 * * * *", horizon=24, lateness=7)
    assert schedule.times(0) == tuple(origin + i * HOUR + 7 for i in range(1, 25))
    mondays = Schedule(origin, 7 * DAY, cron="30 9 * * MON", horizon=2)
    fires = [datetime.fromtimestamp(t / 1e6, UTC).isoformat() for t in mondays.times(1)]
    assert fires == ["2019-03-11T09:30:00+00:00", "2019-03-18T09:30:00+00:00"]


def test_windows_that_share_a_cron_time_come_in_order() -> None:
    schedule = Schedule(0, HOUR, cron="0 0 * * *", horizon=1)
    due = schedule.due(Progress(), DAY)
    assert due == [Due(window, 1, DAY) for window in range(24)]
    assert schedule.due(Progress(), DAY - 1) == []


def test_a_rule_without_enough_times_is_refused() -> None:
    with pytest.raises(ConfigError, match="cron rule"):
        Schedule(0, DAY, cron="0 0 30 2 *", horizon=1).times(0)


def test_nothing_is_due_before_the_first_trigger_and_a_long_absence_is_lazy() -> None:
    schedule = Schedule(0, DAY, every=HOUR, horizon=24)
    assert schedule.due(Progress(), HOUR - 1) == []
    century = schedule.due(Progress(), 36_500 * DAY, limit=2)
    assert century == [Due(0, 1, HOUR), Due(0, 2, 2 * HOUR)]


@given(st.integers(0, 10**15))
def test_durations_round_trip(microseconds: int) -> None:
    assert parse_duration(format_duration(microseconds)) == microseconds


@pytest.mark.parametrize("text", ["", "5", "5 s", "-1s", "1y", "1.5us", "s", "1s 2", "0x1s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a duration|finer"):
        parse_duration(text)


def test_instants() -> None:
    assert parse_instant("2019-03-01T00:00:00+01:00") == parse_instant("2019-02-28T23:00:00Z")
    assert parse_instant(datetime(2019, 3, 1)) == parse_instant("2019-03-01")
    assert parse_instant("9999-12-31T23:59:59.999999Z") == 253_402_300_799_999_999
    with pytest.raises(ValueError, match="point in time"):
        parse_instant(5)


@pytest.mark.parametrize(
    ("rule", "length", "count", "gap"),
    [
        ("0 * * * *", "1d", 24, HOUR),
        ("0 9 * * 1-5", "7d", 5, 3 * DAY),  # over the weekend
        ("*/5 8-17 * * 1-5", "1h", 12, 62 * HOUR + 5 * MINUTE),  # from Friday to Monday
        ("0 0 1 * *", "31d", 1, 31 * DAY),
    ],
)
def test_the_longest_gap_of_a_cron_rule_is_found(rule, length, count, gap):
    units = {"d": DAY, "h": HOUR}
    schedule = Schedule(0, int(length[:-1]) * units[length[-1]], cron=rule, horizon=count)
    assert schedule.longest_gap() == gap


def test_the_longest_gap_of_regular_triggers_is_their_distance():
    assert Schedule(0, DAY, every=6 * HOUR, horizon=4, lateness=HOUR).longest_gap() == 6 * HOUR
