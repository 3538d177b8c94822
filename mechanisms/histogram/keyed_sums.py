"""Exact sums per key of accepted records, and released values from them, for all kinds of window.

A frozen dataclass of fields and steps that mechanisms share: which records may count, what a record
adds to its key, and how noisy sums become outputs. Each mechanism has its own rows, noise and
selection.

*Overflow.* Micro-batches arrive clamped, which is 1-Lipschitz (`sums`, rule 1). Totals are kept
modulo 2^64, noise is added modulo 2^64, and only then is the result read as a number, clamped to
±2^62: a function of the noisy total alone (rule 3). No line may read a total of values without its
noise, however large the total is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...errors import ContractError
from ..columns import F64, I64, Batch, Closed, Part, Rows, compact
from ..contract import Output
from ..factorization.prefix_noise import STEPS, Process
from ..keys import Keys, concat
from ..parts.by_key import ByKey
from ..parts.squares import Square
from ..sums import combined, held
from .debias import SHARED
from .quantities import Column, Quantity

_FINE = 1 << 54  # below, a number in 1/STEPS fits into 63 bits


@dataclass(frozen=True, kw_only=True)
class KeyedSums(ByKey):
    """Fields and steps that all histograms share.

    Attributes:
        quantities: count first (if there is one), then each value column.
        summed: the value columns; ``squares``: those of some of them.
        count: whether the count itself is released.
    """

    quantities: tuple[Quantity, ...]
    summed: tuple[Column, ...] = ()
    grids: tuple[Fraction, ...] = ()
    count: bool = True
    squares: tuple[Square, ...] = ()

    @property
    def _columns(self) -> int:
        return len(self.summed) + len(self.squares)

    @property
    def _outputs(self) -> tuple[Output, ...]:
        sums = zip(self.summed, self.grids, strict=True)
        named = tuple(Output(f"sum:{column.name}", grid) for column, grid in sums)
        centred = [(f"centred:{one.name}", self.grids[one.column]) for one in self.squares]
        squares = [
            (f"square:{one.name}", one.step * self.grids[one.column] ** 2) for one in self.squares
        ]
        moments = tuple(Output(name, grid) for name, grid in (*squares, *centred))
        return ((Output("count"),) if self.count else ()) + named + moments

    # Bound shard

    def _part(self, batch: Batch, lane: NDArray[np.intp], rows: NDArray[np.intp]) -> Part:
        # A key without accepted records was never paid for, so it must not leave a trace.
        used, key = compact(batch.key[rows], len(batch.keys))
        sums = np.zeros((len(used), 1 + self._columns), np.int64)
        sign = batch.sign[rows].astype(np.int64)
        np.add.at(sums[:, 0], key, sign)
        value = batch.value[rows]
        for place, column in enumerate(self.summed):
            np.add.at(sums[:, 1 + place], key, sign * column.moved(value, place))
        for place, square in enumerate(self.squares, 1 + len(self.summed)):
            column = self.summed[square.column]
            moved = square.of(column.moved(value, square.column))
            if column.counter is not None:  # q(0) is not 0, but records outside must add 0
                moved = moved * np.clip(value[:, column.counter], 0, 1)
            np.add.at(sums[:, place], key, sign * moved)
        totals = np.zeros(self.traits.totals, np.int64)
        return Part(batch.keys.take(used), lane[used].astype(np.uint8), sums, totals)

    # Aggregate shard

    def _finished(self, noisy: Sequence[tuple[I64, F64]]) -> tuple[I64, F64]:
        """Values and noise variances in the order of outputs, from noisy sums per quantity."""
        value = [one for one, _ in noisy]
        variance = [one for _, one in noisy]
        counted = int(self.quantities[0].column == 0)
        if self.squares:  # released around the middle, where they have less noise
            centred = [counted + one.column for one in self.squares]
            value += [value[place] for place in centred]
            variance += [variance[place] for place in centred]
        # Sums were taken around `middle`, where one record moves them less, so they need less
        # noise; the noisy count of their records moves them back. The middle of a count is 0.
        for place, column in enumerate(self.summed, counted):
            if column.middle:
                count = 0 if column.counter is None else counted + column.counter
                value[place] = combined(value[place], column.middle, value[count])
                variance[place] = variance[place] + column.middle**2 * variance[count]
        # A count that only serves the sums comes first and is not shown.
        shown = slice(len(value) - len(self._outputs), None)
        return held(np.stack(value[shown], axis=1)), np.stack(variance[shown], axis=1)

    @property
    def _names(self) -> list[str]:
        """Name of each column of the sums, the count's first."""
        return ["count", *(one.name for one in self.summed), *(one.name for one in self.squares)]


@dataclass(frozen=True, kw_only=True)
class FoundKeys(KeyedSums):
    """Histograms that find keys: a key becomes public at a trigger, for a round or for good.

    Attributes:
        min_units: a key with fewer distinct units stays hidden (1: no such rule).
        delay: d; a record of micro-batch j sees the statuses of keys as of trigger j-1-d.
    """

    if TYPE_CHECKING:

        @property
        def selector(self) -> Process:
            """Noise of the count that decides whether a key becomes public."""

    min_units: int = 1
    delay: int = 1


def rows_of(among: Keys, wanted: Keys) -> NDArray[np.intp]:
    """(len(wanted),) row of each wanted key in ``among``, whose keys are distinct.

    Raises:
        ContractError: a key is missing.
    """
    if wanted is among:
        return np.arange(len(among))
    distinct, row = concat([among, wanted]).unique()
    if len(distinct) != len(among):
        raise ContractError("a release lacks rows of keys that have data")
    place = np.empty(len(among), np.intp)
    place[row[: len(among)]] = np.arange(len(among))
    return place[row[len(among) :]]


def split_shared(closed: Closed, init: Callable[[Keys], Rows]) -> tuple[Closed, Rows]:
    """The other rows, and a copy of the shared row, which is created if it was never stored."""
    rows = closed.rows
    if not (len(rows.key) and rows.key[0] == b""):
        return closed, init(SHARED)._replace(due=np.full(1, -1, np.int32))
    rest = Rows(rows.key[1:], rows.state[1:], rows.due[1:])
    return closed._replace(rows=rest), Rows(SHARED, rows.state[:1].copy(), rows.due[:1])


def in_steps(exact: I64, noise: I64) -> I64 | F64:
    """``exact`` plus noise, in 1/STEPS; the nearest doubles where integers would overflow.

    ``exact`` is known modulo 2^64, so noise is added before the size is examined.
    """
    whole, rest = exact + noise // STEPS, noise % STEPS
    large = (whole <= -_FINE) | (whole >= _FINE)
    if not large.any():
        return whole * STEPS + rest
    out = np.where(large, 0, whole * STEPS + rest).astype(np.float64)
    pairs = zip(whole[large].tolist(), rest[large].tolist(), strict=True)
    out[large] = [float(one * STEPS + part) for one, part in pairs]
    return out
