"""A release between closing and publication: computed rows wait in the shard's state.

The number of transactions that *compute* a release depends on how many keys were read, which is
secret. The number and size of transactions on the release topic must depend on released rows alone.
So computed rows are first held in the state, and then published in chunks of a fixed number of
rows. A transaction leaves a marker only on partitions to which it has sent records, so computing
leaves none there. Batches also show how many transactions their producer has made, wherever, so
publishing has a producer of its own (`agents.worker.shards.producers`).

The same transactions write the latest topic. If a release replaces the previous one, keys that it
lacks get a tombstone there. These keys follow from two public releases, so a tombstone reveals
nothing more. The end of a window makes no tombstones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from ....errors import EngineError
from ....mechanisms.columns import Releases
from ....mechanisms.keys import Keys
from ....topics.records import Trigger, WiderTrigger
from ...state.layout import HELD, MANIFEST, OPEN, after, pack_held, unpack_held
from ...state.store import Changes, KeyLimit, StateReader

STEPS = 8  # parts of a publication delay


def public_time(trigger: Trigger, delay: int, shard: int, shards: int) -> int:
    """Compute the time at which a shard publishes a release, in microseconds since 1970.

    A trigger fires some moments after its scheduled time, and later if its worker is busy. So a
    publication waits for the first multiple of an eighth of the delay, counted from the scheduled
    time, that is more than the delay after the trigger. Within the next eighth, shards publish in
    the order of their numbers, however much each had to compute.

    Args:
        delay: public pause, microseconds; 0: none, and nothing is hidden.
    """
    if not delay:
        # Never 0: that stands for a step that publishes nothing, to which deletions may be added.
        return max(trigger.time, 1)
    step = max(delay // STEPS, 1)
    past = trigger.time + delay - trigger.scheduled
    return trigger.scheduled + (past // step + 1) * step + shard * step // shards


class Pending(msgspec.Struct, frozen=True):
    """A release in progress."""

    trigger: Trigger | WiderTrigger
    computed: bool = False  # whether all rows are computed and held
    done: bytes | None = None  # last key computed, or published; None before the first
    settling: bool = False  # whether new pairs are still being counted; `done` is then a name
    rows: int = 0  # rows held so far, during the computation
    chains: dict[int, bytes] = {}  # chains of published rows by partition, for the signature

    @classmethod
    def load(cls, reader: StateReader) -> Pending | None:
        """The stored release in progress, or None."""
        (row,) = reader.get_many([OPEN])
        return None if row is None else msgspec.msgpack.decode(row, type=cls)

    def store(self, rows: Changes) -> None:
        """Store it with the rows of a step."""
        rows[OPEN] = msgspec.msgpack.encode(self)


def hold(releases: Releases, rows: Changes) -> None:
    """Add computed rows to a step, to be held.

    Args:
        releases: computed columns; values in grid steps, variances in squared grid steps.
    """
    blobs = pack_held(releases.value, releases.variance)
    rows.update((HELD + key, blob) for key, blob in zip(releases.key, blobs, strict=True))


class Portion(NamedTuple):
    """Rows and tombstones that one transaction publishes."""

    releases: Releases  # the next held rows
    gone: list[bytes]  # keys in the latest topic that this release lacks
    end: bytes | None  # last key of both; None: nothing is left after this


def held(
    reader: StateReader, done: bytes | None, limit: KeyLimit, shown: bytes | None = None
) -> Portion:
    """Read held rows in key order, together with the keys that an earlier release has shown.

    Args:
        done: last published key; None before the first.
        limit: most rows and gone keys together.
        shown: prefix of the keys in the latest topic; None if keys never go.
    """
    found = _next(reader, HELD, done, limit)
    before = {} if shown is None else _next(reader, shown, done, limit)
    every = sorted(found.keys() | before.keys())
    fit = limit.fit(every)
    keys = [key for key in every[:fit] if key in found]
    value, variance = unpack_held([found[key] for key in keys])
    releases = Releases(Keys.of(keys), value, variance, np.zeros(len(keys), np.int32), {})
    gone = [key for key in every[:fit] if key not in found]
    return Portion(releases, gone, limit.end(every))


def _next(
    reader: StateReader, prefix: bytes, done: bytes | None, limit: KeyLimit
) -> dict[bytes, bytes]:
    """Read the rows after ``done``, one more than the limit to see whether any follow."""
    begin = prefix if done is None else prefix + done + b"\0"  # the least key above `done`
    found: dict[bytes, bytes] = {}

    def keys() -> Iterator[bytes]:
        for row, value in reader.scan(begin, after(prefix)):
            found[row[len(prefix) :]] = value
            yield row[len(prefix) :]

    limit.first(keys())
    return found


def published(part: Portion, rows: Changes, shown: bytes | None = None) -> None:
    """Delete held rows in the step that publishes them; note what the latest topic then shows."""
    keys = part.releases.key.tolist()
    rows.update((HELD + key, None) for key in keys)
    if shown is not None:
        rows.update((shown + key, b"") for key in keys)
        rows.update((shown + key, None) for key in part.gone)


def kept_manifest(reader: StateReader) -> bytes:
    """Read the manifest that was made when the last row was computed.

    Raises:
        EngineError: it is not in the state.
    """
    (value,) = reader.get_many([MANIFEST])
    if value is None:
        raise EngineError("a held manifest has disappeared: delete the data folder and restart")
    return value
