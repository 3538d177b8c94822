"""Errors of shares, held against records that are dropped down trees of random parts."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hushstream.mechanisms.phdstream.shares import (
    BEFORE,
    Error,
    concentration,
    share_error,
    unlike,
)

FALSE_ALARM = 1e-6  # of one comparison, were the draws new
SURE = NormalDist().inv_cdf(1 - FALSE_ALARM / 2)
TWO = np.array([2])
NONE = np.zeros(1)  # doubt
KNOWN = Error(np.zeros(1), np.zeros(1))  # a count above that is exact
F64 = np.ndarray


def agree(seen: F64, stated: float) -> None:
    """The mean of independent draws is the stated one, as far as they can tell."""
    assert abs(seen.mean() - stated) <= SURE * seen.std() / np.sqrt(len(seen)), stated


def met(mean: F64, total: float, draws: int, rng: np.random.Generator) -> tuple[F64, F64]:
    """A record of each random division: the child that it lies in, and that child's part."""
    part = rng.dirichlet(mean * total, draws)
    lies = np.minimum((part.cumsum(axis=1) < rng.random((draws, 1))).sum(axis=1), len(mean) - 1)
    return lies, part[np.arange(draws), lies]


def test_errors_of_shares_by_hand() -> None:
    """40 records, and 9 as the variance above them, go to two children, as 30 and 10.

    The sum of the law is 2·½. The parts of ¾ and ¼ are met as Beta(1 + ¾, ¼) and Beta(1 + ¼, ¾), so
    they have the means 7/8 and 5/8, and the mean squares 7/8·11/12 and 5/8·9/12.
    """
    above = Error(np.zeros(1), np.array([9.0]))
    found = share_error(np.array([40.0]), above, np.array([0.75, 0.25]), TWO, NONE, 0.5)
    np.testing.assert_allclose(found.mean, [40 / 8, 40 * 3 / 8])
    squares = 77 / 96, 45 / 96
    away = squares[0] - 1.5 * 7 / 8 + 9 / 16, squares[1] - 0.5 * 5 / 8 + 1 / 16
    np.testing.assert_allclose(
        found.square, [9 * s + 40**2 * a for s, a in zip(squares, away, strict=True)]
    )


def test_where_records_are_in_one_child_they_meet_a_part_of_all() -> None:
    """The sum of the law is 0: whoever looks from a record finds all others beside it."""
    found = share_error(np.array([40.0]), KNOWN, np.array([0.75, 0.25]), TWO, NONE, 0.0)
    np.testing.assert_allclose(found.mean, [10, 30])
    np.testing.assert_allclose(found.square, [10**2, 30**2])


def test_where_parts_are_sure_only_the_error_above_is_left() -> None:
    above = Error(np.array([3.0]), np.array([25.0]))
    found = share_error(np.array([40.0]), above, np.array([0.75, 0.25]), TWO, NONE, 1e12)
    np.testing.assert_allclose(found.mean, [2.25, 0.75], rtol=1e-6)
    np.testing.assert_allclose(found.square, [25 * 9 / 16, 25 / 16], rtol=1e-6)


@pytest.mark.parametrize("doubt", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_the_error_of_a_share_is_that_which_records_meet(alpha: float, doubt: float) -> None:
    """Records are dropped on random parts; the count above them is off by normal draws."""
    rng, draws = np.random.default_rng(7), 400_000
    w, records, low, wide = np.array([0.6, 0.3, 0.1]), 50.0, 8.0, 20.0
    above = Error(np.array([low]), np.array([low**2 + wide**2]))
    families = np.array([3])
    found = share_error(np.array([records]), above, w, families, np.array([doubt]), alpha)
    each = [met(mean, 3 * alpha, draws, rng) for mean in (w, np.full(3, 1 / 3))]
    for child in range(3):
        told, even = (part[lies == child] for lies, part in each)
        n = min(len(told), len(even))
        part = np.where(rng.random(n) < doubt, even[:n], told[:n])
        off = part * (records + low + wide * rng.standard_normal(n)) - w[child] * records
        agree(off, found.mean[child])
        agree(off**2, found.square[child])


def test_errors_of_levels_add_up_with_one_sign() -> None:
    """Records fall three levels deep; each level hands down, and only the root is counted.

    If errors of levels were added as variances, that of a leaf would be far smaller.
    """
    rng, draws, alpha, records = np.random.default_rng(8), 400_000, 0.4, 1000.0
    w = np.array([0.7, 0.3])
    part, error, count, path = np.ones(draws), KNOWN, records, np.zeros(draws, int)
    for _ in range(3):
        lies, share = met(w, 2 * alpha, draws, rng)
        path, part = 2 * path + lies, part * share
        found = share_error(np.array([count]), error, w, TWO, NONE, alpha)
        error, count = Error(found.mean[:1], found.square[:1]), count * w[0]
    off = records * part[path == 0] - count
    agree(off, error.mean[0])
    agree(off**2, error.square[0])
    variance = 0.0
    for level in range(3):
        found = share_error(np.array([records * w[0] ** level]), KNOWN, w, TWO, NONE, alpha)
        variance += found.square[0] * w[0] ** (2 * (2 - level))
    assert error.square[0] > 2 * variance


def test_families_of_different_sizes_are_kept_apart() -> None:
    above = Error(np.array([2.0, 1.0]), np.array([9.0, 4.0]))
    inherited, part = np.array([90.0, 7.0]), np.array([1 / 3, 1 / 3, 1 / 3, 1.0])
    families, doubt = np.array([3, 1]), np.array([0.2, 1.0])
    both = share_error(inherited, above, part, families, doubt, 0.5)
    one = Error(above.mean[:1], above.square[:1])
    alone = share_error(inherited[:1], one, part[:3], families[:1], doubt[:1], 0.5)
    np.testing.assert_allclose(both.mean, [*alone.mean, 1])  # an only child gets all
    np.testing.assert_allclose(both.square, [*alone.square, 4])


def split(
    alpha: float, fanout: int, nodes: int, records: int, noise: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Noisy counts of the children of random nodes, their variances, and where nodes begin."""
    rng = np.random.default_rng(9)
    part = rng.dirichlet(np.full(fanout, alpha), nodes)
    own = rng.multinomial(records, part) + noise * rng.standard_normal((nodes, fanout))
    counts = np.rint(own).astype(np.int64).reshape(-1)
    first = np.arange(0, nodes * fanout, fanout)
    return counts, np.full(nodes * fanout, noise**2 + (noise > 0) / 12), first


@pytest.mark.parametrize("fanout", [2, 4])
@pytest.mark.parametrize("noise", [0.0, 20.0])
@pytest.mark.parametrize("alpha", [0.1, 0.3])
def test_concentration_is_learned_through_noise(alpha: float, noise: float, fanout: int) -> None:
    """The standard error is about 1 %, the bias up to 3 %; noise left in would give 6 to 15 %."""
    found = concentration(*split(alpha, fanout, 20_000, 300, noise), fanout)
    assert found == pytest.approx(alpha, rel=0.05)


def test_concentration_by_hand() -> None:
    """Of 90 and 10 records, with variance 5 each, (8200 - 10 - 100)/100 are beside another one."""
    given = np.array([90, 10, 2, -3]), np.full(4, 5.0), np.array([0, 2])
    q = (BEFORE / 2**0.5 + 80.9) / (BEFORE + 99)
    assert concentration(*given, 2) == pytest.approx((1 - q) / (2 * q - 1))


@pytest.mark.parametrize(
    ("fanout", "most"),
    [(2, (1 - 0.5**0.5) / (2**0.5 - 1)), (4, 0.5), (8, (8**0.5 - 1) / (8 - 8**0.5))],
)
def test_records_are_never_taken_for_less_crowded_than_on_a_curve(fanout: int, most: float) -> None:
    """Neither where they are spread evenly nor where there are none."""
    nothing = np.zeros(fanout, np.int64), np.zeros(fanout), np.array([0])
    for given in (split(50.0, fanout, 500, 300, 0), nothing):
        assert concentration(*given, fanout) == pytest.approx(most)


def test_a_steady_rate_gives_no_doubt() -> None:
    """60 records in 6 triggers and 20 in 2; then 40, 0 and none at all."""
    before, after = np.array([60.0, 60, 60, 0]), np.array([20.0, 40, 0, 0])
    six, two = np.full(4, 6.0), np.full(4, 2.0)
    found = unlike(before, six, after, two)
    np.testing.assert_allclose(found, [0, 0.5**0.5, 1, 0])
    np.testing.assert_allclose(unlike(after, two, before, six), found)
