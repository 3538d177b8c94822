"""A strict front-to-back reader of bytes, and the frame of values."""

from __future__ import annotations

import struct

_DOUBLE = struct.Struct("<d")
EXACT = 1 << 53  # doubles up to here hold every integer
MOST_DIGITS = 1_100  # digits of an integer in a key
HEAD = 5  # bytes before a value in wire format: zero, and the id of its schema


class BrokenBytes(ValueError):
    """The bytes are not what their schema says."""


class Bytes:
    """A reader of ``data[at:end]``; errors are `BrokenBytes`."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.end = end

    @property
    def left(self) -> int:
        """Number of bytes that have not been read."""
        return self.end - self.at

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes, if there are as many."""
        begin = self.at
        if not 0 <= size <= self.end - begin:
            raise BrokenBytes
        self.at = begin + size
        return self.data[begin : self.at]

    def text(self, size: int) -> str:
        """The next bytes as text, if they are UTF-8."""
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise BrokenBytes from None

    def varint(self) -> int:
        """The next number of 64 bits."""
        data, at, end = self.data, self.at, self.end
        if at < end and data[at] < 0x80:  # most are short
            self.at = at + 1
            return data[at]
        value = shift = 0
        while at < end and shift < 70:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at = at
                return value & (1 << 64) - 1
            shift += 7
        raise BrokenBytes

    def zigzag(self) -> int:
        """The next number of 64 bits with a sign, as Avro writes it."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def double(self) -> float:
        """The next eight bytes as a number."""
        found: float = _DOUBLE.unpack(self.take(8))[0]
        return found

    def number(self) -> int | float:
        """The next eight bytes as a number; an integer if it is whole."""
        return whole(self.double())


def whole(value: float) -> int | float:
    """The double as an integer if it is one exactly.

    >>> whole(3.0), whole(0.5)
    (3, 0.5)
    """
    return int(value) if -EXACT <= value <= EXACT and value.is_integer() else value


def schema_id(value: bytes | None) -> int | None:
    """The schema id of a value in wire format; None for other values.

    >>> schema_id(bytes([0, 0, 0, 1, 2, 77])), schema_id(b"{}"), schema_id(None)
    (258, None, None)
    """
    if value is None or len(value) < HEAD or value[0] != 0:
        return None
    return int.from_bytes(value[1:HEAD], "big")


def number_of(digits: bytes) -> int:
    """The integer that decimal digits write; raises `BrokenBytes`."""
    try:
        if len(digits) > MOST_DIGITS or not digits.removeprefix(b"-").isdigit():
            raise BrokenBytes
        return int(digits)
    except ValueError:
        raise BrokenBytes from None
