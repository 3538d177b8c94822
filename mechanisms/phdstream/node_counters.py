"""Counters of spatial nodes: running sums of a node's changes, released at every activation.

A node counts only while it is a leaf, so its counter sees only the changes of its active triggers;
one record enters exactly one counter. All state is in the columns of the node's row
(`hushstream.mechanisms.phdstream.tree.NODE`), so a step is a few array operations for all leaves.

Guarantee of each, for neighbours that differ by one ±1 change at one activation of one node: the
whole sequence of outputs is ε-differentially private.

*No draw covers two contents.* The draws of `SimpleCounter` and `BlockCounter` are labelled by
trigger, used there once, and cover changes up to it. `TreeCounter` and the matrix counter label
theirs by activations, whose triggers are not stored. So they count in *chains*: where the nonce of
the noise has changed since a chain began, the next activation opens a new chain on top of the last
released output (`chained`). All draws of a chain are then first used under the nonce of its first
trigger, and their label holds that nonce and trigger. Chains of a node count disjoint activations
on top of released numbers, so one change is in one chain, and the guarantee is unchanged. Variances
of chains add up in ``carried``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..columns import F64, I64
from ..contract import Cost, Noise
from ..keys import Keys
from ..ranges import LAPLACE_TAIL, Draws
from ..spatial.domain import U64
from ..validate import at_least, positive
from .tree import LARGEST_COUNT, States, copied

NODES = 1 << 8  # margin for a sum over 2^26 nodes, whose noise grows with the root of the number


def laplace_variance(scale: Fraction) -> float:
    """Variance of discrete Laplace noise, ``2a/(1-a)²`` with ``a = e^(-1/scale)``.

    >>> round(laplace_variance(Fraction(4)), 4)
    31.8339
    """
    half = 1 / (2 * float(scale))
    return 1 / (2 * math.sinh(half) ** 2) if half < 350 else 0.0


class Now(NamedTuple):
    """Times at which counters are activated."""

    t: int  # trigger
    renewed: int = 1  # trigger from which the present nonce holds


class NodeCounter(ABC):
    """The contract of a counter for PHDStream."""

    name: ClassVar[str]
    distribution: ClassVar[Literal["discrete_gaussian", "discrete_laplace"]] = "discrete_laplace"
    # whether noise is labelled by trigger, so that a forgotten node may start again
    by_trigger: ClassVar[bool] = True

    @abstractmethod
    def cost(self, events: int) -> Cost:
        """Loss of a unit with at most ``events`` changes, at any nodes and triggers."""

    @abstractmethod
    def step(self, state: States, nodes: U64, change: I64, now: Now, noise: Noise) -> States:
        """New rows of the nodes after one activation; inputs are not modified."""

    @abstractmethod
    def variance(self, steps: NDArray[np.int32]) -> F64:
        """(m,) variance of the output after each number of activations of a chain, records²."""

    def digests(self) -> tuple[str, ...]:
        """Digest everything that was computed in floating point: nothing."""
        return ()

    @abstractmethod
    def draws(self, horizon: int) -> Draws:
        """Its draws, where outputs of ``horizon`` triggers add up in a tree of nodes."""


@dataclass(frozen=True)
class _Pure(NodeCounter):
    """ε per change; the changes of a unit add up."""

    epsilon: Fraction

    def __post_init__(self) -> None:
        positive("count epsilon", self.epsilon)

    def cost(self, events: int) -> Cost:
        return Cost(epsilon=events * self.epsilon)

    @property
    @abstractmethod
    def scale(self) -> Fraction:
        """Scale of one draw."""

    def draws(self, horizon: int) -> Draws:
        most = Fraction(LARGEST_COUNT, LAPLACE_TAIL * (horizon + NODES))
        return Draws("count", "laplace", self.scale, most)


def _draw(noise: Noise, purpose: str, nodes: U64, t: int, scale: Fraction) -> I64:
    index = np.array([t], np.int64)
    return noise.laplace(purpose, Keys.of_codes(nodes), index, scale, index)[:, 0]


def chained(state: States, now: Now, variance: F64) -> States:
    """A copy ready for one more activation, in a new chain where the nonce has changed."""
    state = copied(state)
    new = (state["steps"] == 0) | (state["start"] < now.renewed)
    state["carried"][new] += variance[new].astype(np.float32)
    state["second"][new] = state["out"][new]
    state["first"][new], state["steps"][new], state["start"][new] = 0, 0, now.t
    return state


@dataclass(frozen=True)
class SimpleCounter(_Pure):
    """Each step adds its change and fresh noise of scale 1/ε; variance grows with the steps.

    A change enters one noisy term (Dwork, Naor, Pitassi & Rothblum 2010; Chan, Shi & Song 2011,
    Simple Counting Mechanism II).
    """

    name: ClassVar[str] = "simple"

    @property
    def scale(self) -> Fraction:
        """1/ε."""
        return 1 / self.epsilon

    def step(self, state: States, nodes: U64, change: I64, now: Now, noise: Noise) -> States:
        state = copied(state)
        state["steps"] += 1
        state["out"] += change + _draw(noise, "simple", nodes, now.t, self.scale)
        return state

    def variance(self, steps: NDArray[np.int32]) -> F64:
        """n·v(1/ε)."""
        return np.asarray(steps, float) * laplace_variance(self.scale)


@dataclass(frozen=True)
class BlockCounter(_Pure):
    """Blocks of ``size`` steps: noisy steps inside a block, one noisy sum at its end, scale 2/ε.

    A change enters one in-block term and one block sum, or the block sum alone at the block's
    last step: at most two terms of ε/2 (Chan, Shi & Song 2011, Two-Level Counting Mechanism).
    State: ``first`` is the exact sum and ``second`` the noisy one of the open block.
    """

    size: int = 8
    name: ClassVar[str] = "block"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("block size", self.size, 1)

    @property
    def scale(self) -> Fraction:
        """2/ε."""
        return 2 / self.epsilon

    def step(self, state: States, nodes: U64, change: I64, now: Now, noise: Noise) -> States:
        state = copied(state)
        state["steps"] += 1
        ends = state["steps"] % self.size == 0
        drawn = _draw(noise, "block", nodes, now.t, self.scale)
        base = state["out"] - state["second"]
        exact = state["first"] + change
        inside = state["second"] + change + drawn
        state["out"] = base + np.where(ends, exact + drawn, inside)
        state["first"] = np.where(ends, 0, exact)
        state["second"] = np.where(ends, 0, inside)
        return state

    def variance(self, steps: NDArray[np.int32]) -> F64:
        """(q+r)·v(2/ε) after q whole blocks and r steps."""
        whole, rest = np.divmod(np.asarray(steps, np.int64), self.size)
        return (whole + rest) * laplace_variance(self.scale)


@dataclass(frozen=True)
class TreeCounter(_Pure):
    """Dyadic sums over ``horizon`` steps, scale H/ε with H = ⌊log2 horizon⌋ + 1 levels.

    A change lies in at most H released sums, one per level. After ``horizon`` steps another tree
    opens on top of the last released total, over disjoint steps, at no further cost
    (Dwork et al. 2010; Chan, Shi & Song 2011). ``log2 horizon`` levels would not be enough.
    State: ``first`` is the exact sum of the open tree and ``second`` the total below it; ``steps``
    counts from ``start``, the first trigger of the chain.
    """

    horizon: int = 256
    name: ClassVar[str] = "tree"
    by_trigger: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("tree horizon", self.horizon, 1)

    @property
    def levels(self) -> int:
        """H."""
        return self.horizon.bit_length()

    @property
    def scale(self) -> Fraction:
        """H/ε."""
        return self.levels / self.epsilon

    def step(self, state: States, nodes: U64, change: I64, now: Now, noise: Noise) -> States:
        state = chained(state, now, self.variance(state["steps"]))
        tree, done = np.divmod(state["steps"].astype(np.int64), self.horizon)
        state["steps"] += 1
        state["first"] += change
        drawn = self._noise(nodes, state["start"].astype(np.int64), tree, done + 1, noise)
        state["out"] = state["second"] + state["first"] + drawn
        full = done + 1 == self.horizon
        state["second"] = np.where(full, state["out"], state["second"])
        state["first"] = np.where(full, 0, state["first"])
        return state

    def _noise(self, nodes: U64, start: I64, tree: I64, step: I64, noise: Noise) -> I64:
        """(m,) summed noise of the dyadic sums that end at ``step`` 1..horizon of each tree."""
        out = np.zeros(len(nodes), np.int64)
        level = np.arange(self.levels)
        row, bit = np.nonzero((step[:, None] >> level) & 1)
        place = (step[row] >> bit) - 1
        first = start[row]
        parts = [part.astype(np.uint64) for part in (nodes[row], first, tree[row], bit, place)]
        label = np.stack(parts, axis=1).astype(">u8")
        keys = Keys.fixed(label.view(np.uint8).reshape(len(row), 40))
        scale, index = self.scale, np.zeros(1, np.int64)
        drawn = noise.laplace("tree", keys, index, scale, first[:, None])
        np.add.at(out, row, drawn[:, 0])
        return out

    def variance(self, steps: NDArray[np.int32]) -> F64:
        """(trees·popcount(horizon) + popcount(rest))·v(H/ε), of one chain."""
        trees, rest = np.divmod(np.asarray(steps, np.int64), self.horizon)
        ones = np.bitwise_count(rest) + trees * self.horizon.bit_count()
        total: F64 = ones * laplace_variance(self.scale)
        return total
