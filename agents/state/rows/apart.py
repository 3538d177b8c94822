"""Large arrays apart from the heap of the C library.

Rows of users are held for hours, while steps take and free as much again in between. In one heap
what is freed leaves holes between what stays, which fit no other array and do not go back to the
system. So arrays of rows have pages of their own, which go back when the array ends.
"""

from __future__ import annotations

import mmap
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

LEAST = 128 << 10  # bytes of an array that is worth pages of its own
HUGE = 4 << 20  # bytes from which large pages are asked for, as NumPy does: they are met at random
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_ALL = getattr(mmap, "MAP_POPULATE", 0)  # all pages at once, for half of what each costs alone

T = TypeVar("T", np.uint64, np.uint32, np.uint8)


def zeros(number: int, kind: type[T]) -> NDArray[T]:
    """Make an array (number,) of zeros. What is never written takes no memory."""
    return _made(number, kind, _PRIVATE)


def apart(number: int, kind: type[T]) -> NDArray[T]:
    """Make an array (number,) that will be written whole; what it holds until then is not set."""
    small = number * np.dtype(kind).itemsize < LEAST
    return np.empty(number, kind) if small else _made(number, kind, _PRIVATE | _ALL)


def _made(number: int, kind: type[T], flags: int) -> NDArray[T]:
    size = number * np.dtype(kind).itemsize
    if size < LEAST:
        return np.zeros(number, kind)
    try:
        return np.frombuffer(_pages(size, flags), kind)
    except OSError:  # a process may have so many mappings and no more
        return np.zeros(number, kind)


def _pages(size: int, flags: int) -> mmap.mmap:
    pages = mmap.mmap(-1, size, flags=flags)
    if size >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages
