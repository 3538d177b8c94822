"""Noise of windows that hop: each row solves its window, and the stated norms bound it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.factorization.hopping import (
    LONGEST,
    SEARCHED,
    earlier,
    hopping,
    norms,
    row,
    spans,
)

SIZES = [(2, 1), (3, 2), (4, 4), (3, 7), (24, 24), (5, 2)]


def band(hops: int, per_epoch: int) -> np.ndarray:
    """W, with one row for each window that holds hops of an epoch: heads first, then tails."""
    rows = np.arange(1, per_epoch + hops)[:, None]
    hop = np.arange(1, per_epoch + 1)
    return ((rows - hops < hop) & (hop <= rows)).astype(np.float64)


@pytest.mark.parametrize(("hops", "per_epoch"), SIZES)
def test_every_window_of_an_epoch_is_there_once(hops: int, per_epoch: int) -> None:
    found = []
    for ordinal in range(1, per_epoch + 1):
        for back, span in spans(ordinal, hops, per_epoch).items():
            one = np.zeros(per_epoch)
            one[span.before : span.last] = 1
            found.append((ordinal + back * per_epoch, one.tolist()))
    assert [one for _, one in sorted(found)] == band(hops, per_epoch).tolist()
    assert max(n for n, _ in found) == per_epoch + hops - 1


@pytest.mark.parametrize(("hops", "per_epoch"), SIZES)
def test_rows_solve_the_windows(hops: int, per_epoch: int) -> None:
    factor = hopping(hops, per_epoch)
    C = factor.C * 2.0**-factor.bits
    exact = band(hops, per_epoch) @ np.linalg.inv(C)
    for ordinal in range(1, per_epoch + 1):
        for back, span in spans(ordinal, hops, per_epoch).items():
            wanted = exact[ordinal + back * per_epoch - 1]
            assert np.allclose(row(factor, span), wanted, atol=1e-9)
            length, total = norms(factor, span)
            assert np.linalg.norm(wanted) <= length * (1 + 1e-12) + 1e-12
            assert np.abs(wanted).sum() <= total * (1 + 1e-12) + 1e-12


def least_variance(hops: int, per_epoch: int) -> float:
    """A lower bound of tr(W X⁻¹ Wᵀ) over all X with a diagonal of at most 1.

    By duality: it is at least 2·tr((D_v^½ WᵀW D_v^½)^½) - Σ v for every v >= 0.
    """
    wanted, v, best = band(hops, per_epoch), np.ones(per_epoch), 0.0
    for _ in range(40):
        scale = np.sqrt(v)
        values, vectors = np.linalg.eigh(scale[:, None] * (wanted.T @ wanted) * scale)
        root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
        best = max(best, 2 * np.trace(root) - v.sum())
        v = np.diag(root).copy()
    return best


@pytest.mark.parametrize(("hops", "per_epoch", "over"), [
    *((*size, 1.001) for size in SIZES), (24, 48, 1.001),
])  # fmt: skip
def test_no_factorisation_has_less_noise(hops: int, per_epoch: int, over: float) -> None:
    """24 hops per window and epoch: 0.53 times the deviation of 24 hops released one by one."""
    factor = hopping(hops, per_epoch)
    rows = band(hops, per_epoch) @ np.linalg.inv(factor.C * 2.0**-factor.bits)
    ours = (rows**2).sum() * float(factor.sensitivity2)
    least = least_variance(hops, per_epoch)
    assert least * (1 - 1e-9) <= ours <= over * least
    if (hops, per_epoch) == (24, 24):
        assert (least / per_epoch / hops) ** 0.5 == pytest.approx(0.5295, abs=1e-4)


@pytest.mark.parametrize(("hops", "per_epoch"), SIZES)
def test_columns_have_unit_length(hops: int, per_epoch: int) -> None:
    factor = hopping(hops, per_epoch)
    columns = (factor.C.astype(object) ** 2).sum(axis=0)
    assert factor.sensitivity2 == Fraction(int(max(columns)), 4**factor.bits)
    assert abs(float(factor.sensitivity2) - 1) < 1e-3
    assert (np.triu(factor.C, 1) == 0).all()


def test_a_day_of_hours_has_half_the_deviation_of_released_hours() -> None:
    factor, total = hopping(24, 24), 0.0
    for ordinal in range(1, 25):
        total += sum(float((row(factor, s) ** 2).sum()) for s in spans(ordinal, 24, 24).values())
    assert (total / 24 * float(factor.sensitivity2)) ** 0.5 < 0.54 * 24**0.5


def test_a_long_epoch_has_nearly_the_deviation_of_the_optimum() -> None:
    def mean(per_epoch: int) -> float:
        factor = hopping(24, per_epoch)
        every = range(1, per_epoch + 1)
        found = [
            float((row(factor, s) ** 2).sum())
            for o in every for s in spans(o, 24, per_epoch).values()
        ]  # fmt: skip
        return float(np.sqrt(sum(found) / per_epoch * float(factor.sensitivity2)))

    assert mean(SEARCHED + 1) < 1.03 * mean(SEARCHED)


def test_epochs_that_were_not_released_have_no_part() -> None:
    assert spans(1, 24, 24, chain=1).keys() == {0}
    assert spans(1, 24, 24, chain=2).keys() == {0, 1}
    assert spans(24, 24, 24).keys() == {0}
    assert spans(2, 5, 2, chain=4).keys() == {0, 1}  # hops 1 to 4 of a chain lie in two epochs
    assert spans(2, 5, 2, chain=5).keys() == {0, 1, 2}
    assert earlier(5, 2) == 2


def test_what_is_too_long_is_refused() -> None:
    for hops, per_epoch in ((LONGEST + 1, 4), (4, LONGEST + 1), (0, 4)):
        with pytest.raises(ParameterError):
            hopping(hops, per_epoch)
