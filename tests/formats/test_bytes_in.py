"""Bytes that do not fit are refused, never misread."""

from __future__ import annotations

import pytest
from hushstream.formats.bytes_in import MOST_DIGITS, BrokenBytes, Bytes, number_of, whole


def of(data: bytes) -> Bytes:
    return Bytes(b"x" + data, 1, 1 + len(data))


def test_numbers_of_64_bits() -> None:
    assert of(b"\x96\x01").varint() == 150 and of(b"\x01").zigzag() == -1
    assert of(b"\xff" * 9 + b"\x01").zigzag() == -(1 << 63)
    for blob in (b"", b"\x80", b"\x80" * 11):
        with pytest.raises(BrokenBytes):
            of(blob).varint()


def test_parts_stay_within_their_bytes() -> None:
    data = of(b"abc")
    assert data.take(2) == b"ab" and data.left == 1
    for size in (2, -1, 1 << 63):
        with pytest.raises(BrokenBytes):
            data.take(size)
    with pytest.raises(BrokenBytes):
        of(b"\xff").text(1)
    with pytest.raises(BrokenBytes):
        of(b"1234567").double()


def test_integers_within_doubles_and_digits() -> None:
    assert [type(whole(x)) for x in (2.0, -0.5, 1e300, float("inf"), float("nan"))] == [
        int, float, float, float, float,
    ]  # fmt: skip
    assert number_of(b"-12") == -12
    for digits in (b"", b"-", b"1x", b"+1", b" 1", b"1" * (MOST_DIGITS + 1), b"\xb2"):
        with pytest.raises(BrokenBytes):
            number_of(digits)
