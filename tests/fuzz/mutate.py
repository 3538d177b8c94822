"""Mutants of real input: flipped bits, cuts, splices, numbers and JSON of all kinds."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Sequence

NUMBERS = (0, 1, -1, 127, 128, 255, 256, 1 << 15, 1 << 16, (1 << 31) - 1, 1 << 31, -(1 << 31),
           (1 << 32) - 1, (1 << 63) - 1, -(1 << 63))  # fmt: skip
TOKENS = (
    b"null", b"true", b"-1", b"0", b"1e400", b"-0.0", b"NaN", b"1" * 400, b"9" * 5000,
    b"1e999999999",
    b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b'""', b"[]", b"{}",
    b"[[[[", b"]]]]", b"[" * 4000, b'{"a":' * 3000, b'"\\ud800"', b'"\\u0000"', b'"\xff\xfe"',
    b'"2019-13-45T99:99:99Z"', b'"9999-12-31T23:59:59.999999+23:59"', b"\x00", b"\xef\xbb\xbf",
    b'"' + b"x" * 100_000 + b'"', b"'''", b'"""', b"0x7fffffffffffffffff", b"1979-05-27", b"1/0",
)  # fmt: skip
_WORD = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\w.+-]*|true|false|null|[A-Za-z_]+')


def mutant(draw: random.Random, corpus: Sequence[bytes]) -> bytes:
    """A random input after one to four changes; sometimes nothing is left."""
    data = bytearray(draw.choice(corpus))
    for _ in range(draw.randint(1, 4)):
        data = bytearray(draw.choice(_WAYS)(draw, data, corpus))
    return bytes(data)


def flipped(draw: random.Random, data: bytearray, corpus: Sequence[bytes] = ()) -> bytes:
    """The data with one bit flipped."""
    if data:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def _byte(draw: random.Random, data: bytearray, corpus: Sequence[bytes]) -> bytes:
    if data:
        data[draw.randrange(len(data))] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
    return bytes(data)


def _number(draw: random.Random, data: bytearray, corpus: Sequence[bytes]) -> bytes:
    width, code = draw.choice(((2, "H"), (4, "I"), (8, "Q")))
    if len(data) >= width:
        at = draw.randrange(len(data) - width + 1)
        value = draw.choice(NUMBERS) % (1 << 8 * width)
        struct.pack_into(draw.choice("<>") + code, data, at, value)
    return bytes(data)


def _cut(draw: random.Random, data: bytearray, corpus: Sequence[bytes]) -> bytes:
    return bytes(data[: draw.randint(0, len(data))])


def _without(draw: random.Random, data: bytearray, corpus: Sequence[bytes]) -> bytes:
    at = draw.randint(0, len(data))
    return bytes(data[:at] + data[at + draw.randint(1, 16) :])


def _spliced(draw: random.Random, data: bytearray, corpus: Sequence[bytes]) -> bytes:
    other = draw.choice(corpus)
    return bytes(data[: draw.randint(0, len(data))]) + other[draw.randint(0, len(other)) :]


def _repeated(draw: random.Random, data: bytearray, corpus: Sequence[bytes]) -> bytes:
    at, end = sorted((draw.randint(0, len(data)), draw.randint(0, len(data))))
    return bytes(data[:end] + data[at:end] * draw.randint(1, 50) + data[end:])[: 1 << 20]


def _token(draw: random.Random, data: bytearray, corpus: Sequence[bytes]) -> bytes:
    words = list(_WORD.finditer(data))
    if not words:
        return draw.choice(TOKENS)
    word = draw.choice(words)
    return bytes(data[: word.start()] + draw.choice(TOKENS) + data[word.end() :])


_WAYS = (
    flipped,
    flipped,
    _byte,
    _number,
    _cut,
    _without,
    _spliced,
    _repeated,
    _token,
    _token,
    _token,
)
