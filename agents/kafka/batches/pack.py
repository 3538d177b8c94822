"""A compiled writer of record batches, from columns of keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....compiled import compiled
from ....mechanisms.columns import writeable
from ....mechanisms.keys import Keys
from .header import SIZE
from .record_columns import RecordColumns

_OVERHEAD = 26  # bytes of a record beside key and value, at most

Bytes = NDArray[np.uint8]
I64 = NDArray[np.int64]
Place = int | np.signedinteger[Any]


@compiled
def _copy(data: Bytes, begin: Place, out: Bytes, to: Place, size: Place) -> None:
    """Copy bytes. Places are unsigned, which saves a check for negative indices."""
    at, place = np.uint64(begin), np.uint64(to)
    for b in range(np.uint64(size)):
        out[place + b] = data[at + b]


@compiled
def _width(number: int) -> int:
    """Bytes of a non-negative number as a zigzag varint."""
    width, rest = 1, number >> 6
    while rest > 0:
        width += 1
        rest >>= 7
    return width


@compiled
def _varint(out: Bytes, at: int, number: int) -> int:
    """Write a non-negative number as a zigzag varint; return the place after it."""
    rest = number << 1
    while rest >= 0x80:
        out[at] = np.uint8((rest & 0x7F) | 0x80)
        at += 1
        rest >>= 7
    out[at] = np.uint8(rest)
    return at + 1


@compiled
def _pack(
    keys: Bytes, key_ends: I64, values: Bytes, value_ends: I64, gone: NDArray[np.bool_],
    begun: int, out: Bytes, most: int,
) -> tuple[int, int]:  # fmt: skip
    """Write records with one timestamp and no headers after the header of a batch.

    Args:
        out: batch, with room for ``most`` bytes and for the first record.
        most: most bytes of a batch; only its first record may be larger.

    Returns:
        Index of the first record that did not fit, and the end of the batch.
    """
    at = SIZE
    for n in range(begun, len(gone)):
        key = key_ends[n + 1] - key_ends[n]
        value = value_ends[n + 1] - value_ends[n]
        size = 3 + _width(n - begun) + _width(key) + key  # attributes, time, no headers
        size += 1 if gone[n] else _width(value) + value
        if n > begun and at + _width(size) + size >= most:
            return n, at
        at = _varint(out, at, size)
        out[at] = 0
        out[at + 1] = 0
        at = _varint(out, at + 2, n - begun)
        at = _varint(out, at, key)
        _copy(keys, key_ends[n], out, at, key)
        at += key
        if gone[n]:
            out[at] = 1
            at += 1
        else:
            at = _varint(out, at, value)
            _copy(values, value_ends[n], out, at, value)
            at += value
        out[at] = 0
        at += 1
    return len(gone), at


def packed(rows: RecordColumns, begun: int, most: int) -> tuple[bytearray, int]:
    """Write a batch without its header; return it, and the index of the first record left out.

    Args:
        most: bytes of a batch; only its first record may be larger.
    """
    first = _size(rows.keys, begun) + _size(rows.values, begun)
    data = np.empty(max(most, SIZE + _OVERHEAD + first), np.uint8)
    end, size = _pack(
        writeable(rows.keys.data), rows.keys.offsets, writeable(rows.values.data),
        rows.values.offsets, rows.gone, begun, data, most,
    )  # fmt: skip
    return bytearray(data[:size].data), end


def _size(column: Keys, row: int) -> int:
    return int(column.offsets[row + 1] - column.offsets[row])
