"""Three ways to go: what is hopeless is called so, what helps is found, and it can be pasted.

Covers: planning/records.py, planning/cut.py, planning/variants.py
Covers: planning/ways.py, planning/sentences.py
"""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config, value_columns
from hushstream.errors import ConfigError
from hushstream.planning import records as records_module
from hushstream.planning.cut import SampleRoom, cut, reported, sample
from hushstream.planning.records import Records, read_records
from hushstream.planning.search import GOOD, RETUNED, Alternative, Answer, Search
from hushstream.planning.sentences import no_way, other_kind, untried_settings
from hushstream.planning.variants import Variant, coarser, dearer, given, shorter
from hushstream.planning.ways import body_of, conclusions, heading, show_ways, written
from hushstream.topics.config.load import Config, loads
from hushstream.topics.config.pipelines.schedule import Schedule
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


@pytest.mark.thorough
def test_settings_that_the_work_does_not_reach_are_told(answer: Answer) -> None:
    assert not any("left out" in note for way in answer.ways for note in way.notes)
    ((one,), none) = list(untried_settings(7, 1, 112)), list(untried_settings(0, 1, 112))
    assert one.startswith("the 7 least promising settings") and "one window of 112 triggers" in one
    assert none == [] and "over 30 windows of one trigger" in next(untried_settings(1, 30, 1))


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


@pytest.mark.thorough
def test_what_is_hopeless_is_called_so_and_what_helps_is_found(answer: Answer) -> None:
    base, less = answer.ways
    assert base.best.hopeless and base.best.hidden == 1
    assert not less.best.hopeless and less.best.score <= GOOD
    assert less.variant.settings.budget == base.variant.settings.budget
    assert any(text.startswith("There is no way with the same detail") for text in answer.missing)
    (dearer,) = [one for one in answer.tried if one.group == "a larger ε"]
    assert dearer.score >= 0.5 and dearer.last == "ε = 8"
    body = body_of("histogram", answer)
    assert body["ways"][0]["hopeless"] and not body["ways"][1]["hopeless"]
    assert "and enough is less than 50%. What helps: 2." in body["conclusions"][0]
    assert json.dumps(body)
    assert any("6,000 records" in text for text in answer.assumed)
    assert any("a unit of its own" in text for text in answer.assumed)
    whole = "all records with the same user are one privacy unit which is protected as a whole"
    assert f"{whole}: the file holds 6,000 of them" in answer.assumed


@pytest.mark.thorough
def test_a_way_can_be_pasted(answer: Answer) -> None:
    way = answer.ways[1]
    lines = written("histogram", way)
    head = ["budget = { epsilon = 1.0, delta = 1e-6 }", 'window.origin = "2019-03-01T00:00:00Z"']
    head += [] if "key" in way.variant.changes else ['key = ["page", "age"]']
    text = INPUT[: INPUT.index("key =")] + "\n".join([*head, *lines])
    (p,) = config(text).pipeline
    assert p.window == way.variant.settings.window and p.key == way.variant.settings.key
    assert p.triggers == way.variant.settings.triggers


@pytest.mark.thorough
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
    first, second = console.export_text().split("to write")[1:]
    assert first.startswith(", in place of what the pipeline has:")
    assert "best as it is" not in first and second.startswith(": nothing, it is best as it is")


def test_fewer_than_three_ways_come_with_the_reason(answer: Answer, tmp_path: Path) -> None:
    text = INPUT.replace(', "age"', "").replace('"1h"', '"24h"').replace('"30m"', '"24h"')
    made, records = read(
        write(tmp_path / "visits.csv", rows=16), text.replace("epsilon = 1.0", "epsilon = 16.0")
    )
    (source,) = compile_config(made).inputs
    found = Search(source.pipelines[0], made.pipeline[0], records).answer(tmp_path / "visits.csv")
    assert found.missing == (
        "There is no way with the same ε, with less detail. A window longer than 1d was not tried, "
        "as the file spans 22h30m. It would hold more units, so that more could be seen. Coarser "
        "keys were not tried, as nothing tells how to join values of page. A column of fewer "
        "values (regions instead of places) needs fewer units.",
        "There is no way with the same detail, with a larger ε. No larger ε was tried: 20 is the "
        "most.",
    )
    tried = no_way("x", [(way.variant, 0.3 + i / 10) for i, way in enumerate(answer.ways)], 0.25)
    words = ", ".join(way.variant.words for way in answer.ways)
    assert tried == (
        f"There is no way with x: {words} would have an error of 30% at best, where it is 25% as "
        "asked for."
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
    parts = ("1. as it is asked for", "HOPELESS", "seen", "off", "lost", "be public")
    for part in (heading(answer), "cost ε = 1, δ = 1e-06 for each unit, anew every 1h", *parts):
        assert part in text, part


class Judged(Search):
    """A search for which errors are given: of a quick look, and with settings searched in full."""

    def __init__(self, folder: Path, quick: dict[str, float], full: dict[str, float]) -> None:
        made, records = read(write(folder / "visits.csv", rows=300, hours=1))
        (source,) = compile_config(made).inputs
        super().__init__(source.pipelines[0], made.pipeline[0], records)
        self.folder, self.quick, self.full = folder, quick, full
        self.looked: list[str] = []

    def found(self) -> Answer:
        return self.answer(self.folder / "visits.csv")

    def _quick(self, variant: Variant, tuned: object) -> float | None:
        return self.quick.get(variant.words)

    def _way(self, title: str, variant: Variant, tick: object) -> Alternative:
        self.looked.append(variant.words)
        way = super()._way(title, self._base, lambda: None)
        best = way.best._replace(score=self.full[variant.words])
        return way._replace(variant=variant, best=best)


def test_what_more_noise_keys_do_not_keep_is_not_a_way(tmp_path: Path) -> None:
    promised = {"keys without age": 0.6, "ε = 2": 0.9, "ε = 4": 0.45, "ε = 8": 0.42}
    kept = {"": 1.5, "keys without age": 0.7, "ε = 4": 0.8, "ε = 8": 2.29}
    search = Judged(tmp_path, promised, kept)
    answer = search.found()
    assert search.looked == ["", "keys without age", "ε = 8", "ε = 4"]
    assert [way.variant.words for way in answer.ways] == ["", "keys without age", "ε = 4"]
    assert all(way.best.hopeless for way in answer.ways)
    assert heading(answer).startswith("no way to go: hopeless")
    assert {one.group: one.score for one in answer.tried} == {
        "coarser keys": 0.7,
        "a larger ε": 0.8,
    }
    text = " ".join(conclusions(answer))
    assert (
        "its error is 150%, and enough is less than 50%. Nothing that was tried is enough." in text
    )
    assert "Tried a larger ε (up to ε = 8): error 80% at best, with ε = 4, not enough." in text
    assert "42%" not in text and "45%" not in text and "229%" not in text


def test_the_next_best_is_the_way_where_the_best_does_not_keep_its_promise(tmp_path: Path) -> None:
    promised = {"ε = 2": 0.9, "ε = 4": 0.45, "ε = 8": 0.42}
    answer = Judged(tmp_path, promised, {"": 1.5, "ε = 4": 0.44, "ε = 8": 2.29}).found()
    base, other = answer.ways
    assert heading(answer) == "2 ways to go, of which 1 is hopeless"
    assert other.variant.settings.budget.epsilon == 4
    assert other.variant.settings.window == base.variant.settings.window
    text = " ".join(conclusions(answer))
    assert "What helps: 2." in text and "error 44% at best, with ε = 4." in text


def test_a_way_is_never_worse_than_what_is_asked_for(tmp_path: Path) -> None:
    search = Judged(tmp_path, {"ε = 2": 0.1}, {"": 0.3, "ε = 2": 0.35})
    answer = search.found()
    assert len(answer.ways) == 1 and heading(answer) == "one way to go"
    assert any("ε = 2 would have an error of 35% at best, where it is 30%" in text
               for text in conclusions(answer))  # fmt: skip


def test_another_mechanism_is_judged_by_the_same_measure() -> None:
    assert other_kind("tops", 0.88, "pak", 1.33).endswith(
        "133% after that. That is not enough either."
    )
    assert other_kind("tops", 0.3, "pak", 1.33).endswith("after that. That is enough.")
    assert other_kind("tops", 0.3, "pak", 0.4).endswith("pak has 40% after that.")
    assert "no smaller error: over 1,000% before" in other_kind("tops", 1e9, "pak", 2.0)


@pytest.mark.thorough
def test_an_impossible_change_is_told_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    lines = [f"u{i},p,20,{START + i * 60_000_000},{i % 7}" for i in range(60)]
    path.write_text("\n".join(["user,page,age,t,spare", *lines]))
    text = INPUT.replace('key = ["page", "age"]', 'aggregate = [{ kind = "sum", field = "spare", '
                         'low = 0, high = 10 }]')  # fmt: skip
    text = (
        text[: text.index("mechanism =")].replace('"30m"', '"10m"') + 'mechanism = { kind = "pak" }'
    )
    made, records = read(path, text)
    (source,) = compile_config(made).inputs
    search = Search(source.pipelines[0], made.pipeline[0], records)
    base = given(made.pipeline[0], records, None)
    tuned = search._way("x", base, lambda: None).best
    assert search._quick(next(coarser(base, records)), tuned) is None
    assert search._why("the same ε, with less detail")[0] == (
        "Fewer releases could not be tried: one release of each window of 1h (triggers of a window "
        "= 1: must be an integer of at least 2)."
    )
    assert search._quick(next(dearer(base)), tuned) is not None


@pytest.mark.thorough
def test_a_pipeline_that_is_exact_is_offered_less_epsilon_and_more_detail(tmp_path: Path) -> None:
    text = INPUT.replace('"1h"', '"1d"').replace('"30m"', '"1d"').replace(', "age"', "")
    made, records = read(write(tmp_path / "visits.csv", rows=40_000, pages=2), text)
    (source,) = compile_config(made).inputs
    found = Search(source.pipelines[0], made.pipeline[0], records).answer(tmp_path / "visits.csv")
    _, finer, cheaper = found.ways
    assert "more detail" in finer.title and finer.variant.settings.window.length < 24 * HOUR
    assert "smaller ε" in cheaper.title and cheaper.variant.settings.budget.epsilon < 1
    assert max(one.best.score for one in found.ways) < 2 * GOOD


def test_numbers_that_name_things_and_coordinates_have_no_bands(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    rows = [f"u{i},{i % 40},{(i * 7) % 40},{START + i}" for i in range(400)]
    for columns in (
        ("shop_id", "zip"), ("restaurantId", "station.code"), ("pickup_lat", "pickup_lon"),
        ("size", "age"),
    ):  # fmt: skip
        named = [one.replace(".", "_") for one in columns]
        path.write_text("\n".join([f"user,{','.join(named)},t", *rows]))
        text = INPUT.replace('["page", "age"]', json.dumps(named))
        made, records = read(path, text)
        words = [one.words for one in coarser(given(made.pipeline[0], records, None), records)]
        assert any("in bands" in one for one in words) == (named == ["size", "age"]), named


@pytest.mark.thorough
def test_a_list_of_keys_is_as_long_as_it_is_and_sums_are_called_sums(tmp_path: Path) -> None:
    listed = "\n".join([
        INPUT.replace('["page", "age"]', '["page"]').split("mechanism =")[0],
        f"public_keys = {json.dumps([[f'p{n}'] for n in range(24)])}",
        'aggregate = [{ kind = "mean", field = "age", low = 0, high = 100 }]',
    ])  # fmt: skip
    made, records = read(write(tmp_path / "visits.csv", rows=2_000, pages=20), listed)
    (source,) = compile_config(made).inputs
    answer = Search(source.pipelines[0], made.pipeline[0], records).answer(tmp_path / "visits.csv")
    assert answer.ways[0].best.seen == "all 24 keys of the public list, in every window"
    assert answer.measure.startswith("error of all counts and of all sums of age, hidden ones")


@pytest.mark.thorough
def test_other_settings_than_the_given_ones_are_called_so_and_what_those_cut(
    tmp_path: Path,
) -> None:
    path = tmp_path / "visits.csv"
    rows = [f"u{i % 100},p{i % 4},{20 + i % 3},{START + i * 1_000_000}" for i in range(3_000)]
    path.write_text("\n".join(["user,page,age,t", *rows]))
    made, records = read(path, INPUT.replace('["page", "age"]', '["page"]'))
    (source,) = compile_config(made).inputs
    answer = Search(source.pipelines[0], made.pipeline[0], records).answer(path)
    assert answer.ways[0].title == RETUNED
    console = Console(width=80, record=True, file=io.StringIO())
    show_ways(console, "pages", "histogram", answer)
    text = " ".join(console.export_text().split())
    assert "with the settings as given it is" in text and "and the bound cuts off 9" in text
