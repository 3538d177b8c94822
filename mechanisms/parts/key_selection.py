"""Key selection with a sound threshold: when may a key that nobody knew become public?

A key is tested at every trigger from the first that has data for it. With S the exact count of
accepted records and W_t the noise of trigger t it becomes public at the first t with
``S + W_t ≥ K_t``. The thresholds make it unlikely that a key appears which one privacy unit alone
has touched, whatever that unit does.

*Statement.* Let a unit add m_k records to key k (over all triggers; at most ``most`` in one key)
with Σ m_k² ≤ Q. Let β_t be positive with Σ β_t ≤ δ and
``K_t = max over m = 1..most of m + x_t(β_t·m²/Q)``, where P(W_t ≥ x_t(β)) ≤ β. Then with
probability at least 1 - δ none of the keys that only this unit has touched crosses at any trigger.
*Proof.* S ≤ m_k for such a key, so it crosses at t only if W_t ≥ K_t - m_k ≥ x_t(β_t m_k²/Q);
sum β_t m_k²/Q over keys and triggers. ∎

*Why that is all it costs.* Let D hold the unit and D' not. Consider the release in which every
test is made only where another unit has contributed to the key, together with a flag that says
whether some key of the unit crossed at an earlier time. Both are computed from the same Gaussian
releases by the same function in both worlds, so they inherit (ε, δ_G). With D' the true release
is this one; with D it differs only where the flag is up. The flag is up with probability at most
δ in either world, so the whole is (ε, δ_G + δ). No factor e^ε arises, and records of the unit in
keys of others are covered by the Gaussian releases. Because a released key stays public, every
later trigger may use it. (The union over all triggers is what the guarantee needs: a threshold
that holds at each trigger on its own fails up to T times as often.)

*A least number of units* μ > 1 is no privacy guarantee but k-anonymity: S then counts distinct
units, a key is tested only while S ≥ μ, and all K_t rise by μ - 1, since the outcome of the exact
comparison depends on the unit only where S ≤ μ with it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...errors import ParameterError
from ..contract import I64
from ..validate import at_least, between


class Exposure(NamedTuple):
    """What one unit can do to counts that decide a selection: see the module's statement."""

    sensitivity2: Fraction  # Q: bound of Σ m²
    most: int  # largest m


def shares(horizon: int, delta: Fraction, last: Fraction = Fraction(1, 2)) -> list[Fraction]:
    """β_t for t = 1..horizon: ``last`` of δ for the last trigger, equal parts for the others.

    >>> [str(beta) for beta in shares(3, Fraction(1, 100))]
    ['1/400', '1/400', '1/200']
    """
    at_least("horizon", horizon, 1)
    between("last", last, 0, 1)
    if horizon == 1:
        return [delta]
    return [*[delta * (1 - last) / (horizon - 1)] * (horizon - 1), delta * last]


def thresholds(
    beta: list[Fraction],
    exposure: Exposure,
    quantile: Callable[[int, Fraction], Fraction],
    min_units: int = 1,
    steps: int = 1,
) -> I64:
    """(T,) the least counts K_t, in steps of 1/``steps``, rounded up.

    Args:
        beta: failure probability of each trigger.
        exposure: what one unit can do.
        quantile: (t, β) to x with P(W_t ≥ x) ≤ β, t from 1.
        min_units: μ, 1 for none.
        steps: of the grid on which counts and noise are compared.

    Raises:
        ParameterError: a probability does not lie in (0, 1).
    """
    out = []
    for t, share in enumerate(beta, 1):
        if not 0 < share < 1:
            raise ParameterError("threshold_delta_share", float(share), "leaves no probability")
        worst = max(
            m + quantile(t, share * m * m / exposure.sensitivity2)
            for m in range(1, exposure.most + 1)
        )
        out.append(-(-(worst + min_units - 1) * steps // 1))
    return np.array(out, np.int64)


def first_crossing(count: I64, noise: I64, threshold: I64) -> I64:
    """(r,) the first column with ``count + noise ≥ threshold``, or -1.

    Args:
        count: (r,) in the steps of ``noise``.
        noise: (r, u) at u consecutive triggers.
        threshold: (u,) of those triggers.

    >>> first_crossing(np.array([1, 0]), np.array([[0, 5], [0, 1]]), np.array([3, 4])).tolist()
    [1, -1]
    """
    crossed = count[:, None] + noise >= threshold
    if crossed.shape[1] == 0:
        return np.full(len(count), -1, np.int64)
    return np.where(crossed.any(axis=1), crossed.argmax(axis=1), -1).astype(np.int64)
