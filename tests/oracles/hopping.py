"""A second specification of windows that hop: one key and record at a time, in fractions.

A key's records alone determine its life: it begins with the first record and ends when the epoch
begins that is 2K + 1 epochs after that of the last record. While a key lives, the noise of a hop is
drawn in that hop. The noise of earlier hops of released epochs is drawn when the life begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

Draw = Callable[[int, bytes, int], int]
"""Noise by window, key and number of the draw."""
STEPS = 256


class Shown(NamedTuple):
    """The release of one key that a window must make."""

    value: int
    variance: Fraction  # in squared records, for draws of variance 1


class Oracle:
    """One count per key.

    Args:
        C: lower triangular matrix of the noise, in steps of the grid.
        hops, per_epoch: n hops of a window, and H of an epoch.
        bars: (H,) thresholds in 1/256 records; empty if all of ``listed`` are released.
        draw: the noise.
    """

    def __init__(
        self, C: list[list[int]], hops: int, bars: tuple[int, ...], draw: Draw,
        listed: frozenset[bytes] = frozenset(),
    ) -> None:  # fmt: skip
        self.C, self.hops, self.bars, self.draw = C, hops, bars, draw
        self.H, self.listed = len(C), listed
        self.K = -(-(hops - 1) // self.H)
        self.counts: dict[int, Counter[bytes]] = {}  # by hop
        self.last: dict[bytes, int] = {}  # hop of the last record
        self.noise: dict[tuple[bytes, int, int], int] = {}  # key, epoch, place in it

    def window(self, hop: int, begun: int, records: Counter[bytes]) -> dict[bytes, Shown]:
        """Release a window; ``begun`` is the first hop of an unbroken chain."""
        if hop == begun:
            self.counts, self.last, self.noise = {}, {}, {}
        epoch = hop // self.H
        self.counts[hop] = records
        ended = [k for k, at in self.last.items() if epoch - at // self.H > 2 * self.K]
        for key in ended if not self.listed else ():
            del self.last[key]
            self.noise = {name: z for name, z in self.noise.items() if name[0] != key}
        for key in {*records, *self.listed}:
            if key not in self.last:
                self._born(key, hop, begun)
            self.last[key] = hop
        for key in self.last:
            if (key, epoch, hop % self.H) not in self.noise:
                self.noise[key, epoch, hop % self.H] = self.draw(hop, key, hop % self.H)
        return {key: one for key in self.last if (one := self._shown(key, hop, begun))}

    def _born(self, key: bytes, hop: int, begun: int) -> None:
        epoch = hop // self.H
        for back in range(self.K + 1):
            for place in range(self.H):
                at = (epoch - back) * self.H + place
                released = begun // self.H <= epoch - back
                if at <= hop and released:
                    number = back * self.H + place
                    self.noise[key, epoch - back, place] = self.draw(hop, key, number)

    def _shown(self, key: bytes, hop: int, begun: int) -> Shown | None:
        """The window's count with noise, or None while the key is hidden."""
        held = [n for n in range(hop - self.hops + 1, hop + 1) if n >= begun]
        count = sum(self.counts.get(n, Counter())[key] for n in held)
        steps, squares = 0, Fraction(0)
        for epoch in range(hop // self.H - self.K, hop // self.H + 1):
            if epoch < begun // self.H:
                continue
            ends = (min(hop, epoch * self.H + self.H - 1), hop - self.hops)
            last, before = (max(0, end - epoch * self.H + 1) for end in ends)
            if last <= before:
                continue
            z = [self.noise[key, epoch, place] for place in range(last)]
            mine = [self._prefix(last), self._prefix(before)]
            sums = [sum((b * one for b, one in zip(row, z, strict=False)), Fraction(0))
                    for row in mine]  # fmt: skip
            floors = [one * STEPS // 1 for one in sums]
            steps += floors[0] - floors[1]
            squares += sum((a - b) ** 2 for a, b in self._pairs(*mine))
        if not self.listed and (count < 1 or count * STEPS + steps < self.bars[hop % self.H]):
            return None
        return Shown(count + (steps + STEPS // 2) // STEPS, squares)

    def _prefix(self, t: int) -> list[Fraction]:
        """The row b with bC = (1, …, 1, 0, …, 0), t ones: weights of noise in a prefix sum."""
        row, rest = [Fraction(0)] * t, [Fraction(1)] * t
        for j in range(t - 1, -1, -1):
            row[j] = rest[j] / self.C[j][j]
            for i in range(j):
                rest[i] -= row[j] * self.C[j][i]
        return row

    @staticmethod
    def _pairs(one: list[Fraction], other: list[Fraction]) -> Iterator[tuple[Fraction, Fraction]]:
        for place in range(max(len(one), len(other))):
            yield tuple(x[place] if place < len(x) else Fraction(0) for x in (one, other))  # type: ignore[misc]
