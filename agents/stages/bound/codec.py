"""Unit rows as bytes, many at a time, and the state keys of units."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ....errors import EngineError
from ....mechanisms.columns import Units
from ....mechanisms.contract import Mechanism


class UnitCodec:
    """Unit rows as bytes: the rest of the bound, then (hash, used per lane) of each pair."""

    def __init__(self, mechanism: Mechanism) -> None:
        bound = int(mechanism.init_units(1).left[0])
        self._fresh = mechanism.init_units
        self._left = np.dtype("<u2" if bound < 1 << 16 else "<u4" if bound < 1 << 32 else "<i8")
        # One lane without totals counts records, at most the bound. Others keep more beside it:
        # how many records were seen at all, or the round that a unit was last counted in.
        small = bound < 256 and mechanism.lanes == 1 and not mechanism.totals
        self._used = np.dtype("u1" if small else "<u2")
        self._pair = np.dtype([("pair", "<u4"), ("used", self._used, (mechanism.lanes,))])

    def decode(self, rows: Sequence[bytes | None]) -> Units:
        """Read units from their stored rows.

        Args:
            rows: in the order of the units; None stands for a new unit.

        Raises:
            EngineError: a row has a length that no unit's row has.
        """
        fresh = self._fresh(1)
        blank = self._row(fresh, 0)
        filled = [blank if row is None else row for row in rows]
        head, step = self._left.itemsize, self._pair.itemsize
        widths = np.fromiter(map(len, filled), np.int64, len(filled))
        if ((widths < head) | ((widths - head) % step != 0)).any():
            raise EngineError("a unit's stored row is damaged: it was cut or lengthened")
        ends = widths.cumsum()
        blob = np.frombuffer(b"".join(filled), np.uint8)
        heads = (ends - widths)[:, None] + np.arange(head)
        left = blob[heads].reshape(-1).view(self._left).astype(np.int64)
        body = np.ones(len(blob), bool)
        body[heads.reshape(-1)] = False
        pairs = np.ascontiguousarray(blob[body]).view(self._pair)
        start = np.concatenate([np.zeros(1, np.int64), ((widths - head) // step).cumsum()])
        return Units(left, start, pairs["pair"].copy(), pairs["used"].astype(np.uint16))

    def encode(self, units: Units) -> list[bytes]:
        """Write the rows of all units, in their order.

        Raises:
            EngineError: a count does not fit; cut off, it would give its unit a second bound.
        """
        if int(units.used.max(initial=0)) > np.iinfo(self._used).max:
            raise EngineError("a unit's count does not fit into its stored row")
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
        return _pieces(blob.tobytes(), begins.tolist())

    def _row(self, units: Units, row: int) -> bytes:
        return self.encode(units)[row]


def distinct(digests: NDArray[np.uint8], prefix: bytes) -> tuple[list[bytes], NDArray[np.intp]]:
    """Find the distinct units of a slice.

    Args:
        digests: (n, 16) keyed digests.
        prefix: of their state keys: pipeline and epoch.

    Returns:
        State keys of the u distinct digests, in order, and (n,) the place of each among them.
    """
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
    width = len(prefix) + 16
    rows = np.empty((int(place.max(initial=-1)) + 1, width), np.uint8)
    rows[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    rows[:, len(prefix) :] = digests[order[new]]
    return _pieces(rows.tobytes(), range(0, rows.size + 1, width)), place


def _pieces(blob: bytes, ends: Sequence[int]) -> list[bytes]:
    return [blob[a:b] for a, b in itertools.pairwise(ends)]
