"""Keys of events: their encoding, and a memory of those that were met before."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from hushstream.mechanisms.keys import Keys
from numpy.typing import NDArray

MAX_KEY = 1024  # bytes of one encoded key
KNOWN = 200_000  # values whose encoding is remembered


def encode_key(values: Sequence[Any]) -> bytes:
    """A composite key as canonical JSON; injective, and readable again in a release."""
    return msgspec.json.encode(values)


def decode_key(key: bytes) -> list[Any]:
    """The values behind `encode_key`."""
    return msgspec.json.decode(key)  # type: ignore[no-any-return]


class Numbered(NamedTuple):
    """The keys of n events.

    Attributes:
        keys: (k,) distinct encoded keys.
        key: (n,) key of each event.
        wrong: the reason, for those of ``keys`` that cannot be used.
    """

    keys: Keys
    key: NDArray[np.intp]
    wrong: dict[int, str]


class KeyNumbers(dict[Any, int]):
    """Numbers of the keys that one combination of fields has had so far, and their encodings.

    It only ever grows; `KeyTable` puts a new one in its place when it is full. Threads may share
    it: a number is visible only once its encoding is.
    """

    def __init__(self, parts: int) -> None:
        super().__init__()
        self._parts = parts
        self._encoded: list[bytes] = []
        self._wrong: dict[int, str] = {}
        self._learning = threading.Lock()

    def __missing__(self, value: Any) -> int:
        """Number a value that was not met before."""
        with self._learning:
            if value in self:  # another thread was faster
                return self[value]
            parts = tuple(map(_plain, (value,) if self._parts == 1 else value))
            encoded, number = encode_key(parts), len(self._encoded)
            if reason := _fault(parts, encoded):
                self._wrong[number] = reason
            self._encoded.append(encoded)
            self[value] = number
            return number

    def of(self, values: Sequence[Any]) -> Numbered:
        """The keys of events from their values, tuples where a key has several parts."""
        number = np.fromiter(map(self.__getitem__, values), np.intp, len(values))
        used, key = np.unique(number, return_inverse=True)
        listed, wrong = used.tolist(), self._wrong
        faults = {i: wrong[n] for i, n in enumerate(listed) if n in wrong} if wrong else {}
        return Numbered(Keys.of(map(self._encoded.__getitem__, listed)), key, faults)


class KeyTable:
    """Encoded keys of one field combination; a cache of bounded size, not state."""

    def __init__(self, parts: int, most: int = KNOWN) -> None:
        self._parts = parts
        self._most = most
        self._numbers = KeyNumbers(parts)

    def of(self, columns: Sequence[list[Any]], events: int) -> Numbered:
        """The keys of events from the columns of their parts."""
        numbers = self._numbers
        if len(numbers) > self._most:
            numbers = self._numbers = KeyNumbers(self._parts)
        # True == 1 in Python: in a key, they are two values.
        apart = [_apart(c) if bool in set(map(type, c)) else c for c in columns]
        if self._parts == 1:
            return numbers.of(apart[0])
        return numbers.of(list(zip(*apart, strict=True)) or [()] * events)


class _Truth(NamedTuple):
    """A truth value that equals no number."""

    value: bool
    tag: str = "bool"


def _apart(column: list[Any]) -> list[Any]:
    return [_Truth(v) if isinstance(v, bool) else v for v in column]


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, _Truth) else value


def _fault(values: tuple[Any, ...], encoded: bytes) -> str | None:
    if None in values:
        return "missing_key"
    if "" in values:
        return "empty_key"
    return "huge_key" if len(encoded) > MAX_KEY else None
