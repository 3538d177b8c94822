"""Bands: where a value is counted, and which ranges are refused."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.quantile.bands import Bands, bands
from hypothesis import given
from hypothesis import strategies as st


def test_a_range_is_divided_evenly_and_has_a_band_on_either_side() -> None:
    made = bands(0, 140, 16, "linear")
    assert [edge * made.grid for edge in made.edges] == [Fraction(10 * i) for i in range(15)]
    steps = made.steps(np.array([-np.inf, -0.1, 0, 9.9, 10, 139.9, 140, 140.1, 1e300]))
    assert made.place(steps).tolist() == [0, 0, 1, 1, 2, 14, 14, 15, 15]


def test_bands_on_a_logarithmic_scale_have_equal_ratios() -> None:
    made = bands(0.01, 10_000, 64, "log")
    edges = [edge * made.grid for edge in made.edges]
    assert (edges[0], edges[-1]) == (Fraction(1, 100), 10_000)
    ratios = [float(b / a) for a, b in itertools.pairwise(edges)]
    assert ratios == pytest.approx([math.exp(math.log(1e6) / 62)] * 62, rel=0.02)


@given(
    st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.sampled_from([16, 64, 256]),
    st.lists(st.floats(-2e6, 2e6), max_size=20),
)  # fmt: skip
def test_every_value_lies_in_the_band_that_holds_it(
    low: float, width: float, number: int, values: list[float]
) -> None:
    try:
        made = bands(low, low + width, number, "linear")
    except ParameterError:
        return  # no room between neighbouring doubles
    edges = [-math.inf, *made.edges, math.inf]
    assert len(made.edges) == number - 1 and sorted(set(made.edges)) == list(made.edges)
    steps = made.steps(np.array(values))
    for step, place in zip(steps.tolist(), made.place(steps).tolist(), strict=True):
        assert edges[place] <= step <= edges[place + 1]


def test_steps_are_a_hundredth_of_the_narrowest_band_or_finer() -> None:
    ranges = ((0, 1, 256, "linear"), (1, 1e6, 256, "log"), (-3, 1e9, 16, "linear"))
    for low, high, number, spacing in ranges:
        assert min(np.diff(bands(low, high, number, spacing).edges)) >= 99  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((None, 1, 64, "linear"), "low = None: is missing"),
        ((0, None, 64, "linear"), "high = None: is missing"),
        ((1, 1, 64, "linear"), "high = 1: must lie above low"),
        ((math.nan, 1, 64, "linear"), "low = nan"),
        ((0, math.inf, 64, "linear"), "high = inf"),
        ((0, 1, 100, "linear"), "bands = 100: must be 16, 64 or 256"),
        ((0, 1, 64, "log"), "low = 0: must be positive"),
        ((0, 1, 64, "even"), "spacing"),
        ((1e15, 1e15 + 1, 256, "linear"), "too far from 0"),
    ],
)
def test_ranges_that_cannot_be_used_are_refused(given: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        bands(*given)


def test_bands_are_the_same_whoever_computes_them() -> None:
    assert bands(0, 140, 16, "linear") == Bands(Fraction(1, 10), tuple(100 * i for i in range(15)))
