"""Calendar windows: days of changing length, months, their triggers, the table of midnights."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ConfigError
from hushstream.topics import calendar
from hushstream.topics.calendar import Calendar, CalendarSpan, interval, midnight, starts
from hushstream.topics.config.canonical import canonical, config_hash, privacy_settings
from hushstream.topics.config.load import Config, loads
from hushstream.topics.config.pipelines import schedule
from hushstream.topics.config.pipelines.schedule import Schedule
from hushstream.topics.config.toml.values import format_instant, parse_instant
from hypothesis import given
from hypothesis import strategies as st

from ..judge import calendar as judged

HOUR = 3_600_000_000
DAY = 24 * HOUR
ZONES = ("Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "America/Havana", "UTC")
FROM, TO = parse_instant("1970-02-01T00:00:00Z"), parse_instant("2099-01-01T00:00:00Z")
TEXT = """
[deployment]
name = "test"
[[input]]
name = "events"
topic = "raw"
unit = "user"
time = { field = "t", format = "iso" }
[[pipeline]]
name = "p"
input = "events"
key = ["page"]
window = { length = "1 month", zone = "Europe/Berlin" }
triggers = { every = "1d" }
epoch = "1 quarter"
budget = { epsilon = 1.0, delta = 1e-6 }
"""


def made(*changes: tuple[str, str]) -> Config:
    text = TEXT
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return loads(text, environ={})


def settings(config: Config) -> dict[str, Any]:
    return privacy_settings(config, config.pipeline[0])


def span(text: str) -> CalendarSpan:
    found = CalendarSpan.parse(text)
    assert found is not None
    return found


def of(zone: str, length: str, every: str | int, origin: int = 0) -> Calendar:
    between = every if isinstance(every, int) else span(every)
    return Calendar(zone, span(length), interval(between), origin)


CALENDARS = [
    ("1 day", HOUR), ("1 day", 5 * HOUR), ("3 days", "1 day"), ("1 week", "1 day"),
    ("1 month", "1 day"), ("1 month", "2 weeks"), ("1 quarter", "1 month"), ("1 year", "1 week"),
]  # fmt: skip
calendars = st.builds(
    lambda zone, both: of(zone, *both), st.sampled_from(ZONES), st.sampled_from(CALENDARS)
)


@given(calendars, st.integers(FROM, TO))
def test_each_instant_lies_in_exactly_one_window(windows: Calendar, time: int) -> None:
    number = windows.window(time)
    assert windows.start(number) <= time < windows.start(number + 1)
    for edge in (windows.start(number), windows.start(number + 1)):
        around = np.array([edge - 1, edge, time], np.int64)
        assert windows.windows(around).tolist() == [windows.window(t) for t in around.tolist()]
        assert windows.window(edge) == windows.window(edge - 1) + 1


@given(calendars, st.integers(FROM, TO))
def test_triggers_end_with_the_window_and_are_at_most_so_many(windows: Calendar, time: int) -> None:
    number = windows.window(time)
    times = windows.times(number)
    assert list(times) == sorted(set(times)) and 1 <= len(times) <= windows.horizon
    assert times[0] > windows.start(number) and times[-1] == windows.start(number + 1)
    gaps = np.diff([windows.start(number), *times])
    assert gaps.max() <= windows.longest_gap


@pytest.mark.spread(3)
@pytest.mark.parametrize(("length", "every"), CALENDARS)
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "UTC"])
def test_the_judge_counts_the_same_windows_by_local_dates(
    zone: str, length: str, every: str | int
) -> None:
    windows = of(zone, length, every)
    text = str(span(every)) if isinstance(every, str) else every
    window = {"zone": zone, "length": str(windows.length), "origin": 0}
    other = judged.Calendar(
        {"window": window, "epoch": str(windows.length), "triggers": {"every": text}}
    )
    assert other.horizon == windows.horizon
    for time in range(FROM, TO, (TO - FROM) // 500):
        number = windows.window(time)
        assert other.window(time) == number and other.start(number) == windows.start(number)
        assert other.triggers(number) == len(windows.times(number))


@pytest.mark.parametrize(
    ("zone", "day", "hours", "begins"),
    [
        ("Europe/Berlin", date(2026, 3, 29), 23, "2026-03-28T23:00:00Z"),
        ("Europe/Berlin", date(2026, 10, 25), 25, "2026-10-24T22:00:00Z"),
        ("America/Sao_Paulo", date(2018, 11, 4), 23, "2018-11-04T03:00:00Z"),  # 0:00 was skipped
        ("America/Sao_Paulo", date(2018, 2, 17), 25, "2018-02-17T02:00:00Z"),  # 23:00 came twice
        ("America/Sao_Paulo", date(2020, 11, 4), 24, "2020-11-04T03:00:00Z"),  # no longer
        ("Australia/Lord_Howe", date(2026, 10, 4), 23.5, "2026-10-03T13:30:00Z"),
        ("Australia/Lord_Howe", date(2026, 4, 5), 24.5, "2026-04-04T13:00:00Z"),
        ("America/Havana", date(2018, 11, 4), 25, "2018-11-04T04:00:00Z"),  # 0:00 came twice
        ("Africa/Monrovia", date(1972, 1, 7), 24 - 44.5 / 60, "1972-01-07T00:44:30Z"),
    ],
)
def test_days_on_which_clocks_change(zone: str, day: date, hours: float, begins: str) -> None:
    windows = of(zone, "1 day", HOUR)
    number = windows.window(midnight(zone, day))
    assert format_instant(windows.start(number)) == begins
    assert windows.start(number + 1) - windows.start(number) == round(hours * HOUR)
    times = windows.times(number)
    assert len(times) == -(-hours // 1)
    assert times[0] - windows.start(number) == HOUR


def test_a_midnight_that_clocks_jump_over_is_the_jump() -> None:
    """In Toronto in 1919 clocks went from 23:30 to 0:30, so the new day began at the jump."""
    assert format_instant(midnight("America/Toronto", date(1919, 3, 31))) == "1919-03-31T04:30:00Z"


def test_numbers_and_horizons() -> None:
    months = of("Europe/Berlin", "1 month", "1 day")
    assert months.horizon == 31 and of("UTC", "1 quarter", "1 day").horizon == 92
    assert of("Europe/Berlin", "1 day", HOUR).horizon == 25
    assert of("Australia/Lord_Howe", "1 day", HOUR).horizon == 25
    assert of("UTC", "1 year", "1 day").horizon == 366
    assert months.longest == 31 * DAY + HOUR
    february = months.window(parse_instant("2026-02-10T00:00:00Z"))
    assert february == (2026 - 1970) * 12 + 1 and len(months.times(february)) == 28
    assert months.times(february)[0] == parse_instant("2026-02-01T23:00:00Z")
    assert months.times(february + 1)[29] == parse_instant("2026-03-30T22:00:00Z")  # summer time


def test_weeks_begin_on_monday_or_where_the_origin_does() -> None:
    monday = of("Europe/Berlin", "1 week", "1 day")
    sunday = of("Europe/Berlin", "1 week", "1 day", midnight("Europe/Berlin", date(1970, 1, 4)))
    time = parse_instant("2026-06-18T12:00:00Z")  # a Thursday
    for windows, first in ((monday, date(2026, 6, 15)), (sunday, date(2026, 6, 14))):
        assert windows.start(windows.window(time)) == midnight("Europe/Berlin", first)


def test_windows_count_from_the_origin() -> None:
    begin = parse_instant("2019-02-28T23:00:00Z")
    windows = of("Europe/Berlin", "1 quarter", "1 month", begin)
    assert windows.start(0) == begin
    assert format_instant(windows.start(1)) == "2019-05-31T22:00:00Z"
    assert windows.window(begin - 1) == -1
    (pipeline,) = made(
        ('"Europe/Berlin"', '"Europe/Berlin", origin = 2019-02-28T23:00:00Z')
    ).pipeline
    made_of = Schedule.of(pipeline)
    assert (made_of.origin, made_of.begin(1)) == (begin, parse_instant("2019-05-31T22:00:00Z"))


def test_the_configuration_and_the_ledger_say_the_same_windows() -> None:
    config = made()
    found = Schedule.of(config.pipeline[0])
    assert Schedule.declared(settings(config)) == found
    assert (found.horizon, found.per_epoch) == (31, 3)
    assert (found.shown, found.epoch_shown) == (
        "1 month in Europe/Berlin", "3 months in Europe/Berlin",
    )  # fmt: skip
    text = canonical(config, config.pipeline[0]).decode()
    assert '"epoch":"3 months"' in text and '"length":"1 month"' in text
    assert found.triggers(found.window(parse_instant("2024-02-10T00:00:00Z"))) == 29


def test_other_midnights_are_another_configuration_and_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The zone's rules have changed since the pipeline was declared."""
    config = made()
    before, held = config_hash(config, config.pipeline[0]), settings(config)
    moved = calendar._midnights("Europe/Berlin").copy()
    moved[-1000:] += HOUR
    monkeypatch.setattr(calendar, "_midnights", lambda _: moved)
    for cached in (calendar.digest, calendar.starts):
        cached.cache_clear()
    try:
        assert config_hash(config, config.pipeline[0]) != before
        with pytest.raises(ConfigError, match=r"package tzdata .*install that one"):
            Schedule.declared(held)
    finally:
        monkeypatch.undo()
        for cached in (calendar.digest, calendar.starts):
            cached.cache_clear()
    assert Schedule.declared(held) == Schedule.of(config.pipeline[0])


def test_zones_are_those_of_the_package_whatever_the_system_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(*_: object) -> None:
        raise AssertionError("read the system's time zones")

    monkeypatch.setattr(calendar, "ZoneInfo", type("Z", (calendar.ZoneInfo,), {"__new__": nothing}))
    monkeypatch.setattr("zoneinfo._common.load_tzdata", nothing)
    monkeypatch.setattr("zoneinfo._tzpath.find_tzfile", nothing)
    calendar.zone_of.cache_clear()
    assert calendar.zone_of("Asia/Tokyo").utcoffset(datetime(2026, 1, 1)).total_seconds() == 32400


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([('"Europe/Berlin"', '"Mars"')], "window.zone: there is no time zone 'Mars'"),
        ([('"Europe/Berlin"', '"../../etc/passwd"')], "there is no time zone"),
        ([('"Europe/Berlin"', '""')], "window.zone: there is no time zone ''"),
        ([('"Europe/Berlin"', '"localtime"')], "there is no time zone 'localtime'"),
        ([('"1 month"', '"31d"'), ('"1 quarter"', '"31d"')], 'length = "1 day", not "1d"'),
        ([('"1 month"', '"31d"')], "epoch: is of the calendar"),
        ([('"1d"', '"36h"')], "less than a day, or whole days"),
        ([('"1d"', '"2 months"')], "does not divide window.length = 1 month"),
        ([('"1 month"', '"1 week"'), ('"1 quarter"', '"2 weeks"'), ('"1d"', '"1 month"')],
         "is no part of 1 week"),
        ([('"1 month"', '"1 week"'), ('"1 quarter"', '"2 weeks"'), ('"1d"', '"2d"')],
         "does not divide window.length = 1 week"),
        ([('"1 quarter"', '"31d"')], "must be a number of windows"),
        ([('"1 quarter"', '"5 weeks"')], "must be a number of windows"),
        ([('"1 month"', '"2 months"')], "must be a number of windows"),
        ([('"1 month"', '"11 years"')], "between 1 day and 10 years"),
        ([('"1 month"', '"0 months"')], "between 1 day and 10 years"),
        ([('"1d"', '"1s"')], "more than 16,384 triggers"),
        ([('every = "1d"', 'cron = "0 0 * * *", count = 31')], "without cron and count"),
        ([('"Europe/Berlin"', '"Europe/Berlin", origin = 2019-03-01')],
         "no month of Europe/Berlin begins then; months near it begin at 2019-02-28T23:00:00Z and "
         "2019-03-31T22:00:00Z"),
        ([('"1 month"', '"1 day"'), ('"Europe/Berlin"', '"Pacific/Apia"'),
          ('epoch = "1 quarter"', "")], "skipped a whole day"),
        ([('epoch = "1 quarter"', "until = 2031-02-01")], "one is at 2031-01-31T23:00:00Z"),
    ],
)  # fmt: skip
def test_what_is_no_calendar(changes: list[tuple[str, str]], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        made(*changes)
    assert expected in str(caught.value)


def test_beyond_the_table_nothing_is_guessed() -> None:
    windows = of("UTC", "1 month", "1 day")
    assert windows.window(parse_instant("1950-01-01")) == -1
    with pytest.raises(ConfigError, match="before 1970 or after 2100"):
        windows.start(-1)
    late = [windows.window(parse_instant(f"{year}-01-01")) for year in (2200, 2300)]
    assert late == [130 * 12] * 2
    assert len(starts("UTC", "month")) == 130 * 12 + 1


def test_settings_without_a_calendar_are_charged_as_before() -> None:
    plain = made(
        ('"1 month", zone = "Europe/Berlin"', '"31d"'), ('epoch = "1 quarter"', 'epoch = "93d"')
    )
    assert settings(plain)["window"] == {"length": 31 * DAY, "horizon": None, "origin": 0}
    assert settings(plain)["epoch"] == 93 * DAY


def test_spans_are_read_as_words() -> None:
    assert span("1 Week").step == 7 and str(span("2 years")) == "24 months"
    for text in ("1w", "1 mo", "month", "1.5 months", "1d 2 months"):
        assert CalendarSpan.parse(text) is None
    assert schedule._span("1 day") == CalendarSpan.of(1, "day")
    assert datetime.fromtimestamp(starts("UTC", "month")[0] / 1e6, UTC).year == 1970
