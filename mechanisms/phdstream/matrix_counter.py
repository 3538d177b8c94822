"""A counter of spatial nodes with correlated Gaussian noise from a factorisation of prefix sums.

The output after n activations is the exact sum plus (Bz)_n, rounded, where A = BC are the prefix
sums over activations and z discrete Gaussians of the node (`factorization.prefix_noise`). It equals
B(Cx + z) rounded, which is post-processing of a Gaussian release. It needs a δ.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import ParameterError
from .. import accounting
from ..accounting.calibration import inexact_draws, too_small
from ..columns import F64, I64
from ..contract import Cost, Noise
from ..factorization import Factorization
from ..factorization.prefix_noise import STEPS, Process, factor_of
from ..keys import Keys
from ..ranges import GAUSS_TAIL, Draws
from ..spatial.domain import U64
from .node_counters import NODES, NodeCounter, Now, chained
from .tree import LARGEST_COUNT, States


@dataclass(frozen=True)
class MatrixCounter(NodeCounter):
    """Matrix counting at leaves.

    All events of a unit, wherever and whenever, move the processes of all nodes together by at
    most their number times the largest column norm of C, in Euclidean norm: m_v events in node v
    by m_v column norms, and Σ m_v² ≤ (Σ m_v)². The same holds with every chain of a node
    (`node_counters`) as a separate process. State: ``first`` is the exact sum of the open chain and
    ``second`` the output below it. A step costs n draws per node after n activations.
    """

    process: Process  # noise of every node, indexed by activations instead of triggers
    epsilon: Fraction  # for which it was calibrated
    name: ClassVar[str] = "matrix"
    distribution: ClassVar[Literal["discrete_gaussian", "discrete_laplace"]] = "discrete_gaussian"
    by_trigger: ClassVar[bool] = False

    @classmethod
    def calibrated(
        cls, factorization: str, horizon: int, events: int, epsilon: Fraction, delta: Fraction
    ) -> MatrixCounter:
        """The counter whose cost for ``events`` events fits into (ε, δ).

        Raises:
            ParameterError: the factorisation does not reach ``horizon`` activations, or ε or δ is
                out of range.
        """
        factor = factor_of(factorization, horizon)
        inexact = inexact_draws(epsilon, events * factor.noises)
        if inexact >= delta:
            raise ParameterError("delta", float(delta), too_small(delta, inexact))
        touched = events * factor.noises
        variance = accounting.gaussian_variance(
            epsilon, delta - inexact, _shift(factor, events), touched
        )
        return cls(Process("matrix", factor.name, horizon, variance), epsilon)

    def cost(self, events: int) -> Cost:
        """Loss of a unit with at most ``events`` events, including the δ of inexact draws."""
        factor = self.process.factor
        touched = events * factor.noises
        loss = accounting.gaussian_cost(_shift(factor, events), self.process.variance, touched)
        return loss._replace(delta=loss.delta + inexact_draws(self.epsilon, touched))

    def step(self, state: States, nodes: U64, change: I64, now: Now, noise: Noise) -> States:
        state = chained(state, now, self.variance(state["steps"]))
        state["steps"] += 1
        state["first"] += change
        drawn, start = np.empty(len(nodes), np.int64), state["start"].astype(np.int64)
        labels = np.stack([nodes, start.astype(np.uint64)], axis=1).astype(">u8")
        keys = Keys.fixed(labels.view(np.uint8).reshape(len(nodes), 16))
        for steps in np.unique(state["steps"]).tolist():
            rows = np.flatnonzero(state["steps"] == steps)
            since, first = np.zeros(len(rows), np.int64), start[rows, None]
            drawn[rows] = self.process.at(noise, keys.take(rows), steps, since, first)
        state["out"] = state["second"] + state["first"] + (drawn + STEPS // 2) // STEPS
        return state

    def variance(self, steps: NDArray[np.int32]) -> F64:
        """σ²‖B_n‖² after n activations of a chain, 0 after none."""
        table: F64 = _table(self.process)[np.asarray(steps, np.int64)]
        return table

    def draws(self, horizon: int) -> Draws:
        one, factor = self.process.draws("count"), self.process.factor
        widest = float(factor.row_norms.max()) / 2.0**factor.bits
        most = LARGEST_COUNT / (GAUSS_TAIL * (horizon + NODES) * widest)
        return one._replace(largest=min(one.largest, Fraction(most) ** 2))

    def digests(self) -> tuple[str, ...]:
        return (self.process.factor.digest(),)


def _shift(factor: Factorization, events: int) -> Fraction:
    shift: Fraction = factor.sensitivity2 * (events**2 * 4**factor.bits)
    return shift


@lru_cache(maxsize=8)
def _table(process: Process) -> F64:
    none = np.zeros(1, np.int64)
    steps = range(1, process.horizon + 1)
    return np.array([0.0, *(float(process.variance_at(n, none)[0]) for n in steps)])
