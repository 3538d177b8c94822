"""The state of a shard: read access for stages, and changes by steps.

Rows are bytes (see `layout`). Rows with a *local* tag are derived from others: they are rebuilt,
never sent to the changelog.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from ...mechanisms.keys import Keys
from .layout import after

Changes = dict[bytes, bytes | None]  # None deletes


class KeyLimit(NamedTuple):
    """A limit of keys at once; bytes count too, since a key has up to 1,024."""

    keys: int  # number of keys
    size: int  # bytes of all keys together

    def first(self, source: Iterable[bytes]) -> list[bytes]:
        """List the first keys within the limit, and the next one if there is one."""
        found, size = list[bytes](), 0
        for key in source:
            found.append(key)
            size += len(key)
            if len(found) > 1 and (len(found) > self.keys or size > self.size):
                break
        return found

    def fit(self, keys: Sequence[bytes]) -> int:
        """Count the first keys within the limit, which always include one."""
        size = 0
        for place, key in enumerate(keys):
            size += len(key)
            if place and (place >= self.keys or size > self.size):
                return place
        return len(keys)

    def end(self, keys: Sequence[bytes]) -> bytes | None:
        """Find the last key within the limit; None if all keys are."""
        fit = self.fit(keys)
        return keys[fit - 1] if fit < len(keys) else None


class StateReader(Protocol):
    """Read access to committed state, for stages."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the rows of ``keys``, in their order; None where a row is missing."""

    def get_columns(self, keys: Keys) -> Keys:
        """Read the rows of units, in the order of their keys; an empty one stands for none."""

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows with start ≤ key < end, in key order."""


class Overlay:
    """Committed state under the changes of the step being computed."""

    def __init__(self, reader: StateReader, changes: Changes) -> None:
        self._reader = reader
        self._changes = changes

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the rows of ``keys``, with this step's changes; None where a row is missing."""
        changes = self._changes
        if not changes:
            return self._reader.get_many(keys)
        missing = [key for key in keys if key not in changes]
        found = dict(zip(missing, self._reader.get_many(missing), strict=True))
        return [changes[key] if key in changes else found[key] for key in keys]

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows with start ≤ key < end, with this step's changes, in key order."""
        ours = {k: v for k, v in self._changes.items() if start <= k < end}
        if not ours:
            yield from self._reader.scan(start, end)
            return
        rows: dict[bytes, Any] = dict(self._reader.scan(start, end)) | ours
        for key in sorted(rows):
            if rows[key] is not None:
                yield key, rows[key]


def scan_prefix(reader: StateReader, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield rows whose key begins with ``prefix``, in key order."""
    return reader.scan(prefix, after(prefix))
