"""The memory of one process for rows of units, which its tables share."""

from __future__ import annotations


class UnitRoom:
    """The bytes that all tables of one process may use for rows of units."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._tables = 0

    @property
    def share(self) -> int:
        """Bytes for each open table."""
        return self._size // max(self._tables, 1)

    def enter(self) -> None:
        """Count an opened table."""
        self._tables += 1

    def leave(self) -> None:
        """Count a closed table."""
        self._tables -= 1
