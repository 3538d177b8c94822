"""Values in releases equal what fractions give, to the last digit."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hushstream.agents.stages.aggregate import stated_values
from hushstream.agents.stages.aggregate.stated_values import StatedValues, deviations
from hushstream.mechanisms.contract import ALWAYS, SIGNED, Output
from hypothesis import given
from hypothesis import strategies as st

from ....support import deployment

FARE = 'field = "fare", low = -2, high = 50, grid = 0.01'
P = deployment(
    more=f"""public_keys = ["a"]
aggregate = [{{ kind = "count" }}, {{ kind = "mean", {FARE} }}, {{ kind = "sum", {FARE} }}]
"""
).pipelines[0]
STEPS = st.one_of(st.integers(-200, 200), st.integers(-(1 << 62), 1 << 62))
VARIANCES = st.floats(1e-6, 1e24)


def of_one(output: Output, inserting: bool, shown: bool) -> StatedValues:
    """The values of a mechanism with one released column."""
    made: Any = SimpleNamespace(
        traits=SimpleNamespace(outputs=(output,)),
        fields=SimpleNamespace(sign=None if inserting else "gone"),
        aggregates=(), in_parts=False, non_negative=shown,
    )  # fmt: skip
    return StatedValues(made, 1.96)


def digits(number: float) -> float:
    return float(f"{number:.6g}")


def number(value: Fraction) -> int | float:
    return int(value) if value == int(value) else float(value)


@given(
    STEPS,
    VARIANCES,
    st.sampled_from([Fraction(1), Fraction(1, 100), Fraction(1, 3), Fraction(7, 2)]),
    st.sampled_from([None, Fraction(40), Fraction(1, 7)]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_a_column_is_stated_as_fractions_would_state_it(
    steps: int, variance: float, grid: Fraction, most: Fraction | None, least: bool,
    inserting: bool, shown: bool,
) -> None:  # fmt: skip
    output = Output("v", grid, ALWAYS if least else SIGNED, most)
    stddev = digits(variance**0.5 * float(grid))
    value = steps * grid
    if most is not None:
        value = min(max(value, Fraction(0)), most)
    half = Fraction(repr(digits(1.96 * stddev)))
    if (steps_out := half / grid) < 16:
        half = max(half, round(steps_out - Fraction(1, 10**9)) * grid)
    low, high = value - half, value + half
    if least:
        low, high = max(low, Fraction(0)), max(high, Fraction(0))
    if most is not None and inserting:
        low, high = (min(max(end, Fraction(0)), most) for end in (low, high))
    wanted = {"value": number(value), "stddev": stddev, "low": float(low), "high": float(high)}
    if shown:
        wanted["display_value"] = max(number(value), 0)
    values = of_one(output, inserting, shown)
    for _ in range(2):  # computed, and kept
        (name, made), *others = values.of([steps], [variance]).items()
        assert (name, made, others) == ("v", wanted, [])
        assert isinstance(made["value"], int) == isinstance(wanted["value"], int)


@given(STEPS, STEPS, VARIANCES, VARIANCES)
def test_values_of_one_column_and_of_several_come_together(
    count: int, total: int, first: float, second: float
) -> None:
    assert [one.name for one in P.traits.outputs] == ["count", "sum:fare"]
    made = StatedValues(P, 1.96).of([count, total], [first, second])
    assert set(made) == {"count", "sum_fare", "mean_fare"}
    assert made["count"]["value"] == count
    assert made["sum_fare"]["value"] == number(Fraction(total, 100))
    if count <= 0:
        assert made["mean_fare"] is None
    else:
        mean = min(max(total / 100 / count, -2), 50)
        assert made["mean_fare"]["value"] == pytest.approx(mean, abs=1e-6)


def test_what_follows_from_a_variance_is_kept_within_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stated_values, "MOST_SCALES", 3)
    values = StatedValues(replace(P, aggregates=P.aggregates[:1]), 2.0)
    for variance in (1.0, 4.0, 9.0, 16.0, 25.0, 4.0):
        assert values.of([10, 0], [variance, 1.0])["count"]["stddev"] == variance**0.5
    assert len(values._scales) == 3


def held(law: str, deviation: float, confidence: float) -> float:
    """The share of intervals that hold the exact value, which is a whole number."""
    rng, many = np.random.default_rng(7), 40_000
    noise = rng.normal(0, deviation, many) if law == "discrete_gaussian" else rng.laplace(
        0, deviation / np.sqrt(2), many
    )  # fmt: skip
    values = of_one(Output("v", Fraction(1), SIGNED), False, False)
    values._quantile = deviations(confidence, law)
    told = [values.of([n], [deviation**2])["v"] for n in np.rint(noise).astype(int).tolist()]
    return float(np.mean([one["low"] <= 0 <= one["high"] for one in told]))


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("deviation", [0.39, 0.47, 0.84, 0.94, 2.3, 40.0])
@pytest.mark.parametrize("law", ["discrete_gaussian", "discrete_laplace"])
def test_intervals_hold_at_their_level_whatever_the_law_and_the_size_of_the_noise(
    law: str, deviation: float, confidence: float
) -> None:
    slack = 5 * (confidence * (1 - confidence) / 40_000) ** 0.5
    assert held(law, deviation, confidence) >= confidence - slack - (0.01 if deviation > 16 else 0)


def test_the_sum_of_several_laplace_draws_lies_within_the_interval_of_one() -> None:
    rng = np.random.default_rng(8)
    for draws in (2, 3, 8):
        sums = rng.laplace(0, (1 / (2 * draws)) ** 0.5, (200_000, draws)).sum(1)
        for confidence in (0.95, 0.99, 0.999):
            far = np.mean(np.abs(sums) > deviations(confidence, "discrete_laplace"))
            assert far <= (1 - confidence) * 1.05 + 2e-4
