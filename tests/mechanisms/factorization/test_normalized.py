"""Normalised columns: exact integers, no column longer than 1, rows without dense matrices."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hushstream.mechanisms.contract import Noise
from hushstream.mechanisms.factorization import LONGEST, build, normalized
from hushstream.mechanisms.factorization import exact_rounding as grid
from hushstream.mechanisms.factorization.prefix_noise import Process, chosen, factor_of
from hushstream.mechanisms.histogram.distinct import displaced
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from hypothesis import given, settings
from hypothesis import strategies as st

KEYS = Keys.of_codes(np.arange(40, dtype=np.uint64))


def keyed() -> Noise:
    return KeyedNoise(
        b"k" * 32, charge=bytes(32), mechanism="m", config=b"", pipeline="p", window="w",
        nonces=STEADY,
    )  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 300), st.integers(8, 16))
def test_no_column_is_longer_than_a_record_and_none_could_be_scaled_up(
    horizon: int, bits: int
) -> None:
    f = build("normalized", horizon, bits)
    core, scale = f.core[:horizon].tolist(), f.core[horizon:].tolist()
    one = 4**bits
    for j, s in enumerate(scale):
        length = sum(c * c for c in core[: horizon - j])
        assert s * s * length <= one < (s + 1) ** 2 * length
    lengths = [sum(int(c) ** 2 for c in f.C[:, j]) for j in range(horizon)]
    assert f.sensitivity2 == Fraction(max(lengths), one) == 1


@pytest.mark.parametrize("horizon", [1, 2, 9, 150])
def test_the_dense_matrix_is_the_rule(horizon: int) -> None:
    """C_ij = core_{i-j}·scale_j, lower triangular, not negative; blocks and rows agree with it."""
    f = build("normalized", horizon)
    core, scale = f.core[:horizon], f.core[horizon:]
    for i, j in np.ndindex(horizon, horizon):
        assert f.C[i, j] == (core[i - j] * scale[j] if i >= j else 0)
    assert f.C.min() >= 0 and f.core.min() >= 0
    begin, end = horizon // 3, horizon
    expected = [f.C[row, begin : row + 1].tolist() for row in range(begin, end)]
    assert f.block(begin, end) == expected
    triggers = np.array([horizon, 1, (horizon + 1) // 2])
    np.testing.assert_array_equal(f.rows(triggers), f.B[triggers - 1])


def test_rows_solve_the_dense_system() -> None:
    """Against dense linear algebra, at a horizon where each value of s has many columns."""
    f = build("normalized", 700)
    dense = np.linalg.solve((f.C * 2.0**-f.bits).T, np.triu(np.ones((700, 700)))).T
    np.testing.assert_allclose(f.B, dense, atol=1e-11)
    assert np.all(np.linalg.norm(dense, axis=1) <= f.row_norms)
    np.testing.assert_allclose(np.linalg.norm(dense, axis=1), f.row_norms, rtol=1e-8)
    np.testing.assert_allclose(np.abs(dense).sum(axis=1), f.row_sums, rtol=1e-8)


@pytest.mark.parametrize(
    ("horizon", "last", "largest"), [(2000, 2.593, 3.364), (5000, 2.766, 3.676)]
)
def test_long_windows_have_less_noise_than_with_equal_columns(
    horizon: int, last: float, largest: float
) -> None:
    found, before = build("normalized", horizon).errors(), build("blt", horizon).errors()
    assert found[-1] == pytest.approx(last, abs=0.0015) and found[-1] < 0.75 * before[-1]
    assert found.max() == pytest.approx(largest, abs=0.0015) and found.max() < before.max()


@pytest.mark.thorough
def test_the_longest_window_needs_little_memory_and_few_ties() -> None:
    f = build("normalized", LONGEST["normalized"])
    parts = [one for one in vars(f.matrices).values() if isinstance(one, np.ndarray)]
    assert sum(one.nbytes for one in parts) < 2 * 10**7  # a dense matrix has 2·10^9 bytes
    assert f.slack.max() < 1e-11
    assert f.errors()[-1] == pytest.approx(2.975, abs=0.0015)
    row = f.rows(np.array([f.horizon]))[0]
    columns = [0, 1, 7000, f.horizon - 1]
    for j in columns:  # the columns of B·C are ones
        column = f.core[: f.horizon - j] * f.core[f.horizon + j] * 2.0**-f.bits
        assert float(row[j:] @ column) == pytest.approx(1, abs=1e-9)


def test_ties_are_decided_exactly_far_from_the_first_trigger() -> None:
    f = build("normalized", 1500)
    z = np.array([f.C[:, 900] * 3] * 3)
    z[1, -1] += 1
    z[2, -1] -= 1
    assert grid.floors(f, np.array([900, 1500]), z).tolist() == [[0, 3], [0, 3], [0, 2]]


def test_noise_of_keys_is_the_same_for_one_trigger_and_for_all() -> None:
    process = Process("count", "normalized", 1200, Fraction(9 << 32))
    since = np.zeros(40, np.int64)
    ahead = process.ahead(keyed(), KEYS, 1190)
    for t in range(1190, 1201):
        np.testing.assert_array_equal(ahead[:, t - 1190], process.at(keyed(), KEYS, t, since))
    spread = float((ahead[:, -1] / 256).std() / np.sqrt(process.variance_at(1200, since[:1]))[0])
    assert 0.6 < spread < 1.5


def test_first_sightings_move_at_most_twice_as_far() -> None:
    assert displaced(factor_of("normalized", 4000)) == 2
    assert 1 <= displaced(factor_of("normalized", 60)) <= 2


def test_the_usual_choice_stays_what_running_pipelines_have_charged_for() -> None:
    assert [chosen("auto", t) for t in (1, 1024)] == ["terminal"] * 2
    assert [chosen("auto", t) for t in (1025, 2000, 16384)] == ["blt"] * 3
    assert factor_of("normalized", 7).name == chosen("normalized", 7) == "normalized"
    assert normalized.BITS == build("normalized", 7).bits == 16
