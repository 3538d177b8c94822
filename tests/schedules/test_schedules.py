"""Schedules of faults in virtual time: the product passes, and each old mistake is found."""

from __future__ import annotations

import pytest

from .bugs import BUGS, FOUND_AT, FOUND_WITHIN, OF_DEPLOYMENTS, OF_STANDBYS, ONLY, RECIPES
from .campaign import KINDS, apart, campaign, one
from .deployments import FURTHER
from .draws import GUIDED
from .recipe import FULL, STANDING
from .schedule import KINDS as KINDS_OF_SCHEDULES
from .schedule import kind_of

EVERY_KIND = {
    *("kill", "wipe", "old", "mistake", "pause", "stop", "clock"),  # of one machine
    *("outage", "slow", "lossy", "rebalance", "forget", "retention", "rewind"),  # of the cluster
    *("refusal", "known"),  # of its leaders
    "torn",  # of transactions
    *("registry", "keyfile", "growth", "generation"),  # of deployments that have it
}
MECHANISMS = {"histogram", "quantile", "phdstream", "privhp", "pak", "tops", "topl"}
# The same ones on every machine; benchmarks/schedules.py runs more.
WANTED = [150, pytest.param(1000, marks=pytest.mark.thorough)]


@pytest.mark.parametrize("wanted", WANTED)
def test_nothing_is_lost_doubled_different_or_stuck_under_any_schedule(wanted: int) -> None:
    result = campaign(wanted)
    assert [f"seed {found.seed}: {found.kinds}" for found in result.found] == []
    assert result.schedules == wanted
    assert set(result.kinds) == EVERY_KIND
    assert set(result.mechanisms) == MECHANISMS
    assert result.callbacks > 500 * result.schedules
    assert result.torn > 2 * result.schedules
    print(f"{result.schedules} schedules, {sum(result.kinds.values())} faults: {result.kinds}")


@pytest.mark.parametrize("wanted", [8, pytest.param(1000, marks=pytest.mark.thorough)])
def test_nor_where_shards_and_the_clock_are_handed_over_to_copies(wanted: int) -> None:
    result = campaign(wanted, STANDING, 1)
    assert [f"seed {found.seed}: {found.kinds}" for found in result.found] == []
    assert result.schedules == wanted and result.kinds["rolling"] > wanted / 10
    assert result.taken > wanted and result.kinds.get("ahead", 0) >= wanted // 20


@pytest.mark.parametrize("wanted", [12, pytest.param(1000, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("first", [FULL, FULL + STANDING])
def test_nor_under_all_faults_together(wanted: int, first: int) -> None:
    result = campaign(wanted, first, 1)
    assert [f"seed {found.seed}: {found.kinds}" for found in result.found] == []
    assert result.schedules == wanted and bool(result.taken) == (first > FULL)
    faults = sum(result.kinds.get(kind, 0) for kind in GUIDED)
    assert faults >= wanted and set(result.kinds) - set(GUIDED)


@pytest.mark.thorough
def test_a_changed_number_of_any_mechanism_is_found() -> None:
    result = campaign(160, bug="changed number")
    assert {kind_of(found.seed) for found in result.found} == {*KINDS_OF_SCHEDULES, *FURTHER}
    assert all(found.kinds["differing"] for found in result.found)


def test_a_seed_replays_exactly() -> None:
    first, again, other = one(12), one(12), one(13)
    assert first == again
    assert first["trace"] != other["trace"]


@pytest.mark.parametrize("bug", [*BUGS, *OF_DEPLOYMENTS])
def test_an_old_mistake_that_is_put_back_is_found(bug: str) -> None:
    """At its recorded seed; if the product has moved it, the search continues from there."""
    seed = FOUND_AT[bug]
    only = ONLY.get(bug, "")
    result = campaign(FOUND_WITHIN[bug], seed, 1, bug=bug, first=True, only=only)
    assert result.found, f"{bug}: {result.schedules} schedules saw nothing"
    (found,) = result.found
    if found.seed != seed:
        print(f"{bug}: record seed {found.seed} instead of {seed}")


def test_a_mistake_of_copies_that_is_put_back_is_found_and_nothing_without_it() -> None:
    """At its recorded seed; if the product has moved it, the search continues from there."""
    for bug, (right, wrong) in apart({bug: FOUND_AT[bug] for bug in OF_STANDBYS}).items():
        assert not right, bug
        if not wrong:
            within, seed, only = FOUND_WITHIN[bug], FOUND_AT[bug], ONLY.get(bug, "")
            result = campaign(within, seed, 1, bug=bug, first=True, only=only)
            assert result.found, f"{bug}: {result.schedules} schedules saw nothing"
            print(f"{bug}: record seed {result.found[0].seed}")


@pytest.mark.parametrize("bug", RECIPES)
def test_a_recipe_objects_to_the_mistake_alone(bug: str) -> None:
    wrong, right = one(RECIPES[bug], bug), one(RECIPES[bug])
    assert any(wrong[kind] for kind in KINDS)
    assert not any(right[kind] for kind in KINDS)


@pytest.mark.thorough
@pytest.mark.parametrize("bug", BUGS)
def test_a_search_from_the_first_seed_finds_an_old_mistake_too(bug: str) -> None:
    result = campaign(FOUND_WITHIN[bug], bug=bug, first=True, only=ONLY.get(bug, ""))
    assert result.found, f"{bug}: {result.schedules} schedules saw nothing"
    seed = result.found[0].seed
    failing, again = one(seed, bug), one(seed, bug)
    assert failing == again
    assert any(failing[kind] for kind in KINDS)
    right = one(seed)
    assert not any(right[kind] for kind in KINDS)
