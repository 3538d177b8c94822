"""Sums of squares: a column and its square move together no further than the column alone."""

from __future__ import annotations

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.columns import Batch
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.in_memory import Memory, run
from hushstream.mechanisms.noise import zero
from hushstream.mechanisms.parts.squares import TOP, square_of, square_steps
from hypothesis import given
from hypothesis import strategies as st

from ..histogram.bench import CODES, DELTA, EPSILON, trace


def made(public: bool = False, **given: object) -> Histogram:
    setting = Setting(
        EPSILON, DELTA, 3, columns=(("a", 0, 9), ("b", -7, 10**6)), grids=(1, 1),  # type: ignore[arg-type]
        keys=tuple(CODES[:2].tolist()) if public else None, squares=("b",),
    )  # fmt: skip
    found = build(HistogramParameters(**given), setting)  # type: ignore[arg-type]
    assert isinstance(found, Histogram)
    return found


@pytest.mark.parametrize("reach", [1, 2, 5, 100, 4096, 4097, 9999])
def test_every_value_moves_column_and_square_by_at_most_one_together(reach: int) -> None:
    square = square_of("x", 0, reach)
    u = np.arange(-reach, reach + 1)
    column, own = square.sizes2
    joint = u.astype(object) ** 2 * own + square.of(u).astype(object) ** 2 * column
    assert max(joint) == column * own  # reached, and never more
    assert column >= reach**2 and square.top <= max(TOP, reach**2)


@given(st.integers(1, 2**31), st.integers(0, 2**31))
def test_wide_intervals_keep_the_bound_and_round_by_little(reach: int, u: int) -> None:
    square, u = square_of("x", 0, reach), min(u, reach)
    column, own = square.sizes2
    q = int(square.of(np.array([u]))[0])
    assert u**2 * own + q**2 * column <= column * own
    assert 0 <= (q + square.top) * square.step - u**2 < max(reach**2 / TOP, 1) + 1
    assert square.top <= TOP


def test_squares_take_no_budget_from_anything_else() -> None:
    """The noise of count and sums is the same with and without squares."""
    given = Setting(EPSILON, DELTA, 3, columns=(("a", 0, 9), ("b", 0, 8)), grids=(1, 1))  # type: ignore[arg-type]
    plain = build(HistogramParameters(), given)
    both = build(HistogramParameters(), Setting(**{**vars(given), "squares": ("b",)}))
    assert np.allclose(plain.error(3), both.error(3)[:3], rtol=1e-3)
    assert [one.name for one in both.traits.outputs[3:]] == ["square:b", "centred:b"]


def test_sums_around_the_middle_are_exact_without_noise() -> None:
    mechanism = made(public=True)
    values = np.array([[0, -7], [9, 10**6], [3, 500_000]])
    memory = Memory(mechanism, zero)
    for key in CODES[:2]:
        memory.row_tables[0].store(mechanism.traits.rows(CODES[:2]))
        assert key
    *_, last = run(memory, trace([(1, 0, 0), (1, 1, 0), (2, 2, 1)], CODES[:2], values))
    middle, step, top = square_steps(-7, 10**6)
    count, _, total, squares, centred = last.value.T.tolist()
    assert count == [2, 1] and total == [10**6 - 7, 500_000]
    assert centred == [10**6 - 7 - 2 * middle, 500_000 - middle]
    exact = [(7 + middle) ** 2 + (10**6 - middle) ** 2, (500_000 - middle) ** 2]
    for found, n, wanted in zip(squares, count, exact, strict=True):
        assert 0 <= (found + n * top) * step - wanted <= n * step


def absorbed(values: list[int], signs: list[int]) -> list[int]:
    """Sums that one unit's records add to one key."""
    mechanism, n = made(budget=100), len(values)
    batch = Batch(
        CODES[:1], np.zeros(n, np.intp), np.zeros(n, np.intp), np.array([[0, v] for v in values]),
        np.array(signs, np.int8), np.zeros(1, np.int32),
    )  # fmt: skip
    found: list[int] = mechanism.absorb(mechanism.traits.units(1), batch)[1].sums[0].tolist()
    return found


def test_a_value_beyond_its_interval_counts_as_its_end() -> None:
    assert absorbed([10**9], [1]) == absorbed([10**6], [1])
    assert absorbed([-(10**9)], [1]) == absorbed([-7], [1])


def test_deletions_take_squares_back() -> None:
    assert absorbed([5, 900, 5], [1, 1, -1]) == absorbed([900], [1])


def test_rounds_and_a_hidden_count_are_refused() -> None:
    with pytest.raises(ParameterError, match="squares"):
        made(selection="rounds")
    setting = Setting(
        EPSILON, DELTA, 3, columns=(("b", 0, 8),), grids=(1,), squares=("b",), count=False
    )  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="count"):
        build(HistogramParameters(), setting)
