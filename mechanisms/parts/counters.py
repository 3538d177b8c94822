"""Continual counters: running sums of integers, released after every step, behind one contract.

Many counters are stepped at once; each has a step number of its own. State holds exact integers and
released totals only: all noise, that of dyadic nodes without any data included, is derived from
labels (key of the counter, chain, node), so nothing depends on when a node was first touched.

=========  ======  =============================  ==============================================
counter    terms   variance after t steps         source
=========  ======  =============================  ==============================================
`Simple`   1       t·v                            Chan, Shi & Song 2011, Simple Mechanism II
`Block`    2       (⌊t/B⌋ + t mod B)·v            Chan, Shi & Song 2011, Two-Level Mechanism
`Tree`     H(T)    popcount(t)·v                  Dwork et al. 2010; Chan, Shi & Song 2011
`Matrix`   –       ‖B_t‖²·v                       Denisov et al. 2022
=========  ======  =============================  ==============================================

*Guarantee*, for neighbours whose increments of one counter differ by at most Δ in total (L1). With
Laplace noise of scale terms·Δ/ε the whole sequence is ε-differentially private: an increment enters
so many noisy sums, each of which moves by at most what the increment moves. With Gaussian noise
those sums move by at most terms·Δ² in squared L2, so that s² = terms·Δ²/μ² is
terms·Δ²/(2s²)-zCDP and is entered as `accounting.gaussian_cost`. H(T) = T.bit_length(): ⌈log2 T⌉
levels are not enough at powers of two, and would leave a horizon of 1 without noise.

After T steps `Tree` and `Matrix` open a successor on top of the last released total. Steps are
disjoint, so it costs nothing more for Laplace and Gaussian noise alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from ...errors import ContractError
from .. import accounting, factorization
from ..contract import I64, Cost, Noise
from ..factorization import exact_rounding as grid
from ..keys import Keys
from ..validate import at_least, one_of, positive


class State(NamedTuple):
    """State of n counters."""

    step: I64  # (n,) steps so far
    exact: I64  # (n,) exact sum of the open block or tree
    base: I64  # (n,) released total below it
    inside: I64  # (n,) noisy sum of the open block (`Block` only)


class Counter(Protocol):
    """What every counter can do; each is a frozen dataclass of public parameters."""

    def init(self, n: int) -> State:
        """State of n counters that have counted nothing."""
        ...

    def step(self, state: State, keys: Keys, change: I64, noise: Noise) -> tuple[State, I64]:
        """One step of n counters.

        Args:
            state: of the n counters.
            keys: (n,) their labels, distinct.
            change: (n,) integer increments.
            noise: the source of draws.

        Returns:
            The new state and the (n,) released totals.
        """
        ...

    def variance(self, t: int) -> float:
        """Variance of the released total after t steps."""
        ...

    def cost(self) -> Cost:
        """Loss for one neighbouring change of total size Δ."""
        ...


@dataclass(frozen=True)
class Law:
    """The noise of one term, from the loss that all terms together may cause.

    Attributes:
        kind: "laplace" (loss = ε) or "gauss" (loss = μ²).
        loss: ε or μ², exact.
        sensitivity: Δ, the total size of one neighbouring change.
    """

    kind: Literal["laplace", "gauss"]
    loss: Fraction
    sensitivity: int = 1

    def __post_init__(self) -> None:
        one_of("kind", self.kind, ("laplace", "gauss"))
        positive("loss", self.loss)
        at_least("sensitivity", self.sensitivity, 1)

    def scale(self, terms: Fraction | int) -> Fraction:
        """Scale of Laplace, or parameter s² of Gaussian noise, per term."""
        power = 1 if self.kind == "laplace" else 2
        return terms * Fraction(self.sensitivity) ** power / self.loss

    def variance(self, terms: Fraction | int) -> float:
        """Variance of one term (for Gaussian noise the parameter s², which bounds it).

        >>> round(Law("laplace", Fraction(1)).variance(4), 4)
        31.8339
        """
        scale = float(self.scale(terms))
        return scale if self.kind == "gauss" else 1 / (2 * math.sinh(1 / (2 * scale)) ** 2)

    def draw(
        self, noise: Noise, purpose: str, keys: Keys, index: I64, terms: Fraction | int
    ) -> I64:
        """(n, len(index)) draws."""
        source = noise.laplace if self.kind == "laplace" else noise.gauss
        return source(purpose, keys, index, self.scale(terms))

    def cost(self, terms: int) -> Cost:
        """Cost of ``terms`` sums that one change moves by at most Δ each."""
        if self.kind == "laplace":
            return accounting.pure_cost(self.loss)
        shift = terms * self.sensitivity**2
        return accounting.gaussian_cost(shift, self.scale(terms), terms * self.sensitivity)


class _Zeros:
    """The common initial state."""

    def init(self, n: int) -> State:
        """See `Counter.init`."""
        return State(*(np.zeros(n, np.int64) for _ in State._fields))


@dataclass(frozen=True)
class Simple(_Zeros):
    """Each step adds its change and fresh noise."""

    law: Law
    terms: ClassVar[int] = 1

    def step(self, state: State, keys: Keys, change: I64, noise: Noise) -> tuple[State, I64]:
        """See `Counter.step`."""
        _check(state, keys, change)
        label = labelled(keys, state.step)
        total = state.base + change + self.law.draw(noise, "simple", label, _ONE, self.terms)[:, 0]
        return state._replace(step=state.step + 1, base=total), total

    def variance(self, t: int) -> float:
        """See `Counter.variance`."""
        return at_least("t", t, 0) * self.law.variance(self.terms)

    def cost(self) -> Cost:
        """See `Counter.cost`."""
        return self.law.cost(self.terms)


@dataclass(frozen=True)
class Block(_Zeros):
    """Noisy steps inside a block of ``size`` steps, one noisy sum at its end.

    A change enters one step and one block sum, or the block sum alone at the block's last step.
    """

    law: Law
    size: int
    terms: ClassVar[int] = 2

    def __post_init__(self) -> None:
        at_least("size", self.size, 1)

    def step(self, state: State, keys: Keys, change: I64, noise: Noise) -> tuple[State, I64]:
        """See `Counter.step`."""
        _check(state, keys, change)
        label = labelled(keys, state.step)
        drawn = self.law.draw(noise, "block", label, _ONE, self.terms)[:, 0]
        ends = (state.step + 1) % self.size == 0
        exact, inside = state.exact + change, state.inside + change + drawn
        total = state.base + np.where(ends, exact + drawn, inside)
        base = np.where(ends, total, state.base)
        zero = np.where(ends, 0, 1)
        return State(state.step + 1, exact * zero, base, inside * zero), total

    def variance(self, t: int) -> float:
        """See `Counter.variance`."""
        return sum(divmod(at_least("t", t, 0), self.size)) * self.law.variance(self.terms)

    def cost(self) -> Cost:
        """See `Counter.cost`."""
        return self.law.cost(self.terms)


@dataclass(frozen=True)
class Tree(_Zeros):
    """Dyadic sums over ``horizon`` steps; BT(T, Δ), chained without end."""

    law: Law
    horizon: int

    def __post_init__(self) -> None:
        at_least("horizon", self.horizon, 1)

    @property
    def terms(self) -> int:
        """H(T), the levels that one change enters."""
        return accounting.tree_levels(self.horizon)

    def step(self, state: State, keys: Keys, change: I64, noise: Noise) -> tuple[State, I64]:
        """See `Counter.step`."""
        _check(state, keys, change)
        return _chained(state, change, self._noise(state.step, keys, noise), self.horizon)

    def _noise(self, step: I64, keys: Keys, noise: Noise) -> I64:
        chain, done = np.divmod(step, self.horizon)
        t = done + 1
        row, height = np.nonzero((t[:, None] >> np.arange(self.terms)) & 1)
        label = labelled(keys.take(row), chain[row], height, (t[row] >> height) - 1)
        out = np.zeros(len(keys), np.int64)
        np.add.at(out, row, self.law.draw(noise, "tree", label, _ONE, self.terms)[:, 0])
        return out

    def variance(self, t: int) -> float:
        """See `Counter.variance`."""
        chains, rest = divmod(at_least("t", t, 0), self.horizon)
        nodes = chains * self.horizon.bit_count() + rest.bit_count()
        return nodes * self.law.variance(self.terms)

    def cost(self) -> Cost:
        """See `Counter.cost`."""
        return self.law.cost(self.terms)


@dataclass(frozen=True)
class Matrix(_Zeros):
    """Correlated Gaussian noise of a `Factorization`, rounded exactly; chained without end."""

    law: Law
    horizon: int
    name: str = "terminal"

    def __post_init__(self) -> None:
        one_of("kind", self.law.kind, ("gauss",))

    @property
    def factor(self) -> factorization.Factorization:
        """B and C."""
        return factorization.build(self.name, self.horizon)

    @property
    def parameter(self) -> Fraction:
        """s² of each coordinate, in squared steps of the factorisation's grid."""
        return self.law.scale(self.factor.sensitivity2 * 4**self.factor.bits)

    def step(self, state: State, keys: Keys, change: I64, noise: Noise) -> tuple[State, I64]:
        """See `Counter.step`."""
        _check(state, keys, change)
        return _chained(state, change, self._noise(state.step, keys, noise), self.horizon)

    def _noise(self, step: I64, keys: Keys, noise: Noise) -> I64:
        chain, done = np.divmod(step, self.horizon)
        out = np.empty(len(keys), np.int64)
        for t in np.unique(done + 1).tolist():
            row = np.flatnonzero(done + 1 == t)
            label, index = labelled(keys.take(row), chain[row]), np.arange(self.factor.width[t - 1])
            z = noise.gauss(f"matrix {self.name}", label, index, self.parameter)
            out[row] = grid.nearest(self.factor, np.array([t]), z)[:, 0]
        return out

    def variance(self, t: int) -> float:
        """See `Counter.variance`; rounding to integers adds about 1/12 per chain to it."""
        chains, rest = divmod(at_least("t", t, 0), self.horizon)
        norms = chains * float(self.factor.norm2(self.horizon))
        norms += float(self.factor.norm2(rest)) if rest else 0.0
        return norms * float(self.parameter / (1 << 2 * self.factor.bits))

    def cost(self) -> Cost:
        """See `Counter.cost`: a change is split over at most Δ steps, each in one chain."""
        shift = self.factor.sensitivity2 * 4**self.factor.bits * self.law.sensitivity**2
        touched = self.factor.noises * self.law.sensitivity
        return accounting.gaussian_cost(shift, self.parameter, touched)


_ONE = np.zeros(1, np.int64)


def labelled(keys: Keys, *numbers: I64) -> Keys:
    """Keys extended by non-negative integers, eight bytes each: injective for a fixed count.

    >>> labelled(Keys.of([b"a", b"bc"]), np.array([1, 2])).tolist()[1]
    b'bc\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02'
    """
    tail = (
        np.stack(numbers, axis=1).astype(">u8").view(np.uint8).reshape(len(keys), 8 * len(numbers))
    )
    width = np.diff(keys.offsets)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(width + tail.shape[1])])
    data = np.empty(int(offsets[-1]), np.uint8)
    place = offsets[1:, None] - tail.shape[1] + np.arange(tail.shape[1])
    head = np.ones(len(data), np.bool_)
    head[place] = False
    data[head], data[place] = keys.packed(), tail
    return Keys(data, offsets)


def _chained(state: State, change: I64, drawn: I64, horizon: int) -> tuple[State, I64]:
    exact = state.exact + change
    total = state.base + exact + drawn
    full = (state.step + 1) % horizon == 0
    base, rest = np.where(full, total, state.base), np.where(full, 0, exact)
    return State(state.step + 1, rest, base, state.inside), total


def _check(state: State, keys: Keys, change: I64) -> None:
    if not len(state.step) == len(keys) == len(change):
        raise ContractError("state, keys and changes must have one row per counter")
