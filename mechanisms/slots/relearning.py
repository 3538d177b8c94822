"""A threshold that is learnt anew in each stretch of a window.

After the warm-up the window is divided into *stretches* of a public number of triggers. While a
stretch runs, its records are counted by bucket in addition to being summed; at its last trigger
these counts choose the threshold of the next stretch. The last stretch of a window chooses nothing.

*Guarantee.* Add/remove of one record. A record after the warm-up lies in one slot, so in one
stretch: it pays the chooser's ε for the next threshold, once, and the rest of ε to the sums of its
own stretch. The threshold that clips it and scales its noise was released before its stretch began,
so the sums of a stretch are a mechanism fixed by earlier releases, and stretches compose in
parallel: the shares of a record add up to ε wherever it lies. A unit's k records, in any stretches,
pay k times that.

*No draw covers two contents.* A stretch chooses with draws whose label names the stretch, at the
trigger that closes its last slot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...errors import ContractError
from ..columns import I64
from ..contract import Noise
from ..parts.thresholds.clip import exceedance_scores, noisy_max
from ..validate import at_least, positive


@dataclass(frozen=True)
class Chooser(ABC):
    """A private choice among the public thresholds by a noisy maximum; ε-DP."""

    epsilon: Fraction  # of one record

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)

    @property
    @abstractmethod
    def scale(self) -> Fraction:
        """Scale of its noise."""

    @abstractmethod
    def choose(self, histogram: I64, noise: Noise, t: int, purpose: str = "threshold") -> int:
        """Index of a threshold, from the records per bucket."""


@dataclass(frozen=True)
class Exceedance(Chooser):
    """The noisy maximum of `exceedance_scores`."""

    penalty: tuple[int, ...]  # (thresholds,) public part of the scores

    @property
    def scale(self) -> Fraction:
        """1/ε: all scores move the same way."""
        return 1 / self.epsilon

    def choose(self, histogram: I64, noise: Noise, t: int, purpose: str = "threshold") -> int:
        scores = exceedance_scores(histogram, np.array(self.penalty))
        return noisy_max(scores, self.scale, noise, t, purpose)


class Learnt(NamedTuple):
    """State that a stream with stretches carries from one trigger to the next."""

    thresholds: tuple[int, ...]  # of the stretches so far
    histogram: I64  # (thresholds,) records of the open stretch by bucket; private


@dataclass(frozen=True)
class Relearning:
    """Stretches of a window, each of which chooses the threshold of the next.

    >>> one = Relearning(Exceedance(Fraction(1), (0,)), every=3, warmup=2, horizon=9)
    >>> [one.stretch(t) for t in range(3, 10)], [one.learns(t) for t in range(3, 10)]
    ([0, 0, 0, 1, 1, 1, 2], [False, False, True, False, False, True, False])
    """

    chooser: Chooser  # for every threshold but the first
    every: int  # triggers of a stretch
    # warmup, horizon: of the stream
    warmup: int
    horizon: int

    def __post_init__(self) -> None:
        at_least("relearn", self.every, 1)

    @property
    def stretches(self) -> int:
        """Number of stretches of a window; the last may be shorter."""
        return -(-(self.horizon - self.warmup) // self.every)

    def stretch(self, t: int) -> int:
        """The stretch of a trigger after the warm-up, from 0 on."""
        return (t - self.warmup - 1) // self.every

    def learns(self, t: int) -> bool:
        """Whether trigger t ends a stretch other than the last."""
        return (t - self.warmup) % self.every == 0 and t < self.horizon

    def begin(self, theta: int, buckets: int) -> I64:
        """State at the end of the warm-up."""
        return self.pack(Learnt((theta,), np.zeros(buckets, np.int64)))

    def pack(self, learnt: Learnt) -> I64:
        """Integers for storage, always equally many."""
        blank = [0] * (self.stretches - len(learnt.thresholds))
        return np.concatenate([np.array([*learnt.thresholds, *blank], np.int64), learnt.histogram])

    def unpack(self, stored: I64, t: int, buckets: int) -> Learnt:
        """The state after the trigger before t.

        Raises:
            ContractError: a threshold is missing.
        """
        thresholds = tuple(int(x) for x in stored[: self.stretch(t) + 1])
        if not all(thresholds):
            raise ContractError("the threshold of a stretch is missing from the state")
        return Learnt(thresholds, stored[self.stretches : self.stretches + buckets].copy())

    def after(
        self, learnt: Learnt, closed: I64, candidates: tuple[int, ...], noise: Noise, t: int
    ) -> Learnt:
        """The state after trigger t; ``closed`` (thresholds,) are the records that it closes."""
        histogram = learnt.histogram + closed
        if not self.learns(t):
            return Learnt(learnt.thresholds, histogram)
        purpose = f"threshold.{len(learnt.thresholds)}"
        chosen = candidates[self.chooser.choose(histogram, noise, t, purpose)]
        return Learnt((*learnt.thresholds, chosen), np.zeros_like(histogram))
