"""Guided schedules: their changes, replay, shrinking, and continuing after an interruption."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from .campaign import KINDS
from .campaign import one as replayed
from .coverage import Seen
from .forks import ROOT, run
from .guided import APART, NAME, PIECE, Search
from .recipe import STANDING, Fault, Recipe, Turn, recipe
from .shrink import RECORDS, shrunk

ENVIRON = dict(os.environ, PYTHONHASHSEED="0", OMP_NUM_THREADS="1")
NEEDED = (Fault("wipe", 0, 3.456, 0.5), Fault("pause", 1, 7.891, 0.25))


def python(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=ROOT, env=ENVIRON, capture_output=True, text=True)


def search(*words: str) -> Any:
    done = run(NAME, *words)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def one(of: Recipe, bug: str = "") -> Any:
    return replayed(of.text(), bug)


def test_a_recipe_is_what_its_text_says() -> None:
    whole = Recipe(5, NEEDED, (Turn(2.5, 3),), (1, 4))
    for each in (Recipe(5), Recipe(5, ()), whole):
        assert recipe(each.text()) == each
    assert Recipe(5) != Recipe(5, ())


def objecting(ones: Sequence[Recipe]) -> list[dict[str, Any]]:
    """Object if both faults happen in this order and record 7 is sent."""

    def objects(given: Recipe) -> bool:
        there = given.faults or ()
        at = {fault.kind: fault.at for fault in there}
        return at.get("wipe", 99) < at.get("pause", 0) and 7 not in given.without

    clear: dict[str, Any] = {kind: [] for kind in KINDS}
    return [clear | ({"lost": ["one"]} if objects(each) else {}) for each in ones]


def test_what_objects_shrinks_to_what_it_needs() -> None:
    beside = [Fault("slow", 0, float(n), 0.1) for n in range(5)]
    tried = Recipe(5, (*beside[:3], NEEDED[0], *beside[3:], NEEDED[1]), (Turn(2.5, 3),))
    made = {**objecting([tried])[0], "drawn": tried.faults}
    least = shrunk(tried, made, objecting)
    assert least.faults == (Fault("wipe", 0, 3.0, 0.0), Fault("pause", 1, 8.0, 0.0))
    assert least.turns == () and least.without == tuple(n for n in range(RECORDS) if n != 7)


def test_what_objects_by_chance_is_left_as_it_is() -> None:
    tried = Recipe(5)
    made: dict[str, Any] = {**{kind: [] for kind in KINDS}, "lost": ["one"], "drawn": NEEDED[:1]}
    assert shrunk(tried, made, objecting) == tried


def made(*states: int) -> dict[str, Any]:
    clear: dict[str, Any] = {kind: [] for kind in KINDS}
    return {**clear, "drawn": NEEDED, "states": [[state, 3.0 + state] for state in states]}


def test_only_what_met_a_new_state_is_changed_and_at_that_moment(tmp_path: Path) -> None:
    tries = Search(1)
    tries.learn(Recipe(5), made(1, 2))
    tries.learn(Recipe(6), made(2, 1))
    assert [entry.recipe.seed for entry in tries.corpus] == [5]
    assert tries.corpus[0].moments == (4.0, 5.0) and len(tries.states) == 2
    tries.save(tmp_path / "states.json")
    again = Search.load(tmp_path / "states.json")
    assert vars(again) == vars(tries)


def test_a_search_with_standbys_has_their_deployments_and_the_faults_of_copies() -> None:
    tries = Search(STANDING // APART)
    tries.learn(Recipe(STANDING), made(1))
    tried = [tries._changed(tries.corpus[0], Random(number)) for number in range(200)]
    kinds = {fault.kind for one in tried for fault in one.faults or ()}
    assert tries.standing and {"rolling", "ahead", "behind", "cut"} <= kinds
    assert {one.seed for one in tried} == {STANDING}
    plain = Search(STANDING // APART - 1)
    plain.learn(Recipe(5), made(1))
    tried = [plain._changed(plain.corpus[0], Random(number)) for number in range(200)]
    kinds = {fault.kind for one in tried for fault in one.faults or ()}
    assert not plain.standing and not {"rolling", "ahead"} & kinds


def copy_at(position: int, ready: bool = True) -> Any:
    state = SimpleNamespace(place=("log", 0), position=position, ready=ready)
    return SimpleNamespace(state=state, lock=SimpleNamespace(locked=lambda: False))


def test_a_state_tells_how_far_the_copies_of_a_table_are() -> None:
    """Copies may be the only place with rows that the cluster has lost."""
    topology = SimpleNamespace(
        of=lambda topic, number: topic,
        transactional_id=lambda stage, number: f"{stage}.{number}",
        publishing_id=lambda stage, number: "",
    )
    copies = {("in", 0): copy_at(3), ("other", 0): copy_at(3)}
    worker = SimpleNamespace(_topology=topology, _standbys=SimpleNamespace(_copies=copies))
    machines = [SimpleNamespace(worker=worker, process=SimpleNamespace(dead=False)),
                SimpleNamespace(worker=None, process=None)]  # fmt: skip
    seen: Any = Seen.__new__(Seen)
    seen._schedule = SimpleNamespace(machines=machines)
    seen._broker = SimpleNamespace(logs={("log", 0): SimpleNamespace(stable=3)})
    assert seen._copies("in.0") == ((False, False, "here"),) and seen._copies("in.1") == ()
    for one, where in (
        (copy_at(2), "beyond"),
        (copy_at(4), "behind"),
        (copy_at(3, False), "closed"),
    ):
        copies["in", 0] = one
        assert seen._copies("in.0") == ((False, False, where),)


@pytest.mark.spread(12)
def test_a_recipe_replays_exactly_and_a_turn_keeps_what_was_before() -> None:
    plain, same = one(Recipe(12)), one(Recipe(12, turns=(Turn(1e6, 1),)))
    assert plain["faults"] == same["faults"] and not any(same[kind] for kind in KINDS)
    other = Recipe(12, NEEDED, (Turn(6.0, 1),), (3,))
    first, again = one(other), one(other)
    assert first == again and first["trace"] != plain["trace"]
    assert [told.split()[2] for told in first["faults"]] == ["wipe", "pause"]


@pytest.mark.thorough
@pytest.mark.spread(12)
def test_a_search_goes_on_after_a_break_as_if_there_had_been_none(tmp_path: Path) -> None:
    file, whole = tmp_path / "pieces.json", tmp_path / "whole.json"
    search("--schedules", str(PIECE), "--resume", str(file))
    pieces = search("--schedules", str(2 * PIECE), "--resume", str(file))
    at_once = search("--schedules", str(2 * PIECE), "--resume", str(whole))
    assert pieces["schedules"] == 2 * PIECE and pieces["found"] == at_once["found"]
    assert pieces["states"] == at_once["states"] > 500
    assert Search.load(file).corpus == Search.load(whole).corpus
    changed = [entry.recipe for entry in Search.load(whole).corpus if entry.recipe.faults]
    assert changed  # it changes an earlier schedule or has a further fault


@pytest.mark.thorough
def test_an_old_mistake_is_found_shrunk_and_replayed_by_the_command_that_is_said() -> None:
    made = search("--schedules", "100", "--bug", "forgotten floor", "--first")
    found = made["found"][0]
    least = recipe(found["least"])
    assert len(least.faults or ()) <= 1 and len(least.without) > RECORDS // 2
    words = shlex.split(found["command"])
    told = python(*words[1:], "--json")
    assert any(json.loads(told.stdout)[kind] for kind in found["kinds"])
    right = one(least)
    assert not any(right[kind] for kind in KINDS)


@pytest.mark.thorough
def test_a_benchmark_searches_among_deployments_with_standbys() -> None:
    command = ("benchmarks/schedules.py", "--guided", "--standbys", "--schedules", str(PIECE))
    told = json.loads(python(*command).stdout)
    assert told["schedules"] == PIECE and told["found"] == [] and told["states"] > 500
