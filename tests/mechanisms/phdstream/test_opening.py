"""The first trigger of a window: it splits privately, and costs an event no more than others."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.columns import Releases
from hushstream.mechanisms.noise import ZeroNoise
from hushstream.mechanisms.phdstream.opening import WindowStart, floor_for
from hushstream.mechanisms.phdstream.settings import PHDStreamParameters as Parameters
from hushstream.mechanisms.phdstream.tree import GRID
from hushstream.mechanisms.spatial.domain import Domain
from hushstream.mechanisms.spatial.privtree import STEPS, Selection, largest_epsilon
from hushstream.mechanisms.spatial.synthetic import range_counts

from ...oracles.privtree import probability
from .test_mechanism import Strict, keyed, made, released, trace

SQUARE = Domain.unit(2, 6, "all")


def opening(epsilon: Fraction, share: float = 0.5, floor: int = 0) -> WindowStart:
    return WindowStart.of(SQUARE, epsilon, Fraction(share), floor)


def clusters(n: int, horizon: int = 1, seed: int = 3) -> np.ndarray:
    """(n, 4) insertions of distinct units around two small places: trigger, unit, cell, sign."""
    rng = np.random.default_rng(seed)
    centre = np.where(rng.random((n, 1)) < 0.5, 0.21, 0.73)
    cell = SQUARE.place(np.clip(centre + rng.normal(0, 0.02, (n, 2)), 0, 1)).astype(np.int64)
    when = np.arange(n) * horizon // n + 1
    return np.stack([when, np.arange(n), cell, np.ones(n, np.int64)], axis=1)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(20)])
def test_splitting_and_counting_share_what_one_event_may_cost(epsilon: Fraction) -> None:
    made = opening(epsilon)
    assert made.epsilon == epsilon
    assert made.selection.epsilon == min(epsilon / 2, largest_epsilon(2))


def law(selection: Selection, records: list[int]) -> np.ndarray:
    """Probability that a path stops at each level, given its nodes' records."""
    going = [
        float(probability(selection, np.array([STEPS * n]), level)[0])
        for level, n in enumerate(records)
    ]
    alive = np.cumprod([1.0, *going])
    return np.append(alive[:-1] * (1 - np.array(going)), alive[-1])


@pytest.mark.parametrize(
    "records", [[0] * 6, [40, 40, 40, 1, 0, 0], [200] * 6, [90, 60, 9, 4, 2, 1]]
)
@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_one_insertion_loses_no_more_than_is_declared(records: list[int], share: float) -> None:
    """Its loss is that of the splits on its path, by exact probabilities, and of one counter."""
    made = opening(Fraction(1), share)
    first, second = law(made.selection, records), law(made.selection, [n + 1 for n in records])
    possible = (first > 0) & (second > 0)
    split = float(np.abs(np.log(first[possible] / second[possible])).max())
    assert split <= float(made.selection.epsilon) * (1 + 1e-9)
    assert 0 < split + 1 / float(made.counter.scale) <= 1 + 1e-9


@pytest.mark.parametrize("bound", [1, 5])
@pytest.mark.parametrize("lifetime", [0, 2])
def test_a_window_costs_no_more_than_without(bound: int, lifetime: int) -> None:
    given = {"bound": bound + lifetime, "lifetime": lifetime, "selection": "released"}
    with_, without = (made(SQUARE, Fraction(2), 9, start=s, **given) for s in (None, "as later"))
    assert with_.opening is not None and without.opening is None
    assert with_.cost() == without.cost()


def test_a_costly_opening_is_declared() -> None:
    """The cost is computed from the opening, not assumed to equal that of later triggers."""
    mechanism = made(SQUARE, Fraction(1), 9, selection="released", bound=3)
    dear = mechanism.__class__(**{**vars(mechanism), "opening": opening(Fraction(1, 2))})
    assert mechanism.cost().epsilon == 1 and dear.cost().epsilon == Fraction(3, 2)


def test_only_the_first_trigger_draws_for_splits() -> None:
    class Listening(Strict):
        pass

    noise = Listening()
    mechanism = made(SQUARE, Fraction(2), 4, selection="released", first=2)
    released(mechanism, trace(*clusters(400, 4).tolist()), noise)
    splits = {index for purpose, _, index in noise.seen if purpose == "split"}
    assert splits == {2}


def large_boxes(release: Releases, events: np.ndarray) -> float:
    """Mean relative error of boxes with a quarter of the square's side."""
    rng = np.random.default_rng(8)
    low = rng.random((200, 2)) * 0.75
    start, end = SQUARE.boxes(events[:, 2].astype(np.uint64))
    place = (start + end) / 2
    exact = np.array([((place >= a) & (place < a + 0.25)).all(axis=1).sum() for a in low])
    counts = release.value[:, 0] / GRID
    found = range_counts(SQUARE, release.key.codes(), counts, low, low + 0.25)
    return float(np.mean(np.abs(found - exact) / np.maximum(exact, 0.01 * len(events))))


def test_a_window_of_one_trigger_is_a_map() -> None:
    """Without the opening the map would be one cell."""
    events, epsilon = clusters(4000), Fraction(1)
    results = []
    for start in ("private", "as later"):
        mechanism = made(SQUARE, epsilon, 1, selection="released", start=start)
        (release,) = released(mechanism, trace(*events.tolist()), keyed())
        results.append((len(release.key), large_boxes(release, events)))
    (leaves, error), (one, blind) = results
    assert one == 1 and leaves > 50
    assert error < blind / 20


@pytest.mark.thorough
@pytest.mark.spread(3)
@pytest.mark.parametrize("counter", ["simple", "block", "tree"])
def test_stated_errors_hold_from_the_opening_on(counter: str) -> None:
    """Chi-square over 300 windows at the first trigger, the next and a later one."""
    domain, windows = Domain.unit(2, 0), 300
    mechanism = made(domain, Fraction(1), 4, counter=counter, selection="released", block=2)
    runs = [released(mechanism, trace(), keyed(str(w))) for w in range(windows)]
    for t in (1, 2, 4):
        noise = np.array([run[t - 1].value[0, 1] for run in runs], float)
        assert runs[0][t - 1].variance[0, 1] == pytest.approx(mechanism.error(t)[1] ** 2)
        ratio = math.sqrt((noise**2).mean()) / mechanism.error(t)[1]
        assert abs(ratio - 1) < 4 * math.sqrt(5 / (4 * windows))


def test_zero_noise_loses_no_record() -> None:
    mechanism = made(SQUARE, Fraction(1), 3, selection="released")
    for t, release in enumerate(
        released(mechanism, trace(*clusters(300, 3).tolist()), ZeroNoise())
    ):
        assert release.value[:, 0].sum() == 100 * (t + 1) * GRID


def test_the_floor_follows_epsilon_and_the_expected_records() -> None:
    assert [floor_for(SQUARE, Fraction(1), n) for n in (0, 100, 160, 640, 2560, 10**9)] == [
        0, 0, 1, 2, 3, 6,
    ]  # fmt: skip
    assert floor_for(SQUARE, Fraction(4), 640) == 3
    mechanism = made(SQUARE, Fraction(1), 2, selection="released", expected=640)
    leaves = [len(r.key) for r in released(mechanism, trace(), keyed())]
    assert leaves[0] >= 16 and mechanism.opening.selection.floor == 2


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("start", {"start": "blind"}),
        ("start", {"start": "private", "selection": "private"}),
        ("start", {"start": "private", "counter": "matrix"}),
        ("start_share", {"start_share": 1}),
        ("start_share", {"start_share": 0}),
        ("expected", {"expected": -1}),
    ],
)
def test_bad_settings_are_named(name: str, given: dict[str, object]) -> None:
    with pytest.raises(ParameterError) as error:
        made(SQUARE, Fraction(1), 3, **{"selection": "released", **given})
    assert error.value.name == name


def test_where_it_is_not_possible_windows_begin_as_later() -> None:
    assert Parameters().start is None
    for given in ({"counter": "matrix"}, {"selection": "private"}):
        assert made(SQUARE, Fraction(1), 3, **{"selection": "released", **given}).opening is None
