"""A release between its closing and its publication: computed rows wait in the shard's state.

The number of transactions that *compute* a release depends on how many keys were read, which is
secret. The transactions that touch the release topic, and their sizes, must depend on released rows
alone. So computed rows are kept first, and published afterwards in chunks of a fixed number. A
transaction leaves a marker only on partitions that it has sent records to.
"""

from __future__ import annotations

from itertools import islice

import msgspec
import numpy as np

from ....errors import EngineError
from ....mechanisms.columns import Releases
from ....mechanisms.keys import Keys
from ....topics.records import Trigger
from ...state.layout import HELD, MANIFEST, OPEN, after, pack_held, unpack_held
from ...state.store import Changes, StateReader


class Pending(msgspec.Struct, frozen=True):
    """A release in progress.

    Attributes:
        trigger: which one.
        computed: whether all of its rows are held; else they are still being computed.
        done: the last key that was computed, or published; None before the first.
    """

    trigger: Trigger
    computed: bool = False
    done: bytes | None = None

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
        rows: changes of the step.
    """
    blobs = pack_held(releases.value, releases.variance)
    rows.update((HELD + key, blob) for key, blob in zip(releases.key, blobs, strict=True))


def held(reader: StateReader, done: bytes | None, limit: int) -> tuple[Releases, bool]:
    """Read held rows in key order.

    Args:
        reader: committed rows.
        done: the last key that was published; None before the first.
        limit: rows to read at most.

    Returns:
        The next rows, and whether there are more after them.
    """
    begin = HELD if done is None else HELD + done + b"\0"  # the least key above `done`
    found = list(islice(reader.scan(begin, after(HELD)), limit + 1))  # one more: are there more?
    taken = found[:limit]
    value, variance = unpack_held([row for _, row in taken])
    releases = Releases(
        Keys.of([key[1:] for key, _ in taken]),
        value,
        variance,
        np.zeros(len(taken), np.int32),
        {},
    )
    return releases, len(found) > limit


def published(releases: Releases, rows: Changes) -> None:
    """Delete held rows in the step that publishes them."""
    rows.update((HELD + key, None) for key in releases.key.tolist())


def kept_manifest(reader: StateReader) -> bytes:
    """Read the manifest that was made when the last row was computed.

    Raises:
        EngineError: it is not in the state.
    """
    (value,) = reader.get_many([MANIFEST])
    if value is None:
        raise EngineError("a held manifest has disappeared: delete the data folder and restart")
    return value
