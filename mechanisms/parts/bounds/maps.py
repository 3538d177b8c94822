"""Choose the contribution bound of a map from public guesses of the records per unit.

Everything here is arithmetic on a stated or synthetic law of records per unit, never on the
protected stream.

With bound b a map of ε counts A(b) = Σ min(m, b) of N = Σ m records, and its noise grows with b: a
large box errs by about 12·√(b·T/(ε·A)) of its count, since leaves are as fine as the noise allows.
The factor 12 is the median over data sets for which no figure is reported, from 4 (flat) to 40 (a
few hills). Without debiasing the map also lacks 1 - A/N. With the private total it has the right
size, but errs if units with many records live elsewhere than others: at most by half the distance
of the weights min(m, b)/A and m/N; a third of that is assumed. The total itself errs by
cap·√(2T)/(share·ε·N), and lacks the records beyond the cap. If all units send equally many records,
noise is the same at every bound, so all their records are counted.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...columns import F64, I64
from ...validate import at_least, positive
from .record_total import PrivateTotal

SHARE = Fraction(1, 10)
"""Part of ε for the private total."""

_NOISE = 12.0  # factor in the error of a large box, see above
_ELSEWHERE = 1 / 3  # assumed part of the distance of weights, see above
_SHARES = (0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)  # of units whose records a cap covers whole


class BoundForecast(NamedTuple):
    """A bound, and its effect on a map of this law."""

    bound: int
    debias: bool
    cap: int
    share_cut: float  # of all records, by the bound
    error: float  # of a large box, relative, as predicted


def proposed(law: I64, units: int, epsilon: Fraction, triggers: int) -> BoundForecast:
    """The bound and the cap with the least predicted error.

    Args:
        law: (k,) numbers of units, in any sample, that send 0, 1, 2, … records in an epoch.
        units: public guess of the number of units that send any record.

    Raises:
        ParameterError: an argument is out of range.

    >>> law = np.zeros(21, np.int64)
    >>> law[20] = 1  # everybody sends 20
    >>> proposed(law, 5_000, Fraction(1), 1)[:3]
    (20, False, 20)
    """
    at_least("triggers", triggers, 1)
    sent, part = _units(law, units, epsilon)
    most = max(int(np.flatnonzero(part > 0).max(initial=1)), 1)
    found = [_without(sent, part, bound, float(epsilon), triggers) for bound in _bounds(most)]
    found += [
        _with(sent, part, bound, cap, epsilon, triggers)
        for bound in _bounds(most)
        for cap in _caps(sent, part)
        if cap >= bound
    ]
    return min(found, key=lambda one: (one.error, one.bound))


def predicted(
    law: I64, units: int, epsilon: Fraction, triggers: int, bound: int, cap: int | None
) -> BoundForecast:
    """Predict the effect of a bound on a map of a law, by the same arithmetic as `proposed`.

    Args:
        law, units, epsilon, triggers: the same as for `proposed`.
        bound: most records of a unit that the map counts.
        cap: most records of a unit that the private total counts; None: there is no such total.

    Raises:
        ParameterError: an argument is out of range.

    >>> predicted(np.array([0, 1]), 20_000, Fraction(1), 1, 1, None).share_cut
    0.0
    """
    at_least("triggers", triggers, 1)
    at_least("bound", bound, 1)
    sent, part = _units(law, units, epsilon)
    if cap is None:
        return _without(sent, part, bound, float(epsilon), triggers)
    return _with(sent, part, bound, at_least("cap", cap, bound), epsilon, triggers)


def _units(law: I64, units: int, epsilon: Fraction) -> tuple[F64, F64]:
    """Numbers of records that units may send, and the number of units that send each."""
    at_least("units", units, 1)
    positive("epsilon", epsilon)
    sent = np.arange(len(law), dtype=np.float64)
    part = np.asarray(law, np.float64) * (sent > 0)
    return sent, part * (units / max(part.sum(), 1.0))


def _bounds(most: int) -> list[int]:
    return [1 << i for i in range(most.bit_length())] + ([most] if most & (most - 1) else [])


def _caps(sent: F64, part: F64) -> list[int]:
    upto = np.cumsum(part) / part.sum()
    return sorted({max(int(np.searchsorted(upto, share - 1e-12)), 1) for share in _SHARES})


def _noise(counted: float, bound: int, epsilon: float, triggers: int) -> float:
    return _NOISE * math.sqrt(bound * triggers / (epsilon * counted))


def _without(sent: F64, part: F64, bound: int, epsilon: float, triggers: int) -> BoundForecast:
    counted = float((part * np.minimum(sent, bound)).sum())
    cut = 1 - counted / float((part * sent).sum())
    error = math.hypot(cut, _noise(counted, bound, epsilon, triggers))
    return BoundForecast(bound, False, bound, cut, error)


def _with(
    sent: F64, part: F64, bound: int, cap: int, epsilon: Fraction, triggers: int
) -> BoundForecast:
    total = PrivateTotal(bound, cap, SHARE * epsilon)
    records = float((part * sent).sum())
    counted = float((part * np.minimum(sent, bound)).sum())
    beyond = 1 - float((part * np.minimum(sent, cap)).sum()) / records
    weights = np.abs(part * (np.minimum(sent, bound) / counted - sent / records)).sum() / 2
    parts = (
        beyond,
        _ELSEWHERE * float(weights),
        math.sqrt(total.variance(triggers)) / records,
        _noise(counted, bound, float(epsilon - total.epsilon), triggers),
    )
    return BoundForecast(bound, True, cap, 1 - counted / records, math.hypot(*parts))
