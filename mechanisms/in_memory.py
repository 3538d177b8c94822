"""Run a mechanism whose keys are its own over a workload in memory: one shard, whole columns.

The same functions as in production. The input must be public or synthetic wherever the output
decides a configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ContractError
from .columns import Batch, Closed, Part, Releases, Rows, Units, empty_part, merge
from .contract import Mechanism, Noise
from .keys import Keys
from .workload import Workload

_SLICE = 1 << 20


class SortedRows:
    """Rows of one aggregate shard in canonical order, with their due triggers."""

    def __init__(self, mechanism: Mechanism) -> None:
        self._mechanism = mechanism
        self._code = np.empty(0, np.uint64)
        self._cell = mechanism.init_rows(Keys.of([])).cell
        self._due = np.empty(0, np.int32)

    def load(self, part: Part, t: int) -> Rows:
        """Rows of the keys of ``part`` and of those that trigger ``t`` needs."""
        every = self._mechanism.load == "all"
        due = self._code[(self._due == t) | (self._due == -1)] if not every else self._code
        code = np.union1d(due, part.key.codes())
        rows = self._mechanism.init_rows(Keys.of_codes(code))
        place = np.searchsorted(self._code, code)
        known = np.zeros(len(code), np.bool_)
        inside = place < len(self._code)
        known[inside] = self._code[place[inside]] == code[inside]
        rows.cell[known], rows.due[known] = self._cell[place[known]], self._due[place[known]]
        return rows

    def store(self, rows: Rows) -> None:
        """Write back the rows that a release returned."""
        code = rows.key.codes()
        stays = ~np.isin(self._code, code)
        both = np.concatenate([self._code[stays], code])
        order = np.argsort(both, kind="stable")
        self._code = both[order]
        self._cell = np.concatenate([self._cell[stays], rows.cell])[order]
        self._due = np.concatenate([self._due[stays], rows.due])[order]


def releases(
    mechanism: Mechanism, work: Workload, noise: Noise, units: Units | None = None
) -> Iterator[Releases]:
    """Releases of one window, trigger by trigger.

    Args:
        mechanism: one whose keys are codes of its own, without feedback.
        work: its input columns.
        noise: for the window.
        units: state of all units of the workload; None: they have contributed nothing.

    Raises:
        ContractError: the workload has no columns for the mechanism, or the mechanism needs
            feedback.
    """
    if work.columns is None or mechanism.feedback:
        raise ContractError("the workload does not hold what this mechanism reads")
    units = mechanism.init_units(work.users) if units is None else units
    rows = SortedRows(mechanism)
    empty = empty_part(mechanism.columns, mechanism.totals)
    for t, batch in enumerate(work.micro_batches(mechanism.horizon), 1):
        parts = [empty]
        for begin in range(batch.start, batch.stop, _SLICE):
            units, part = _absorbed(
                mechanism, work, slice(begin, min(begin + _SLICE, batch.stop)), units
            )
            parts.append(part)
        part = merge(parts)
        changed, out = mechanism.release(Closed(rows.load(part, t), part, t), noise)
        rows.store(changed)
        yield out


def last_release(mechanism: Mechanism, work: Workload, noise: Noise) -> Releases:
    """The last release of a window, of a mechanism whose releases do not depend on earlier ones.

    Raises:
        ContractError: as for `releases`.
    """
    if work.columns is None or mechanism.feedback:
        raise ContractError("the workload does not hold what this mechanism reads")
    units, t = mechanism.init_units(work.users), mechanism.horizon
    part = merge([_absorbed(mechanism, work, slice(0, len(work.unit)), units)[1]])
    rows = SortedRows(mechanism).load(part, t)
    return mechanism.release(Closed(rows, part, t), noise)[1]


def _absorbed(
    mechanism: Mechanism, work: Workload, rows: slice, units: Units
) -> tuple[Units, Part]:
    given: Mapping[str, NDArray[Any]] = work.columns or {}
    encoded = mechanism.encode({name: column[rows] for name, column in given.items()})
    keep = np.flatnonzero(encoded.keep)
    used, key = np.unique(encoded.key[keep], return_inverse=True)
    batch = Batch(
        encoded.keys.take(used), key.astype(np.intp), work.unit[rows][keep].astype(np.intp),
        encoded.value[keep], work.signs(rows)[keep], np.zeros(len(used), np.int32), work.window,
    )  # fmt: skip
    return mechanism.absorb(units, batch)
