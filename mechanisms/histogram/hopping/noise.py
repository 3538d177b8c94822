"""Noise of one quantity in windows that hop: drawn once per hop, kept with the key's row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ... import accounting
from ...columns import I64
from ...contract import Noise
from ...factorization import Factorization, exact_rounding, hopping
from ...factorization.prefix_noise import STEPS, largest
from ...keys import Keys
from ...ranges import Draws

_CHUNK = 1 << 22  # draws at a time


@dataclass(frozen=True)
class HopNoise:
    """Correlated noise of one quantity, for every key.

    Attributes:
        purpose: part of every label.
        hops: n, hops of a window.
        per_epoch: H, hops of an epoch.
        variance: variance of each discrete Gaussian, in squared steps of the factorisation's grid.
    """

    purpose: str
    hops: int
    per_epoch: int
    variance: Fraction

    @property
    def factor(self) -> Factorization:
        return hopping.hopping(self.hops, self.per_epoch)

    def drawn(self, noise: Noise, keys: Keys, back: int, places: range) -> I64:
        """(r, p) new noise of some hops of an epoch.

        Args:
            back: number of epochs ago, part of the label.
            places: hops in that epoch, from 0.
        """
        index = np.arange(places.start, places.stop, dtype=np.int64) + back * self.per_epoch
        out = np.empty((len(keys), len(index)), np.int64)
        every, first = np.arange(len(keys)), np.ones(len(index), np.int64)
        step = max(1, _CHUNK // max(len(index), 1))
        for begin in range(0, len(every), step):
            rows = every[begin : begin + step]
            out[rows] = noise.gauss(self.purpose, keys.take(rows), index, self.variance, first)
        return out

    def steps(self, z: I64, ordinal: int, chain: int) -> I64:
        """(r,) noise of a window in 1/STEPS, each of its prefix sums rounded down.

        Args:
            z: (r, K+1, H) noise, of the epoch itself first.
            ordinal, chain: the same as for `hopping.spans`.
        """
        out = np.zeros(len(z), np.int64)
        for back, span in self._spans(ordinal, chain):
            ends = [span.last, span.before] if span.before else [span.last]
            mine = np.ascontiguousarray(z[:, back, : span.last])
            sums = exact_rounding.floors(self.factor, np.array(ends), mine, STEPS)
            out += sums[:, 0] - (sums[:, 1] if span.before else 0)
        return out

    def variance_at(self, ordinal: int, chain: int | None = None) -> float:
        """Variance of that noise, in squared records."""
        rows = (hopping.row(self.factor, span) for _, span in self._spans(ordinal, chain))
        total = sum(float(np.cumsum(row * row)[-1]) for row in rows)
        return total * float(self.variance) / 4.0**self.factor.bits

    def quantile(self, ordinal: int, beta: Fraction) -> Fraction:
        """x with P(noise of a window of all its epochs ≥ x) ≤ β, in records."""
        bounds = [hopping.norms(self.factor, span) for _, span in self._spans(ordinal, None)]
        norm2 = sum(Fraction(length) ** 2 for length, _ in bounds)
        norm1 = sum(Fraction(total) for _, total in bounds)
        terms = len(bounds) * self.per_epoch
        reach = accounting.sum_tail(beta, self.variance, norm2, norm1, terms)
        # The subtracted prefix sum is rounded down, which lifts the difference by up to a step.
        return reach / (1 << self.factor.bits) + Fraction(len(bounds), STEPS)

    def draws(self, of: str) -> Draws:
        """Draws of this noise, and the largest sum that can be rounded exactly."""
        return Draws(of, "gauss", self.variance, largest(self.factor))

    def _spans(self, ordinal: int, chain: int | None) -> Iterator[tuple[int, hopping.Stretch]]:
        yield from hopping.spans(ordinal, self.hops, self.per_epoch, chain).items()
