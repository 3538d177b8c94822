"""Privacy units at the first stage: their numbers, keyed digests and home partitions.

A unit's value stops here. Later stages know its digest, which nobody can recompute without the key.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....formats.events.views import UnitTexts
from ....mechanisms.keys import Keys

KNOWN = 150_000  # units whose digest is remembered by one shard
KNOWN_BYTES = 16 << 20  # of the texts of these units
_SLOTS = 1 << 12, 1 << 16  # for units, of 64 bytes each: at first, at most
_PATIENCE = 8  # looks in which most units are new, until they are not looked up
_PAUSE = 16  # looks, until it is tried again


class UnitDigests(dict[Any, int]):
    """Numbers of the units that a shard met lately; a cache of bounded size, not state.

    Args:
        key: 32 secret bytes for the digests.
        partitioner: that the input declares; "none" lets a unit be anywhere.
        partitions: of the input.
        partition: the one of this shard.
        most: units above which the table begins again.
    """

    def __init__(
        self, key: bytes, partitioner: str, partitions: int, partition: int, most: int = KNOWN
    ) -> None:
        super().__init__()
        self._key = key
        self._place = partitioner, partitions, partition
        self._most = most
        self._state: NDArray[np.uint64] | None = None
        self._met, self._kept = np.zeros((_SLOTS[0], 8), np.uint64), 0
        self._patience = _PATIENCE
        self._seed = secrets.randbits(62)
        self._fresh: list[Any] = []
        self._size = 0  # bytes of the units, about
        self._digests = np.empty((0, 16), np.uint8)
        self._stray = np.empty(0, bool)

    def __missing__(self, unit: Any) -> int:
        """Number a unit that was not met lately."""
        number = self[unit] = len(self)
        self._fresh.append(unit)
        self._size += _size(unit)
        return number

    def look(self, units: Sequence[Any]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """Digest units, and compare their home partition with this one.

        Args:
            units: n values; None stands for a record without a unit, and its results mean nothing.

        Returns:
            (n, 16) keyed digests, and (n,) whether a unit belongs to another partition.
        """
        if isinstance(units, UnitTexts):
            return self._scanned(units)
        if len(self) > self._most or self._size > KNOWN_BYTES:
            # Begun again as a whole: to evict single units would cost more than the few digests
            # that are computed twice, and the answers are the same.
            self.clear()
            self._size = 0
            self._fresh.clear()
            self._digests, self._stray = self._digests[:0], self._stray[:0]
        number = np.fromiter(map(self.__getitem__, units), np.intp, len(units))
        if self._fresh:
            self._learn()
        return self._digests[number], self._stray[number]

    def _scanned(self, units: UnitTexts) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        from . import digest_scan

        wanted = np.ones(len(units), bool)
        rest = list(units.rest)
        wanted[rest] = False
        words = np.zeros((len(units), 2), np.uint64)
        stray, missed = np.zeros(len(units), bool), np.empty(len(units), bool)
        where = units.data, units.low, units.high
        given = *where, units.integer
        known = self._seed, self._met, words, stray
        count, missed[:] = len(units), wanted
        asked = self._patience > 0
        if asked:
            count = digest_scan.recall(*given, wanted, *known, missed)
        self._judge(count, len(units))
        digest_scan.digests(*given, missed, self._begun(), words)
        partitioner, partitions, partition = self._place
        if partitioner != "none":
            homes = np.zeros(len(units), np.int64)
            digest_scan.PARTITIONERS[partitioner](*where, missed, homes)
            stray |= missed & (homes % partitions != partition)
        if asked:
            self._widen(count)
            digest_scan.remember(*given, missed, self._seed, self._met, words, stray)
        digests = words.view(np.uint8)
        if rest:
            digests[rest], stray[rest] = self.look(list(units.rest.values()))
        return digests, stray

    def _judge(self, missed: int, units: int) -> None:
        """Look no unit up for a while where many are new: to digest these anyway costs less."""
        if self._patience <= 0:
            self._patience = self._patience - 1 if self._patience > -_PAUSE else 1
        elif 4 * missed > units:
            self._patience -= 1
        else:
            self._patience = _PATIENCE

    def _widen(self, count: int) -> None:
        """Make room as more units come: few of them shall not take the room of many."""
        self._kept += count
        if 2 * self._kept > len(self._met) and len(self._met) < _SLOTS[1]:
            self._met, self._kept = np.zeros((4 * len(self._met), 8), np.uint64), count

    def _begun(self) -> NDArray[np.uint64]:
        """The state of the hash after its key, made once."""
        if self._state is None:
            from .digest_scan import keyed

            self._state = keyed(np.frombuffer(self._key, np.uint8))
        return self._state

    def _learn(self) -> None:
        blob = b"".join(
            hashlib.blake2b(encode_unit(unit), digest_size=16, key=self._key).digest()
            for unit in self._fresh
        )
        fresh = np.frombuffer(blob, np.uint8).reshape(-1, 16)
        self._digests = np.concatenate([self._digests, fresh])
        self._stray = np.concatenate([self._stray, self._strays()])
        self._fresh.clear()

    def _strays(self) -> NDArray[np.bool_]:
        partitioner, partitions, partition = self._place
        if partitioner == "none":
            return np.zeros(len(self._fresh), bool)
        texts = Keys.of(map(partition_text, self._fresh))
        return np.asarray(hashed(texts, partitioner) % partitions != partition)


def _size(unit: object) -> int:
    """Length of a unit's texts, or of those of its parts."""
    if isinstance(unit, tuple):
        return sum(map(_size, unit))
    return len(unit) if isinstance(unit, str) else 8


def encode_unit(unit: object) -> bytes:
    """Encode a unit's value, or tuple of values, injectively.

    Each part carries its length and its type: two units with one encoding would share a bound.

    >>> encode_unit("1"), encode_unit(1), encode_unit(("a", "bc"))
    (b'1:s1', b'1:i1', b'1:sa2:sbc')
    """
    if isinstance(unit, str):
        text = unit.encode()
        return b"%d:s%b" % (len(text), text)
    if isinstance(unit, tuple):
        return b"".join(map(encode_unit, unit))
    text = str(unit).encode()
    return b"%d:i%b" % (len(text), text)


def partition_text(unit: object) -> bytes:
    """Encode a unit as the text that a producer gives its partitioner."""
    return str(unit).encode()


def hashed(texts: Keys, partitioner: str) -> NDArray[np.int64]:
    """Hash texts as Kafka's clients do.

    Args:
        texts: k of them.
        partitioner: "murmur2" of the Java clients, or "crc32" of librdkafka's consistent ones.

    Returns:
        (k,) hashes; its remainder by the number of partitions is the home of a text.
    """
    from .digest_scan import PARTITIONERS

    out = np.empty(len(texts), np.int64)
    wanted = np.ones(len(texts), bool)
    data = texts.data.view()
    data.flags.writeable = False  # a loop is compiled anew for every type
    PARTITIONERS[partitioner](data, texts.offsets[:-1], texts.offsets[1:], wanted, out)
    return out
