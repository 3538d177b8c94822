"""The endless factorisation: exact columns, low noise, a norm bound for any number of triggers."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import hushstream.mechanisms.factorization.endless as endless
import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.factorization import exact_rounding, reaching
from hushstream.mechanisms.factorization.prefix_noise import Process
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from numpy.typing import NDArray

I64 = NDArray[np.int64]
SEED = np.random.default_rng(7)


def whole(fine: I64, place: int) -> int:
    """One coefficient of 1/f in units of 2^-90."""
    return sum(int(limb) << 30 * (2 - n) for n, limb in enumerate(fine[:, place]))


@pytest.mark.parametrize("horizon", [1, 63, 64, 65, 700])
def test_the_series_is_the_inverse_to_the_last_bit(horizon: int) -> None:
    f = np.diff(endless.encoder(horizon), prepend=0)
    fine, out = endless.series(f), []
    for k in range(horizon):
        rest = (1 << 106) * (k == 0) - sum(int(f[i]) * out[k - i] for i in range(1, k + 1))
        out.append((rest + (1 << 15)) >> 16)
    assert [whole(fine, k) for k in range(horizon)] == out


def test_columns_are_convolved_exactly() -> None:
    left = SEED.integers(-(2**30), 2**30, 256)
    right = SEED.integers(-(2**16), 2**16, 512)
    exact = np.convolve(left.astype(object), right.astype(object))[:512]
    assert endless.convolved(left, right).tolist() == exact.tolist()


def test_a_longer_table_begins_as_a_shorter_one() -> None:
    short, long = endless.Shifted.made(1024), endless.Shifted.made(4096)
    assert (short.core == long.core[:1024]).all()
    assert (short.fine == long.fine[:, :1024]).all()
    assert reaching(3).horizon == 1024
    assert [endless.table(t) for t in (1, 1024, 1025, 2048, 2049)] == [1024, 1024, 2048, 2048, 4096]
    with pytest.raises(ParameterError, match="at most"):
        reaching(endless.LONGEST + 1)


@pytest.mark.parametrize("horizon", [
    1, 1 << 14, 1 << 18, pytest.param(endless.LONGEST, marks=pytest.mark.thorough),
])  # fmt: skip
def test_no_column_of_any_number_of_triggers_is_longer_than_stated(horizon: int) -> None:
    core = endless.encoder(horizon)
    assert (core >= 0).all()
    found = Fraction(int((core * core).sum()), 4**endless.BITS)
    assert found <= endless.sensitivity2()
    if horizon == endless.LONGEST:  # the bound is nearly tight
        assert found > endless.sensitivity2() * Fraction(98, 100)


def test_what_is_bounded_by_octaves_is_more_than_what_is_there() -> None:
    core = endless.encoder(1 << 19)
    squares = core * core
    for octave in range(14, 19):
        there = int(squares[1 << octave : 2 << octave].sum())
        assert there < endless.octave(octave) < there * 1.05


@pytest.mark.parametrize("horizon", [4096, 8192, 1 << 14, 1 << 16])
def test_noise_is_within_three_halves_of_what_a_stated_end_would_need(horizon: int) -> None:
    column = endless.Shifted.made(horizon).column
    variance = float((column * column).sum()) * float(endless.sensitivity2())
    k = np.arange(1, horizon)
    root = np.concatenate([np.ones(1), np.cumprod((2 * k - 1) / (2 * k))])
    assert variance <= 1.5 * float((root * root).sum()) ** 2


def test_no_later_row_is_longer_than_is_taken_for_granted() -> None:
    """From the noise with a stated end (test above): squares of its column are below 1/(πk)."""
    process, none = Process("n", "endless", endless.LONGEST, Fraction(1)), np.zeros(1, np.int64)
    root2 = 1 + (1 + math.log(endless.LONGEST)) / math.pi
    last = 1.5 * root2**2 / float(endless.sensitivity2())
    first = float(reaching(1).row_norms[-1]) ** 2
    assert first < last < first * process.growth**2
    for t in (1025, 1 << 14):
        assert 1 < process.variance_at(t, none)[0] / process.variance_at(1024, none)[0] < 16
    assert Process("count", "blt", 4, Fraction(1)).growth == 1


def test_ties_and_near_ties_are_decided_as_by_solving() -> None:
    factor, z = reaching(200), [int(one) for one in SEED.normal(size=200) * 1e6]
    plain = dataclasses.replace(factor, total=None)
    for t in (2, 77, 200):
        one = exact_rounding._certain(factor, t, z[:t], 256)
        assert one == exact_rounding._certain(plain, t, z[:t], 256)
        assert one == exact_rounding.floors(factor, np.array([t]), np.array([z[:t]]), 256)[0, 0]
    exact = [1 << 16, *[0] * 40]  # a tie: (Bz)_1 is an integer
    assert exact_rounding.floors(factor, np.array([1]), np.array([exact]), 256)[0, 0] == 256


def test_rows_of_doubles_are_within_their_bound() -> None:
    made = endless.Shifted.made(1024)
    exact = [Fraction(whole(made.fine, k), 1 << 90) for k in range(300)]
    far = sum((Fraction(float(b)) - x) ** 2 for b, x in zip(made.column[:300], exact, strict=True))
    assert float(far) ** 0.5 <= made.slack()[299]


def test_noise_of_a_trigger_does_not_depend_on_the_table_it_is_read_from() -> None:
    noise = KeyedNoise(
        bytes(32), charge=bytes(32), mechanism="m", config=b"", pipeline="p", window="w",
        nonces=STEADY,
    )  # fmt: skip
    process = Process("count", "endless", 1 << 24, Fraction(9 << 32))
    keys, none = Keys.of([b"a", b"b", b"c"]), np.zeros(3, np.int64)
    ahead = process.ahead(noise, keys, 1000)
    assert ahead.shape == (3, 64)
    for t in (1000, 1024, 1025, 1063):
        assert (process.at(noise, keys, t, none) == ahead[:, t - 1000]).all()
    assert process.variance_at(1024, none)[0] < process.variance_at(1025, none)[0]
