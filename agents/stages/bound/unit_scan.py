"""Compiled loops over rows of units: find distinct digests, decode and encode rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....compiled import compiled

Bytes = NDArray[np.uint8]
I64 = NDArray[np.int64]
_HASH = 4  # bytes of a pair's hash


@compiled
def distinct(words: NDArray[np.uint64], slots: I64, place: I64, first: I64) -> int:
    """Number digests in order of first occurrence; return the number of distinct ones.

    Args:
        words: (n, 2) digests.
        slots: zeros; their number is a power of two, at least 2n.
        place: (n,) output, number of each digest.
        first: (n,) output, row of each number's first occurrence.
    """
    mask, count = np.uint64(len(slots) - 1), np.int64(0)
    for n in range(len(words)):
        head, tail = words[n, 0], words[n, 1]
        slot = (head ^ (tail >> np.uint64(7))) & mask  # keyed digests: any of their bits will do
        while True:
            number = slots[slot] - 1
            if number < 0:
                number = count
                first[count] = n
                count += 1
                slots[slot] = count
                break
            if words[first[number], 0] == head and words[first[number], 1] == tail:
                break
            slot = (slot + np.uint64(1)) & mask
        place[n] = number
    return int(count)


@compiled
def number_at(data: Bytes, start: np.int64, size: int) -> np.int64:
    """Read the number in ``size`` bytes from byte ``start`` on, lowest byte first."""
    word = np.uint64(0)
    for n in range(size):
        word |= np.uint64(data[start + n]) << np.uint64(8 * n)
    return np.int64(word)


@compiled
def put_number(data: Bytes, start: np.int64, size: int, number: np.int64) -> None:
    """Write the lowest ``size`` bytes of a number into a row, from byte ``start`` on."""
    word = np.uint64(number)
    for n in range(size):
        data[start + n] = np.uint8(word >> np.uint64(8 * n))


@compiled
def counts(ends: I64, head: int, step: int, blank: int, start: I64) -> bool:
    """Count the pairs of rows; False if a row has an impossible length.

    Args:
        ends: (u+1,) ends of the rows; an empty row stands for a new unit.
        head, step: bytes of a row before its pairs, and of a pair.
        blank: bytes of a new unit's row.
        start: (u+1,) output.
    """
    start[0] = 0
    for n in range(len(ends) - 1):
        size = ends[n + 1] - ends[n]
        size = blank if size == 0 else size
        if size < head or (size - head) % step:
            return False
        start[n + 1] = start[n] + (size - head) // step
    return True


@compiled
def decode(
    data: Bytes, ends: I64, blank: Bytes, head: int, width: int,
    start: I64, left: I64, pair: NDArray[np.uint32], used: NDArray[np.uint16],
) -> None:  # fmt: skip
    """Read rows.

    Args:
        blank: row of a new unit.
        head: bytes of what is left of the bound.
        width: bytes of a count.
        start: result of `counts`.
        left, pair, used: output.
    """
    for n in range(len(left)):
        fresh = ends[n + 1] == ends[n]
        source = blank if fresh else data
        at = np.int64(0) if fresh else ends[n]
        left[n] = number_at(source, at, head)
        at += head
        for p in range(start[n], start[n + 1]):
            pair[p] = np.uint32(number_at(source, at, _HASH))
            at += _HASH
            for lane in range(used.shape[1]):
                used[p, lane] = np.uint16(number_at(source, at, width))
                at += width


@compiled
def encode(
    left: I64, start: I64, pair: NDArray[np.uint32], used: NDArray[np.uint16],
    head: int, width: int, out: Bytes, ends: I64,
) -> None:  # fmt: skip
    """Write rows; arguments as for `decode`; ``out`` and ``ends`` are output."""
    at = np.int64(0)
    ends[0] = 0
    for n in range(len(left)):
        put_number(out, at, head, left[n])
        at += head
        for p in range(start[n], start[n + 1]):
            put_number(out, at, _HASH, np.int64(pair[p]))
            at += _HASH
            for lane in range(used.shape[1]):
                put_number(out, at, width, np.int64(used[p, lane]))
                at += width
        ends[n + 1] = at


@compiled
def _copied(data: Bytes, begin: np.int64, end: np.int64, out: Bytes, at: np.int64) -> np.int64:
    """Copy some bytes; return the offset after them."""
    for n in range(begin, end):
        out[at] = data[n]
        at += 1
    return at


@compiled
def split(
    data: Bytes, ends: I64, head: int, most: int, epoch: int, floor: int,
    purse: I64, mine: Bytes, mine_ends: I64, others: Bytes, others_ends: I64,
) -> bool:  # fmt: skip
    """Take rows with purses apart; False if a row has an impossible length.

    Args:
        data, ends: concatenated rows, and where they end; an empty row has a full purse.
        head: bytes of a purse.
        epoch: epoch of the wanted rows, modulo 2^32.
        floor: epoch below which epochs are left out, modulo 2^32; -1: none are.
        purse: output, what is left in each purse.
        mine, mine_ends: output, rows of that epoch.
        others, others_ends: output, other epochs with their heads.
    """
    a, b = np.int64(0), np.int64(0)
    mine_ends[0], others_ends[0] = 0, 0
    for n in range(len(purse)):
        at, end = ends[n], ends[n + 1]
        purse[n] = most
        if at < end:
            if end - at < head:
                return False
            purse[n] = number_at(data, at, head)
            at += head
        while at < end:
            if end - at < 8:
                return False
            stamp, size = number_at(data, at, 4), number_at(data, at + 4, 4)
            if end - at - 8 < size:
                return False
            if stamp == epoch:
                a = _copied(data, at + 8, at + 8 + size, mine, a)
            elif floor < 0 or (stamp - floor) & 0xFFFFFFFF < 0x80000000:
                b = _copied(data, at, at + 8 + size, others, b)
            at += 8 + size
        mine_ends[n + 1], others_ends[n + 1] = a, b
    return True


@compiled
def joined(
    purse: I64, head: int, epoch: int, blank: Bytes, mine: Bytes, mine_ends: I64,
    others: Bytes, others_ends: I64, out: Bytes, ends: I64,
) -> int:  # fmt: skip
    """Reassemble rows that `split` took apart; return their bytes.

    Args:
        purse, head, epoch, mine, mine_ends, others, others_ends: the same as for `split`.
        blank: row of that epoch that is left out.
        out, ends: output.
    """
    at = np.int64(0)
    ends[0] = 0
    for n in range(len(purse)):
        put_number(out, at, head, purse[n])
        at = _copied(others, others_ends[n], others_ends[n + 1], out, at + head)
        begin, end = mine_ends[n], mine_ends[n + 1]
        same = end - begin == len(blank)
        for m in range(len(blank)):
            same = same and mine[begin + m] == blank[m]
        if not same:
            put_number(out, at, 4, np.int64(epoch))
            put_number(out, at + 4, 4, end - begin)
            at = _copied(mine, begin, end, out, at + 8)
        ends[n + 1] = at
    return int(at)
