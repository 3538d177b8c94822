"""Noise of all prefix sums of a stream in which one record moves a step by at most θ.

=============  ==================================================================================
``tree``       binary tree, H(T) = ⌊log2 T⌋ + 1 nodes per step (Chan, Shi, Song, *Private and
               Continual Release of Statistics*, 2011); DLap(θ·H/ε) per node; ε-DP.
``hierarchy``  one chunk of a wide tree with consistent estimates (`hierarchy`); ε-DP.
``matrix``     matrix factorisation with discrete Gaussian noise (`factorization`); (ε, δ)-DP.
=============  ==================================================================================

*Guarantee*, per record added, removed or replaced at its own step by values in [0, θ]: a step lies
in at most H(T) released nodes of the tree, and in one node per level of the hierarchy; the record
moves each of them by at most θ. It moves the private product of the matrix counter by at most θ
times a column norm. Records of one unit at any steps, k in all, cost k times that.

*No draw covers two contents.* ``first`` counts steps here. A node of the tree is first used when
its last step ends, a coordinate of a factorisation when (Cx)_i is complete (`Process.first`). For
the hierarchy see `trees.hierarchy`: where the nonce of the noise changes, its chunk is abandoned,
and another one covers later steps, on top of what was released.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from ..accounting import tree_levels
from ..columns import F64, I64
from ..contract import Noise
from ..factorization.prefix_noise import STEPS, Process
from ..keys import Keys
from ..parts.trees.hierarchy import Chunks, laplace_variance
from ..ranges import Draws, laplace
from ..sums import nearest
from ..validate import at_least, positive

_LABEL = Keys.of([b"prefix"])
_LEVEL = 50  # a node is one integer: its level, then 50 bits of its position
_POSITION = (1 << _LEVEL) - 1


class PrefixCounter(ABC):
    """Noise of prefix sums, for a threshold that is not known until the stream begins."""

    distribution: ClassVar[Literal["discrete_gaussian", "discrete_laplace"]] = "discrete_laplace"

    @property
    def steps(self) -> int:
        """Noise is an integer multiple of 1/steps, or rounded to one."""
        return STEPS

    def restarted(self, origins: tuple[int, ...]) -> PrefixCounter:
        """The counter with independent noise from each of these steps on.

        Itself if each draw has the nonce of the step that completes its content.
        """
        return self

    @abstractmethod
    def stretch(self, number: int) -> PrefixCounter:
        """The counter with the independent noise of stretch ``number``; itself for 0."""

    @abstractmethod
    def noise(self, noise: Noise, theta: int, ends: I64) -> list[int]:
        """Noise of the sums of the first ``ends`` steps, in 1/steps."""

    @abstractmethod
    def draws(self, of: str, theta: int) -> Draws:
        """Its draws for the largest threshold."""

    @abstractmethod
    def variance(self, theta: int, first: int, end: int) -> float:
        """Variance of the noise of the sum of the steps first..end-1."""

    @abstractmethod
    def weighted(self, theta: int, weights: Mapping[int, float]) -> float:
        """Variance of the noise of Σ weight·(sum of a step)."""

    def digests(self) -> tuple[str, ...]:
        """None: nothing is computed in floating point before the threshold is known."""
        return ()


@dataclass(frozen=True)
class TreePrefix(PrefixCounter):
    """The binary tree over ``horizon`` steps; ``epsilon`` is per record.

    >>> TreePrefix(8, Fraction(1)).scale(10)
    Fraction(40, 1)
    """

    horizon: int
    epsilon: Fraction
    purpose: str = "tree"

    def __post_init__(self) -> None:
        at_least("horizon", self.horizon, 1)
        positive("epsilon", self.epsilon)

    @property
    def steps(self) -> int:
        """1: the noise is integer."""
        return 1

    def stretch(self, number: int) -> TreePrefix:
        return replace(self, purpose=_numbered(self.purpose, number))

    def scale(self, theta: int) -> Fraction:
        """θ·H(T)/ε."""
        return theta * tree_levels(self.horizon) / self.epsilon

    @staticmethod
    def nodes(end: int) -> set[tuple[int, int]]:
        """(level, index) of the nodes that make up the first ``end`` steps."""
        return {(i, (end >> i) - 1) for i in range(end.bit_length()) if end >> i & 1}

    def noise(self, noise: Noise, theta: int, ends: I64) -> list[int]:
        if theta == 0:
            return [0] * len(ends)
        codes = [[i << _LEVEL | j for i, j in self.nodes(int(end))] for end in ends]
        index = np.array(sorted({code for nodes in codes for code in nodes}), np.int64)
        last = ((index & _POSITION) + 1) << (index >> _LEVEL)
        drawn = noise.laplace(self.purpose, _LABEL, index, self.scale(theta), last)[0].tolist()
        value = dict(zip(index.tolist(), drawn, strict=True))
        return [sum(value[code] for code in nodes) for nodes in codes]

    def draws(self, of: str, theta: int) -> Draws:
        return laplace(of, self.scale(theta))

    def variance(self, theta: int, first: int, end: int) -> float:
        nodes = self.nodes(first) ^ self.nodes(end)
        return len(nodes) * laplace_variance(self.scale(theta))

    def weighted(self, theta: int, weights: Mapping[int, float]) -> float:
        total: dict[tuple[int, int], float] = {}
        for end, weight in _on_prefixes(weights).items():
            for node in self.nodes(end):
                total[node] = total.get(node, 0.0) + weight
        return sum(w * w for w in total.values()) * laplace_variance(self.scale(theta))


@dataclass(frozen=True)
class HierarchyPrefix(PrefixCounter):
    """A consistent wide tree; its ``epsilon`` is per record."""

    chunks: Chunks

    def restarted(self, origins: tuple[int, ...]) -> HierarchyPrefix:
        return HierarchyPrefix(self.chunks.restarted(origins))

    def stretch(self, number: int) -> HierarchyPrefix:
        return HierarchyPrefix(replace(self.chunks, purpose=_numbered(self.chunks.purpose, number)))

    def noise(self, noise: Noise, theta: int, ends: I64) -> list[int]:
        """See `PrefixCounter.noise`; the steps must fit into one chunk."""
        return [self._upto(noise, theta, int(end)) for end in ends]

    def _upto(self, noise: Noise, theta: int, end: int) -> int:
        """Noise of the totals released by abandoned chunks, and of the open chunk."""
        left = [origin for origin in self.chunks.origins[1:] if origin < end]
        total = 0
        for stop in (*left, end):
            total += nearest(self.chunks.prefix(noise, theta, stop)[1] * self.steps)
        return total

    def draws(self, of: str, theta: int) -> Draws:
        return self.chunks.draws(of, theta, self.chunks.blocks)

    def variance(self, theta: int, first: int, end: int) -> float:
        return self.chunks.variance(theta, first, end)

    def weighted(self, theta: int, weights: Mapping[int, float]) -> float:
        return self.chunks.variance(theta, 0, 0, weights)


@dataclass(frozen=True)
class MatrixPrefix(PrefixCounter):
    """Correlated discrete Gaussian noise."""

    name: str  # a factorisation of `factorization`
    horizon: int  # steps
    # variance of every coordinate for θ = 1, in squared steps of the factorisation
    variance_at_one: Fraction
    purpose: str = "matrix"
    distribution: ClassVar[Literal["discrete_gaussian"]] = "discrete_gaussian"

    def stretch(self, number: int) -> MatrixPrefix:
        return replace(self, purpose=_numbered(self.purpose, number))

    def process(self, theta: int) -> Process:
        """The noise for a threshold."""
        return Process(self.purpose, self.name, self.horizon, self.variance_at_one * theta**2)

    def noise(self, noise: Noise, theta: int, ends: I64) -> list[int]:
        if theta == 0 or not len(ends):
            return [0] * len(ends)
        found: list[int] = self.process(theta).several(noise, _LABEL, ends)[0].tolist()
        return found

    def draws(self, of: str, theta: int) -> Draws:
        return self.process(theta).draws(of)

    def variance(self, theta: int, first: int, end: int) -> float:
        factor = self.process(theta).factor
        row = factor.B[end - 1] if end else np.zeros(factor.noises)
        return self._of_row(row - factor.B[first - 1] if first else row, theta)

    def weighted(self, theta: int, weights: Mapping[int, float]) -> float:
        factor, on = self.process(theta).factor, _on_prefixes(weights)
        rows = factor.B[np.fromiter(on, np.int64, len(on)) - 1]
        return self._of_row(np.fromiter(on.values(), np.float64, len(on)) @ rows, theta)

    def _of_row(self, row: F64, theta: int) -> float:
        """Variance of a combination of the factorisation's noises."""
        bits = self.process(1).factor.bits
        scale = float(self.variance_at_one) * float(theta) ** 2 / 4.0**bits
        return float((row * row).sum()) * scale

    def digests(self) -> tuple[str, ...]:
        """Digest of the factorisation, which does not depend on the threshold."""
        return (self.process(1).factor.digest(),)


def _numbered(purpose: str, stretch: int) -> str:
    return f"{purpose}.{stretch}" if stretch else purpose


def _on_prefixes(weights: Mapping[int, float]) -> dict[int, float]:
    """Weights on prefix sums that are equivalent to weights on single steps.

    >>> _on_prefixes({0: 1.0, 1: 1.0, 3: 0.5})
    {2: 1.0, 4: 0.5, 3: -0.5}
    """
    out: dict[int, float] = {}
    for step, weight in weights.items():
        out[step + 1] = out.get(step + 1, 0.0) + weight
        out[step] = out.get(step, 0.0) - weight
    return {end: weight for end, weight in out.items() if end and weight}
