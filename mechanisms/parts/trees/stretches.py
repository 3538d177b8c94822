"""A wide tree whose threshold changes from stretch to stretch of whole blocks.

Each stretch begins a new chunk, so every draw has the scale of one threshold. A record lies in one
stretch: it moves a node by at most the threshold in force there, and stretches compose in parallel.
Their noise is independent, so variances add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from ....errors import ContractError
from ...contract import Noise
from ...ranges import Draws
from .hierarchy import Chunks


@dataclass(frozen=True)
class Stretches:
    """A `WideTree`; it ignores the threshold that callers pass, that of the newest stretch."""

    chunks: Chunks  # of each stretch
    length: int  # blocks of a stretch
    thetas: tuple[int, ...]  # thresholds of the stretches so far; at least one
    origins: tuple[int, ...] = (0,)  # further blocks at which a chunk begins, ascending from 0

    def restarted(self, origins: tuple[int, ...]) -> Stretches:
        return replace(self, origins=origins)

    def draws(self, of: str, theta: int, slots: int) -> Draws:
        return self.chunks.draws(of, theta, slots)

    def _tree(self, stretch: int) -> tuple[Chunks, int]:
        """The chunks of a stretch, in blocks of the stream, and its threshold.

        Raises:
            ContractError: its threshold is not known yet.
        """
        if stretch >= len(self.thetas):
            raise ContractError("a stretch begins before its threshold is known")
        begin = stretch * self.length
        inside = {begin, *(o for o in self.origins if begin < o < begin + self.length)}
        origins = tuple(sorted({0, *inside}))
        return self.chunks.restarted(origins), self.thetas[stretch]

    def prefix(self, noise: Noise, theta: int, end: int) -> tuple[int, Fraction]:
        if end == 0:
            return 0, Fraction(0)
        tree, own = self._tree((end - 1) // self.length)
        return tree.prefix(noise, own, end)

    def variance(
        self, theta: int, first: int, end: int, extra: Mapping[int, float] | None = None
    ) -> float:
        extra, total = {} if extra is None else extra, 0.0
        used = {block // self.length for block in extra}
        if end > first:
            used |= set(range(first // self.length, (end - 1) // self.length + 1))
        for stretch in sorted(used):
            low, high = stretch * self.length, (stretch + 1) * self.length
            tree, own = self._tree(stretch)
            mine = {block: w for block, w in extra.items() if low <= block < high}
            a, z = max(first, low), min(end, high)
            total += tree.variance(own, a, max(a, z), mine)
        return total
