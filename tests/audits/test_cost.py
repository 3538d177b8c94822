"""Declared costs against losses that are rebuilt from stated bounds and from real releases.

Nothing here reads a mechanism's own accounting: a unit's shift is measured without noise, the
noise by planting one draw after another (`loss.Linear`), the bound is what is stated to people.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hushstream.mechanisms.contract import Batch, Setting
from hushstream.mechanisms.histogram.calibration import bound, processes
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.quantities import Column
from hushstream.mechanisms.histogram.rounds import settings as rounds_settings
from hushstream.mechanisms.histogram.rounds.mechanism import Rounds
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.squares import Square
from hypothesis import given, settings
from hypothesis import strategies as st

from .cost_histogram import Stated, choices, histogram, rounds
from .mutants import broken

DELTA = Fraction(1, 10**6)
COLUMNS = (("fare", -20, 180), ("tip", 0, 5))
RELATIVE = 1e-4  # of measured responses


def made(
    horizon: int = 5,
    columns: int = 0,
    public: bool = False,
    count: bool = True,
    shards: int = 1,
    squares: tuple[str, ...] = (),
    **given: object,
) -> Histogram | Rounds:
    setting = Setting(
        Fraction(4), DELTA, horizon, columns=COLUMNS[:columns],
        grids=(Fraction(1),) * columns, keys=(b"k",) if public else None, count=count,
        shards=shards, squares=squares,
    )  # fmt: skip
    return build(HistogramParameters(**given), setting)  # type: ignore[arg-type]


def measured(mechanism: Histogram | Rounds, shards: int = 1) -> float:
    """μ² over what is declared, where so many shards release, each with a noise of its own."""
    found = rounds(mechanism) if isinstance(mechanism, Rounds) else histogram(mechanism, shards)
    return found / float(mechanism.cost().mu2)


HISTOGRAMS = {
    "default": {},
    "one record": {"budget": 1, "horizon": 8},
    "one trigger": {"horizon": 1},
    "sums": {"columns": 2, "factorization": "toeplitz"},
    "squares": {"columns": 2, "squares": ("tip",), "budget": 4},
    "public squares": {"public": True, "columns": 2, "squares": ("fare", "tip")},
    "tree": {"adaptive_weight": 0, "budget": 4, "factorization": "tree", "horizon": 4},
    "least users": {"budget": 6, "min_users": 3, "factorization": "honaker", "horizon": 4},
    "keys": {"aggregate": "keys", "budget": 5},
    "debias": {"budget": 3.5, "debias": True, "debias_cap": 8},
    "debias in 90 shards": {"budget": 3.5, "debias": True, "debias_cap": 8, "shards": 90},
    "records": {"bound": "records", "budget": 3, "factorization": "blt", "columns": 1},
    "per key": {"bound": "per-key", "budget": 5, "per_key": 2},
    "no delay": {"delay": 0, "budget": 9, "adaptive_weight": 0.5, "columns": 1},
    "final": {"factorization": "final", "delay": 2, "horizon": 6},
    "public": {"public": True, "columns": 1},
    "public sums": {"public": True, "columns": 2, "count": False},
    "rounds": {"selection": "rounds", "budget": 3},
    "rounds, tree": {
        "selection": "rounds", "budget": 4, "factorization": "tree", "min_users": 2, "columns": 2,
        "horizon": 4,
    },
}  # fmt: skip


@pytest.mark.spread(9)
@pytest.mark.parametrize("name", HISTOGRAMS)
def test_a_histogram_loses_what_it_declares(name: str) -> None:
    """Nothing more, and with no large margin, or the check would be blind."""
    given = HISTOGRAMS[name]
    assert 0.6 < measured(made(**given), given.get("shards", 1)) <= 1 + RELATIVE


@settings(max_examples=12)
@given(
    st.integers(1, 4),
    st.integers(1, 12),
    st.sampled_from([0, 0.2, 0.7, 1]),
    st.sampled_from(["terminal", "final", "toeplitz", "blt", "normalized", "tree", "honaker"]),
    st.tuples(st.integers(-50, 20), st.integers(2, 90)),
    st.integers(0, 2),
)
def test_any_histogram_loses_no_more_than_it_declares(
    horizon: int, budget: int, weight: float, name: str, column: tuple[int, int], delay: int
) -> None:
    setting = Setting(
        Fraction(2), DELTA, horizon, columns=(("v", column[0], sum(column)),), grids=(Fraction(1),)
    )
    given = HistogramParameters(
        budget=budget, adaptive_weight=weight, factorization=name, delay=delay
    )
    assert 0.4 < measured(build(given, setting)) <= 1 + RELATIVE


@settings(max_examples=40)
@given(st.sampled_from(sorted(HISTOGRAMS)), st.randoms(use_true_random=False))
def test_what_is_accepted_fits_into_what_is_stated(name: str, random: Random) -> None:
    """A unit that sends whatever it likes: keys, windows, released or not, in many slices."""
    mechanism = made(**HISTOGRAMS[name])
    stated, units = Stated(mechanism.bounds("u")), mechanism.traits.units(1)
    counts: Counter[tuple[int, int, bool]] = Counter()
    for _ in range(8):
        window, n = random.randrange(2), random.randrange(1, 12)
        known = mechanism.traits.feedback and random.random() < 0.5
        key = np.array([random.randrange(3) for _ in range(n)], np.intp)
        batch = Batch(
            Keys.of([b"k", b"l", b"m"]), key, np.zeros(n, np.intp),
            np.zeros((n, mechanism.traits.columns), np.int64), np.ones(n, np.int8),
            np.full(3, int(known), np.int32), window,
        )  # fmt: skip
        units, part = mechanism.absorb(units, batch)
        lanes = part.lane if isinstance(mechanism, Histogram) else part.lane > 0
        for one, lane, sums in zip(part.key.tolist(), lanes.tolist(), part.sums, strict=True):
            if isinstance(mechanism, Histogram) or not lane:
                counts[window, one[0], bool(lane)] += int(sums[0])
    assert stated.price_of(counts) <= stated.budget
    assert all(m <= stated.in_key for (_, _, late), m in counts.items() if not late)


@pytest.mark.parametrize("name", ["default", "least users", "keys", "one record"])
def test_keys_are_chosen_by_the_very_numbers_that_are_released(name: str) -> None:
    """So the choice is a function of what the measured μ² covers, and costs no more."""
    mechanism = made(**HISTOGRAMS[name])
    assert isinstance(mechanism, Histogram)
    assert choices(mechanism) > 5


MISTAKES = {
    "V as noisy as S": (
        "default", processes, "processes", "variance * first / weight", "variance"
    ),
    "V bare at one trigger": (
        "default", Histogram, "_noisy", 'state["first"] + self.delay',
        'state["first"] + self.delay + 1',
    ),
    "rounds select for one record": (
        "rounds", rounds_settings, "build", "Need(records * unit,", "Need(unit,"
    ),
    "rounds release for C records, not C squared": (
        "rounds", rounds_settings, "build", "(records * size) ** 2", "records * size**2"
    ),
    "sums as noisy as counts": (
        "sums", Column, "reach", "max(self.high - self.middle, self.middle - self.low, 1)", "1"
    ),
    "every shard looks, and one pays": (
        "debias in 90 shards", processes, "processes", "looks * once", "once"
    ),
    "a square of its own size": (
        "public squares", Square, "of", "- self.top", ""
    ),
    "debiasing counts one record of a unit": (
        "debias", processes, "processes", "end**2", "1"
    ),
    "a bound per key is taken for one of each": (
        "per key", bound, "sensitivity2", "bound.sensitivity2()", "bound.left"
    ),
    "factorisation of unit norm": (
        "tree", processes, "processes",
        "sensitivity2(bound) * factor.sensitivity2 * 4**factor.bits",
        "sensitivity2(bound) * 4**factor.bits",
    ),
}  # fmt: skip


@pytest.mark.spread(3)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_a_histogram_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, owner, function, old, new = MISTAKES[mistake]
    broken(monkeypatch, owner, function, old, new)
    given = HISTOGRAMS[name]
    assert measured(made(**given), given.get("shards", 1)) > 1.1
