"""Rounding of correlated noise: exact, in whatever order the machine adds doubles."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ContractError, ParameterError
from hushstream.mechanisms.columns import I64
from hushstream.mechanisms.factorization import NAMES, Factorization, build
from hushstream.mechanisms.factorization import exact_rounding as grid
from hypothesis import given, settings
from hypothesis import strategies as st


def exact(f: Factorization, t: int, z: list[int]) -> Fraction:
    """(Bz)_t in rationals: for trees from the definition, else by solving Cw = z."""
    row = f.rational(t) if f.name in ("tree", "honaker") else None
    if row:
        return Fraction(sum(b * z[place] for place, b in row[0].items()), row[1] << f.bits)
    w: list[Fraction] = []
    for j in range(t):
        rest = z[j] - sum((int(f.C[j, i]) * w[i] for i in range(j)), Fraction(0))
        w.append(rest / int(f.C[j, j]))
    return sum(w, Fraction(0))


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(NAMES),
    st.integers(1, 9),
    st.sampled_from([1, 2, 256, 4096]),
    st.data(),
)
def test_floors_are_exact(name: str, horizon: int, steps: int, data: st.DataObject) -> None:
    f = build(name, horizon)
    scale = data.draw(st.sampled_from([1, 64, 2048, 4096, 10**9]))
    z = [scale * data.draw(st.integers(-40, 40)) for _ in range(f.noises)]
    triggers = np.arange(1, horizon + 1)
    found = grid.floors(f, triggers, np.array([z]), steps)[0].tolist()
    assert found == [exact(f, t, z) * steps // 1 for t in triggers.tolist()]


@pytest.mark.parametrize("name", NAMES)
def test_rows_and_triggers_may_be_asked_for_in_any_company(name: str) -> None:
    f = build(name, 40)
    z = np.random.default_rng(3).integers(-(10**5), 10**5, (30, f.noises))
    triggers = np.arange(1, 41)
    whole = grid.floors(f, triggers, z, 256)
    for t in (1, 2, 17, 40):
        alone = grid.floors(f, np.array([t]), z[7:8, : f.width[t - 1]], 256)
        assert alone[0, 0] == whole[7, t - 1]
    np.testing.assert_array_equal(grid.floors(f, triggers[::-1], z[::-1], 256), whole[::-1, ::-1])
    close = z @ f.B.T * (256 / 2**f.bits)
    assert np.abs(whole + 0.5 - close).max() < 0.5001


def hostile(f: Factorization, t: int) -> I64:
    """Noise for which (Bz)_t lies at, just above and just below integers.

    The last coordinate of trigger t moves (Bz)_t by 1/C_tt; whole columns of C move it by 1.
    """
    base = f.C[:, 0] * 3
    shifted = [base.copy() for _ in range(3)]
    shifted[1][t - 1] += 1
    shifted[2][t - 1] -= 1
    return np.array(shifted)


@pytest.mark.parametrize("name", ["terminal", "final", "sqrt-toeplitz", "blt", "normalized"])
@pytest.mark.parametrize("t", [1, 2, 20, 60])
def test_grid_points_are_decided_exactly(name: str, t: int) -> None:
    """The noise C·e_1 gives exactly 1 at every trigger; doubles give only nearly 1."""
    f = build(name, 60)
    found = grid.floors(f, np.array([t]), hostile(f, t))[:, 0].tolist()
    assert found == [3, 3, 2]


def test_plain_doubles_would_fail_at_grid_points() -> None:
    """The test above has teeth: flooring the doubles directly gets some points wrong."""
    f, columns = build("terminal", 60), range(0, 40, 5)
    z = np.array([f.C[:, j] * k for j in columns for k in (3, 7)])
    naive = np.floor(z @ f.B.T / 4096).astype(int)
    right = grid.floors(f, np.arange(1, 61), z)
    assert (naive != right).any()
    expected = [[k * (t > j) for t in range(1, 61)] for j in columns for k in (3, 7)]
    assert right.tolist() == expected


def test_float_summation_order_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Perturbing the doubles by as much as the bound allows does not change the integers."""
    f = build("terminal", 80)
    z = np.random.default_rng(5).integers(-(10**5), 10**5, (200, 80))
    triggers = np.arange(1, 81)
    expected = grid.floors(f, triggers, z, 4096)
    wiggle = np.random.default_rng(6)
    rows = type(f).rows

    def disturbed(self: Factorization, asked: I64) -> Any:
        signs = wiggle.choice([-1.0, 1.0], (len(asked), 1))
        return rows(self, asked) * (1 + signs * 2.0**-53 * 4)

    monkeypatch.setattr(type(f), "rows", disturbed)
    np.testing.assert_array_equal(grid.floors(f, triggers, z, 4096), expected)


def test_zero_noise_is_zero() -> None:
    for name in NAMES:
        f = build(name, 33)
        z = np.zeros((4, f.noises), np.int64)
        assert not grid.floors(f, np.arange(1, 34), z, 256).any()


def test_no_rows_and_no_triggers() -> None:
    f = build("terminal", 5)
    assert grid.floors(f, np.arange(1, 6), np.zeros((0, 5), np.int64)).shape == (0, 5)
    assert grid.floors(f, np.zeros(0, np.int64), np.zeros((2, 5), np.int64)).shape == (2, 0)


def test_a_tie_beyond_all_precision_is_settled_in_rationals() -> None:
    f = build("terminal", 3)
    C = f.C.tolist()
    z = [int(c) * 5 for c in f.C[:, 0]]
    assert grid._tie(C, z, 1) == 5
    assert grid._certain(f, 3, z, 1) == 5
    for step, floor in ((-1, 4), (1, 5)):
        assert grid._certain(f, 3, [*z[:2], z[2] + step], 1) == floor


def test_ties_of_noise_that_begins_late_are_settled_within_its_own_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Noise that is zero but for its last coordinate needs one coordinate to settle a tie.

    So it is for a key that has just become public. One in 16 values of that coordinate is a tie.
    """
    f = build("terminal", 300)
    sizes = []

    def tie(C: list[list[int]], z: list[int], steps: int) -> int:
        sizes.append(len(C))
        return settle(C, z, steps)

    settle = grid._tie
    monkeypatch.setattr(grid, "_tie", tie)
    z = np.zeros((64, 300), np.int64)
    z[:, -1] = np.arange(64)
    found = grid.floors(f, np.array([300]), z, 256)[:, 0]
    assert int(f.C[-1, -1]) == 4096
    assert found.tolist() == [place // 16 for place in range(64)]
    assert sizes and max(sizes) <= 1


def test_contract_is_enforced() -> None:
    f = build("terminal", 4)
    z = np.zeros((1, 4), np.int64)
    for steps in (0, 3, 8192):
        with pytest.raises(ParameterError):
            grid.floors(f, np.array([1]), z, steps)
    for triggers, noise in (([0], z), ([5], z), ([4], z[:, :3])):
        with pytest.raises(ContractError):
            grid.floors(f, np.array(triggers), noise)
    with pytest.raises(ContractError, match="too large"):
        grid.floors(f, np.array([4]), np.full((1, 4), 2**60))
    assert grid.floors(f, np.array([2]), z[:, :2]).tolist() == [[0]]
