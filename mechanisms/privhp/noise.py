"""Noise of PrivHP's sums over triggers: a counter behind every sum of every level.

Every sum, touched or not, is the input of a counter over the triggers of a window: a binary tree
with Laplace noise (Chan, Shi and Song 2011; Dwork, Naor, Pitassi and Rothblum 2010) or a matrix
factorisation with Gaussian noise (`factorization.matrix`). In the tree node (i, j)
covers triggers j·2^i+1 … (j+1)·2^i and has one draw; after t triggers a sum carries the draws of
the nodes that the binary digits of t select. A trigger lies in at most H = ⌊log2 T⌋+1 released
nodes, one per height, so H nodes pay, not log2 T. One trigger (T = 1) is the one-pass algorithm.

Nothing is stored: draws are functions of their labels. Sums without records get noise too, since a
sum of exactly zero would reveal an empty cell.

*No draw covers two contents.* A node is first used at its last trigger, when its content is
complete; a coordinate of a factorisation likewise (`Process.first`). The nonce in force at that
trigger is in the label.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from ...errors import ParameterError
from .. import accounting
from ..accounting import normal
from ..accounting.calibration import inexact_draws, too_small, unfit_for_grid
from ..columns import F64, I64
from ..contract import Cost, Noise, Setting
from ..factorization import Factorization
from ..factorization.prefix_noise import STEPS, Process, factor_of
from ..keys import Keys
from ..ranges import Draws, laplace
from ..validate import at_least, positive
from .layout import SumLayout, split_gauss, split_pure

_TRIES = 64


@dataclass(frozen=True)
class SumNoise(ABC):
    """Noise of every sum over the triggers of a window, and its cost."""

    distribution: ClassVar[Literal["discrete_gaussian", "discrete_laplace"]] = "discrete_laplace"

    shape: SumLayout  # names the sums
    horizon: int  # T, triggers of a window
    bound: int  # most records of one unit in an epoch

    @abstractmethod
    def costs(self) -> tuple[Cost, ...]:
        """The loss at each level, including the δ of inexact draws; levels add up."""

    @abstractmethod
    def draw(self, noise: Noise, t: int) -> I64:
        """(sums,) noise of all sums after trigger t (1 ≤ t ≤ T), in whole records."""

    @abstractmethod
    def variance(self, t: int) -> F64:
        """(r+1,) variance of the noise of one sum of each level after trigger t."""

    @abstractmethod
    def draws(self) -> tuple[Draws, ...]:
        """Its draws at every level."""

    def digests(self) -> tuple[str, ...]:
        """Digest everything that was computed in floating point: nothing."""
        return ()


@dataclass(frozen=True)
class TreeNoise(SumNoise):
    """Keyed Laplace noise for every sum of a shape at every trigger.

    *Guarantee* (add/remove of one unit with at most ``bound`` records): the sums of all
    triggers are ε-differentially private with ε = Σ_l c_l·H·bound/scale_l, where c_l is the
    number of sums of level l that a record touches.
    """

    scales: tuple[Fraction, ...]  # (r+1,) scale of one draw at each level

    def __post_init__(self) -> None:
        at_least("horizon", self.horizon, 1)
        at_least("bound", self.bound, 1)
        if len(self.scales) != self.shape.levels:
            raise ParameterError("scales", len(self.scales), "needs one per level")
        for scale in self.scales:
            positive("scales", scale)

    @classmethod
    def calibrated(cls, shape: SumLayout, horizon: int, bound: int, epsilon: Fraction) -> TreeNoise:
        """The least noise of total loss ε: scale c_l·H·bound/σ_l."""
        height = accounting.tree_levels(horizon)
        scales = (
            shape.touched(level) * height * bound / share
            for level, share in enumerate(split_pure(shape, epsilon))
        )
        return cls(shape, horizon, bound, tuple(scales))

    def costs(self) -> tuple[Cost, ...]:
        nodes = accounting.tree_levels(self.horizon) * self.bound
        return tuple(
            Cost(epsilon=self.shape.touched(level) * nodes / scale)
            for level, scale in enumerate(self.scales)
        )

    def draw(self, noise: Noise, t: int) -> I64:
        names = [bytes([i]) + ((t >> i) - 1).to_bytes(8) for i in _digits(t)]
        ends = np.array([[t >> i << i] for i in _digits(t)], np.int64)
        return np.concatenate(
            [self._level(noise, level, names, ends) for level in range(self.shape.levels)]
        )

    def _level(self, noise: Noise, level: int, names: list[bytes], ends: I64) -> I64:
        nodes = Keys.of(bytes([level]) + name for name in names)
        index = np.arange(self.shape.size(level), dtype=np.int64)
        total: I64 = noise.laplace("sums", nodes, index, self.scales[level], ends).sum(axis=0)
        return total

    def variance(self, t: int) -> F64:
        return t.bit_count() * np.array([_laplace_variance(scale) for scale in self.scales])

    def draws(self) -> tuple[Draws, ...]:
        """Draws at every level; a sum carries a draw of each of H nodes."""
        nodes = accounting.tree_levels(self.horizon)
        return tuple(laplace("count", scale, 4 * nodes) for scale in self.scales)


@dataclass(frozen=True)
class MatrixNoise(SumNoise):
    """Keyed Gaussian noise, correlated over triggers by a matrix factorisation.

    *Guarantee* (add/remove of one unit): prefix sums A = BC of a sum are released as B(Cx + z),
    z discrete Gaussian. Per level ‖C(x - x')‖² ≤ c_l·bound²·max‖column of C‖², which
    `accounting.gaussian_cost` turns into a cost; levels add up.
    """

    processes: tuple[Process, ...]  # (r+1,) one per level
    epsilon: Fraction  # of the whole, which determines the δ of inexact draws
    distribution: ClassVar[Literal["discrete_gaussian"]] = "discrete_gaussian"

    @classmethod
    def calibrated(
        cls, shape: SumLayout, setting: Setting, bound: int, factorization: str
    ) -> MatrixNoise:
        """The least noise, shared by `split_gauss`, whose cost fits into (ε, δ)."""
        factor = factor_of(factorization, setting.horizon)
        draws = bound * factor.noises * sum(map(shape.touched, range(shape.levels)))
        inexact = inexact_draws(setting.epsilon, draws)
        if inexact >= setting.delta:
            raise ParameterError("delta", float(setting.delta), too_small(setting.delta, inexact))
        mu2 = accounting.gdp_mu(setting.epsilon, setting.delta) ** 2
        shares = split_gauss(shape)
        for _ in range(_TRIES):
            variances = (
                normal.round_up(_shift(shape, level, factor, bound) / (share * mu2), 40)
                for level, share in enumerate(shares)
            )
            processes = tuple(
                Process(f"sums/{level}", factor.name, setting.horizon, variance)
                for level, variance in enumerate(variances)
            )
            made = cls(shape, setting.horizon, bound, processes, setting.epsilon)
            if accounting.total(made.costs(), setting.delta)[0] <= setting.epsilon:
                return made
            mu2 *= Fraction(63, 64)
        raise unfit_for_grid(setting.epsilon)

    def costs(self) -> tuple[Cost, ...]:
        factor = self.processes[0].factor
        touched = [self._touched(level, factor) for level in range(self.shape.levels)]
        each = [
            accounting.gaussian_cost(
                _shift(self.shape, level, factor, self.bound), process.variance, touched[level]
            )
            for level, process in enumerate(self.processes)
        ]
        return (*each, Cost(delta=inexact_draws(self.epsilon, sum(touched))))

    def _touched(self, level: int, factor: Factorization) -> int:
        return self.shape.touched(level) * self.bound * factor.noises

    def draw(self, noise: Noise, t: int) -> I64:
        names = self.shape.names(np.arange(self.shape.sums))
        steps = []
        for level, process in enumerate(self.processes):
            rows = np.arange(self.shape.offsets[level], self.shape.offsets[level + 1])
            steps.append(process.at(noise, names.take(rows), t, np.zeros(len(rows), np.int64)))
        return (np.concatenate(steps) + STEPS // 2) // STEPS

    def variance(self, t: int) -> F64:
        none = np.zeros(1, np.int64)
        return np.array([float(one.variance_at(t, none)[0]) for one in self.processes])

    def draws(self) -> tuple[Draws, ...]:
        return tuple(one.draws("count") for one in self.processes)

    def digests(self) -> tuple[str, ...]:
        return tuple(one.factor.digest() for one in self.processes)


def _shift(shape: SumLayout, level: int, factor: Factorization, bound: int) -> Fraction:
    """Squared sensitivity of one level in squared steps of the noise grid."""
    return shape.touched(level) * bound**2 * factor.sensitivity2 * (1 << 2 * factor.bits)


def _digits(t: int) -> list[int]:
    return [height for height in range(t.bit_length()) if t >> height & 1]


@lru_cache(maxsize=256)
def _laplace_variance(scale: Fraction) -> float:
    """2a/(1-a)² with a = exp(-1/scale), the same double on every machine."""
    with localcontext(Context(prec=60)):
        a = (-Decimal(scale.denominator) / Decimal(scale.numerator)).exp()
        return float(2 * a / (1 - a) ** 2)
