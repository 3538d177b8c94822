"""Ranges of digests of units: rows in memory, or the blocks on disk that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .filter import ANY
from .packed import PackedRows

Words = NDArray[np.uint64]

OBJECTS = 1024  # bytes of a range's objects in memory, since there may be one for each open window
_NONE = np.zeros(0, np.uint64)


class UnitBlocks(Protocol):
    """Blocks on disk."""

    def read(self, ids: Sequence[int]) -> list[bytes]:
        """Read blocks.

        Raises:
            DamagedError: one is missing.
        """

    def write(self, blocks: Iterable[bytes]) -> list[int]:
        """Write blocks; they count once the index names them."""


@dataclass(slots=True)
class Range:
    """Rows of one range of digests.

    Attributes:
        packed: rows; None while they are only on disk.
        ids: numbers of its blocks, which are outdated if it is ``dirty``.
        firsts: (blocks,) first head of each.
        marks: (blocks,) unique first bytes of each, so that no other block is taken for it.
        rows, size: number of rows on disk, and the bytes that they would take in memory.
        known: filter of the units on disk; None: not made.
    """

    packed: PackedRows | None = None
    ids: Words = field(default_factory=lambda: _NONE)
    firsts: Words = field(default_factory=lambda: _NONE)
    marks: Words = field(default_factory=lambda: _NONE)
    rows: int = 0
    size: int = 0
    dirty: bool = False
    known: Words | None = None

    @property
    def memory(self) -> int:
        """Bytes of memory that could be freed."""
        return 0 if self.packed is None else self.packed.memory + OBJECTS

    @property
    def filter(self) -> int:
        """Bytes of memory of its filter."""
        return 0 if self.known is None or self.known is ANY else self.known.nbytes

    @property
    def number(self) -> int:
        """Rows, without fresh ones."""
        return self.rows if self.packed is None else len(self.packed)

    @property
    def whole(self) -> int:
        """Bytes of memory that its rows need."""
        return self.size if self.packed is None else self.packed.memory

    def copied(self) -> Range:
        """Copy the references to blocks, without filter, as not dirty."""
        return Range(self.packed, self.ids, self.firsts, self.marks, self.rows, self.size)
