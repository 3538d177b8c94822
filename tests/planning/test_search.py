"""Three alternatives: hopeless ones are named, and helpful ones are found."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.mechanisms.catalogue import planner_of
from hushstream.mechanisms.workload import Sample
from hushstream.planning.search import (
    EARLIER,
    EARLY,
    GOOD,
    RETUNED,
    WORK,
    Alternative,
    Answer,
    Search,
    work_of,
)
from hushstream.planning.sentences import untried_settings
from hushstream.planning.variants import Variant, coarser, dearer, given
from hushstream.planning.ways import body_of, conclusions, heading, show_ways
from rich.console import Console

from .visits import HOUR, INPUT, START, answer, read, write

__all__ = ["answer"]  # a fixture


@pytest.mark.thorough
def test_settings_that_the_work_does_not_reach_are_told(answer: Answer) -> None:
    assert not any("left out" in note for way in answer.ways for note in way.notes)
    ((one,), none) = list(untried_settings(7, 1, 112)), list(untried_settings(0, 1, 112))
    assert one.startswith("the 7 least promising settings") and "one window of 112 triggers" in one
    assert none == [] and "over 30 windows of one trigger" in next(untried_settings(1, 30, 1))


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


def test_a_window_has_the_units_that_its_own_records_have(tmp_path: Path) -> None:
    """Units are averaged over the same windows as records, and those of several count in each."""
    made, records = read(write(tmp_path / "visits.csv", rows=90, hours=3))
    again = records._replace(unit=records.unit % 30, units=30)
    (source,) = compile_config(made).inputs
    search = Search(source.pipelines[0], made.pipeline[0], again)
    way = search._way("as it is", search._base, lambda: None)
    assert (way.window["records"], way.window["units"]) == (30, 30)


@pytest.mark.parametrize(
    ("kind", "records", "times"),
    [("tops", 90_000, 3), ("tops", 100_001, 1), ("privhp", 6_000, 1), ("topl", 6_000, 3)],
)
def test_where_one_squared_error_says_little_and_runs_are_cheap_more_of_them_are_compared(
    kind: str, records: int, times: int
) -> None:
    question: Any = SimpleNamespace(
        sample=Sample((), 1, 1, records), setting=SimpleNamespace(horizon=1)
    )
    assert work_of(planner_of(kind), question) == times * WORK


class Judged(Search):
    """A search with given errors, for quick looks and for full searches of settings."""

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


def daily(path: Path, visits: int) -> Answer:
    """The answer for windows with one release, and users of so many visits to pages of a law."""
    rng = np.random.default_rng(7)
    user = rng.permutation(np.repeat(np.arange(30_000 // visits), visits))
    page = (300 * rng.random(30_000) ** 4).astype(int)
    times = START + np.arange(30_000) * 24 * HOUR // 30_000
    rows = [f"u{u},p{p},20,{t},x" for u, p, t in zip(user, page, times, strict=True)]
    path.write_text("\n".join(["user,page,age,t,spare", *rows]))
    text = INPUT.replace('"1h"', '"1d"').replace('"30m"', '"1d"').replace(', "age"', "")
    text = text.replace("epsilon = 1.0", "epsilon = 6.0").replace(
        ", budget = 4, adaptive_weight = 0", ""
    )
    made, records = read(path, text)
    (source,) = compile_config(made).inputs
    ticks: list[int] = []
    search = Search(source.pipelines[0], made.pipeline[0], records, lambda: ticks.append(1))
    found = search.answer(path)
    assert len(ticks) <= search.ticks()
    return found


def test_early_releases_are_a_way_where_they_make_the_last_one_better(tmp_path: Path) -> None:
    found = daily(tmp_path / "visits.csv", visits=30)
    base, early = found.ways[:2]
    assert (early.title, early.variant.changes) == (EARLIER, {"triggers.every": '"1h"'})
    assert early.best.score < 0.95 * base.best.score and EARLY in early.notes
    assert early.variant.settings.window == base.variant.settings.window
    assert early.cost == base.cost
    lines = body_of("histogram", found)["ways"][1]["toml"]
    assert lines[0] == 'triggers.every = "1h"' and lines[1].startswith("mechanism = ")


def test_early_releases_are_no_way_where_each_unit_has_one_record(tmp_path: Path) -> None:
    found = daily(tmp_path / "visits.csv", visits=1)
    assert len(found.ways) > 1 and EARLIER not in [one.title for one in found.ways]
