"""Privacy units at the first stage: keyed digests and home partitions.

A unit's value goes no further than this module. Later stages see a digest, which cannot be
recomputed without the key.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....formats.events.views import UnitTexts
from ....mechanisms.keys import Keys

_SLOTS = 1 << 12, 1 << 16  # first and largest number of units kept, 64 bytes each
_PATIENCE = 8  # consecutive batches of mostly new units after which look-ups stop
_PAUSE = 16  # batches until look-ups are tried again
_KINDS: dict[type, int] = {int: 1, tuple: 2}  # as `digest_scan.digests` takes them


class UnitDigests:
    """Digests units, with a cache of the digests of recently seen units.

    Args:
        key: 32 secret bytes for the digests.
        partitioner: partitioner of the input, for units of one field; "none" allows a unit on any
            partition.
    """

    def __init__(self, key: bytes, partitioner: str, partitions: int, partition: int) -> None:
        self._key = key
        self._home = partitioner, partitions, partition
        self._state: NDArray[np.uint64] | None = None
        self._met, self._kept = np.zeros((_SLOTS[0], 8), np.uint64), 0
        self._patience = _PATIENCE
        self._seed = secrets.randbits(62)

    def look(self, units: Sequence[Any]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """Digest units, and compare their home partition with this one.

        Args:
            units: n values; None stands for a record without a unit, whose results are meaningless.

        Returns:
            (n, 16) keyed digests, and (n,) whether a unit belongs to another partition.
        """
        if not isinstance(units, UnitTexts):
            texts = Keys.of(map(_text, units))
            kind = np.fromiter((_KINDS.get(type(unit), 0) for unit in units), np.uint8, len(units))
            places = texts.offsets[:-1], texts.offsets[1:]
            return self._digested(texts.data, *places, kind, np.ones(len(units), bool))
        rest, wanted = list(units.rest), np.ones(len(units), bool)
        wanted[rest] = False
        kind = units.integer.astype(np.uint8)
        digests, stray = self._digested(units.data, units.low, units.high, kind, wanted)
        if rest:
            digests[rest], stray[rest] = self.look(list(units.rest.values()))
        return digests, stray

    def _digested(
        self,
        data: NDArray[np.uint8],
        low: NDArray[np.int64],
        high: NDArray[np.int64],
        kind: NDArray[np.uint8],
        wanted: NDArray[np.bool_],
    ) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        from . import digest_scan

        data = data.view()
        data.flags.writeable = False  # a loop is compiled anew for every type
        where = data, np.ascontiguousarray(low), np.ascontiguousarray(high)
        words, missed = np.zeros((len(low), 2), np.uint64), wanted.copy()
        stray, count = np.zeros(len(low), bool), len(low)
        asked = self._patience > 0
        if asked:
            count = digest_scan.recall(
                *where, kind, wanted, self._seed, self._met, words, stray, missed
            )
        self._judge(count, len(low))
        digest_scan.digests(*where, kind, missed, self._begun(), words)
        partitioner, partitions, partition = self._home
        if partitioner != "none":
            homes = np.zeros(len(low), np.int64)
            digest_scan.PARTITIONERS[partitioner](*where, missed, homes)
            stray |= missed & (homes % partitions != partition)
        if asked:
            self._widen(count)
            digest_scan.remember(*where, kind, missed, self._seed, self._met, words, stray)
        return words.view(np.uint8), stray

    def _judge(self, missed: int, units: int) -> None:
        """Stop look-ups for a while if most units are new: digesting them directly costs less."""
        if self._patience <= 0:
            self._patience = self._patience - 1 if self._patience > -_PAUSE else 1
        elif 4 * missed > units:
            self._patience -= 1
        else:
            self._patience = _PATIENCE

    def _widen(self, count: int) -> None:
        """Grow the cache with the number of units, so that few units take little memory."""
        self._kept += count
        if 2 * self._kept > len(self._met) and len(self._met) < _SLOTS[1]:
            self._met, self._kept = np.zeros((4 * len(self._met), 8), np.uint64), count

    def _begun(self) -> NDArray[np.uint64]:
        """The state of the hash after its key, made once."""
        if self._state is None:
            from .digest_scan import keyed

            self._state = keyed(np.frombuffer(self._key, np.uint8))
        return self._state


def _text(unit: object) -> bytes:
    if isinstance(unit, tuple):
        return encode_unit(unit)
    return b"" if unit is None else partition_text(unit)


def encode_unit(unit: object) -> bytes:
    """Encode a unit's value, or tuple of values, injectively.

    Each part carries its length and type: two units with equal encodings would share a bound.

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
        texts: the k texts.
        partitioner: name: "murmur2" of the Java clients, or "crc32" of librdkafka's consistent
            ones.

    Returns:
        (k,) hashes; a hash modulo the number of partitions is the home of its text.
    """
    from .digest_scan import PARTITIONERS

    out = np.empty(len(texts), np.int64)
    wanted = np.ones(len(texts), bool)
    data = texts.data.view()
    data.flags.writeable = False  # a loop is compiled anew for every type
    PARTITIONERS[partitioner](data, texts.offsets[:-1], texts.offsets[1:], wanted, out)
    return out
