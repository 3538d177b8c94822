"""Compiled loops over keys: canonical text, and numbering by first appearance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...compiled import compiled
from .types import TEXT

Bytes = NDArray[np.uint8]
I64 = NDArray[np.int64]


@compiled
def lengths(
    kind: NDArray[np.uint8], low: I64, high: I64, fields: I64, known: NDArray[np.bool_], out: I64
) -> None:
    """Bytes of the canonical text of each known row's key; 0 for all others.

    Args:
        kind, low, high: (n, f) as `json_scan.scan` gives them.
        fields: (k,) numbers of the fields that make the key, in order.
        known: (n,) rows.
        out: (n,) output.
    """
    for row in range(len(known)):
        total = 0
        if known[row]:
            total = 2 + max(len(fields) - 1, 0)
            for field in fields:
                quotes = 2 if kind[row, field] == TEXT else 0
                total += high[row, field] - low[row, field] + quotes
        out[row] = total


@compiled
def texts(
    data: Bytes, kind: NDArray[np.uint8], low: I64, high: I64, fields: I64,
    known: NDArray[np.bool_], offsets: I64, out: Bytes,
) -> None:  # fmt: skip
    """Write the canonical text of each known row's key, a JSON list without blanks, into ``out``.

    ``offsets`` (n+1,) are the running sums of `lengths`; other arguments as there.
    """
    for row in range(len(known)):
        if not known[row]:
            continue
        at = offsets[row]
        out[at] = 0x5B
        at += 1
        for place in range(len(fields)):
            field = fields[place]
            if place:
                out[at] = 0x2C
                at += 1
            quoted = kind[row, field] == TEXT
            if quoted:
                out[at] = 0x22
                at += 1
            for n in range(low[row, field], high[row, field]):
                out[at] = data[n]
                at += 1
            if quoted:
                out[at] = 0x22
                at += 1
        out[at] = 0x5D


@compiled
def numbers(
    data: Bytes, offsets: I64, wanted: NDArray[np.bool_], seed: int, table: I64,
    first: I64, out: I64,
) -> int:  # fmt: skip
    """Number the distinct texts of wanted rows as they first appear; return how many there are.

    Args:
        data, offsets: the texts, one after the other, and where they begin.
        wanted: (n,) rows.
        seed: random number, so that no producer can choose texts that collide in the table.
        table: (2^b,) slots of -1, more than twice as many as rows.
        first: (n,) output, row of the first appearance of each number.
        out: (n,) output.
    """
    mask = len(table) - 1
    found = 0
    for row in range(len(wanted)):
        if not wanted[row]:
            continue
        begin, end = offsets[row], offsets[row + 1]
        state = np.uint64(seed)
        for n in range(begin, end):
            state = (state ^ np.uint64(data[n])) * np.uint64(0x9E3779B97F4A7C15)
            state ^= state >> np.uint64(29)
        place = np.int64(state >> np.uint64(20)) & mask
        while True:
            number = table[place]
            if number < 0:
                table[place] = found
                first[found] = row
                out[row] = found
                found += 1
                break
            other = first[number]
            same = offsets[other + 1] - offsets[other] == end - begin
            if same:
                for n in range(end - begin):
                    if data[offsets[other] + n] != data[begin + n]:
                        same = False
                        break
            if same:
                out[row] = number
                break
            place = (place + 1) & mask
    return found


def numbered(data: Bytes, offsets: I64, wanted: NDArray[np.bool_], seed: int) -> tuple[I64, I64]:
    """(k,) rows where distinct texts first appear, and (n,) number of each row, -1 if not wanted.

    Arguments as for `numbers`.
    """
    size = len(wanted)
    table = np.full(1 << max(int(size * 2.5).bit_length(), 4), -1, np.int64)
    first, out = np.empty(size, np.int64), np.full(size, -1, np.int64)
    return first[: numbers(data, offsets, wanted, seed, table, first, out)], out
