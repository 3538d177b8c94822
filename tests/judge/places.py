"""The partition of a unit, and the digest that stands for the unit between stages."""

import hashlib
import zlib
from typing import Any


def digest(unit: tuple[Any, ...], key: bytes) -> bytes:
    """The keyed digest that stands for a unit between stages."""
    parts = ((b"s" if isinstance(part, str) else b"i", str(part).encode()) for part in unit)
    text = b"".join(b"%d:%b%b" % (len(part), kind, part) for kind, part in parts)
    return hashlib.blake2b(text, digest_size=16, key=key).digest()


def home(unit: tuple[Any, ...], partitioner: str, partitions: int) -> int:
    """The partition that a producer's partitioner chooses for a unit, by its text."""
    text = str(unit[0] if len(unit) == 1 else unit).encode()
    number = zlib.crc32(text) if partitioner == "crc32" else murmur2(text) & 0x7FFFFFFF
    return number % partitions


def murmur2(data: bytes) -> int:
    """The hash of Kafka's Java clients (Appleby's MurmurHash2, 32 bits)."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    state = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for place in range(0, whole, 4):
        word = int.from_bytes(data[place : place + 4], "little") * m & mask
        state = state * m & mask ^ (word ^ word >> 24) * m & mask
    if whole < len(data):
        state = (state ^ int.from_bytes(data[whole:], "little")) * m & mask
    state = (state ^ state >> 13) * m & mask
    return state ^ state >> 15
