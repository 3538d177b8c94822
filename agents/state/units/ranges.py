"""Ranges of the digests of units: their rows in memory, or the blocks on disk that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .filter import ANY
from .packed import PackedRows

Words = NDArray[np.uint64]

OBJECTS = 1024  # bytes of the objects of a range in memory: there may be one for each open window
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
        packed: the rows; None while they are on disk alone.
        ids: of its blocks; what they hold is old where it is ``dirty``.
        firsts: (blocks,) the head that each begins with.
        marks: (blocks,) that each begins with: no other block, of any time, is taken for it.
        rows, size: their number, and the bytes that they take in memory; of what is on disk.
        known: filter of the units on disk; None while it was not made.
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
        """Bytes of memory in use for what need not be there."""
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
        """Bytes of memory that its rows take, or would take."""
        return self.size if self.packed is None else self.packed.memory

    def copied(self) -> Range:
        """Name the same blocks, without the filter; not dirty."""
        return Range(self.packed, self.ids, self.firsts, self.marks, self.rows, self.size)
