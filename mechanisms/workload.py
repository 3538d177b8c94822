"""Public or synthetic records as numbered columns, for trying a mechanism's settings."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import ContractError
from .columns import F64, I64
from .contract import Output, Traits

Index = NDArray[np.int32]


class Summing(Protocol):
    """The members of a mechanism by key that exact figures need."""

    @property
    def summed(self) -> Sequence[Any]:
        """Value columns, each with a ``name``."""

    @property
    def traits(self) -> Traits:
        """Traits, which name the released columns."""


class Workload(NamedTuple):
    """Records of one window in log order; units and keys are numbered from 0."""

    unit: Index  # (n,)
    key: Index  # (n,)
    users: int
    keys: int
    value: I64 | None = None  # (n, c) value columns on their grids
    sign: NDArray[np.int8] | None = None  # (n,) -1 for a deletion; None: there are none
    ends: tuple[int, ...] | None = None  # records up to each trigger, which may be fewer than the
    # mechanism's (a shorter window of the calendar); None: equal parts
    window: int = 0  # position of the window in its epoch
    columns: Mapping[str, NDArray[Any]] | None = None  # (n,) each: a mechanism's own inputs
    item: Index | None = None  # (n,) number of the value, where distinct values are counted

    def micro_batches(self, horizon: int) -> Iterator[slice]:
        """Records of each trigger's micro-batch."""
        if self.ends is None:
            edges = np.linspace(0, len(self.unit), horizon + 1).astype(np.int64).tolist()
        else:
            edges = [0, *self.ends]
        return (slice(a, b) for a, b in itertools.pairwise(edges))

    def last(self, horizon: int) -> int:
        """The last trigger of the window, where the longest have ``horizon``."""
        return horizon if self.ends is None else len(self.ends)

    def signs(self, rows: slice) -> NDArray[np.int8]:
        """(m,) +1, or -1 for a deletion."""
        return np.ones(len(self.unit[rows]), np.int8) if self.sign is None else self.sign[rows]

    def truth(self) -> I64:
        """(keys,) the exact histogram."""
        return np.bincount(self.key, minlength=self.keys).astype(np.int64)

    def once(self) -> F64:
        """(n,) 1 for the first record of each unit in each key, and 0 for its others."""
        pair = self.unit.astype(np.int64) * self.keys + self.key
        weight = np.zeros(len(pair))
        weight[np.unique(pair, return_index=True)[1]] = 1
        return weight

    def sightings(self) -> F64:
        """(n,) 1 for the first record of each value in each key, and 0 for all others.

        Raises:
            ContractError: there are no values.
        """
        weight = np.zeros(len(self.key))
        weight[np.unique(self._pairs(), return_index=True)[1]] = 1
        return weight

    def shown(self) -> int:
        """Number of distinct triples of unit, key and value, the most that a bound could accept.

        Raises:
            ContractError: there are no values.
        """
        _, pair = np.unique(self._pairs(), return_inverse=True)
        return len(np.unique(self.unit.astype(np.int64) * (int(pair.max(initial=0)) + 1) + pair))

    def _pairs(self) -> I64:
        if self.item is None:
            raise ContractError("the workload has no values to count")
        return self.key.astype(np.int64) << 32 | self.item

    def exact(self, mechanism: Summing, rows: slice, counted: F64 | None = None) -> F64:
        """(keys, outputs) counts and sums, the first outputs, without bound and noise.

        Where only keys are released, the result is a count.

        Args:
            counted: (n,) what each record adds to a count, such as `once` for distinct units; None:
                +1, or -1 for a deletion.
        """
        weight = self.signs(rows).astype(np.float64)
        place = {f"sum:{column.name}": i for i, column in enumerate(mechanism.summed)}
        names = plainly(mechanism.traits.outputs) or ["count"]
        each = weight if counted is None else counted[rows]
        weights = [weight * self._column(place[n], rows) if n in place else each for n in names]
        return np.stack([np.bincount(self.key[rows], one, self.keys) for one in weights], axis=1)

    def _column(self, place: int, rows: slice) -> I64:
        if self.value is None:
            raise ContractError("the workload has no values to sum")
        column: I64 = self.value[rows, place]
        return column


def plainly(outputs: Sequence[Output]) -> list[str]:
    """Names of the outputs that are counts and sums; others are parts of other aggregates."""
    return [one.name for one in outputs if one.name.startswith(("count", "sum:"))]


class Sample(NamedTuple):
    """A workload to play, with facts about it."""

    epochs: tuple[tuple[Workload, ...], ...]
    units: int
    keys: int
    records: int
    notes: tuple[str, ...] = ()

    @property
    def windows(self) -> int:
        """Windows that are played."""
        return sum(map(len, self.epochs))
