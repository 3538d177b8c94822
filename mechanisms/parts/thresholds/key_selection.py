"""Key selection with a sound threshold: when an unknown key may become public.

S is the exact count of a key: accepted records, deletions negative; or distinct units, if a least
number of units μ > 1 is configured (else μ = 1). W_t is the noise of trigger t. A key passes the
*gate* while S ≥ μ, and becomes public at the first trigger with an open gate and ``S + W_t ≥ K_t``.
The thresholds make it unlikely that one privacy unit decides at a gate, whatever it does.

*Statement.* Let a unit have m_k accepted records of either sign in key k, over all triggers, with
m_k ≤ ``most`` and Σ m_k² ≤ Q. Let β_t be positive with Σ β_t ≤ δ and ``K_t = μ - 1 + max over m =
1..most of m + x_t(β_t·m²/Q)``, where P(W_t ≥ x_t(β)) ≤ β. Write S' for the count without the unit.
Call a trigger *decided by the unit* in key k if one of S and S' passes the gate, the other does
not, and the one that passes reaches the threshold with S + W_t ≥ K_t. With probability at least
1 - δ no trigger is decided by the unit in any key.
*Proof.* (i) S passes, S' does not: S' ≤ μ - 1, hence S ≤ μ - 1 + m_k and W_t ≥ K_t - S ≥
x_t(β_t m_k²/Q). A key that the unit alone has touched is of this kind: S' = 0. (ii) S' passes, S
does not, because deletions of the unit lower it: S ≤ μ - 1 and W_t ≥ K_t - S ≥ x_t(β_t m_k²/Q).
Both lie in one event of probability β_t m_k²/Q; sum over keys and triggers. ∎

*A unit that reacts* to releases knows of a hidden key's noise only that it did not reach some
values, S' being known to it at worst. If all W_t are sums of the same independent draws with
weights of at least zero (B ≥ 0), that makes no other W_t ≥ x more likely (Harris's inequality). So
the probability that it decides next is at most β_t m_k²/Q given the past, and the expected number
of decisions at most Σ β_t m_k²/Q ≤ δ, as Σ m_k² ≤ Q on every path. `terminal` has B ≥ 0 up to 744
triggers, `final` up to 450, all others always. Beyond, a unit that chooses of N keys which others
have touched decides with probability at most (N + 1)·δ, by the union over these keys.

*Why that is the whole cost.* Let D hold the unit and D' not. Consider the release whose gates read
S' in both worlds, while its thresholds read S + W_t, together with a flag that says whether a
trigger was decided by the unit earlier. Others' records are treated alike in both worlds as long as
the outputs agree, so S' is the same number in both; the release and the flag are one function of
the same Gaussian releases, and inherit (ε, δ_G). With D' the true release is this one; with D it
differs only where the flag is up. The flag is up with probability at most δ in either world, so the
whole is (ε, δ_G + δ), without a factor e^ε. Because a released key stays public, every later
trigger may use it. (The guarantee needs the union over all triggers: thresholds that hold at each
trigger alone fail up to T times as often.)

*A least number of units* gives k-anonymity, which is not a privacy guarantee.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ....errors import ParameterError
from ...columns import I64
from ...validate import at_least, between


class Exposure(NamedTuple):
    """One unit's effect on counts that decide a selection: see the module's statement."""

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
        quantile: (t, β) to x with P(W_t ≥ x) ≤ β, t from 1.
        min_units: μ, 1 for none.
        steps: steps of the grid on which counts and noise are compared.

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
        count: (r,) counts in the steps of ``noise``.
        noise: (r, u) noise at u consecutive triggers.
        threshold: (u,) thresholds of those triggers.

    >>> first_crossing(np.array([1, 0]), np.array([[0, 5], [0, 1]]), np.array([3, 4])).tolist()
    [1, -1]
    """
    crossed = count[:, None] + noise >= threshold
    if crossed.shape[1] == 0:
        return np.full(len(count), -1, np.int64)
    return np.where(crossed.any(axis=1), crossed.argmax(axis=1), -1).astype(np.int64)
