"""Keys of events: distinguished, numbered and encoded for a whole list at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...mechanisms.keys import Keys

MAX_KEY = 1024  # bytes of one encoded key
_ENCODER = msgspec.json.Encoder()


def encode_key(values: Sequence[Any]) -> bytes:
    """Encode a composite key as canonical JSON: injective and readable."""
    return msgspec.json.encode(values)


def decode_key(key: bytes) -> list[Any]:
    """Decode the values of `encode_key`."""
    return msgspec.json.decode(key)  # type: ignore[no-any-return]


class Numbered(NamedTuple):
    """The keys of n events."""

    keys: Keys  # (k,) distinct encoded keys
    key: NDArray[np.intp]  # (n,) key of each event
    wrong: dict[int, str]  # index of an unusable key -> reason


def numbered(columns: Sequence[list[Any]], events: int) -> Numbered:
    """The keys of n events from the columns of their parts; a key may have zero parts."""
    # In Python True == 1, but in a key they differ.
    apart = [_apart(c) if bool in set(map(type, c)) else c for c in columns]
    single = len(apart) == 1
    values: list[Any] = apart[0] if single else list(zip(*apart, strict=True)) or [()] * events
    place = dict.fromkeys(values)
    place = dict(zip(place, range(len(place)), strict=True))
    key = np.fromiter(map(place.__getitem__, values), np.intp, len(values))
    rows = list(zip(place, strict=True)) if single else list(place)
    if any(a is not c for a, c in zip(apart, columns, strict=True)):
        rows = [tuple(map(_plain, row)) for row in rows]
    keys = _encoded(rows)
    return Numbered(keys, key, _faults(rows, keys))


def _encoded(rows: Sequence[tuple[Any, ...]]) -> Keys:
    """`encode_key` of all rows at once, split at line breaks, which compact JSON never contains."""
    lines = np.frombuffer(_ENCODER.encode_lines(rows), np.uint8)
    breaks = np.flatnonzero(lines == ord("\n"))
    offsets = np.concatenate([np.zeros(1, np.int64), breaks - np.arange(len(breaks))])
    return Keys(np.delete(lines, breaks), offsets)


def _faults(rows: Sequence[tuple[Any, ...]], keys: Keys) -> dict[int, str]:
    """The reason for each row that cannot be a key."""
    wrong = dict.fromkeys(np.flatnonzero(np.diff(keys.offsets) > MAX_KEY).tolist(), "huge_key")
    columns = list(zip(*rows, strict=True))
    for value, reason in (("", "empty_key"), (None, "missing_key")):
        for column in columns:
            if value in column:
                wrong |= {place: reason for place, one in enumerate(column) if one == value}
    return wrong


class _Truth(NamedTuple):
    """A truth value that is unequal to every number."""

    value: bool
    tag: str = "bool"


def _apart(column: list[Any]) -> list[Any]:
    return [_Truth(v) if isinstance(v, bool) else v for v in column]


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, _Truth) else value
