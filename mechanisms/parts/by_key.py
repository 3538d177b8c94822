"""Base of mechanisms by record key, whose keys are listed or found by their noisy count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import ContractError
from ..columns import I64, Batch, Closed
from ..contract import Cost, Guarantee, Mechanism, Noise, Spending
from ..factorization.prefix_noise import STEPS, Process
from ..keys import Keys
from .bounds.bounding import Bound
from .bounds.stated import stated_bound
from .thresholds.key_selection import first_crossing

MOST = 1 << 53
"""A count of at least this crosses any threshold with any noise."""


@dataclass(frozen=True, kw_only=True)
class ByKey(Mechanism):
    """Fields and steps of mechanisms by record key, with Gaussian noise.

    Attributes:
        horizon: triggers per window.
        bound: contribution bound of a unit over all keys and windows of an epoch.
        loss: cost per unit and epoch.
        threshold: least counts, in 1/STEPS records; empty for a public key list.
        public: the public key list, or None.
        spending: cost as a function of what a unit spends of its bound.
    """

    guarantee: ClassVar[Guarantee] = Guarantee("discrete_gaussian")

    horizon: int
    bound: Bound
    loss: Cost
    threshold: Sequence[int] = ()
    public: frozenset[bytes] | None = field(default=None, repr=False)
    spending: Spending | None = None

    def cost(self) -> Cost:
        return self.loss

    def key_threshold(self, t: int) -> Fraction | None:
        """The threshold of trigger t; None with a public key list."""
        return Fraction(self.threshold[t - 1], STEPS) if self.threshold else None

    def bounds(self, unit: str) -> dict[str, Any]:
        return stated_bound(self.bound, unit)

    @property
    def _due(self) -> Literal[0, -1]:
        """`Rows.due` of a key without records: every trigger loads it if it is listed."""
        return 0 if self.public is None else -1

    # Bound shard

    def _listed(self, keys: Keys) -> NDArray[np.bool_]:
        """(k,) whether a key's records may count; the others cost nothing."""
        if self.public is None:
            return np.ones(len(keys), np.bool_)
        return np.fromiter(map(self.public.__contains__, keys), np.bool_, len(keys))

    # Aggregate shard

    def _within(self, t: int) -> None:
        if not 1 <= t <= self.horizon:
            raise ContractError(f"trigger {t} is beyond the horizon")

    def _select(
        self,
        closed: Closed,
        state: NDArray[Any],
        due: NDArray[np.int32],
        count: Callable[[NDArray[np.intp]], I64],
        process: Process,
        noise: Noise,
        least: int = 1,
    ) -> None:
        """Test hidden keys now and at every later trigger, with the noise of those triggers.

        Writes the trigger at which a key becomes public into ``state["first"]``, and the trigger
        that needs its row again into ``due``; a listed key is public from the first trigger on.

        Args:
            count: the exact counts of some rows.
            process: noise of the count that is released.
            least: the gate; below it no noise makes a key public.
        """
        if self.public is not None:
            state["first"], due[:] = 1, -1
            return
        hidden = np.flatnonzero(state["first"] == 0)
        end = process.foreseen(closed.t)
        bar = np.asarray(self.threshold[closed.t - 1 : end], np.int64)
        for rows in process.chunks(hidden):
            exact = np.clip(count(rows), -MOST, MOST)
            ahead = process.ahead(noise, closed.rows.key.take(rows), closed.t)
            hit = first_crossing(exact * STEPS, ahead, bar)
            hit[hit < 0] = end + 1 - closed.t if end < self.horizon else -1  # tested again then
            hit[exact < least] = -1
            state["first"][rows[hit == 0]] = closed.t
            due[rows] = np.where(hit < 0, 0, np.where(hit == 0, -1, closed.t + hit))

    def _bar(self, place: int) -> dict[str, I64]:
        """The threshold at an index of ``threshold``, in whole records; {} with a public list."""
        if self.public is not None:
            return {}
        return {"threshold": np.array([-(-self.threshold[place] // STEPS)], np.int64)}


def of_keys(batch: Batch, countable: NDArray[np.bool_]) -> Batch:
    """The batch with all its keys, but only the records of countable ones."""
    kept = np.flatnonzero(countable[batch.key])
    return batch._replace(
        key=batch.key[kept], unit=batch.unit[kept], value=batch.value[kept], sign=batch.sign[kept]
    )
