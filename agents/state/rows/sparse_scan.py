"""Compiled loops over packed rows; `sparse` describes their format."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....compiled import compiled

Bytes = NDArray[np.uint8]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]

HEAD = 4  # bytes of the due trigger
_SEVEN, _LOW, _MORE = np.uint64(7), np.uint64(127), np.uint64(128)


@compiled
def _folded(value: np.int64) -> np.uint64:
    """Map 0, -1, 1, -2, … to 0, 1, 2, 3, …, so that small numbers of either sign are short."""
    return np.uint64((value << np.int64(1)) ^ (value >> np.int64(63)))


@compiled
def _width(word: np.uint64) -> int:
    size = 1
    while word >= _MORE:
        word >>= _SEVEN
        size += 1
    return size


@compiled
def sizes(numbers: I64, ends: I64) -> None:
    """Add up the bytes of packed rows into ``ends`` (n+1,)."""
    ends[0] = 0
    for n in range(len(numbers)):
        size, zeros = HEAD, 0
        for value in numbers[n]:
            if value == 0:
                zeros += 1
                continue
            if zeros > 0:
                size += 1 + _width(np.uint64(zeros))
                zeros = 0
            size += _width(_folded(value))
        ends[n + 1] = ends[n] + size


@compiled
def _put(out: Bytes, at: int, word: np.uint64) -> int:
    while word >= _MORE:
        out[at] = np.uint8((word & _LOW) | _MORE)
        word >>= _SEVEN
        at += 1
    out[at] = np.uint8(word)
    return at + 1


@compiled
def pack(due: I32, numbers: I64, ends: I64, out: Bytes) -> None:
    """Write rows; ``ends`` comes from `sizes`, and ``out`` has that many bytes."""
    for n in range(len(numbers)):
        at, zeros = ends[n], 0
        for place in range(HEAD):
            out[at + place] = np.uint8((due[n] >> np.int32(8 * place)) & np.int32(255))
        at += HEAD
        for value in numbers[n]:
            if value == 0:
                zeros += 1
                continue
            if zeros > 0:
                out[at] = 0
                at = _put(out, at + 1, np.uint64(zeros))
                zeros = 0
            at = _put(out, at, _folded(value))


@compiled
def _get(data: Bytes, at: int, end: int) -> tuple[np.uint64, int]:
    """Read a canonical non-zero varint; return it and its end, -1 if there is none."""
    word, shift = np.uint64(0), np.uint64(0)
    while at < end and shift < np.uint64(64):
        byte = np.uint64(data[at])
        at += 1
        word |= (byte & _LOW) << shift
        if byte < _MORE:
            fits = shift < np.uint64(63) or byte == np.uint64(1)
            return word, at if fits and byte != np.uint64(0) else -1
        shift += _SEVEN
    return word, -1


@compiled
def unpack(data: Bytes, ends: I64, due: I32, numbers: I64) -> int:
    """Read rows into ``due`` (n,) and zeroed ``numbers`` (n, w); the first damaged row, or n."""
    width = np.uint64(numbers.shape[1])
    for n in range(len(due)):
        at, end, place = ends[n], ends[n + 1], np.uint64(0)
        if end - at < HEAD:
            return n
        head = np.uint32(0)
        for byte in range(HEAD):
            head |= np.uint32(data[at + byte]) << np.uint32(8 * byte)
        due[n] = np.int32(head)
        at += HEAD
        while at < end:
            if data[at] == 0:
                zeros, at = _get(data, at + 1, end)
                if at < 0 or zeros >= width - place:
                    return n
                place += zeros
            word, at = _get(data, at, end)
            if at < 0 or place >= width:
                return n
            numbers[n, np.int64(place)] = np.int64(word >> np.uint64(1)) ^ -np.int64(
                word & np.uint64(1)
            )
            place += np.uint64(1)
    return len(due)
