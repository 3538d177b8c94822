"""The columns on which mechanisms work: slices, unit rows, partial sums, key rows, releases.

Everything is a `NamedTuple` of arrays, and counts and sums are exact 64-bit integers, so that any
order and any sharding give the same bytes.

Sizes in the comments: n events, u units, p (unit, key) pairs, k distinct keys, r rows,
c value columns, g shard-wide totals, m released keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import ContractError
from .keys import Keys, concat
from .sums import totals as summed

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

_FEW = 4  # lanes up to which a flag per key and lane is cheaper than sorting


class Batch(NamedTuple):
    """A slice of ONE micro-batch of ONE window at ONE bound shard, decoded, in log order."""

    keys: Keys  # (k,) distinct keys of the slice
    key: NDArray[np.intp]  # (n,) row of `keys`
    unit: NDArray[np.intp]  # (n,) row of `Units`; the shard loads those first
    value: I64  # (n, c) clipped, on the public grid; c = 0 for a count alone
    sign: NDArray[np.int8]  # (n,) +1, or -1 for a deletion
    status: NDArray[np.int32]  # (k,) public status as of trigger j-1-d; 0 = none
    window: int = 0  # ordinal of the window inside its epoch: one key in two windows is two pairs


class Units(NamedTuple):
    """State PER UNIT; one stored row per (pipeline, epoch, unit)."""

    left: I64  # (u,) what remains of the contribution bound
    start: I64  # (u+1,) CSR offsets into the pairs
    pair: NDArray[np.uint32]  # (p,) hash of (window, key); a collision overcharges, hence is safe
    used: NDArray[np.uint16]  # (p, lanes) records accepted, or live inserts


class Part(NamedTuple):
    """THE partial sum: linear, hence mergeable in any order."""

    key: Keys  # (r,)
    lane: NDArray[np.uint8]  # (r,)
    sums: I64  # (r, 1+c) records (or distinct units), then column sums
    totals: I64  # (g,) shard-wide counters, sent to every aggregate shard


class Rows(NamedTuple):
    """State PER KEY; one stored row per (pipeline, window, key)."""

    key: Keys  # (r,) distinct, canonical order
    state: NDArray[Any]  # (r,) structured, `Traits.row_dtype`
    due: NDArray[np.int32]  # (r,) next trigger to load it without data; 0 none, -1 every trigger


def joined(first: Rows, second: Rows) -> Rows:
    """Rows of ``first``, then those of ``second``."""
    return Rows(
        concat([first.key, second.key]),
        np.concatenate([first.state, second.state]),
        np.concatenate([first.due, second.due]),
    )


class Hop(NamedTuple):
    """Position of a window in a sequence of windows with carried rows."""

    ordinal: int = 1  # of the window in its epoch, from 1
    chain: int = 1  # number of consecutive windows up to this one whose rows were carried


FIRST = Hop()


class Closed(NamedTuple):
    """Everything a release may read; frozen by the barrier of trigger t.

    ``rows`` holds each key of ``part`` and each row that is due, freshly initialised where it
    was not stored. Both columns are in canonical key order. Where rows are carried
    (`Traits.carries`), ``rows`` holds all rows of the previous window in their final state.
    """

    rows: Rows
    part: Part  # merged parts of micro-batch t alone
    t: int  # trigger, 1..horizon
    renewals: tuple[int, ...] = ()  # triggers up to t, ascending, from which a new nonce holds
    hop: Hop = FIRST

    @property
    def renewed(self) -> int:
        """The trigger from which the present nonce holds."""
        return self.renewals[-1] if self.renewals else 1


class Counted(NamedTuple):
    """Released numbers of a window's records: arrived and accepted."""

    arrived: int  # at most `cap` of a unit in an epoch
    accepted: int  # of these
    arrived_variance: float
    accepted_variance: float
    cap: int


class Releases(NamedTuple):
    """Everything that becomes public at one trigger."""

    key: Keys  # (m,) public from now on
    value: I64  # (m, c'+2e) on the public output grid; last both ends of e outputs that have them
    variance: F64  # (m, c'+2e) of the noise, in squared grid units; 0 for ends; public
    status: NDArray[np.int32]  # (m,) what bound shards read back: first release, or round
    public: dict[str, I64]  # tree, threshold, clipping bound: once, in the manifest
    counted: Counted | None = None  # arrived and accepted records, where these are released


class Encoded(NamedTuple):
    """Records as keys of a mechanism; ``keep`` is False where a public rule drops one."""

    keys: Keys  # (k,) distinct
    key: NDArray[np.intp]  # (n,) row of keys; any valid row where dropped
    value: I64  # (n, c)
    keep: NDArray[np.bool_]  # (n,)


def empty_units(u: int, lanes: int, bound: int) -> Units:
    """Units with the full bound left and no pairs."""
    return Units(
        np.full(u, bound, np.int64),
        np.zeros(u + 1, np.int64),
        np.empty(0, np.uint32),
        np.empty((0, lanes), np.uint16),
    )


def empty_part(columns: int, totals: int = 0) -> Part:
    """The partial sum of no events."""
    return Part(
        Keys.of([]),
        np.empty(0, np.uint8),
        np.empty((0, 1 + columns), np.int64),
        np.zeros(totals, np.int64),
    )


def merge(parts: Sequence[Part]) -> Part:
    """Add partial sums exactly; rows are returned in canonical (key, lane) order.

    A sum that exceeds 64 bits is clamped once, at the end (`sums`). So merging parts piece by piece
    gives the same as merging them together, unless a piece alone is clamped.

    Raises:
        ContractError: no part was given, or their widths differ.
    """
    if not parts:
        raise ContractError("merge needs at least one part")
    if len({(p.sums.shape[1], len(p.totals)) for p in parts}) != 1:
        raise ContractError("parts of different mechanisms cannot be merged")
    totals: I64 = np.stack([p.totals for p in parts]).sum(axis=0, dtype=np.int64)
    keys, key = concat([p.key for p in parts]).unique()
    lane = np.concatenate([p.lane for p in parts])
    lanes = int(lane.max(initial=0)) + 1
    if lanes <= _FEW:
        codes, row = compact(key * lanes + lane, len(keys) * lanes)
    else:
        codes, row = np.unique(key * lanes + lane, return_inverse=True)
    sums = summed(row, np.concatenate([p.sums for p in parts]), len(codes))
    keys = keys if lanes == 1 else keys.take(codes // lanes)
    return Part(keys, (codes % lanes).astype(np.uint8), sums, totals)


def no_releases(outputs: int, public: dict[str, I64] | None = None) -> Releases:
    """An empty release: it has a manifest and no rows."""
    return Releases(
        Keys.of([]),
        np.empty((0, outputs), np.int64),
        np.empty((0, outputs)),
        np.empty(0, np.int32),
        public or {},
    )


def compact(index: NDArray[np.intp], size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The distinct values of ``index`` in order, and the position of each entry among them.

    Equal to `numpy.unique` with its inverse for numbers in [0, ``size``), but without a sort.

    >>> used, place = compact(np.array([4, 1, 4]), 6)
    >>> used.tolist(), place.tolist()
    ([1, 4], [1, 0, 1])
    """
    present = np.zeros(size, np.bool_)
    present[index] = True
    return np.flatnonzero(present), (present.cumsum() - 1)[index]


def writeable(column: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in a writeable array, so that each loop is compiled for one type."""
    whole = np.ascontiguousarray(column)
    return whole if whole.flags.writeable else whole.copy()
