"""The prefix counters of a stream's stretches, each on top of the last released prefix sum.

Each stretch has its own threshold and counter. A stream with a single threshold is one stretch. A
record lies in one stretch, so counters compose in parallel; their noise is independent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .counter import PrefixCounter


@dataclass(frozen=True)
class Succession:
    """Counters of the stretches so far."""

    counters: tuple[PrefixCounter, ...]  # one per stretch, over its own steps
    thetas: tuple[int, ...]  # their thresholds
    length: int  # steps of a stretch

    def variance(self, first: int, end: int) -> float:
        """Variance of the noise of the sum of the steps first..end-1, in squared grid steps."""
        total = 0.0
        for place, (counter, theta) in enumerate(zip(self.counters, self.thetas, strict=True)):
            begin = place * self.length
            low, high = max(first - begin, 0), min(end - begin, self.length)
            if high > low:
                total += counter.variance(theta, low, high)
        return total

    def weighted(self, weights: Mapping[int, float]) -> float:
        """Variance of the noise of Σ weight·(sum of a step), in squared grid steps."""
        total = 0.0
        for place, (counter, theta) in enumerate(zip(self.counters, self.thetas, strict=True)):
            begin = place * self.length
            mine = {s - begin: w for s, w in weights.items() if 0 <= s - begin < self.length}
            if mine:
                total += counter.weighted(theta, mine)
        return total
