"""Released keys fed back to bound shards, for mechanisms that adapt to what is public."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterator

import msgspec
import numpy as np
from hushstream.mechanisms.contract import Releases
from hushstream.mechanisms.keys import Keys
from hushstream.topics.records import Selected, Trigger, encode
from numpy.typing import NDArray

from .bound import sortable
from .step import Out
from .store import Changes, Overlay, Reader, chunks

STATUS = b"s"
_PER_RECORD = 2_000


def changed_statuses(
    topic: str, reader: Reader, trigger: Trigger, shard: int, releases: Releases, rows: Changes
) -> Iterator[Out]:
    """Records of keys whose public status is new; the statuses go into ``rows``."""
    prefix = STATUS + sortable(trigger.window)
    keys = releases.key.tolist()
    before = Overlay(reader, rows).get_many([prefix + key for key in keys])
    values = releases.status.astype("<i4").tobytes()
    now = [values[i : i + 4] for i in range(0, len(values), 4)]
    fresh = [(k, n) for k, b, n in zip(keys, before, now, strict=True) if b != n]
    rows.update((prefix + key, value) for key, value in fresh)
    for some in chunks(fresh, _PER_RECORD):
        listed = [base64.b64encode(key).decode() for key, _ in some]
        status = [int.from_bytes(value, "little", signed=True) for _, value in some]
        record = Selected(trigger.window, trigger.index, shard, listed, status, False)
        yield Out(topic, 0, None, encode(record))


def finished(topic: str, trigger: Trigger, shard: int) -> Out:
    """The record that says: all statuses of this trigger and shard have been sent."""
    return Out(topic, 0, None, encode(Selected(trigger.window, trigger.index, shard, [], [], True)))


class Feedback:
    """What every worker knows of released keys, from the selected topic of one pipeline."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._status: dict[int, dict[bytes, list[tuple[int, int]]]] = defaultdict(dict)
        self._done: dict[tuple[int, int], set[int]] = defaultdict(set)

    def apply(self, value: bytes) -> None:
        """Take one record of the selected topic."""
        record = msgspec.json.decode(value, type=Selected)
        if record.done:
            self._done[record.window, record.trigger].add(record.shard)
            return
        known = self._status[record.window]
        for text, status in zip(record.keys, record.status, strict=True):
            known.setdefault(base64.b64decode(text), []).append((record.trigger, status))

    def complete(self, window: int, trigger: int) -> bool:
        """Whether all shards have released this trigger (true for triggers before the first)."""
        return trigger < 1 or len(self._done.get((window, trigger), ())) == self._shards

    def statuses(self, window: int, keys: Keys, as_of: int) -> NDArray[np.int32]:
        """(k,) public status of each key as of a trigger; 0 where there is none."""
        known = self._status.get(window)
        out = np.zeros(len(keys), np.int32)
        if not known:
            return out
        for row, key in enumerate(keys.tolist()):
            for trigger, status in known.get(key, ()):
                if trigger <= as_of:
                    out[row] = status
        return out

    def forget(self, window: int) -> None:
        """Drop what is known of a window that is over."""
        self._status.pop(window, None)
        for place in [p for p in self._done if p[0] == window]:
            del self._done[place]
