"""Three ways to go: what is hopeless is called so, what helps is found, and it can be pasted.

Covers: agents/advice/records.py, agents/advice/cut.py, agents/advice/variants.py
Covers: agents/advice/ways.py
"""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hushstream.agents.advice import records as records_module
from hushstream.agents.advice.cut import SampleRoom, cut, sample
from hushstream.agents.advice.records import Records, read_records
from hushstream.agents.advice.search import GOOD, Answer, Search, no_way, untried_settings, written
from hushstream.agents.advice.variants import coarser, given, shorter
from hushstream.agents.advice.ways import body_of, conclusions, show_ways
from hushstream.agents.deployment.compile import compile_config, value_columns
from hushstream.errors import ConfigError
from hushstream.topics.config.load import Config, loads
from hushstream.topics.schedule import Schedule
from rich.console import Console

HOUR = 3_600_000_000
START = 1_551_398_400_000_000
INPUT = """
[[input]]
name = "visits"
topic = "visits"
unit = "user"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "pages"
input = "visits"
key = ["page", "age"]
window = { length = "1h", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "30m" }
budget = { epsilon = 1.0, delta = 1e-6 }
mechanism = { kind = "histogram", budget = 4, adaptive_weight = 0, delay = 0 }
""".replace(", delay = 0", "")


def config(text: str = INPUT) -> Config:
    return loads(text, environ={})


def write(path: Path, rows: int = 6_000, hours: int = 24, pages: int = 8) -> Path:
    """Visits of users to pages, of ages 20…59; every user comes once."""
    lines = ["user,page,age,t,spare"]
    for i in range(rows):
        time = START + i * hours * HOUR // rows
        lines.append(f"u{i},p{i % pages},{20 + i // pages * 7 % 40},{time},x")
    path.write_text("\n".join(lines))
    return path


def read(path: Path, text: str = INPUT) -> tuple[Config, Records]:
    made = config(text)
    (source,) = compile_config(made).inputs
    (p,) = source.pipelines
    return made, read_records(p, source, tuple(value_columns(made.pipeline[0])), path)


@cache
def answered(folder: Path) -> Answer:
    made, records = read(write(folder / "visits.csv"))
    (source,) = compile_config(made).inputs
    ticks: list[int] = []
    search = Search(source.pipelines[0], made.pipeline[0], records, lambda: ticks.append(1))
    answer = search.answer(folder / "visits.csv")
    assert 0 < len(ticks) <= search.ticks()
    return answer


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    return answered(tmp_path_factory.mktemp("search"))


def test_a_file_is_read_in_chunks_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "visits.csv", rows=1_000)
    text = path.read_text().replace("u3,p3,20,", "u0,p3,77,", 1)
    path.write_text(text + "\nu9,,30,1551398400000000,x")
    _, whole = read(path)
    monkeypatch.setattr(records_module, "CHUNK", 64)
    _, chunked = read(path)
    assert chunked.read == 1_001 and len(chunked.time) == 1_000 and chunked.units == 999
    assert sum(chunked.faults.values()) == 1 and chunked.timed
    assert np.array_equal(chunked.time, whole.time) and np.array_equal(chunked.unit, whole.unit)
    assert [chunked.keys[i] for i in chunked.key] == [whole.keys[i] for i in whole.key]


def test_windows_are_spread_over_the_file_and_halves_are_left_out(tmp_path: Path) -> None:
    made, records = read(write(tmp_path / "visits.csv", rows=3_000, hours=24))
    late = records._replace(time=records.time + HOUR // 2)  # first and last hour by half
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


def test_settings_that_the_work_does_not_reach_are_told(answer: Answer) -> None:
    assert not any("left out" in note for way in answer.ways for note in way.notes)
    ((one,), none) = list(untried_settings(7, 1, 112)), list(untried_settings(0, 1, 112))
    assert one.startswith("the 7 least promising settings") and "one window of 112 triggers" in one
    assert none == [] and "over 30 windows of one trigger" in next(untried_settings(1, 30, 1))


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
    assert "no window of 7d is covered in full" in notes[0]


def test_nothing_of_use_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("user,page,age,t\nu1,,20,1551398400000000\n")
    with pytest.raises(ConfigError, match=r"can use: 1 missing key$"):
        read(path)
    path.write_text("user,page,age,t\nu1,p1,20,2019-03-01\nu3,,1,")
    with pytest.raises(ConfigError, match=r"1 wrong type .field t holds text and must hold a numb"):
        read(path)
    path.write_text("visitor,page,age\nu1,p1,20\n")
    with pytest.raises(
        ConfigError, match=r"no record has the field 't', .* there is age, page, vi"
    ):
        read(path)
    path.write_text("user,page,age,t\n")
    with pytest.raises(ConfigError, match="no record"):
        read(path)


def test_variants_are_longer_rarer_and_coarser(tmp_path: Path) -> None:
    made, records = read(write(tmp_path / "visits.csv", rows=2_000))
    base = given(made.pipeline[0], records, None)
    found = list(coarser(base, records))
    words = [one.words for one in found]
    assert words[0] == "one release of each window of 1h"
    assert "windows of 6h" in words and "keys without age" in words
    band = next(one for one in found if one.words.startswith("age in bands"))
    assert band.changes["derive.age_band"] == '{ field = "age", bucket = 5 }'
    assert band.numbering.keys < len(records.keys)
    both = [one for one in found if {"key", "window.length"} <= set(one.changes)]
    assert both and both[0].settings.window.length == 6 * HOUR
    (less,) = [one for one in found if one.changes == {"key": '["page"]'}]
    assert less.numbering.keys == 8 and less.settings.key == ("page",)
    assert [one.settings.window.length for one in shorter(base)] == [60_000_000]


def test_what_is_hopeless_is_called_so_and_what_helps_is_found(answer: Answer) -> None:
    base, less, dearer = answer.ways
    assert base.best.hopeless and base.best.hidden == 1
    assert not less.best.hopeless and less.best.score <= GOOD
    assert less.variant.settings.budget == base.variant.settings.budget
    assert dearer.variant.settings.window == base.variant.settings.window
    assert dearer.variant.settings.budget.epsilon > 1
    body = body_of("histogram", answer)
    assert body["ways"][0]["hopeless"] and not body["ways"][1]["hopeless"]
    assert "cannot work. What helps: 2" in body["conclusions"][0]
    assert json.dumps(body)
    assert any("6,000 records" in text for text in answer.assumed)
    assert any("a unit of its own" in text for text in answer.assumed)
    whole = "all records with the same user are one privacy unit which is protected as a whole"
    assert f"{whole}: the file holds 6,000 of them" in answer.assumed


def test_a_way_can_be_pasted(answer: Answer) -> None:
    way = answer.ways[1]
    lines = written("histogram", way)
    head = ["budget = { epsilon = 1.0, delta = 1e-6 }", 'window.origin = "2019-03-01T00:00:00Z"']
    head += [] if "key" in way.variant.changes else ['key = ["page", "age"]']
    text = INPUT[: INPUT.index("key =")] + "\n".join([*head, *lines])
    (p,) = config(text).pipeline
    assert p.window == way.variant.settings.window and p.key == way.variant.settings.key
    assert p.triggers == way.variant.settings.triggers


def test_settings_beside_a_table_are_written_one_by_one(answer: Answer) -> None:
    way = answer.ways[1]._replace(settings={"domain": {"depth": 3}, "k": 64, "noise": "gauss"})
    lines = written("privhp", way)
    assert lines[-2:] == ["mechanism.k = 64", 'mechanism.noise = "gauss"']
    head = [*INPUT[: INPUT.index("key =")].splitlines(), "budget = { epsilon = 1, delta = 1e-6 }"]
    window = 'window = { length = "1h", origin = "2019-03-01T00:00:00Z" }'
    axes = '[{ name = "x", low = 0, high = 1 }, { name = "y", low = 0, high = 1 }]'
    space = f'mechanism.domain = {{ depth = 3, split = "binary", axes = {axes} }}'
    rest = ['mechanism.kind = "privhp"', space, 'triggers.every = "1h"', window]
    (p,) = config("\n".join([*head, *lines[-2:], *rest])).pipeline
    assert (p.mechanism.parameters.k, p.mechanism.parameters.noise) == (64, "gauss")


def test_a_way_that_changes_nothing_says_so(answer: Answer) -> None:
    way = answer.ways[1]._replace(settings={"domain": {"depth": 3}})
    same = way._replace(variant=way.variant._replace(changes={}))
    console = Console(width=80, record=True, file=io.StringIO())
    show_ways(console, "map", "privhp", answer._replace(ways=(way, same)))
    first, second = console.export_text().split("to write:")[1:]
    assert "best as it is" not in first and second.startswith(" nothing, it is best as it is")


def test_fewer_than_three_ways_come_with_the_reason(answer: Answer, tmp_path: Path) -> None:
    text = INPUT.replace(', "age"', "").replace('"1h"', '"24h"').replace('"30m"', '"24h"')
    made, records = read(
        write(tmp_path / "visits.csv", rows=16), text.replace("epsilon = 1.0", "epsilon = 16.0")
    )
    (source,) = compile_config(made).inputs
    found = Search(source.pipelines[0], made.pipeline[0], records).answer(tmp_path / "visits.csv")
    none = "the configuration, or the file, leaves none to try."
    assert found.missing == (
        f"There is no way with the same ε, with less detail: {none}",
        f"There is no way with the same detail, with a larger ε: {none}",
    )
    tried = no_way("x", [(answer.ways[1].variant, 0.3), (answer.ways[2].variant, 0.4)], 0.25)
    words = ", ".join(way.variant.words for way in answer.ways[1:])
    assert tried == (
        f"There is no way with x: {words} would have an error of 30.0% at best, where it is 25.0% "
        "as asked for."
    )
    good = answer._replace(ways=answer.ways[1:], missing=(tried,))
    assert tried in conclusions(good) and tried not in conclusions(answer)


def test_a_person_reads_it_in_80_columns(answer: Answer) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    show_ways(console, "pages", "histogram", answer)
    lines = console.export_text().splitlines()
    pasted = [line for line in lines if "mechanism = {" in line]
    assert all(len(line) <= 80 for line in lines if line not in pasted)
    text = " ".join(" ".join(lines).split())
    for part in ("3 ways to go", "1. as it is asked for", "HOPELESS", "seen", "off", "lost",
                 "cost ε = 1, δ = 1e-06 for each unit, anew every 1h", "be public"):  # fmt: skip
        assert part in text, part


def test_a_pipeline_that_is_exact_is_offered_less_epsilon_and_more_detail(tmp_path: Path) -> None:
    text = INPUT.replace('"1h"', '"1d"').replace('"30m"', '"1d"').replace(', "age"', "")
    made, records = read(write(tmp_path / "visits.csv", rows=40_000, pages=2), text)
    (source,) = compile_config(made).inputs
    found = Search(source.pipelines[0], made.pipeline[0], records).answer(tmp_path / "visits.csv")
    _, finer, cheaper = found.ways
    assert "more detail" in finer.title and finer.variant.settings.window.length < 24 * HOUR
    assert "smaller ε" in cheaper.title and cheaper.variant.settings.budget.epsilon < 1
    assert max(one.best.score for one in found.ways) < 2 * GOOD
