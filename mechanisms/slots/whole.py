"""A whole window of a public or synthetic sample at once, instead of trigger by trigger.

Which records count, and in which slot, follows from the input alone: the bound accepts the first
insertions of a unit, in log order, and a late record counts in the first open slot. So all slots
can be closed together, with the same sums (rules: `slots`). Used for forecasts.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import ContractError
from ..columns import I64, Batch, empty_units
from ..parts.bounds.points import insertions
from ..sums import totals
from ..workload import Workload
from .slots import Entries, Slots, split

_KEPT = 128  # number of windows whose records are cached for the next candidate


class Arrived(NamedTuple):
    """Readable records of a window, in log order."""

    t: I64  # (n,) trigger of each record's micro-batch
    slot: I64  # (n,) its own slot
    bucket: I64  # (n,)
    value: I64  # (n,) in grid steps, clipped to the largest
    accepted: NDArray[np.bool_]  # (n,) whether the bound accepts it


class _Same:
    """A workload compared by identity, while it is cached: its columns are not compared."""

    def __init__(self, work: Workload) -> None:
        self.work = work

    def __hash__(self) -> int:
        return id(self.work)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.work is other.work


def arrived(slots: Slots, work: Workload) -> Arrived:
    """Read and bound a window's records; the same for all lengths of the warm-up.

    Raises:
        ContractError: the workload has no columns.
    """
    return _arrived(_Same(work), replace(slots, warmup=1))


@lru_cache(_KEPT)
def _arrived(of: _Same, slots: Slots) -> Arrived:
    work = of.work
    if work.columns is None:
        raise ContractError("the workload does not hold what this mechanism reads")
    encoded = slots.encode(work.columns)
    kept = np.flatnonzero(encoded.keep)
    unit, key = work.unit[kept].astype(np.intp), encoded.key[kept]
    sign = work.signs(slice(None))[kept]
    none = np.zeros(len(encoded.keys), np.int32)
    batch = Batch(encoded.keys, key, unit, encoded.value[kept], sign, none)
    accepted = insertions(empty_units(work.users, 1, slots.bound), batch)[1]
    slot, bucket = split(encoded.keys)
    ends = [rows.stop for rows in work.micro_batches(slots.horizon)]
    t = np.searchsorted(np.array(ends), kept, side="right") + 1
    accepted &= t <= slots.horizon
    return Arrived(t, slot[key], bucket[key], encoded.value[kept, 0], accepted)


def closed(slots: Slots, records: Arrived, ends: I64) -> Entries:
    """Accepted records of a window by the slots that count them, in increasing order of slots.

    Args:
        ends: (m,) increasing numbers of slots. Slots between two of them are summed in the last of
            these, which is enough for totals up to each number.
    """
    mine = records.accepted
    slot = np.maximum(records.slot[mine], _opened(slots, records)[mine])
    row = np.searchsorted(ends, slot, side="right")
    each = len(slots.thresholds)
    code = row * each + records.bucket[mine]
    size = (len(ends) + 1) * each
    count = np.bincount(code, minlength=size).astype(np.int64)
    sums = totals(code, records.value[mine], size)
    used = np.flatnonzero(count)
    last = np.append(ends, slots.slots) - 1
    return Entries(last[used // each], used % each, count[used], sums[used])


def _opened(slots: Slots, records: Arrived) -> I64:
    """(n,) the first slot of the trigger that counts each record."""
    t = np.maximum(records.t, slots.closing(records.slot))
    return np.where(t > slots.warmup, (t - 1) * slots.per_trigger, 0)
