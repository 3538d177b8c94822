"""Programs: a schema as arrays of numbers, for compiled loops."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..types import FALSE, INTEGER, MISSING, REAL, TEXT

I64 = NDArray[np.int64]

TRUTHS = b"truefalse"  # the first texts of every program
TRUE_END = 4
MOST_DEPTH = 12  # of nested types
MOST_STEPS = 2_000  # of one program: a schema may repeat a type arbitrarily often
MOST_SYMBOLS = 100_000  # of one program, for the same reason
FAR = 1 << 40  # more bytes than any value has


class NoProgram(Exception):
    """No program can read this schema: its records are read one by one."""


class Program(NamedTuple):
    """A compiled schema."""

    code: I64  # (s, 5) Avro steps or Protobuf fields; the loops define the numbers
    jumps: I64  # places in the code, for the branches of unions
    symbols: I64  # (e, 3) number of an enum symbol, begin and end of its text
    begin: I64  # (f, 4) default kind, number, and text of each needed field
    texts: bytes  # the symbols' texts, after the words for true and false


class Maker:
    """A program under construction, with a given number of needed fields."""

    def __init__(self, fields: int) -> None:
        self.code: list[list[int]] = []
        self.jumps: list[int] = []
        self._symbols: list[tuple[int, int, int]] = []
        self._begin = [[MISSING, 0, 0, 0] for _ in range(fields)]
        self._texts = bytearray(TRUTHS)

    def step(self, *numbers: int) -> int:
        """Add a step and return its place; raises `NoProgram` if the program grows too long."""
        if len(self.code) >= MOST_STEPS:
            raise NoProgram
        self.code.append([*numbers, *[0] * (5 - len(numbers))])
        return len(self.code) - 1

    def symbols(self, words: dict[int, str]) -> tuple[int, int]:
        """Add the symbols of an enum, by number; return the place of the first and their count.

        Raises `NoProgram` if a symbol holds more than plain text, or there are too many.
        """
        first = len(self._symbols)
        if first + len(words) > MOST_SYMBOLS:
            raise NoProgram
        for number, word in sorted(words.items()):
            self._symbols.append((number, *self._text(word)))
        return first, len(words)

    def default(self, field: int, value: str | float) -> None:
        """Set the value of a field that a record lacks: a text or a zero."""
        if isinstance(value, str):
            self._begin[field] = [TEXT, 0, *self._text(value)]
        elif isinstance(value, bool):
            self._begin[field] = [FALSE, 0, TRUE_END, len(TRUTHS)]
        else:  # a real zero has all bits zero, too
            self._begin[field] = [REAL if isinstance(value, float) else INTEGER, 0, 0, 0]

    def _text(self, word: str) -> tuple[int, int]:
        if not plain(word):
            raise NoProgram
        begin = len(self._texts)
        self._texts += word.encode()
        return begin, len(self._texts)

    def made(self) -> Program:
        return Program(
            np.array(self.code, np.int64).reshape(-1, 5),
            np.array(self.jumps, np.int64),
            np.array(self._symbols, np.int64).reshape(-1, 3),
            np.array(self._begin, np.int64).reshape(-1, 4),
            bytes(self._texts),
        )


def plain(word: str) -> bool:
    """Whether a text needs no escapes in JSON.

    >>> plain("é"), plain('"'), plain("\\n"), plain("\\ud800")
    (True, False, False, False)
    """
    try:
        data = word.encode()
    except UnicodeEncodeError:
        return False
    return min(data, default=0x20) >= 0x20 and b'"' not in data and b"\\" not in data
