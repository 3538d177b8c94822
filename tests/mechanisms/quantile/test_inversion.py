"""Inversion of a distribution function, with and without noise; intervals that hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hushstream.mechanisms.quantile.bands import bands
from hushstream.mechanisms.quantile.inversion import NEARER, invert, rising
from hushstream.mechanisms.quantile.tree import BandTree, levels_of
from hypothesis import given
from hypothesis import strategies as st

EDGES = np.arange(0, 1100, 100)


def test_without_noise_the_place_within_a_band_is_linear() -> None:
    counts = np.array([[0, 0, 10, 0, 30, 0, 0, 0, 0, 0, 0, 0]])
    pivot = np.cumsum(counts, axis=1)[:, :-1] - np.array([[0.5 * 40]])
    found = invert(pivot.astype(float), pivot.astype(float), np.zeros(11), EDGES)
    # Ten of forty values are in 100…200, so the median is a third of the way through 300…400.
    assert (found.value[0], found.low[0], found.high[0]) == (333, 300, 400)


@pytest.mark.parametrize(("counts", "ends"), [([9, 1], (0, 0)), ([1, 9], (1000, 1000))])
def test_a_quantile_beyond_the_range_is_its_end(counts: list[int], ends: tuple[int, int]) -> None:
    table = np.array([[counts[0], *[0] * 10, counts[1]]])
    pivot = np.cumsum(table, axis=1)[:, :-1] - 5.0
    found = invert(pivot, pivot, np.full(11, 0.5), EDGES)
    assert (int(found.low[0]), int(found.high[0])) == ends and found.value[0] in ends


@given(st.integers(0, 2**32))
def test_what_rises_is_kept_and_what_falls_is_levelled(seed: int) -> None:
    draw = np.random.default_rng(seed)
    pivot = np.cumsum(draw.normal(1, 5, (3, 40)), axis=1)
    made, truth = rising(pivot), np.cumsum(np.abs(draw.normal(1, 5, (3, 40))), axis=1)
    assert (np.diff(made, axis=1) >= 0).all()
    np.testing.assert_array_equal(rising(truth), truth)
    assert (np.abs(made - truth).max(axis=1) <= np.abs(pivot - truth).max(axis=1)).all()


@given(st.integers(0, 2**32))
def test_intervals_hold_the_value_and_lie_in_the_range(seed: int) -> None:
    draw = np.random.default_rng(seed)
    rise = np.cumsum(np.abs(draw.normal(0, 10, (20, 11))), axis=1) - 40
    found = invert(draw.normal(0, 10, (20, 11)), rise, np.abs(draw.normal(0, 10, 11)), EDGES)
    assert (found.low <= found.value).all() and (found.value <= found.high).all()
    assert (found.low >= 0).all() and (found.high <= 1000).all()


KINDS = {
    "skewed": lambda draw, n: draw.lognormal(3, 0.7, n),
    "smooth": lambda draw, n: draw.normal(50, 15, n),
    "discrete": lambda draw, n: draw.integers(1, 8, n) * 11.0,
    "constant": lambda draw, n: np.full(n, 63.2),
    "gaps": lambda draw, n: np.repeat(
        [5.0, 25.0, 26.0, 90.0], [n // 4, n // 4, n // 5 * 2, n // 10]
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_cover_as_often_as_they_say(kind: str) -> None:
    """Of 400 intervals at 95 % at least 372 cover; at a true 95.5 % fewer do in 1 of 100 runs."""
    draw, made = np.random.default_rng(17), bands(0, 100, 256, "linear")
    keys, n, variances = 400, 3000, (900.0, 1350.0, 1350.0, 1350.0, 2700.0)
    counts, values = np.zeros((keys, 256), np.int64), []
    for key in range(keys):
        steps = made.steps(KINDS[kind](draw, n))
        counts[key] = np.bincount(made.place(steps), minlength=256)
        values.append(np.sort(np.clip(steps, made.edges[0], made.edges[-1])))
    nodes = [
        level + draw.normal(0, variance**0.5, level.shape)
        for level, variance in zip(levels_of(counts), variances, strict=True)
    ]
    tree = BandTree(variances)
    estimates = tree.estimates(nodes)
    below = np.cumsum(estimates, axis=1)
    risen = np.cumsum(tree.smoothed(estimates, below[:, -1]), axis=1)
    for q in (0.25, 0.5, 0.9):
        spread = 1.959964 * np.sqrt(tree.rank_variance(q))
        pivot, rise = below - q * below[:, -1:], risen - q * below[:, -1:]
        found = invert(pivot[:, :-1], rise[:, :-1], spread, made.ends)
        truth = np.array([one[int(np.ceil(q * n)) - 1] for one in values])
        held = int(((found.low <= truth) & (truth <= found.high)).sum())
        assert held >= (372 if kind != "gaps" else 352)  # an interval ends where a gap begins: 88 %
        assert held <= 397 or kind in ("discrete", "constant")  # not needlessly wide


def test_the_factor_of_intervals_is_as_measured() -> None:
    assert NEARER == 0.82
