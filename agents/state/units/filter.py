"""A filter of the units that have a row in a range of the disk: a new one costs no look there.

To learn from disk that there is no row takes longer than all other work on an event. A Bloom filter
(Bloom 1970; all bits of a unit in one word, as in Putze, Sanders & Singler 2007) answers for a unit
that has none, and asks the disk for one in a hundred of these.

It never says of a row on disk that it is not there: its unit would get a second bound in its epoch,
and the guarantee, between neighbours by one unit's records of one epoch, would not hold. So a
filter is made of the very rows that go to the blocks of its range, or were read from all of them,
and is dropped with these blocks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .packed import Digests

Words = NDArray[np.uint64]

ANY = np.full(1, 2**64 - 1, np.uint64)  # the filter that rules out no unit
_PER_WORD = 4  # units for each word, at the most
_BITS = 5  # of a word, set for each unit


def filter_of(digests: Digests) -> Words:
    """Make the filter of all units of a range."""
    words = np.zeros(filter_bytes(len(digests.heads)) // 8, np.uint64)
    np.bitwise_or.at(words, _place(digests, words), _masks(digests))
    return words


def filter_bytes(units: int) -> int:
    """Size the filter of some units."""
    return 8 << max(units // _PER_WORD, 1).bit_length()


def possible(words: Words, digests: Digests) -> NDArray[np.bool_]:
    """(n,) whether each unit may have a row; False means that it has none."""
    mask = _masks(digests)
    found: NDArray[np.bool_] = (words[_place(digests, words)] & mask) == mask
    return found


def _place(digests: Digests, words: Words) -> NDArray[np.intp]:
    """(n,) the word of each digest: digests are keyed, and only their first bits tell the range."""
    return (digests.heads & np.uint64(len(words) - 1)).astype(np.intp)


def _masks(digests: Digests) -> Words:
    """(n,) the bits of each digest in its word."""
    mask = np.zeros(len(digests.heads), np.uint64)
    for number in range(_BITS):
        mask |= np.uint64(1) << ((digests.tails >> np.uint64(6 * number)) & np.uint64(63))
    return mask
