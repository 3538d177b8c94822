"""Penalties of thresholds: errors agree with the benchmarks, and the bound holds."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

sys.path[:0] = [str(Path(__file__).parents[2] / name) for name in ("research", "benchmarks")]
try:
    import _heldout_pak as pak
    import _heldout_penalties as penalties
    import _heldout_values as tops
    from _values import Stream
finally:
    del sys.path[:2]

VALUES = np.rint(np.random.default_rng(3).exponential(20, 2048)).astype(np.int64)
STREAM, ONE = Stream("short", np.minimum(VALUES, 400), 400), Fraction(1)


def test_the_rules_in_use_have_the_errors_of_the_benchmarks() -> None:
    cell, best = penalties.pak_cell(STREAM, ONE)
    row = pak.row_of(STREAM, ONE, 60)
    assert best**0.5 == pytest.approx(row["best"])
    error = cell.error(36 * cell.usual * cell.share**0.5, 400)
    assert error**0.5 == pytest.approx(row["pak"], rel=0.15)
    cell, authors = penalties.tops_cell(STREAM, ONE, 400)
    found = tops.row_of(STREAM, ONE, 60, oracle=False)
    assert cell.error(36 * cell.usual * cell.share**0.5, 400) == pytest.approx(
        found["tops"], rel=0.25
    )
    assert authors == pytest.approx(found["authors"], rel=0.25)


@pytest.mark.parametrize("loss", [0.0, 1.0, 3.0])
def test_a_private_choice_between_two_is_right_as_often_as_randomised_response(loss: float) -> None:
    """A wrong choice costs 9 more; the best law is right with probability e^loss/(1 + e^loss)."""
    wrong = 1 / (1 + math.exp(loss))
    found = penalties.least(np.array([1.0, 10.0]), np.array([10.0, 1.0]), loss)
    assert found == pytest.approx(1 + 9 * wrong)
