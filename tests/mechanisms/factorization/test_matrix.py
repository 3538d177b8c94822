"""Factorisations: published accuracy, exact sensitivity, exact product, reproducible bytes.

Covers: mechanisms/factorization/_exact.py, mechanisms/factorization/terminal.py
Covers: mechanisms/factorization/toeplitz.py, mechanisms/factorization/tree.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hushstream.errors import ContractError, ParameterError
from hushstream.mechanisms.factorization import (
    BITS,
    LAST,
    LONGEST,
    NAMES,
    Factorization,
    build,
    terminal,
    tree,
)
from hypothesis import given, settings
from hypothesis import strategies as st

HORIZONS = (1, 2, 3, 7, 8, 9, 31, 64, 100)
ACCURACY = [
    ("terminal", 100, (1.61, 2.43, 2.39)),
    ("terminal", 1000, (1.80, 3.16, 3.13)),
    ("final", 100, (1.202, 3.311, 3.229)),
    ("final", 1000, (1.276, 4.162, None)),
    ("honaker", 100, (3.33, 5.15, 3.73)),
    ("honaker", 1000, (5.52, 7.28, 5.36)),
    ("sqrt-toeplitz", 100, (2.53, 2.53, None)),
    ("sqrt-toeplitz", 1000, (3.27, 3.27, None)),
    ("blt", 100, (2.53, 2.53, None)),
    ("blt", 1000, (3.27, 3.27, None)),
    ("normalized", 100, (2.008, 2.373, 2.289)),
    ("normalized", 1000, (2.460, 3.130, 3.031)),
]


def exact_rows(f: Factorization) -> list[list[Fraction]]:
    """B = A C⁻¹ of a lower triangular C, by forward substitution in rationals."""
    size = f.horizon
    inverse: list[list[Fraction]] = []
    for i in range(size):
        row = [Fraction(int(i == j) << f.bits) for j in range(size)]
        for j in range(i):
            c = int(f.C[i, j])
            row = [a - c * b for a, b in zip(row, inverse[j], strict=True)]
        inverse.append([a / int(f.C[i, i]) for a in row])
    total = [Fraction(0)] * size
    rows = []
    for row in inverse:
        total = [a + b for a, b in zip(total, row, strict=True)]
        rows.append(total)
    return rows


@pytest.mark.spread(6)
@pytest.mark.parametrize(("name", "horizon", "expected"), ACCURACY)
def test_accuracy_of_each_factorisation(
    name: str, horizon: int, expected: tuple[float, float, float | None]
) -> None:
    errors = build(name, horizon).errors()
    found = errors[-1], errors.max(), np.sqrt((errors**2).mean())
    for value, target in zip(found, expected, strict=True):
        assert target is None or value == pytest.approx(target, abs=0.0056)


@pytest.mark.parametrize(("name", "slack"), [("terminal", 1.002), ("final", 1.005)])
def test_terminal_is_within_thousandths_of_the_optimum(name: str, slack: float) -> None:
    horizon = 60
    weight = np.ones(horizon)
    weight[-1] = LAST[name] * horizon
    gram = terminal._penalty(horizon, LAST[name]).astype(float)
    v = np.ones(horizon)
    for _ in range(300):
        values, vectors = np.linalg.eigh(np.sqrt(v)[:, None] * gram * np.sqrt(v))
        v = ((vectors * np.sqrt(values)) * vectors).sum(axis=1)
    # For every X with unit diagonal trace(MX⁻¹) ≥ 2 trace((D_v^½MD_v^½)^½) - trace(D_v X).
    # At the fixed point the right-hand side is 2Σv - Σv.
    found = (weight * build(name, horizon).errors() ** 2).sum()
    assert v.sum() * (1 - 1e-9) <= found <= v.sum() * slack


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("horizon", HORIZONS)
def test_product_is_the_prefix_sum(name: str, horizon: int) -> None:
    f = build(name, horizon)
    product = f.B @ (f.C * 2.0**-f.bits)
    np.testing.assert_allclose(product, np.tril(np.ones((horizon, horizon))), atol=1e-9)


@pytest.mark.parametrize("name", ["terminal", "final", "sqrt-toeplitz", "blt", "normalized"])
@pytest.mark.parametrize("horizon", [1, 2, 5, 24])
def test_bounds_hold_against_rational_rows(name: str, horizon: int) -> None:
    f = build(name, horizon)
    for t, row in enumerate(exact_rows(f), start=1):
        gap = sum((b - Fraction(float(a))) ** 2 for a, b in zip(f.B[t - 1], row, strict=True))
        assert gap <= Fraction(float(f.slack[t - 1])) ** 2
        assert sum(b * b for b in row) <= f.norm2(t) <= Fraction(1.00001) * sum(b * b for b in row)
        assert sum(map(abs, row)) <= f.norm1(t)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("horizon", [2, 24, 450, 744])
def test_noise_never_falls_as_a_draw_rises(name: str, horizon: int) -> None:
    """Key selection relies on it where a unit reacts to releases, see `key_selection`."""
    if name != "final" or horizon <= 450:
        f = build(name, horizon)
        assert all(f.B[t - 1].min() >= -float(f.slack[t - 1]) for t in range(1, horizon + 1))


@pytest.mark.parametrize("name", ["tree", "honaker"])
@pytest.mark.parametrize("horizon", [1, 2, 6, 13, 32])
def test_bounds_hold_against_rational_tree_rows(name: str, horizon: int) -> None:
    f = build(name, horizon)
    for t in range(1, horizon + 1):
        row = f.rational(t)
        assert row is not None
        dense = [Fraction(row[0].get(place, 0), row[1]) for place in range(f.noises)]
        gap = sum((b - Fraction(float(a))) ** 2 for a, b in zip(f.B[t - 1], dense, strict=True))
        assert gap <= Fraction(float(f.slack[t - 1])) ** 2
        assert tree.norm2(row) <= f.norm2(t)
        assert sum(dense) <= f.norm1(t)
        assert max(row[0]) < f.width[t - 1]


def test_honaker_variances() -> None:
    expected = [1, 0.6667, 1.6667, 0.5714, 1.5714, 1.2381, 2.2381, 0.5333]
    found = [float(tree.norm2(tree.honaker_row(t))) for t in range(1, 9)]
    assert found == pytest.approx(expected, abs=5e-5)


@given(st.integers(1, 600))
def test_honaker_closed_form(step: int) -> None:
    heights = [i for i in range(10) if step >> i & 1]
    closed = sum((1 / (2 - Fraction(1, 2**i)) for i in heights), Fraction(0))
    assert tree.norm2(tree.honaker_row(step)) == closed


@given(st.integers(1, 5000))
def test_spans_partition_the_prefix(step: int) -> None:
    covered = [s for i, j in tree.spans(step) for s in range(j << i, (j + 1) << i)]
    assert covered == list(range(step))


def test_tree_covariances() -> None:
    """Cov(S_3,S_2) = Cov(S_6,S_4) = Cov(S_7,S_4) = v, Cov(S_8,S_7) = 0, Var(S_t) = popcount·v."""
    B = build("tree", 8).B
    covariance = B @ B.T
    assert [covariance[2, 1], covariance[5, 3], covariance[6, 3], covariance[7, 6]] == [1, 1, 1, 0]
    assert np.diag(covariance).tolist() == [t.bit_count() for t in range(1, 9)]


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 7, 8, 9, 1000])
def test_tree_sensitivity_counts_every_level(horizon: int) -> None:
    f = build("tree", horizon)
    columns = ((f.C >> f.bits) ** 2).sum(axis=0)
    assert f.sensitivity2 == columns.max() == horizon.bit_length()


@pytest.mark.parametrize("name", NAMES)
def test_single_step_still_has_noise(name: str) -> None:
    f = build(name, 1)
    assert f.row_norms[0] > 0.9
    assert f.sensitivity2 > Fraction(9, 10)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(NAMES),
    st.sampled_from(HORIZONS),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 5)), min_size=1, max_size=8),
)
def test_any_contribution_stays_within_the_sensitivity(
    name: str, horizon: int, records: list[tuple[int, int]]
) -> None:
    f = build(name, horizon)
    u = np.zeros(horizon, np.int64)
    for step, count in records:
        u[step % horizon] += count
    moved = f.C @ u
    squared = Fraction(sum(int(m) ** 2 for m in moved), 4**f.bits)
    assert squared <= int(u.sum()) ** 2 * f.sensitivity2


@pytest.mark.parametrize("name", NAMES)
def test_sensitivity_is_attained_by_one_record(name: str) -> None:
    f = build(name, 100)
    columns = [sum(int(c) ** 2 for c in f.C[:, j]) for j in range(f.horizon)]
    assert Fraction(max(columns), 4**f.bits) == f.sensitivity2


@pytest.mark.parametrize("name", NAMES)
def test_encoder_is_causal(name: str) -> None:
    """A record at step j changes no noise coordinate that is complete before step j."""
    f = build(name, 50)
    for j in range(1, 50):
        assert not f.C[: f.width[j - 1], j].any()


def test_long_horizons_keep_one_column() -> None:
    f = build("blt", LONGEST["blt"])
    assert f.core.nbytes + f.slack.nbytes < 10**6
    assert f.errors()[-1] == pytest.approx(4.156, abs=0.01)


@pytest.mark.parametrize("last", LAST.values())
def test_terminal_is_correctly_rounded(last: int) -> None:
    """The integers agree with a computation in 60 digits that starts from the same weights."""
    size = 12
    with mpmath.workdps(60):
        scale = terminal._weights(size)
        gram = mpmath.matrix((scale[:, None] * terminal._penalty(size, last) * scale).tolist())
        values, vectors = mpmath.eigsy(gram)
        root = vectors * mpmath.diag([mpmath.sqrt(v) for v in values]) * vectors.T
        flip = mpmath.matrix(np.eye(size)[::-1].tolist())
        factor = flip * mpmath.cholesky(flip * root * flip).T * flip
        for bits in (8, 12, 16):
            found = terminal.encoder(size, bits, last)
            for i in range(size):
                for j in range(i + 1):
                    exact = factor[i, j] / mpmath.sqrt(root[j, j]) * 2**bits
                    assert abs(found[i, j] - exact) <= 0.5 + 1e-12


def test_digest_names_what_shapes_the_noise() -> None:
    digests = {build(name, t, b).digest() for name in NAMES for t in (4, 5) for b in (8, BITS)}
    assert len(digests) == 4 * len(NAMES)


@pytest.mark.slow
def test_digest_does_not_depend_on_kernels_or_threads() -> None:
    code = (
        "from hushstream.mechanisms.factorization.matrix import build;"
        "names = ('terminal', 'final', 'blt', 'normalized');"
        "print([build(n, t).digest() for n in names for t in (37, 150)])"
    )
    environments = [
        {"OPENBLAS_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Prescott"},
        {"OPENBLAS_NUM_THREADS": "2"},
    ]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **environment},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for environment in environments
    }
    assert len(outputs) == 1


def test_parameters_are_checked() -> None:
    for arguments in (
        ("none", 3),
        ("tree", 0),
        ("terminal", 10**5),
        ("final", 1025),
        ("tree", 3, 3),
        ("tree", 3, 17),
    ):
        with pytest.raises(ParameterError):
            build(*arguments)  # type: ignore[arg-type]
    with pytest.raises(ContractError):
        build("tree", 3).rows(np.array([4]))


@pytest.mark.thorough
@pytest.mark.slow
def test_the_longest_matrix_stays_within_the_limbs_of_exact_products() -> None:
    f = build("final", LONGEST["final"])
    assert abs(f.B).max() < 4
    assert f.slack.max() < 1e-6


def test_arrays_are_read_only() -> None:
    f = build("terminal", 8)
    with pytest.raises(ValueError, match="read-only"):
        f.C[0, 0] = 1
