"""A release between its closing and its publication: computed rows wait in the shard's state.

The number of transactions that *compute* a release depends on how many keys were read, which is
secret. The transactions that touch the release topic, and their sizes, must depend on released rows
alone. So computed rows are kept first, and published afterwards in chunks of a fixed number. A
transaction leaves a marker only on partitions that it has sent records to.

The latest topic is written by the same transactions. Where a release replaces the one before, keys
that it lacks get a tombstone there. Which these are follows from two releases that are public, so a
tombstone tells nothing else; the end of a window makes none.
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

STEPS = 8  # of a publication delay


def public_time(trigger: Trigger, delay: int, shard: int, shards: int) -> int:
    """Compute the time at which a shard publishes a release, in microseconds since 1970.

    A trigger is fired some moments after its scheduled time, and later where its worker is busy. So
    a publication waits for the first multiple of an eighth of the delay, counted from the scheduled
    time, that lies more than the delay after the trigger. Shards take turns within the next eighth:
    their order is that of their numbers, however much each had to compute.

    Args:
        delay: the public pause; 0: there is none, and nothing is hidden.
    """
    if not delay:
        # Never 0: that stands for a step that publishes nothing, and deletions would join it.
        return max(trigger.time, 1)
    step = max(delay // STEPS, 1)
    past = trigger.time + delay - trigger.scheduled
    return trigger.scheduled + (past // step + 1) * step + shard * step // shards


class Pending(msgspec.Struct, frozen=True):
    """A release in progress."""

    trigger: Trigger | WiderTrigger
    computed: bool = False  # whether all of its rows are held; else they are still being computed
    done: bytes | None = None  # the last key that was computed, or published; None before the first
    settling: bool = False  # whether new pairs are still being counted; `done` is then a name
    rows: int = 0  # held so far while they are being computed
    chains: dict[int, bytes] = {}  # of the rows published so far, by partition; for the signature

    @classmethod
    def load(cls, reader: StateReader) -> Pending | None:
        """The stored release in progress, or None."""
        (row,) = reader.get_many([OPEN])
        return None if row is None else msgspec.msgpack.decode(row, type=cls)

    def store(self, rows: Changes) -> None:
        """Put it into the rows of a step."""
        rows[OPEN] = msgspec.msgpack.encode(self)


def hold(releases: Releases, rows: Changes) -> None:
    """Put computed rows into a step.

    Args:
        releases: computed columns; values in grid steps, variances in squared grid steps.
    """
    blobs = pack_held(releases.value, releases.variance)
    rows.update((HELD + key, blob) for key, blob in zip(releases.key, blobs, strict=True))


class Portion(NamedTuple):
    """Rows and tombstones that one transaction publishes."""

    releases: Releases  # the next held rows
    gone: list[bytes]  # keys that the latest topic shows and this release lacks
    end: bytes | None  # the last key of both; None: this is all that is left


def held(
    reader: StateReader, done: bytes | None, limit: KeyLimit, shown: bytes | None = None
) -> Portion:
    """Read held rows in key order, and beside them the keys that an earlier release has shown.

    Args:
        done: the last key that was published; None before the first.
        limit: largest number of rows and keys that are gone.
        shown: prefix of the keys that the latest topic shows; None where no key is ever gone.
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
    """Read the rows after ``done``; one more than the limit tells whether there are others."""
    begin = prefix if done is None else prefix + done + b"\0"  # the least key above `done`
    found: dict[bytes, bytes] = {}

    def keys() -> Iterator[bytes]:
        for row, value in reader.scan(begin, after(prefix)):
            found[row[len(prefix) :]] = value
            yield row[len(prefix) :]

    limit.first(keys())
    return found


def published(part: Portion, rows: Changes, shown: bytes | None = None) -> None:
    """Delete held rows in the step that publishes them; note what the latest topic shows then."""
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
