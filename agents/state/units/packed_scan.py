"""Compiled loops over sorted rows of units: find, replace, merge, write and read blocks.

Rows are columns sorted by digest. A digest is two words: ``heads`` and ``tails`` (n,) are its first
and last eight bytes as big-endian numbers. ``starts`` (n+1,) give the offset in ``data`` where each
row begins. All rows of a range share the first ``bits`` bits of their heads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....compiled import compiled

Bytes = NDArray[np.uint8]
I64 = NDArray[np.int64]
Place = int | np.signedinteger[Any]
U32 = NDArray[np.uint32]
Words = NDArray[np.uint64]

_WORD = np.uint64(64)
_BYTE = np.uint64(8)


@compiled
def _copy(data: Bytes, begin: Place, out: Bytes, to: Place, size: Place) -> None:
    """Copy bytes. Places are unsigned, which saves a check for negative indices."""
    at, place = np.uint64(begin), np.uint64(to)
    for b in range(np.uint64(size)):
        out[place + b] = data[at + b]


@compiled
def _bucket(head: np.uint64, bits: np.uint64, log: np.uint64) -> np.int64:
    """Compute the bucket, of 2^log, from the bits after those that the whole range shares."""
    return np.int64((head << bits) >> (_WORD - log))


@compiled
def index(heads: Words, bits: int, log: int, out: U32) -> None:
    """Write the first row of each of 2^``log`` buckets, log >= 1, to ``out`` (2^log + 1,)."""
    at = np.int64(0)
    for bucket in range(len(out) - 1):
        while at < len(heads) and _bucket(heads[at], np.uint64(bits), np.uint64(log)) < bucket:
            at += 1
        out[bucket] = np.uint32(at)
    out[len(out) - 1] = np.uint32(len(heads))


@compiled
def find(
    heads: Words, tails: Words, firsts: U32, bits: int, log: int,
    asked: Words, asked_tails: Words, rows: I64, place: I64,
) -> None:  # fmt: skip
    """Find digests.

    Args:
        firsts: result of `index`.
        asked, asked_tails: (m,) digests.
        rows: indices of digests that lie in this range.
        place: (m,) output at ``rows``, place of each row, or -1 if there is none.
    """
    for n in range(len(rows)):
        row = rows[n]
        head, tail = asked[row], asked_tails[row]
        bucket = _bucket(head, np.uint64(bits), np.uint64(log))
        at, stop = np.int64(firsts[bucket]), np.int64(firsts[bucket + 1])
        while at < stop and heads[at] < head:
            at += 1
        while at < stop and heads[at] == head and tails[at] < tail:
            at += 1
        known = at < stop and heads[at] == head and tails[at] == tail
        place[row] = at if known else np.int64(-1)


@compiled
def sizes(starts: U32, rows: I64, place: I64, size: I64) -> None:
    """Write the bytes of rows that `find` found."""
    for n in range(len(rows)):
        at = place[rows[n]]
        if at >= 0:
            size[rows[n]] = np.int64(starts[at + 1]) - np.int64(starts[at])


@compiled
def gather(starts: U32, data: Bytes, rows: I64, place: I64, ends: I64, out: Bytes) -> None:
    """Copy rows that `find` found to the places given by ``ends`` (m+1,)."""
    for n in range(len(rows)):
        at = place[rows[n]]
        if at >= 0:
            begin = np.int64(starts[at])
            _copy(data, begin, out, ends[rows[n]], np.int64(starts[at + 1]) - begin)


@compiled
def replace(
    starts: U32, data: Bytes, rows: I64, place: I64, values: Bytes, ends: I64,
    done: NDArray[np.bool_],
) -> int:  # fmt: skip
    """Overwrite rows that keep their size; return their number.

    Args:
        values, ends: new rows of all digests given to `find`; none is empty.
        done: (m,) output at ``rows``, set if the row was written.
    """
    count = 0
    for n in range(len(rows)):
        row = rows[n]
        at, begin = place[row], ends[row]
        size = ends[row + 1] - begin
        if at < 0 or size == 0:
            continue
        to = np.int64(starts[at])
        if np.int64(starts[at + 1]) - to == size:
            _copy(values, begin, data, to, size)
            done[row] = True
            count += 1
    return count


@compiled
def measure(
    heads: Words, tails: Words, starts: U32, new: Words, new_tails: Words, ends: I64,
    spots: I64, same: NDArray[np.bool_],
) -> tuple[int, int]:  # fmt: skip
    """Compute the number and bytes of merged rows.

    Args:
        new, new_tails, ends: newer rows, also sorted; an empty row deletes.
        spots, same: (m,) output, place of each among the older rows, and whether it is there.
    """
    place, rows, size = np.int64(0), np.int64(len(heads)), np.int64(starts[len(heads)])
    for n in range(len(new)):
        head, tail = new[n], new_tails[n]
        while place < len(heads) and (
            heads[place] < head or (heads[place] == head and tails[place] < tail)
        ):
            place += 1
        spots[n] = place
        same[n] = place < len(heads) and heads[place] == head and tails[place] == tail
        if same[n]:
            rows -= 1
            size -= np.int64(starts[place + 1]) - np.int64(starts[place])
        if ends[n + 1] > ends[n]:
            rows += 1
            size += ends[n + 1] - ends[n]
    return int(rows), int(size)


@compiled
def merge(
    heads: Words, tails: Words, starts: U32, data: Bytes,
    new: Words, new_tails: Words, values: Bytes, ends: I64, spots: I64, same: NDArray[np.bool_],
    out: Words, out_tails: Words, out_starts: U32, out_data: Bytes,
) -> None:  # fmt: skip
    """Merge newer rows into older ones; arguments as for `measure`, ``out…`` are output."""
    source, row, byte = np.int64(0), np.int64(0), np.int64(0)
    for n in range(len(new) + 1):
        stop = spots[n] if n < len(new) else np.int64(len(heads))
        if stop > source:
            count, begin, end = stop - source, np.int64(starts[source]), np.int64(starts[stop])
            out[row : row + count] = heads[source:stop]
            out_tails[row : row + count] = tails[source:stop]
            for k in range(count):
                out_starts[row + k] = np.uint32(byte + np.int64(starts[source + k]) - begin)
            out_data[byte : byte + end - begin] = data[begin:end]
            row += count
            byte += end - begin
        if n == len(new):
            break
        source = stop + 1 if same[n] else stop
        size = ends[n + 1] - ends[n]
        if size > 0:
            out[row], out_tails[row], out_starts[row] = new[n], new_tails[n], np.uint32(byte)
            _copy(values, ends[n], out_data, byte, size)
            row += 1
            byte += size
    out_starts[row] = np.uint32(byte)


@compiled
def cut(starts: U32, most: int, large: int, begins: I64) -> int:
    """Cut rows into blocks of at most ``most`` rows and about ``large`` bytes; return their number.

    Args:
        begins: (n+1,) output, first row of each block, then n.
    """
    count, begin = 0, np.int64(0)
    begins[0] = 0
    for row in range(1, len(starts)):
        size = np.int64(starts[row]) - np.int64(starts[begin])
        if row == len(starts) - 1 or row - begin == most or size >= large:
            count += 1
            begins[count] = row
            begin = np.int64(row)
    return count


@compiled
def _plane(out: Bytes, at: np.int64, step: np.int64, width: int, word: np.uint64) -> None:
    """Write a number's bytes, highest first, each into its own plane."""
    for plane in range(width):
        shift = _BYTE * np.uint64(width - 1 - plane)
        out[at + step * plane] = np.uint8((word >> shift) & np.uint64(255))


@compiled
def _plain(data: Bytes, at: np.int64, step: np.int64, width: int) -> np.uint64:
    word = np.uint64(0)
    for plane in range(width):
        word = (word << _BYTE) | np.uint64(data[at + step * plane])
    return word


@compiled
def write(
    heads: Words, tails: Words, starts: U32, data: Bytes, begins: I64, out: Bytes, ends: I64
) -> None:
    """Write blocks.

    A block is the number of its rows (4 bytes); then, for each row, the difference of its head to
    the previous one (8), the tail (8) and the row's length (4), with each of these bytes in its own
    plane, so that bytes that are almost always 0 are contiguous; then the rows.

    Args:
        begins: result of `cut`.
        out: output of 4 bytes per block, 20 per row, and the rows' bytes.
        ends: (blocks + 1,) output.
    """
    at = np.int64(0)
    ends[0] = 0
    for block in range(len(begins) - 1):
        low, high = begins[block], begins[block + 1]
        rows, before = high - low, np.uint64(0)
        _plane(out, at, np.int64(1), 4, np.uint64(rows))
        at += 4
        for n in range(rows):
            _plane(out, at + n, rows, 8, heads[low + n] - before)
            before = heads[low + n]
            _plane(out, at + 8 * rows + n, rows, 8, tails[low + n])
            size = np.uint64(starts[low + n + 1]) - np.uint64(starts[low + n])
            _plane(out, at + 16 * rows + n, rows, 4, size)
        at += 20 * rows
        begin, end = np.int64(starts[low]), np.int64(starts[high])
        out[at : at + end - begin] = data[begin:end]
        at += end - begin
        ends[block + 1] = at


@compiled
def count(data: Bytes, ends: I64) -> tuple[int, int]:
    """Count the rows of blocks and their bytes; -1 if a block has an impossible length."""
    rows, size = np.int64(0), np.int64(0)
    for block in range(len(ends) - 1):
        at, end = ends[block], ends[block + 1]
        if end - at < 4:
            return -1, 0
        number = np.int64(_plain(data, at, np.int64(1), 4))
        at += 4
        if number * 20 > end - at:
            return -1, 0
        total = np.int64(0)
        for n in range(number):
            total += np.int64(_plain(data, at + 16 * number + n, number, 4))
        if at + 20 * number + total != end:
            return -1, 0
        rows += number
        size += total
    return int(rows), int(size)


@compiled
def read(data: Bytes, ends: I64, heads: Words, tails: Words, starts: U32, out: Bytes) -> bool:
    """Read blocks that `count` has accepted; False if their rows are not sorted.

    Args:
        heads, tails, starts, out: output.
    """
    row, byte, sorted_ = np.int64(0), np.int64(0), True
    for block in range(len(ends) - 1):
        at, before = ends[block] + 4, np.uint64(0)
        number = np.int64(_plain(data, ends[block], np.int64(1), 4))
        for n in range(number):
            before += _plain(data, at + n, number, 8)
            heads[row] = before
            tails[row] = _plain(data, at + 8 * number + n, number, 8)
            starts[row] = np.uint32(byte)
            size = np.int64(_plain(data, at + 16 * number + n, number, 4))
            byte += size
            if size == 0 or (row > 0 and not _above(heads, tails, row)):
                sorted_ = False
            row += 1
        at += 20 * number
        out[byte - (ends[block + 1] - at) : byte] = data[at : ends[block + 1]]
    starts[row] = np.uint32(byte)
    return sorted_


@compiled
def _above(heads: Words, tails: Words, row: np.int64) -> bool:
    head, before = heads[row], heads[row - 1]
    return bool(head > before or (head == before and tails[row] > tails[row - 1]))
