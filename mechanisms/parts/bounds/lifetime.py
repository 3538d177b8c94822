"""Purses of units: what each has left over many epochs, in addition to the bound of each epoch.

`Cap.absorb` lets a mechanism absorb a slice with the unit's bound in the epoch lowered to what its
purse still holds, and takes out what was spent. The mechanism does not see the purse. The theorem
that gives the guarantee is in `accounting.lifetime`.

*Statement.* Whatever a unit sends, in any order, to any epochs of a period, and however the stream
is cut into slices: what it spends, plus the opening price of each epoch in which any of its records
is kept, is at most ``most``. *Proof.* A purse begins with ``most``, and a slice takes from it
exactly what it adds to that sum. It never takes more than the purse holds: ``allowed`` is at most
the purse less the price, a mechanism spends at most what a unit is given, and records of a unit
whose purse does not hold the price are removed before the mechanism sees them. ∎
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...columns import I64, Batch, Part, Units
from ...contract import Mechanism


class Absorbed(NamedTuple):
    """The outcome of `Cap.absorb` for a slice."""

    purse: I64  # (u,) rest of each unit's purse
    units: Units
    part: Part


@dataclass(frozen=True)
class Cap:
    """The cap of one pipeline."""

    most: int  # the most that a unit may spend in a period, in the unit of the mechanism's bound
    # price of an epoch in which a record of the unit is kept, even one that spends nothing of the
    # bound, such as those that debiasing counts
    opening: int = 0
    epochs: int | None = None  # of a period; None: a single period without end

    def period(self, epoch: int) -> int:
        """The period of an epoch.

        >>> Cap(9, epochs=7).period(-1), Cap(9, epochs=7).period(7), Cap(9).period(7)
        (-1, 1, 0)
        """
        return 0 if self.epochs is None else epoch // self.epochs

    def absorb(self, mechanism: Mechanism, purse: I64, units: Units, batch: Batch) -> Absorbed:
        """Let a mechanism absorb a slice of one epoch.

        Args:
            purse: (u,) rest of each unit's purse in the period.
            units: state of the same units in the epoch of the slice.
        """
        price = self.opening * _blank(mechanism, units)
        if self.opening:
            batch = _without(batch, price > purse)
        allowed = np.clip(purse - price, 0, units.left)
        after, part = mechanism.absorb(units._replace(left=allowed), batch)
        spent = allowed - after.left
        after = after._replace(left=units.left - spent)
        price[_blank(mechanism, after)] = 0
        return Absorbed(purse - spent - price, after, part)


def _blank(mechanism: Mechanism, units: Units) -> NDArray[np.bool_]:
    """(u,) whether nothing of a unit is kept in the epoch."""
    return np.asarray((units.left == mechanism.traits.bound) & (np.diff(units.start) == 0))


def _without(batch: Batch, poor: NDArray[np.bool_]) -> Batch:
    """The slice without the records of some units."""
    if not poor.any():
        return batch
    kept = np.flatnonzero(~poor[batch.unit])
    return batch._replace(
        key=batch.key[kept], unit=batch.unit[kept], value=batch.value[kept], sign=batch.sign[kept]
    )
