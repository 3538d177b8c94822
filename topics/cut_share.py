"""The share of records that a contribution bound cut, from two noisy counts, with its interval.

Workers write the share into manifests with this; readers combine the counts of all shards with it.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class CutShare(NamedTuple):
    """The share of records that was cut (None if noise leaves no estimate), and its interval."""

    share: float | None
    low: float
    high: float


def cut_share(
    arrived: float, arrived_stddev: float, accepted: float, accepted_stddev: float, quantile: float
) -> CutShare:
    """The share 1 - accepted/arrived of the exact counts, from counts with independent noise.

    The interval is Fieller's (1954, *Some problems in interval estimation*): all ratios ρ for which
    accepted - ρ·arrived is within ``quantile`` standard deviations of 0. For Gaussian noise it
    covers the exact ratio with the confidence of that normal quantile, however few records there
    are; since the ratio lies in [0, 1], the interval is cut to it. If the number of arrived records
    may be 0, there is no estimate and the interval is [0, 1].

    >>> cut_share(1000, 10, 800, 10, 1.96).share
    0.2
    """
    lead = arrived**2 - (quantile * arrived_stddev) ** 2
    if arrived <= 0 or lead <= 0:
        return CutShare(None, 0.0, 1.0)
    # The ends are the roots of lead·ρ² - 2·accepted·arrived·ρ + accepted² - (quantile·stddev)².
    spread = (arrived_stddev * accepted) ** 2 + accepted_stddev**2 * lead
    middle, reach = accepted * arrived, quantile * math.sqrt(spread)
    low, high = (_inside(1 - (middle + side) / lead) for side in (reach, -reach))
    return CutShare(_inside(1 - accepted / arrived), low, high)


def in_words(found: CutShare | None) -> str:
    """State the share of records that the contribution bound cut; intervals of values ignore it."""
    if found is None:
        return "the share of records that the bound cut is unknown"
    if found.share is None:
        return "noise hides what share of the records the bound cut"
    return f"the bound cut {found.share:.1%} of the records ({found.low:.1%} to {found.high:.1%})"


def beyond_in_words(parts: tuple[int, int, int] | None) -> str:
    """State the share of values that count as the learnt threshold, from parts per million.

    >>> beyond_in_words((12_000, 0, 41_000))
    'values from the threshold on count as it: 1.2% of all (0.0% to 4.1%)'
    """
    if parts is None:
        return ""
    share, low, high = (part / 1_000_000 for part in parts)
    return f"values from the threshold on count as it: {share:.1%} of all ({low:.1%} to {high:.1%})"


def _inside(share: float) -> float:
    return float(f"{min(max(share, 0.0), 1.0):.6g}")  # the same text on every machine
