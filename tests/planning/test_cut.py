"""Windows of a file: whole ones, judged ones, and the words about others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hushstream.agents.deployment.compile import compile_config
from hushstream.mechanisms.stated_shape import Shape
from hushstream.planning.cut import SampleRoom, cut, reported, sample
from hushstream.planning.sample import shape_sample
from hushstream.topics.config.pipelines.schedule import Schedule

from .visits import HOUR, INPUT, START, read, write


def test_a_window_of_the_calendar_ends_with_its_own_last_trigger(tmp_path: Path) -> None:
    day = 'window = { length = "1 day", zone = "Europe/Berlin" }'
    text = INPUT.replace('window = { length = "1h", origin = "2019-03-01T00:00:00Z" }', day)
    made, records = read(write(tmp_path / "v.csv", 4_000, 24 * 40), text.replace("30m", "1h"))
    schedule = Schedule.of(made.pipeline[0])
    taken = sample(records, schedule, cut(records, schedule), SampleRoom(10_000))
    looks = [len(work.ends or ()) for epoch in taken.epochs for work in epoch]
    assert schedule.horizon == 25 and set(looks) == {23, 24} and looks.count(23) == 1
    shape = Shape(users=100, records=100, keys=2)
    ((work,),) = shape_sample(compile_config(made).pipelines[0], shape).epochs
    assert work.last(25) == 24 and work.ends is not None and work.ends[-1] == 100


def test_units_are_counted_in_each_window(tmp_path: Path) -> None:
    made, records = read(write(tmp_path / "visits.csv", rows=240, hours=4))
    found = cut(records, Schedule.of(made.pipeline[0]))
    assert found.units(records.unit) == found.records == 240
    assert found.units(records.unit % 10) == 4 * 10


def test_windows_are_spread_over_the_file_and_halves_are_left_out(tmp_path: Path) -> None:
    made, records = read(write(tmp_path / "visits.csv", rows=3_000, hours=24))
    late = records._replace(time=records.time + HOUR // 2)  # half of the first and last hour
    schedule = Schedule.of(made.pipeline[0])
    found = cut(late, schedule)
    assert len(found.numbers) == 23 and found.whole and found.left_out == 2
    taken = sample(late, schedule, found, SampleRoom(500))
    assert taken.windows == 4 and 400 < taken.records < 600
    ((first,), *_, (last,)) = taken.epochs
    assert first.ends is not None and first.ends[-1] == len(first.unit)
    said = f"judged on {taken.records:,} of {found.records:,} records: 4 of 23 windows"
    assert said in " ".join(taken.notes)
    assert last.users == len(last.unit)


def test_windows_of_many_triggers_leave_room_for_fewer_of_them(tmp_path: Path) -> None:
    made, records = read(write(tmp_path / "visits.csv", rows=2_400, hours=24))
    schedule = Schedule.of(made.pipeline[0])
    found = cut(records, schedule)  # 24 windows of 100 records
    assert sample(records, schedule, found, SampleRoom(10_000, 48_000, 1_000)).windows == 24
    taken = sample(records, schedule, found, SampleRoom(10_000, 48_000, 4_000))
    assert taken.windows == 11
    assert "judged on 1,100 of 2,400 records: 11 of 24 windows" in " ".join(taken.notes)


def test_windows_whose_records_bear_one_time_are_whole(tmp_path: Path) -> None:
    made, records = read(write(tmp_path / "visits.csv", rows=600, hours=4))
    schedule = Schedule.of(made.pipeline[0])
    dated = records._replace(time=records.time // HOUR * HOUR)
    assert cut(dated, schedule).whole and len(cut(dated, schedule).numbers) == 4
    alone = dated._replace(time=START + np.arange(600) * HOUR)  # a record for each window
    assert not cut(alone, schedule).whole


def test_values_before_the_first_trigger_are_reported_evenly(tmp_path: Path) -> None:
    made, records = read(write(tmp_path / "visits.csv", rows=600, hours=2))
    schedule = Schedule.of(made.pipeline[0])
    late = sample(records, schedule, cut(records, schedule), SampleRoom(10_000))
    assert reported(late) is late  # each window has records after its first trigger
    dated = records._replace(time=records.time // HOUR * HOUR)
    early = sample(dated, schedule, cut(dated, schedule), SampleRoom(10_000))
    ((first,), _) = early.epochs
    assert first.ends == (300, 300)
    found = reported(early)
    ((spread,), _) = found.epochs
    assert [rows.stop - rows.start for rows in spread.micro_batches(2)] == [150, 150]
    assert found.notes[: len(early.notes)] == early.notes
    assert "reports are taken to come evenly over its triggers" in found.notes[-1]


def test_windows_of_nothing_are_counted(tmp_path: Path) -> None:
    made, records = read(write(tmp_path / "visits.csv", rows=3_000, hours=12))
    early = records.time < START + 6 * HOUR
    gap = records._replace(time=records.time + np.where(early, 0, 8 * HOUR))
    schedule = Schedule.of(made.pipeline[0])
    notes = sample(gap, schedule, cut(gap, schedule), SampleRoom(10_000)).notes
    assert any(one.startswith("8 of 20 windows hold no record") for one in notes)
    whole = sample(records, schedule, cut(records, schedule), SampleRoom(10_000)).notes
    assert not any("hold no record" in one for one in whole)


def test_a_file_shorter_than_a_window_says_so(tmp_path: Path) -> None:
    made, records = read(
        write(tmp_path / "visits.csv", rows=100, hours=1),
        INPUT.replace('"1h"', '"7d"').replace('"30m"', '"1d"'),
    )
    schedule = Schedule.of(made.pipeline[0])
    notes = sample(records, schedule, cut(records, schedule), SampleRoom(1_000)).notes
    assert notes[0].startswith("no window of 7d is covered in full, at most 59m of one: a whole")
