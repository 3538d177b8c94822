"""The cost of a histogram as a function of what one unit spends of its bound, for caps over epochs.

*Lemma.* Let a unit spend s of its bound ``left`` in an epoch. Then `spending` states at least
s/left of every cost of that epoch, with the opening price if any of its records is kept.
*Proof.* (i) Shifts. A unit spends Σ weight·m² of a quadratic bound over keys and lanes, and the
squared shifts of counts and sums are as that sum, so they are s/left of what ``left`` allows. With
at most p records in a key, Σ m² ≤ p·Σ m = p·s, which is ``ratio``·s/left of the declared Σ m² with
``ratio`` = p·left/(the largest Σ m²) ≥ 1. With rounds, units are counted at most once for each
record, and s² ≤ left·s. (ii) Selection. A unit decides at a gate of a key with probability at most
Σ β_t·m²/Q (`key_selection`): the same sum over the same Σ m². (iii) Slack. The unit touches
at most s/least draws of each trigger, and ⌊x⌋ ≥ x/2 where x ≥ 1: so n of `accounting.costs` is at
most 2s/left of the declared n, and √(nμ²) ≤ √2·s/left·√(nμ²), which twice the pure part covers;
likewise for δ of draws, which is as n. (iv) Debiasing counts arrivals, accepted or not. An epoch
in which any is counted costs all of it, and the opening price is the part of the bound whose cost
is at least that in each of the three currencies. ∎
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from ... import accounting
from ...accounting.calibration import Fitted, Need
from ...contract import Cost, Spending
from ...parts.bounds.bounding import Bound


def spending(
    bound: Bound,
    needs: Sequence[Need],
    fitted: Fitted,
    touched: int,
    selecting: Fraction,
    beside: int = 0,
    ratio: Fraction | None = None,
) -> Spending:
    """State what a unit pays for its bound.

    Args:
        beside: number of trailing needs that do not depend on what is accepted.
        ratio: factor by which squared shifts may grow faster than s; None: as the bound allows.
    """
    if ratio is None:
        ratio = Fraction(1)
        if bound.kind == "records":
            ratio = Fraction(min(bound.per_key, bound.left) * bound.left, bound.sensitivity2())
    costs = [
        need.cost(variance, touched) for need, variance in zip(needs, fitted.variance, strict=True)
    ]
    rest = fitted.loss.delta - selecting  # of draws
    first = len(costs) - beside
    accepted, kept = accounting.add(costs[:first]), accounting.add(costs[first:])
    whole = Cost(ratio * accepted.mu2, 2 * ratio * accepted.epsilon, ratio * selecting + 2 * rest)
    opening = 0
    if beside:
        fixed = Cost(kept.mu2, kept.epsilon, rest)
        part = max(one / of for one, of in zip(fixed, whole, strict=True))
        opening = math.ceil(part * bound.left)
    return Spending(whole, opening, bound.weights[0] if bound.kind == "quadratic" else 1)
