"""Sorted rows of units in memory and on disk, with twenty bytes of overhead each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ....errors import DamagedError
from ....mechanisms.columns import writeable
from ....mechanisms.keys import Keys
from ..layout import DIGEST
from ..rows.apart import apart
from ..rows.columns import RowColumns, taken

I64 = NDArray[np.int64]
Words = NDArray[np.uint64]

BLOCK = 512  # rows of a block on disk
BLOCK_BYTES = 1 << 16  # approximate bytes of a block's rows, if they are large
_PER_BUCKET = 8  # rows between two entries of the index of a range


@dataclass
class Digests:
    """Digests of m units: (m,) their first and last eight bytes, as big-endian numbers.

    ``order`` (m,) sorts them; ``matrix`` (m, 16) has the bytes from which they were read, if any.
    """

    heads: Words
    tails: Words
    matrix: NDArray[np.uint8] | None = None

    @classmethod
    def of(cls, keys: NDArray[np.uint8]) -> Digests:
        """Read digests, (m, 16) bytes."""
        words = np.ascontiguousarray(keys).view(">u8").astype(np.uint64)
        return cls(np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1]), keys)

    @cached_property
    def order(self) -> I64:
        """Indices that sort the digests."""
        order = np.argsort(self.heads)
        heads = self.heads[order]
        if bool((heads[1:] == heads[:-1]).any()):
            order = np.lexsort((self.tails, self.heads))
        return order

    def bytes(self) -> NDArray[np.uint8]:
        """The digests as (m, 16) bytes."""
        if self.matrix is not None:
            return self.matrix
        words = np.stack([self.heads, self.tails], axis=1).astype(">u8")
        return words.view(np.uint8).reshape(len(self.heads), DIGEST)

    def take(self, rows: NDArray[np.intp]) -> Digests:
        """Take some digests."""
        return Digests(self.heads[rows], self.tails[rows])


class NewRows:
    """Rows sorted by digest; an empty row deletes.

    Args:
        digests: digests of all rows, in any order.
        values: rows, in the same order.
    """

    def __init__(self, digests: Digests, values: Keys) -> None:
        order = digests.order
        self.digests = digests.take(order)
        values = taken(values, order)
        self.values, self.ends = values.data, values.offsets

    @classmethod
    def ordered(cls, digests: Digests, values: Keys) -> NewRows:
        """Make rows that are already sorted; their values may be overwritten."""
        made = cls.__new__(cls)
        made.digests, made.values, made.ends = digests, values.data, values.offsets
        return made

    def __len__(self) -> int:
        return len(self.digests.heads)

    def columns(self) -> RowColumns:
        """Their digests and rows."""
        return RowColumns(Keys.fixed(self.digests.bytes()), Keys(self.values, self.ends))

    def part(self, low: int, high: int) -> NewRows:
        """Take the rows from ``low`` to below ``high``."""
        digests = Digests(self.digests.heads[low:high], self.digests.tails[low:high])
        return NewRows.ordered(digests, Keys(self.values, self.ends[low : high + 1]))


class PackedRows:
    """Rows of units in a range of digests; changing a row's size needs a new object.

    Args:
        bits: number of first bits that all digests of the range share.
        digests: (n,) sorted digests.
        starts: (n+1,) uint32 offsets where each row begins.
        data: concatenated rows.
    """

    def __init__(
        self, bits: int, digests: Digests, starts: NDArray[np.uint32], data: NDArray[np.uint8]
    ) -> None:
        from . import packed_scan

        self._loops, self._bits = packed_scan, bits
        self.digests, self.starts, self.data = digests, starts, data
        self._log = max((len(digests.heads) // _PER_BUCKET).bit_length(), 1)
        self._firsts = np.empty((1 << self._log) + 1, np.uint32)
        packed_scan.index(digests.heads, bits, self._log, self._firsts)

    @classmethod
    def none(cls, bits: int = 0) -> PackedRows:
        """Make a range without rows."""
        digests = Digests(np.zeros(0, np.uint64), np.zeros(0, np.uint64))
        return cls(bits, digests, np.zeros(1, np.uint32), np.zeros(0, np.uint8))

    def __len__(self) -> int:
        return len(self.digests.heads)

    @property
    def memory(self) -> int:
        """Bytes of memory in use."""
        return 16 * len(self) + self.starts.nbytes + self.data.nbytes + self._firsts.nbytes

    def find(self, asked: Digests, rows: I64, place: I64, size: I64) -> None:
        """Find the asked digests at ``rows``; write place and bytes of those that are here."""
        self._find(asked, rows, place)
        self._loops.sizes(self.starts, rows, place, size)

    def gather(self, rows: I64, place: I64, ends: I64, out: NDArray[np.uint8]) -> None:
        """Copy the found ones of ``rows`` to the places given by ``ends``."""
        self._loops.gather(self.starts, self.data, rows, place, ends, out)

    def replace(self, asked: Digests, rows: I64, values: Keys, done: NDArray[np.bool_]) -> bool:
        """Overwrite rows that keep their size, and mark them in ``done``; False if none does."""
        place = np.empty(len(asked.heads), np.int64)
        self._find(asked, rows, place)
        data = writeable(values.data)
        ends = values.offsets
        return bool(self._loops.replace(self.starts, self.data, rows, place, data, ends, done) > 0)

    def _find(self, asked: Digests, rows: I64, place: I64) -> None:
        mine = self.digests
        self._loops.find(
            mine.heads, mine.tails, self._firsts, self._bits, self._log,
            asked.heads, asked.tails, rows, place,
        )  # fmt: skip

    def merged(self, new: NewRows) -> PackedRows:
        """Merge newer rows into these."""
        old, add = self.digests, new.digests
        at, same = np.empty(len(new), np.int64), np.empty(len(new), np.bool_)
        ends = np.ascontiguousarray(new.ends)
        heads, tails = np.ascontiguousarray(add.heads), np.ascontiguousarray(add.tails)
        n, size = self._loops.measure(
            old.heads, old.tails, self.starts, heads, tails, ends, at, same
        )
        out = Digests(apart(n, np.uint64), apart(n, np.uint64))
        starts, data = apart(n + 1, np.uint32), apart(size, np.uint8)
        self._loops.merge(
            old.heads, old.tails, self.starts, self.data, heads, tails, new.values, ends,
            at, same, out.heads, out.tails, starts, data,
        )  # fmt: skip
        return PackedRows(self._bits, out, starts, data)

    def halves(self) -> tuple[PackedRows, PackedRows]:
        """Split, without a copy, by the next bit of the digest: 0, then 1."""
        next_bit = np.uint64(63 - self._bits)
        middle = int(np.count_nonzero((self.digests.heads >> next_bit) & np.uint64(1) == 0))
        return self._part(0, middle), self._part(middle, len(self))

    def _part(self, low: int, high: int) -> PackedRows:
        digests = Digests(self.digests.heads[low:high], self.digests.tails[low:high])
        begin, end = int(self.starts[low]), int(self.starts[high])
        starts = apart(high - low + 1, np.uint32)
        np.subtract(self.starts[low : high + 1], np.uint32(begin), out=starts)
        return PackedRows(self._bits + 1, digests, starts, self.data[begin:end])

    def listed(self, low: int, high: int) -> RowColumns:
        """Digests and rows from ``low`` to below ``high``, in order."""
        digests = Digests(self.digests.heads[low:high], self.digests.tails[low:high])
        starts = self.starts[low : high + 1].astype(np.int64)
        data = self.data[starts[0] : starts[-1]]
        return RowColumns(Keys.fixed(digests.bytes()), Keys(data, starts - starts[0]))

    def blocks(self) -> tuple[list[bytes], Words]:
        """Make blocks for the disk; return them, and the first head of each."""
        begins = np.empty(len(self) + 1, np.int64)
        number = self._loops.cut(self.starts, BLOCK, BLOCK_BYTES, begins)
        begins, ends = begins[: number + 1], np.empty(number + 1, np.int64)
        out = np.empty(4 * number + 20 * len(self) + len(self.data), np.uint8)
        mine = self.digests
        self._loops.write(mine.heads, mine.tails, self.starts, self.data, begins, out, ends)
        return Keys(out, ends).tolist(), mine.heads[begins[:-1]]


def read_blocks(blocks: Sequence[bytes], bits: int) -> PackedRows:
    """Read the rows of blocks, given in order.

    Raises:
        DamagedError: a block does not come from `PackedRows.blocks`.
    """
    from . import packed_scan

    column = Keys.of(blocks)
    data = writeable(column.data)
    n, size = packed_scan.count(data, column.offsets)
    if n < 0:
        raise DamagedError("a block of units is damaged: it was cut or lengthened")
    digests = Digests(apart(n, np.uint64), apart(n, np.uint64))
    starts, out = apart(n + 1, np.uint32), apart(size, np.uint8)
    if not packed_scan.read(data, column.offsets, digests.heads, digests.tails, starts, out):
        raise DamagedError("a block of units is damaged: its rows are not in order")
    return PackedRows(bits, digests, starts, out)
