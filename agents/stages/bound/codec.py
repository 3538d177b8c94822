"""Unit rows as bytes, many at a time, and the state keys of units."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....errors import EngineError
from ....mechanisms.columns import Units, writeable
from ....mechanisms.contract import Traits
from ....mechanisms.keys import Keys

_DAMAGED = "a unit's stored row is damaged: it was cut or lengthened"


class UnitCodec:
    """Unit rows as bytes: what is left of the bound, then (hash, used per lane) of each pair."""

    def __init__(self, traits: Traits) -> None:
        bound, self._lanes = traits.bound, traits.lanes
        self._left = np.dtype("<u2" if bound < 1 << 16 else "<u4" if bound < 1 << 32 else "<i8")
        # With one lane and no totals, the lane counts records, at most the bound. Other layouts
        # hold larger numbers: all records seen, or the round in which a unit was last counted.
        small = bound < 256 and traits.lanes == 1 and not traits.totals
        self._used = np.dtype("u1" if small else "<u2")
        self._step = 4 + traits.lanes * self._used.itemsize  # bytes of a pair
        self._blank = np.full(1, bound, self._left).view(np.uint8)

    @property
    def blank(self) -> bytes:
        """The row of a unit that has contributed nothing."""
        return self._blank.tobytes()

    def decode(self, rows: Keys) -> Units:
        """Read units from their stored rows, in order; an empty row stands for a new unit.

        Raises:
            EngineError: a row has a length that no unit's row has.
        """
        from . import unit_scan

        head, u = self._left.itemsize, len(rows)
        start = np.empty(u + 1, np.int64)
        if not unit_scan.counts(rows.offsets, head, self._step, len(self._blank), start):
            raise EngineError(_DAMAGED)
        left, pairs = np.empty(u, np.int64), int(start[-1])
        pair, used = np.empty(pairs, np.uint32), np.empty((pairs, self._lanes), np.uint16)
        unit_scan.decode(
            writeable(rows.data), rows.offsets, self._blank, head, self._used.itemsize,
            start, left, pair, used,
        )  # fmt: skip
        return Units(left, start, pair, used)

    def encode(self, units: Units) -> Keys:
        """Write the rows of all units, in order.

        Raises:
            EngineError: a count does not fit; truncating it would give its unit a second bound.
        """
        if int(units.used.max(initial=0)) > np.iinfo(self._used).max:
            raise EngineError("a unit's count does not fit into its stored row")
        from .unit_scan import encode

        u, head, width = len(units.left), self._left.itemsize, self._used.itemsize
        out = np.empty(u * head + len(units.pair) * self._step, np.uint8)
        ends = np.empty(u + 1, np.int64)
        encode(
            writeable(units.left), writeable(units.start), writeable(units.pair),
            writeable(units.used), head, width, out, ends,
        )  # fmt: skip
        return Keys(out, ends)


def distinct(digests: NDArray[np.uint8], prefix: bytes) -> tuple[Keys, NDArray[np.intp]]:
    """Find the distinct units of a slice.

    Args:
        digests: (n, 16) keyed digests.
        prefix: prefix of their state keys: pipeline and epoch.

    Returns:
        State keys of the u distinct digests, in arbitrary order, and (n,) the index of each digest
        among them.
    """
    from .unit_scan import distinct as numbered

    n = len(digests)
    words = writeable(digests).view(np.uint64).reshape(-1, 2)
    place, first = np.empty(n, np.int64), np.empty(n, np.int64)
    slots = np.zeros(1 << max(2 * n - 1, 1).bit_length(), np.int64)
    first = first[: numbered(words, slots, place, first)]
    rows = np.empty((len(first), len(prefix) + 16), np.uint8)
    rows[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    rows[:, len(prefix) :] = digests[first]
    return Keys.fixed(rows), place
