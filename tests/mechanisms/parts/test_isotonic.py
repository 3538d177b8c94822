"""Isotonic regression by pooling, beside its formula as a maximum of minima."""

from __future__ import annotations

import numpy as np
from hushstream.mechanisms.columns import F64
from hushstream.mechanisms.parts.isotonic import pooled
from hypothesis import given
from hypothesis import strategies as st


def by_formula(values: F64) -> F64:
    """Max over starts of the min over ends of the means between them (Barlow et al. 1972)."""
    size = len(values)
    means = [[values[a : b + 1].mean() for b in range(a, size)] for a in range(size)]
    return np.array(
        [max(min(means[a][k - a :]) for a in range(k + 1)) for k in range(size)]
    )  # fmt: skip


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_what_is_pooled_is_the_nearest_function_that_never_falls(seed: int, size: int) -> None:
    values = np.cumsum(np.random.default_rng(seed).normal(0.2, 1, (3, size)), axis=1)
    found = np.empty_like(values)
    pooled(values, found)
    for row, made in zip(values, found, strict=True):
        np.testing.assert_allclose(made, by_formula(row), atol=1e-12)
    alone = np.empty_like(values[:1])
    pooled(values[1:2], alone)
    np.testing.assert_array_equal(alone[0], found[1])  # other rows change no bit of it
