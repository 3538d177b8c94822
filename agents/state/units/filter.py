"""A filter of the units with rows in a range on disk: for new units, it saves the look on disk.

Finding on disk that there is no row takes longer than all other work on an event. A Bloom filter
(Bloom 1970; all bits of a unit in one word, as in Putze, Sanders & Singler 2007) answers for units
without a row, all but one in a hundred.

It must never miss a row on disk: the row's unit would get a second bound in its epoch, which would
break the guarantee between neighbours by one unit's records of one epoch. So a filter is made from
exactly the rows that go to the blocks of its range, or were read from all of them, and is dropped
with these blocks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .packed import Digests

Words = NDArray[np.uint64]

ANY = np.full(1, 2**64 - 1, np.uint64)  # filter that rules out no unit
_PER_WORD = 4  # most units per word
_BITS = 5  # bits of a word set for each unit


def filter_of(digests: Digests) -> Words:
    """Make the filter of all units of a range."""
    words = np.zeros(filter_bytes(len(digests.heads)) // 8, np.uint64)
    np.bitwise_or.at(words, _place(digests, words), _masks(digests))
    return words


def filter_bytes(units: int) -> int:
    """Compute the bytes of a filter for a number of units."""
    return 8 << max(units // _PER_WORD, 1).bit_length()


def possible(words: Words, digests: Digests) -> NDArray[np.bool_]:
    """Whether (n,) each unit may have a row; False is certain."""
    mask = _masks(digests)
    found: NDArray[np.bool_] = (words[_place(digests, words)] & mask) == mask
    return found


def _place(digests: Digests, words: Words) -> NDArray[np.intp]:
    """Choose the (n,) word of each digest from uniform bits, beyond those that number the range."""
    return (digests.heads & np.uint64(len(words) - 1)).astype(np.intp)


def _masks(digests: Digests) -> Words:
    """Compute the (n,) bits of each digest in its word."""
    mask = np.zeros(len(digests.heads), np.uint64)
    for number in range(_BITS):
        mask |= np.uint64(1) << ((digests.tails >> np.uint64(6 * number)) & np.uint64(63))
    return mask
