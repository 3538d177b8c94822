"""Thresholds of keys for an unknown number of triggers.

`thresholds.key_selection` needs probabilities β_t > 0 whose sum over *all* triggers is at most δ.
Trigger t = 2^j … 2^(j+1) - 1 has β_t = δ / (2^j (j+1)(j+2)): an octave has δ/((j+1)(j+2)) =
δ/(j+1) - δ/(j+2), and all octaves together have δ. So the union over triggers holds however long a
window goes on, and β_t falls hardly faster than 1/t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import overload

from ...factorization.prefix_noise import STEPS, Process
from ...parts.thresholds import key_selection as selection


def share(t: int, delta: Fraction) -> Fraction:
    """β_t; the sum over all t is δ.

    >>> [str(share(t, Fraction(1))) for t in (1, 2, 3, 4)]
    ['1/2', '1/12', '1/12', '1/48']
    """
    octave = t.bit_length() - 1
    return delta / ((1 << octave) * (octave + 1) * (octave + 2))


@dataclass(frozen=True)
class Thresholds(Sequence[int]):
    """Least counts by trigger, in 1/STEPS records, computed on demand.

    Attributes:
        process: noise of the count; ``exposure``: a unit's effect on it.
        delta: bound on the failure probability of all triggers together.
        min_units: a key with fewer distinct units stays hidden.
    """

    process: Process
    exposure: selection.Exposure
    delta: Fraction
    min_units: int

    def __len__(self) -> int:
        return self.process.horizon

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...

    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        found = range(len(self))[place]
        return _least(self, found) if isinstance(found, int) else [_least(self, n) for n in found]


@lru_cache(maxsize=4096)
def _least(bars: Thresholds, place: int) -> int:
    beta = [share(place + 1, bars.delta)]

    def quantile(_: int, failing: Fraction) -> Fraction:
        return bars.process.quantile(place + 1, failing)

    (least,) = selection.thresholds(beta, bars.exposure, quantile, bars.min_units, STEPS)
    return int(least)
