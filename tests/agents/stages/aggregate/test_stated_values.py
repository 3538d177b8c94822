"""Values in releases equal what fractions give, to the last digit."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
from hushstream.agents.stages.aggregate import stated_values
from hushstream.agents.stages.aggregate.stated_values import StatedValues
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
    low, high = (value + sign * Fraction(repr(digits(1.96 * stddev))) for sign in (-1, 1))
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
