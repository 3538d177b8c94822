"""Values in event-time slots: the common part of the mechanisms over streams of values.

A record is a time and a value. Its slot depends on its own time alone, its value is clipped to
``[0, B]`` on a public integer grid, and its *bucket* is the first public threshold that is not
below the value. A partial sum holds, per (slot, bucket), the number of records and the sum of their
values. A threshold θ that is chosen later is one of the public thresholds, so the sum of
``min(value, θ)`` follows exactly: whole buckets are either below θ or worth θ a record.

Time runs in triggers; each closes ``per_trigger`` slots permanently. The first ``warmup`` triggers
close their slots together, at the last of them. A record that comes after its slot was closed
counts in the first open slot; an early record waits in a row for its slot. Both rules depend only
on the record's own slot and micro-batch, so adding or removing a record moves no other.

Every unit contributes at most ``bound`` records per epoch, the first in log order.

Values are non-negative, so every addition of them is clamped at `sums.LARGEST`, which no release
shows (rule 2 of `sums`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import ContractError, ParameterError
from ..columns import I64, Batch, Closed, Encoded, Part, Rows, Units
from ..keys import Keys, concat
from ..parts.bounds.points import insertions
from ..sums import plus, times, totals
from ..validate import at_least, positive

BUCKETS = 1 << 16
_SLOTS = 1 << 40
_STATE = 1 << 63  # codes from here on hold the mechanism's own state, two integers per row
_EXACT = 1 << 53
_DIRECT = 1 << 16  # below, a table of all values is faster than a search

ROW = np.dtype([("count", np.int64), ("sum", np.int64)])
"""A stored row: of an open (slot, bucket), or two integers of global state."""


class Entries(NamedTuple):
    """Exact sums of the (slot, bucket) pairs that a trigger closes."""

    slot: I64  # (e,) slot in the window; a late record's is the first one of the trigger
    bucket: I64  # (e,)
    records: I64  # (e,)
    sum: I64  # (e,)

    def where(self, rows: NDArray[np.bool_]) -> Entries:
        """Some of the entries."""
        return Entries(*(column[rows] for column in self))


@dataclass(frozen=True)
class Slots:
    """The public frame of a stream of values.

    Raises:
        ParameterError: a parameter is out of range.
    """

    thresholds: tuple[int, ...]  # increasing integers ≥ 0; the last one is B, the largest value
    horizon: int  # triggers per window
    warmup: int  # triggers at the start of a window that only choose a threshold
    per_trigger: int = 1  # slots that one trigger closes
    # origin, length: slot j of a window covers ``[origin + j·length, origin + (j+1)·length)``
    # modulo the length of a window, in the units of the time column
    origin: int = 0
    length: int = 1
    grid: Fraction = Fraction(1)  # size of one integer step of a value, in the record's own unit
    bound: int = 1  # records that a unit may contribute per epoch

    def __post_init__(self) -> None:
        at_least("warmup", self.warmup, 1)
        at_least("horizon", self.horizon, self.warmup + 1)
        at_least("per_trigger", self.per_trigger, 1)
        at_least("slot", self.length, 1)
        at_least("bound", self.bound, 1)
        positive("grid", self.grid)
        if self.horizon * self.per_trigger > _SLOTS:
            raise ParameterError("horizon", self.horizon, "makes too many slots")
        steps = np.diff(np.asarray(self.thresholds, np.int64))
        if not self.thresholds or self.thresholds[0] < 0 or bool((steps <= 0).any()):
            raise ParameterError("thresholds", self.thresholds, "must be increasing and ≥ 0")
        if not 1 <= self.top < 1 << 31 or len(self.thresholds) > BUCKETS:
            raise ParameterError("thresholds", self.top, "must be at most 2^31 - 1, 2^16 of them")

    @property
    def top(self) -> int:
        """B, the largest value on the integer grid."""
        return self.thresholds[-1]

    @property
    def slots(self) -> int:
        """Slots per window."""
        return self.horizon * self.per_trigger

    @property
    def warmup_slots(self) -> int:
        """Slots of the warm-up."""
        return self.warmup * self.per_trigger

    def range_of(self, t: int) -> tuple[int, int]:
        """First slot and end of the slots that trigger t closes; empty during the warm-up."""
        if t <= self.warmup:
            return 0, self.warmup_slots if t == self.warmup else 0
        return (t - 1) * self.per_trigger, t * self.per_trigger

    def begins(self, renewals: tuple[int, ...], width: int) -> tuple[int, ...]:
        """Blocks of ``width`` slots after the warm-up that were open when a nonce changed.

        From each of them on, noise is drawn anew; the first is block 0.

        >>> Slots((1,), horizon=9, warmup=2, per_trigger=2).begins((1, 3, 5, 6), 4)
        (0, 1)
        """
        slots = [(t - 1 - self.warmup) * self.per_trigger for t in renewals]
        return tuple(sorted({0, *(slot // width for slot in slots if slot > 0)}))

    def closing(self, slot: I64) -> I64:
        """(e,) the trigger that closes each slot."""
        return np.maximum(slot // self.per_trigger + 1, self.warmup)

    def encode(self, columns: Mapping[str, NDArray[Any]]) -> Encoded:
        """Columns ``time`` and ``value`` (n,) as (slot, bucket) keys and integer values.

        A time or value that is not finite is dropped; every other value is clipped.
        """
        time, raw = np.asarray(columns["time"]), np.asarray(columns["value"])
        keep = _finite(time) & _finite(raw)
        if not keep.all():
            time, raw = np.where(keep, time, 0), np.where(keep, raw, 0)
        slot = self._slot(time)
        value = self._integers(raw)
        bucket = _buckets(self.thresholds, value)
        codes, key = _distinct(slot, bucket, len(self.thresholds))
        return Encoded(Keys.of_codes(codes), key, value[:, None], keep)

    def _slot(self, time: NDArray[Any]) -> I64:
        if time.dtype.kind in "iu":
            exact: I64 = (time.astype(np.int64) - self.origin) // self.length
            return exact % self.slots
        steps = np.clip(np.floor((time - self.origin) / self.length), -_EXACT, _EXACT)
        return steps.astype(np.int64) % self.slots

    def _integers(self, raw: NDArray[Any]) -> I64:
        if self.grid == 1 and raw.dtype.kind in "iu":
            whole: I64 = np.clip(raw, 0, self.top).astype(np.int64)
            return whole
        step = float(self.grid)
        nearest = np.rint(np.clip(raw, 0.0, self.top * step) / step)
        clipped: I64 = np.clip(nearest, 0, self.top).astype(np.int64)
        return clipped

    def absorb(self, units: Units, batch: Batch) -> tuple[Units, Part]:
        """Accept what the bound allows, in log order; deletions are never accepted.

        Values are clipped to their bucket once more: the guarantee depends on that line alone.
        """
        units, accepted = insertions(units, batch)
        slot, bucket = split(batch.keys)
        self._check(slot, bucket)
        key = batch.key[accepted]
        low = np.concatenate([[0], np.asarray(self.thresholds)])[bucket]
        low += bucket > 0
        high = np.asarray(self.thresholds)[bucket]
        value = np.clip(batch.value[accepted, 0], low[key], high[key])
        sums = np.stack(_totals(key, value, len(batch.keys), self.top), axis=1)
        used = np.flatnonzero(sums[:, 0])
        lane = np.zeros(len(used), np.uint8)
        part = Part(batch.keys.take(used), lane, sums[used], np.zeros(0, np.int64))
        return units, part

    def _check(self, slot: I64, bucket: I64) -> None:
        if len(slot) and (slot.max() >= self.slots or bucket.max() >= len(self.thresholds)):
            raise ContractError("a key is not a slot and bucket of this stream")

    def close(self, closed: Closed) -> tuple[Rows, Entries, I64]:
        """The pairs that trigger t closes, those that stay open, and the mechanism's state.

        Returns:
            rows of all loaded slots, with closed ones emptied; the closed entries; and the integers
            last given to `with_state`, empty at first.
        """
        rows, t = closed.rows, closed.t
        codes = rows.key.codes()
        stored = rows.state.copy()
        at = np.searchsorted(codes, closed.part.key.codes())
        for place, name in enumerate(("count", "sum")):
            stored[name][at] = plus(stored[name][at], closed.part.sums[:, place])
        mine = int(np.searchsorted(codes, np.uint64(_STATE)))
        state = stored[mine:].copy().view(np.int64)
        key, stored = rows.key[:mine], stored[:mine]
        slot, bucket = split(key)
        ends = self.closing(slot)
        full = stored["count"] > 0
        now = np.flatnonzero(full & (ends <= t))
        first = self.range_of(t)[0]
        entries = Entries(
            np.maximum(slot[now], first), bucket[now], stored["count"][now], stored["sum"][now]
        )
        stored[now] = 0
        due = np.where(full & (ends > t), ends, 0).astype(np.int32)
        return Rows(key, stored, due), entries, state

    def clipped(self, entries: Entries, theta: int) -> I64:
        """(e,) exact sums of min(value, θ); θ must be one of the thresholds."""
        if theta not in self.thresholds:
            raise ContractError("the threshold is not on the public grid")
        below = np.asarray(self.thresholds)[entries.bucket] <= theta
        return np.where(below, entries.sum, times(entries.records, theta))

    def above(self, entries: Entries, theta: int) -> int:
        """Exact number of records above θ; θ must be one of the thresholds."""
        if theta not in self.thresholds:
            raise ContractError("the threshold is not on the public grid")
        return int(entries.records[np.asarray(self.thresholds)[entries.bucket] > theta].sum())

    def per_slot(self, entries: Entries, theta: int, t: int) -> I64:
        """(slots closed by t,) clipped sum of every slot, including empty ones."""
        first, end = self.range_of(t)
        return totals(entries.slot - first, self.clipped(entries, theta), end - first)

    def histogram(self, entries: Entries) -> I64:
        """(thresholds,) records per bucket."""
        return totals(entries.bucket, entries.records, len(self.thresholds))


def split(keys: Keys) -> tuple[I64, I64]:
    """Slots and buckets of (slot, bucket) keys."""
    codes = keys.codes().astype(np.int64)
    return codes // BUCKETS, codes % BUCKETS


def slot_keys(first: int, end: int) -> Keys:
    """Public keys of the slots first..end-1: eight bytes, big-endian."""
    return Keys.of_codes(np.arange(first, end, dtype=np.uint64))


def with_state(rows: Rows, state: I64) -> Rows:
    """``rows``, followed by rows that hold ``state`` and are loaded at every trigger."""
    padded = np.zeros(len(state) + len(state) % 2, np.int64)
    padded[: len(state)] = state
    stored = padded.view(ROW)
    codes = np.arange(len(stored), dtype=np.uint64) + np.uint64(_STATE)
    due = np.full(len(stored), -1, np.int32)
    return Rows(
        concat([rows.key, Keys.of_codes(codes)]),
        np.concatenate([rows.state, stored]),
        np.concatenate([rows.due, due]),
    )


def _buckets(thresholds: tuple[int, ...], value: I64) -> I64:
    if thresholds[-1] < _DIRECT:
        return _lookup(thresholds)[value]
    return np.searchsorted(np.asarray(thresholds), value)


@lru_cache(maxsize=64)
def _lookup(thresholds: tuple[int, ...]) -> I64:
    every = np.arange(thresholds[-1] + 1)
    table: I64 = np.searchsorted(np.asarray(thresholds), every).astype(np.int64)
    table.flags.writeable = False
    return table


def _finite(column: NDArray[Any]) -> NDArray[np.bool_]:
    if column.dtype.kind in "iu":
        return np.ones(len(column), np.bool_)
    finite: NDArray[np.bool_] = np.isfinite(column)
    return finite


def _distinct(slot: I64, bucket: I64, buckets: int) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
    """Distinct codes and the row of each record; by counting where the range is small."""
    first = int(slot.min()) if len(slot) else 0
    dense = (slot - first) * buckets + bucket
    span = int(dense.max(initial=0)) + 1
    if span > 4 * len(dense) + 1024:
        used, key = np.unique(dense, return_inverse=True)
    else:
        seen = np.zeros(span, np.bool_)
        seen[dense] = True
        used = np.flatnonzero(seen)
        place = np.cumsum(seen) - 1
        key = place[dense]
    codes = (used // buckets + first) * BUCKETS + used % buckets
    return codes.astype(np.uint64), key.astype(np.intp)


def _totals(key: NDArray[np.intp], value: I64, rows: int, top: int) -> tuple[I64, I64]:
    """Exact counts and sums per key; in doubles only where no sum can be inexact."""
    count = np.bincount(key, minlength=rows)
    if len(value) * top < _EXACT:
        total = np.bincount(key, weights=value, minlength=rows).astype(np.int64)
    else:
        total = np.zeros(rows, np.int64)
        np.add.at(total, key, value)
    return count.astype(np.int64), total
