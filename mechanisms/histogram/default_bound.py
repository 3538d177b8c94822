"""The contribution bound of a histogram whose configuration gives none.

Version 1 is 12 for unknown keys. Version 2 depends on what is public of the configuration, and on
no data: with more ε there is less noise, and a larger bound is worth it; where the first triggers
are a large part of the window, records of most keys still count in full, so that units need more.
So it is 12·√ε·(1 + f), where f is the part of the window before any key can be public to a
record. Both are 4 for a public list, and 12 for windows that overlap, whose keys stay public.

The factors were chosen on the sets `TUNED` of `benchmarks/_heldout_histogram.py`.
"""

from __future__ import annotations

import math
from fractions import Fraction

from ..contract import Setting

NEWEST = 2
LISTED, UNKNOWN = 4, 12
_EPSILON = Fraction(1, 4), Fraction(16)  # beyond, the bound stays as it is there


def default_bound(version: int, setting: Setting, delay: int) -> int:
    """Largest Σ m² of a unit; at triggers up to ``delay`` + 1 no key is public to a record yet."""
    if setting.keys is not None:
        return LISTED
    if version == 1 or setting.hops > 1:
        return UNKNOWN
    least, most = _EPSILON
    epsilon = min(max(setting.epsilon, least), most)
    early = min(Fraction(1 + delay, setting.horizon), Fraction(1))
    # The whole root of a rational: the same on every machine.
    return math.isqrt(int(epsilon * (UNKNOWN * (1 + early)) ** 2))
