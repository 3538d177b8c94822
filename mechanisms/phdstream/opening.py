"""The first trigger that a window counts: private splitting, paid by that trigger alone.

The window has no releases yet, so released counts cannot split, and one leaf would hold everything.
An event counts at one trigger only. So at the first trigger a part of what an event may cost goes
to private splitting (`spatial.privtree`) and the rest to a noisier count; every later event pays
for its count alone. No event pays more than without the opening.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..columns import I64
from ..contract import Noise
from ..spatial.domain import U64, Domain
from ..spatial.privtree import Selection, largest_epsilon
from .node_counters import Now, SimpleCounter
from .tree import States

ENOUGH = 40
"""Records n in a cell of the public floor, in standard deviations of noise: n·ε."""


@dataclass(frozen=True)
class WindowStart:
    """Splitting and counting at the first trigger."""

    selection: Selection  # splits by the trigger's own insertions, at ε_split each
    counter: SimpleCounter  # counts its changes, at ε_count each

    @classmethod
    def of(cls, domain: Domain, each: Fraction, share: Fraction, floor: int) -> WindowStart:
        """The opening of a window.

        Args:
            domain: public geometry.
            each: ε that one event of the first trigger may cost.
            share: part of ``each`` for splitting, in (0, 1); lowered where PrivTree's proof ends.
            floor: public depth above which nodes always split.
        """
        split = min(share * each, largest_epsilon(domain.step))
        selection = Selection(domain.step, split, domain.depth, 0, floor)
        return cls(selection, SimpleCounter(each - split))

    @property
    def epsilon(self) -> Fraction:
        """Loss per insertion at this trigger; a deletion loses less."""
        return self.selection.epsilon + self.counter.epsilon

    @property
    def variance(self) -> float:
        """Variance of a leaf's count, records squared."""
        return float(self.counter.variance(np.ones(1, np.int32))[0])

    def step(self, state: States, nodes: U64, change: I64, now: Now, noise: Noise) -> States:
        """Rows of the leaves after this trigger; the window's own counter continues from there."""
        state = self.counter.step(state, nodes, change, now, noise)
        state["steps"] = 0
        state["carried"] += np.float32(self.variance)
        return state


def floor_for(domain: Domain, epsilon: Fraction, expected: int) -> int:
    """The deepest level whose cells hold `ENOUGH`/ε expected records on average; 0 if none does.

    >>> floor_for(Domain.unit(2, 8, "all"), Fraction(1, 2), 50_000)
    4
    """
    most, floor = expected * epsilon / ENOUGH, 0
    while floor < domain.depth and domain.fanout ** (floor + 1) <= most:
        floor += 1
    return floor
