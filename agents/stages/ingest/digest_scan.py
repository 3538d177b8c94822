"""Compiled loops over the texts of units: keyed digests, and Kafka's partitioners."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....compiled import compiled

Bytes = NDArray[np.uint8]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Flags = NDArray[np.bool_]

_BLOCK = 128
_IV = np.array(
    [0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
     0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179],
    np.uint64,
)  # fmt: skip
_ORDER = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    ],
    np.int64,
)
_TEXT = 5  # words of a remembered unit's text, out of 8 words of its entry
_MURMUR = np.uint32(0x5BD1E995)
_POLYNOMIAL = 0xEDB88320


@compiled
def _turn(word: np.uint64, by: int) -> np.uint64:
    return (word >> np.uint64(by)) | (word << np.uint64(64 - by))


@compiled
def _mix(
    a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64, x: np.uint64, y: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    a = a + b + x
    d = _turn(d ^ a, 32)
    c = c + d
    b = _turn(b ^ c, 24)
    a = a + b + y
    d = _turn(d ^ a, 16)
    c = c + d
    b = _turn(b ^ c, 63)
    return a, b, c, d


@compiled
def _compress(h: NDArray[np.uint64], m: NDArray[np.uint64], total: int, last: bool) -> None:
    """Compress one block of BLAKE2b (RFC 7693, section 3.2); local names are faster than a list."""
    v0, v1, v2, v3, v4, v5, v6, v7 = h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]
    v8, v9, v10, v11, v12, v13, v14, v15 = (
        _IV[0], _IV[1], _IV[2], _IV[3], _IV[4], _IV[5], _IV[6], _IV[7]
    )  # fmt: skip
    v12 ^= np.uint64(total)
    if last:
        v14 = ~v14
    for turn in range(12):
        s = _ORDER[turn % 10]
        v0, v4, v8, v12 = _mix(v0, v4, v8, v12, m[s[0]], m[s[1]])
        v1, v5, v9, v13 = _mix(v1, v5, v9, v13, m[s[2]], m[s[3]])
        v2, v6, v10, v14 = _mix(v2, v6, v10, v14, m[s[4]], m[s[5]])
        v3, v7, v11, v15 = _mix(v3, v7, v11, v15, m[s[6]], m[s[7]])
        v0, v5, v10, v15 = _mix(v0, v5, v10, v15, m[s[8]], m[s[9]])
        v1, v6, v11, v12 = _mix(v1, v6, v11, v12, m[s[10]], m[s[11]])
        v2, v7, v8, v13 = _mix(v2, v7, v8, v13, m[s[12]], m[s[13]])
        v3, v4, v9, v14 = _mix(v3, v4, v9, v14, m[s[14]], m[s[15]])
    h[0] ^= v0 ^ v8
    h[1] ^= v1 ^ v9
    h[2] ^= v2 ^ v10
    h[3] ^= v3 ^ v11
    h[4] ^= v4 ^ v12
    h[5] ^= v5 ^ v13
    h[6] ^= v6 ^ v14
    h[7] ^= v7 ^ v15


@compiled
def keyed(key: Bytes) -> NDArray[np.uint64]:
    """State of BLAKE2b, for digests of 16 bytes, after the block of a 32-byte key."""
    h = _IV.copy()
    h[0] ^= np.uint64(0x01010000 | (len(key) << 8) | 16)
    block = np.zeros(_BLOCK, np.uint8)
    block[: len(key)] = key
    _compress(h, block.view(np.uint64), _BLOCK, False)
    return h


@compiled
def digests(
    data: Bytes, low: I64, high: I64, kind: Bytes, wanted: NDArray[np.bool_],
    begun: NDArray[np.uint64], out: NDArray[np.uint64],
) -> None:  # fmt: skip
    """Digest the encoded units of wanted rows, as `unit_digests.encode_unit` writes them.

    Args:
        data, low, high: buffer, and bounds of each unit's text.
        kind: (n,) 0 for a text, 1 for the text of an integer, 2 for an encoded unit.
        wanted: (n,) mask of rows to digest.
        begun: result of `keyed`.
        out: (n, 2) output, 16 bytes for each row.
    """
    room = np.empty(_BLOCK, np.uint8)
    words = room.view(np.uint64)
    h = np.empty(8, np.uint64)
    digits = np.empty(20, np.uint8)
    for row in range(len(low)):
        if not wanted[row]:
            continue
        size = high[row] - low[row]
        count, rest, head = 0, size, 0
        if kind[row] < 2:
            while rest > 0 or count == 0:
                digits[count] = 0x30 + rest % 10
                rest //= 10
                count += 1
            head = count + 2
        h[:] = begun
        total = head + size
        done = 0
        while True:
            block = min(total - done, _BLOCK)
            for n in range(block):
                at = done + n
                if at >= head:
                    room[n] = data[low[row] + at - head]
                elif at < count:
                    room[n] = digits[count - 1 - at]
                elif at == count:
                    room[n] = 0x3A
                else:
                    room[n] = 0x69 if kind[row] else 0x73
            room[block:] = 0
            done += block
            _compress(h, words, _BLOCK + done, done == total)
            if done == total:
                break
        out[row, 0], out[row, 1] = h[0], h[1]


@compiled
def _place(
    data: Bytes, low: int, high: int, kind: int, seed: int, slots: int, text: U64
) -> np.int64:
    """Compute the slot of a unit; write its length, kind and text, as words, to ``text``."""
    text[:] = 0
    text[0] = np.uint64(((high - low) << 2 | kind) + 1)
    for n in range(high - low):
        text[1 + (n >> 3)] |= np.uint64(data[low + n]) << np.uint64(8 * (n & 7))
    state = np.uint64(seed)
    for word in text:
        state = (state ^ word) * np.uint64(0x9E3779B97F4A7C15)
        state ^= state >> np.uint64(29)
    return np.int64((state >> np.uint64(20)) & np.uint64(slots - 1))


@compiled
def _holds(known: U64, place: np.int64, text: U64) -> bool:
    same = (known[place, 0] >> np.uint64(1)) == text[0]
    for word in range(1, _TEXT + 1):
        same &= known[place, word] == text[word]
    return bool(same)


@compiled
def recall(
    data: Bytes, low: I64, high: I64, kind: Bytes, wanted: Flags, seed: int, known: U64,
    out: U64, stray: Flags, missed: Flags,
) -> int:  # fmt: skip
    """Look up the digests of recently seen units; return how many were not found.

    Args:
        data, low, high, kind, wanted: the same as for `digests`.
        seed: random number, so that crafted units cannot evict each other.
        known: (2^b, 8) cache: zeros, and entries that `remember` has written.
        out: (n, 2) output, 16 bytes for each unit found.
        stray: (n,) output, whether a found unit belongs to another partition.
        missed: (n,) output, mask of wanted rows that were not found.
    """
    text, count = np.empty(_TEXT + 1, np.uint64), 0
    for row in range(len(low)):
        missed[row] = wanted[row]
        if not wanted[row]:
            continue
        count += 1
        if high[row] - low[row] > 8 * _TEXT:
            continue
        place = _place(data, low[row], high[row], kind[row], seed, len(known), text)
        for way in (place, place ^ 1):
            if _holds(known, way, text):
                out[row, 0], out[row, 1] = known[way, 6], known[way, 7]
                stray[row] = known[way, 0] & np.uint64(1) == np.uint64(1)
                missed[row] = False
                count -= 1
                break
    return count


@compiled
def remember(
    data: Bytes, low: I64, high: I64, kind: Bytes, missed: Flags, seed: int, known: U64,
    found: U64, stray: Flags,
) -> None:  # fmt: skip
    """Store the digests of missed rows, replacing older ones; arguments as for `recall`."""
    text = np.empty(_TEXT + 1, np.uint64)
    for row in range(len(low)):
        if not missed[row] or high[row] - low[row] > 8 * _TEXT:
            continue
        place = _place(data, low[row], high[row], kind[row], seed, len(known), text)
        if _holds(known, place, text):
            continue  # a repeated unit
        known[place ^ 1] = known[place]
        known[place, 0] = (text[0] << np.uint64(1)) | np.uint64(stray[row])
        known[place, 1 : _TEXT + 1] = text[1:]
        known[place, 6], known[place, 7] = found[row, 0], found[row, 1]


@compiled
def _word(data: Bytes, at: int) -> np.uint32:
    return (
        np.uint32(data[at])
        | (np.uint32(data[at + 1]) << np.uint32(8))
        | (np.uint32(data[at + 2]) << np.uint32(16))
        | (np.uint32(data[at + 3]) << np.uint32(24))
    )


@compiled
def murmur2(data: Bytes, low: I64, high: I64, wanted: NDArray[np.bool_], out: I64) -> None:
    """Hash the texts of wanted rows with the positive murmur2 of Kafka's Java clients."""
    for row in range(len(low)):
        if not wanted[row]:
            continue
        at, end = low[row], high[row]
        state = np.uint32(0x9747B28C) ^ np.uint32(end - at)
        while end - at >= 4:
            word = np.uint32(_word(data, at) * _MURMUR)
            word = np.uint32((word ^ (word >> np.uint32(24))) * _MURMUR)
            state = np.uint32(state * _MURMUR) ^ word
            at += 4
        if end - at:
            for n in range(end - at):
                state ^= np.uint32(data[at + n]) << np.uint32(8 * n)
            state = np.uint32(state * _MURMUR)
        state = np.uint32((state ^ (state >> np.uint32(13))) * _MURMUR)
        state ^= state >> np.uint32(15)
        out[row] = np.int64(state & np.uint32(0x7FFFFFFF))


def _table() -> NDArray[np.uint32]:
    table = np.empty(256, np.uint32)
    for byte in range(256):
        state = byte
        for _ in range(8):
            state = (state >> 1) ^ (_POLYNOMIAL if state & 1 else 0)
        table[byte] = state
    return table


_CRC = _table()


@compiled
def crc32(data: Bytes, low: I64, high: I64, wanted: NDArray[np.bool_], out: I64) -> None:
    """Hash the texts of wanted rows with the CRC-32 of librdkafka's consistent partitioners."""
    for row in range(len(low)):
        if not wanted[row]:
            continue
        state = np.uint32(0xFFFFFFFF)
        for at in range(low[row], high[row]):
            state = _CRC[(state ^ data[at]) & np.uint32(0xFF)] ^ (state >> np.uint32(8))
        out[row] = np.int64(state ^ np.uint32(0xFFFFFFFF))


PARTITIONERS = {"murmur2": murmur2, "crc32": crc32}
