"""A filter in memory of the units whose rows may be on disk: a new one costs no look there.

To learn from disk that there is no row takes as long as half of all other work on an event. A
Bloom filter (Bloom 1970; all bits of a unit in one word, as in Putze, Sanders & Singler 2007)
answers for a unit that has never been put there, and asks the disk for one in a hundred of these.

It never says of a row on disk that it is not there. Its unit would get a second bound in its epoch,
and the guarantee, between neighbours by one unit's records of one epoch, would not hold. So a
filter is kept nowhere but in the memory of the table that is open: it begins with an epoch of which
a scan sees nothing on disk, and takes every key before the disk does. Where that cannot be shown,
as for an epoch that was under way when the table was opened, there is none: the disk is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ...mechanisms.keys import Keys
from .columns import by_epoch
from .layout import DIGEST, UNIT_WIDTH

Words = NDArray[np.uint64]

_LEAST = 1 << 14  # words of the first layer
_PER_WORD = 4  # units of a full layer for each of its words
_BITS = 5  # of a word, set for each unit
_EPOCHS = 32  # pipelines and epochs that are kept


class _Layers:
    """Filters of growing size over the units of one pipeline and epoch."""

    def __init__(self) -> None:
        self._layers = [np.zeros(_LEAST, np.uint64)]
        self._count = 0  # units of the last layer

    @property
    def memory(self) -> int:
        return 8 * sum(map(len, self._layers))

    def known(self, digests: Words) -> NDArray[np.bool_]:
        """(n,) whether a digest may have been added."""
        mask = _masks(digests)
        found = np.zeros(len(digests), np.bool_)
        for layer in self._layers:
            found |= (layer[_place(digests, layer)] & mask) == mask
        return found

    def add(self, digests: Words) -> None:
        """Take (n, 2) digests."""
        fresh = digests[~self.known(digests)]
        while len(fresh):
            layer = self._layers[-1]
            room = max(_PER_WORD * len(layer) - self._count, 0)
            some, fresh = fresh[:room], fresh[room:]
            np.bitwise_or.at(layer, _place(some, layer), _masks(some))
            self._count += len(some)
            if len(fresh):
                self._layers.append(np.zeros(4 * len(layer), np.uint64))
                self._count = 0


class UnitFilter:
    """Knowledge of the rows of units on disk, by pipeline and epoch.

    It begins with an epoch of which nothing is on disk. Of others, such as those that were there
    when the table was opened, it knows nothing; nor of those that were asked for longest ago, where
    there are too many or they need too much memory: 2 to 8 bytes for each unit, 128 KiB at least.

    Args:
        empty: whether it is certain that no row with a prefix is on disk.
    """

    def __init__(self, empty: Callable[[bytes], bool]) -> None:
        self._empty = empty
        self._epochs: dict[bytes, _Layers | None] = {}

    @property
    def memory(self) -> int:
        """Bytes of memory in use."""
        return sum(one.memory for one in self._epochs.values() if one is not None)

    def add(self, keys: Keys, most: int) -> None:
        """Note keys before their rows go to disk.

        Args:
            most: bytes of memory.
        """
        for rows, layers, digests in self._by_epoch(keys):
            if layers is not None:
                layers.add(digests[rows])
        for prefix in list(self._epochs):
            if self.memory <= most:
                break
            self._epochs[prefix] = None

    def possible(self, keys: Keys) -> NDArray[np.bool_]:
        """(n,) whether the row of each key may be on disk; False means that it is not."""
        found = np.ones(len(keys), np.bool_)
        for rows, layers, digests in self._by_epoch(keys):
            if layers is not None:
                found[rows] = layers.known(digests[rows])
        return found

    def _by_epoch(self, keys: Keys) -> Iterator[tuple[NDArray[np.intp], _Layers | None, Words]]:
        matrix = keys.packed().reshape(len(keys), UNIT_WIDTH)
        digests = np.ascontiguousarray(matrix[:, -DIGEST:]).view(np.uint64)
        for prefix, rows in by_epoch(keys):
            yield rows, self._layers(prefix), digests

    def _layers(self, prefix: bytes) -> _Layers | None:
        """The filter of an epoch, which is then the one that was asked for last."""
        if prefix in self._epochs:
            layers = self._epochs.pop(prefix)
        else:
            layers = _Layers() if self._empty(prefix) else None
        self._epochs[prefix] = layers
        if len(self._epochs) > _EPOCHS:
            del self._epochs[next(iter(self._epochs))]  # if it has rows, it will not begin again
        return layers


def _place(digests: Words, layer: Words) -> NDArray[np.intp]:
    """(n,) the word of each digest; digests are keyed, so any of their bits will do."""
    return (digests[:, 0] & np.uint64(len(layer) - 1)).astype(np.intp)


def _masks(digests: Words) -> Words:
    """(n,) the bits of each digest in its word."""
    mask = np.zeros(len(digests), np.uint64)
    for number in range(_BITS):
        mask |= np.uint64(1) << ((digests[:, 1] >> np.uint64(6 * number)) & np.uint64(63))
    return mask
