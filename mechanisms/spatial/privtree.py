"""Private splitting of spatial nodes by noisy, depth-biased scores (PrivTree), in exact integers.

A node at depth l with score s splits if ``max(s - l·δ, θ - δ) + Lap(λ) > θ``. The bias makes the
cost independent of the depth of the tree, provided that the score never grows from parent to
child. Scores, δ, θ and the noise are all on the public grid of ``1/STEPS``.

Guarantee, for neighbours that differ by one record which adds exactly 1 to the scores of the nodes
on its path and nothing elsewhere, scores being non-negative and non-increasing along every path:
the set of splits is ε-differentially private for ``λ ≥ (2β-1)/((β-1)ε)``, ``δ ≥ λ ln β`` and
``λ ≥ 1/ln β``.

*Proof.* Splits off the path have the same law. Take the record away: let v be the deepest node on
its path whose biased score exceeds the clamp θ - δ, and s ∈ (0, 1] the part of the record that
shows there. Scores being monotone, the biased score grows by at least δ from a node to its parent,
so v's split costs at most s/λ, its parent's 1/λ, and that of the i-th ancestor above the parent
e^((1-s)/λ)·β^-i/λ, since e^(-δ/λ) ≤ 1/β. The sum ``(s + 1 + e^((1-s)/λ)/(β-1))/λ`` is convex in s
and, as λ ≥ 1/ln β, at most ``(2β-1)/((β-1)λ)``. Add the record: only the one node that does not
split can cost, at most 1/λ. Discrete Laplace noise obeys the same ratios, since all thresholds and
the record lie on its grid. ∎
(After Zhang, Xiao & Xie, *PrivTree*, SIGMOD 2016, Section 3, which requires the same monotonicity.
A score that may be negative or may grow downwards costs 1/λ at every level.)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from ...errors import ParameterError
from ..columns import I64
from ..contract import Noise
from ..keys import Keys
from ..ranges import Draws, laplace
from ..validate import at_least, between, positive
from .domain import U64, Bool

STEPS = 16
"""Grid steps of a score per record."""

_LN2_LOW = Fraction(6931471805599453094, 10**19)
_LN2_HIGH = Fraction(6931471805599453095, 10**19)


def largest_epsilon(bits: int) -> Fraction:
    """The largest loss per record for which the proof holds, at a fan-out of 2^``bits``.

    >>> round(float(largest_epsilon(1)), 4), round(float(largest_epsilon(2)), 4)
    (2.0794, 3.2347)
    """
    beta = 1 << bits
    return Fraction(2 * beta - 1, beta - 1) * bits * _LN2_LOW


@dataclass(frozen=True)
class Selection:
    """Parameters of private splitting.

    Raises:
        ParameterError: ε is too large for the proof, or a number is out of range.

    >>> two = Selection(bits=1, epsilon=Fraction(1, 4), depth=20)
    >>> two.scale, two.delta, float(two.delta / 16)
    (Fraction(192, 1), 134, 8.375)
    """

    bits: int  # log2 of the fan-out β
    epsilon: Fraction  # loss per record, at most ``(2β-1) ln β/(β-1)``
    depth: int  # public cap; nodes there never split
    theta: int = 0  # threshold θ in records
    floor: int = 0  # nodes above this depth always split, whatever the data

    def __post_init__(self) -> None:
        at_least("fanout bits", self.bits, 1)
        positive("split epsilon", self.epsilon)
        at_least("depth", self.depth, 0)
        between("theta", at_least("theta", self.theta, -(2**40)), -(2**40), 2**40)
        if not 0 <= self.floor <= self.depth:
            raise ParameterError("floor", self.floor, f"must lie between 0 and {self.depth}")
        if self.scale * self.bits * _LN2_LOW < STEPS:
            raise ParameterError("split epsilon", self.epsilon, "must leave λ of at least 1/ln β")

    @cached_property
    def scale(self) -> Fraction:
        """λ in grid steps, rounded up to whole ones."""
        beta = 1 << self.bits
        return Fraction(-(-Fraction((2 * beta - 1) * STEPS, beta - 1) // self.epsilon))

    @cached_property
    def delta(self) -> int:
        """δ = λ ln β in grid steps, rounded up."""
        return int(-(-self.scale * self.bits * _LN2_HIGH // 1))

    def draws(self) -> Draws:
        """Draws of one score, with a margin for the bias of the deepest level in scales."""
        return laplace("count", self.scale, self.bits * (self.depth + 1))

    def margin(self, score: I64, level: int) -> I64:
        """(m,) biased score minus θ, in grid steps: a node splits if margin + noise > 0."""
        return np.maximum(score - level * self.delta - STEPS * self.theta, -self.delta)

    def splits(self, score: I64, level: int, nodes: U64, t: int, noise: Noise) -> Bool:
        """(m,) whether each node at depth ``level`` splits at trigger t; scores in grid steps.

        There is one draw per node and trigger, labelled by both: never call it with two scores.
        """
        if level < self.floor or level >= self.depth:
            return np.full(len(nodes), level < self.floor)
        index = np.array([t], np.int64)
        drawn = noise.laplace("split", Keys.of_codes(nodes), index, self.scale, index)[:, 0]
        return self.margin(score, level) + drawn > 0
