"""Unit rows as bytes, many at a time, and the state keys of units.

Where loops can be compiled, `unit_scan` does the work; else NumPy gives the same answers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import EngineError
from ....formats.events.compiled import possible
from ....mechanisms.columns import Units
from ....mechanisms.contract import Mechanism
from ....mechanisms.keys import Keys, concat

_DAMAGED = "a unit's stored row is damaged: it was cut or lengthened"


class UnitCodec:
    """Unit rows as bytes: the rest of the bound, then (hash, used per lane) of each pair."""

    def __init__(self, mechanism: Mechanism) -> None:
        fresh = mechanism.init_units(1)
        bound, self._lanes = int(fresh.left[0]), mechanism.lanes
        self._left = np.dtype("<u2" if bound < 1 << 16 else "<u4" if bound < 1 << 32 else "<i8")
        # One lane without totals counts records, at most the bound. Others keep more beside it:
        # how many records were seen at all, or the round that a unit was last counted in.
        small = bound < 256 and mechanism.lanes == 1 and not mechanism.totals
        self._used = np.dtype("u1" if small else "<u2")
        self._pair = np.dtype([("pair", "<u4"), ("used", self._used, (mechanism.lanes,))])
        self._loops = _loops()
        self._blank = self._encoded(fresh)

    def decode(self, rows: Keys) -> Units:
        """Read units from their stored rows.

        Args:
            rows: in the order of the units; an empty one stands for a new unit.

        Raises:
            EngineError: a row has a length that no unit's row has.
        """
        if self._loops is None:
            return self._decoded(rows)
        head, step, u = self._left.itemsize, self._pair.itemsize, len(rows)
        start = np.empty(u + 1, np.int64)
        if not self._loops.counts(rows.offsets, head, step, len(self._blank.data), start):
            raise EngineError(_DAMAGED)
        left, pairs = np.empty(u, np.int64), int(start[-1])
        pair, used = np.empty(pairs, np.uint32), np.empty((pairs, self._lanes), np.uint16)
        self._loops.decode(
            _writeable(rows.data), rows.offsets, _writeable(self._blank.data), head,
            self._used.itemsize, start, left, pair, used,
        )  # fmt: skip
        return Units(left, start, pair, used)

    def encode(self, units: Units) -> Keys:
        """Write the rows of all units, in their order.

        Raises:
            EngineError: a count does not fit; cut off, it would give its unit a second bound.
        """
        if int(units.used.max(initial=0)) > np.iinfo(self._used).max:
            raise EngineError("a unit's count does not fit into its stored row")
        if self._loops is None:
            return self._encoded(units)
        u, width = len(units.left), self._used.itemsize
        out = np.empty(u * self._left.itemsize + len(units.pair) * self._pair.itemsize, np.uint8)
        ends = np.empty(u + 1, np.int64)
        self._loops.encode(
            *(_plain(column) for column in units), self._left.itemsize, width, out, ends
        )
        return Keys(out, ends)

    def _decoded(self, rows: Keys) -> Units:
        new = np.diff(rows.offsets) == 0
        if new.any():
            place = np.where(new, len(rows), np.arange(len(rows)))
            rows = concat([rows, self._blank]).take(place)
        head, step = self._left.itemsize, self._pair.itemsize
        blob, ends, widths = (
            rows.packed(),
            rows.offsets[1:] - rows.offsets[0],
            np.diff(rows.offsets),
        )
        if ((widths < head) | ((widths - head) % step != 0)).any():
            raise EngineError(_DAMAGED)
        heads = (ends - widths)[:, None] + np.arange(head)
        left = blob[heads].reshape(-1).view(self._left).astype(np.int64)
        body = np.ones(len(blob), bool)
        body[heads.reshape(-1)] = False
        pairs = np.ascontiguousarray(blob[body]).view(self._pair)
        start = np.concatenate([np.zeros(1, np.int64), ((widths - head) // step).cumsum()])
        return Units(left, start, pairs["pair"].copy(), pairs["used"].astype(np.uint16))

    def _encoded(self, units: Units) -> Keys:
        pairs = np.empty(len(units.pair), self._pair)
        pairs["pair"] = units.pair
        pairs["used"] = units.used
        head, step = self._left.itemsize, self._pair.itemsize
        begins = units.start * step + np.arange(len(units.start)) * head
        blob = np.empty(int(begins[-1]), np.uint8)
        body = np.ones(len(blob), bool)
        heads = begins[:-1, None] + np.arange(head)
        body[heads] = False
        blob[heads] = units.left.astype(self._left).view(np.uint8).reshape(-1, head)
        blob[body] = pairs.view(np.uint8)
        return Keys(blob, begins)


def distinct(digests: NDArray[np.uint8], prefix: bytes) -> tuple[Keys, NDArray[np.intp]]:
    """Find the distinct units of a slice.

    Args:
        digests: (n, 16) keyed digests.
        prefix: of their state keys: pipeline and epoch.

    Returns:
        State keys of the u distinct digests, in an order that means nothing, and (n,) the place of
        each digest among them.
    """
    loops = _loops()
    first, place = _sorted(digests) if loops is None else _numbered(digests, loops)
    rows = np.empty((len(first), len(prefix) + 16), np.uint8)
    rows[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    rows[:, len(prefix) :] = digests[first]
    return Keys.fixed(rows), place


def _numbered(digests: NDArray[np.uint8], loops: Any) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    n = len(digests)
    words = _writeable(np.ascontiguousarray(digests)).view(np.uint64).reshape(-1, 2)
    place, first = np.empty(n, np.int64), np.empty(n, np.int64)
    slots = np.zeros(1 << max(2 * n - 1, 1).bit_length(), np.int64)
    count = loops.distinct(words, slots, place, first)
    return first[:count], place


def _sorted(digests: NDArray[np.uint8]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    words = np.ascontiguousarray(digests).view(">u8").astype(np.uint64).reshape(-1, 2)
    order = np.argsort(words[:, 0])
    head, tail = words[order].T
    alike = head[1:] == head[:-1]
    if (alike & (tail[1:] != tail[:-1])).any():  # half a digest in common: not an accident
        order = np.lexsort((words[:, 1], words[:, 0]))
        head, tail = words[order].T
        alike = (head[1:] == head[:-1]) & (tail[1:] == tail[:-1])
    new = np.ones(len(order), bool)
    new[1:] = ~alike
    place = np.empty(len(order), np.intp)
    place[order] = new.cumsum() - 1
    return order[new], place


def _loops() -> Any:
    """The compiled loops; None where there are none."""
    if not possible():
        return None
    from . import unit_scan

    return unit_scan


def _plain(column: NDArray[Any]) -> NDArray[Any]:
    return _writeable(np.ascontiguousarray(column))


def _writeable(data: NDArray[Any]) -> NDArray[Any]:
    """The same bytes such that one compiled version of each loop serves all arrays."""
    return data if data.flags.writeable else data.copy()
