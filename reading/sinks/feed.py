"""Complete releases of a topic in batches, each with the position where a later reader continues.

The records of a release lie in several partitions, between those of others. So the position of a
partition is the first record of an incomplete release, together with the names of complete releases
beyond it: a reader that continues there skips what it reads a second time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from confluent_kafka import KafkaError, TopicPartition

from ...agents.kafka.cluster import Cluster
from ...agents.kafka.logs import check, consumer, raw
from ...errors import EngineError
from ...topics.assembly import Released, ReleaseParts
from ...topics.releases import Manifest, Row
from ..client import SILENCE_SECONDS, ReleaseTopic
from ..schemas import Schemas

MANY = 50_000  # rows after which a batch is full
Named = tuple[str, str, int]  # pipeline, start of the window, trigger


class DoneRelease(msgspec.Struct, frozen=True):
    """A release that is complete, and its last offset in each partition."""

    name: Named
    last: dict[str, int]


class SinkPosition(msgspec.Struct, frozen=True):
    """Everything that a later reader must know; it is stored with what was read."""

    topic_id: str  # Kafka's topic id; a topic created again has another
    offsets: dict[str, int]  # by partition: all earlier records belong to complete releases
    done: list[DoneRelease] = []  # releases that have records at or after an offset


class SinkBatch(msgspec.Struct, frozen=True):
    """Releases that became complete, and the position after them."""

    releases: list[Released]
    position: SinkPosition

    @property
    def rows(self) -> int:
        return sum(len(one.rows) for one in self.releases)


@dataclass
class _Seen:
    """Parts of one release, and its first and last offset in each partition."""

    parts: ReleaseParts = field(default_factory=ReleaseParts)
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)

    def at(self, partition: int, offset: int) -> None:
        self.first.setdefault(partition, offset)
        self.last[partition] = offset


class SinkProgress:
    """Tracks open and complete releases from the records it is given; it reads nothing itself.

    Args:
        position: where the reader begins.
    """

    def __init__(self, position: SinkPosition) -> None:
        self._topic_id = position.topic_id
        self._next = {int(n): offset for n, offset in position.offsets.items()}
        self._open: dict[Named, _Seen] = {}
        self._done = {
            one.name: {int(n): last for n, last in one.last.items()} for one in position.done
        }

    def offsets(self) -> dict[int, int]:
        """The next offset of each partition."""
        return dict(self._next)

    def take(self, partition: int, offset: int, record: Row | Manifest | None) -> Released | None:
        """Take a record; return the release that it completes, if any."""
        self._next[partition] = offset + 1
        if record is None:
            return None
        name = (record.pipeline, record.window.start.isoformat(), record.trigger)
        if name in self._done:
            return None
        seen = self._open.setdefault(name, _Seen())
        seen.at(partition, offset)
        if isinstance(record, Row):
            seen.parts.rows[record.release_id] = record
        else:
            seen.parts.manifests[record.shard] = record
        release = seen.parts.whole()
        if release is not None:
            self._done[name] = self._open.pop(name).last
        return release

    def position(self) -> SinkPosition:
        """The position after what has been taken."""
        offsets = dict(self._next)
        for seen in self._open.values():
            for partition, offset in seen.first.items():
                offsets[partition] = min(offsets[partition], offset)
        self._done = {
            name: last
            for name, last in self._done.items()
            if any(offset >= offsets[n] for n, offset in last.items())
        }
        done = [
            DoneRelease(name, {str(n): offset for n, offset in last.items()})
            for name, last in self._done.items()
        ]
        return SinkPosition(self._topic_id, {str(n): o for n, o in offsets.items()}, done)


class Feed:
    """The releases of one topic from a position on.

    Args:
        position: where to begin; None: at the start of the topic.

    Raises:
        EngineError: no broker answers, the topic does not exist, or it is not the position's
            topic.
    """

    def __init__(self, source: ReleaseTopic, position: SinkPosition | None) -> None:
        self._source = source
        cluster = Cluster(source.kafka, role="reader", options=source.options)
        cluster.wait()
        partitions = cluster.partitions(source.topic, "READ")
        if not partitions:
            raise EngineError(
                f"topic {source.topic!r} does not exist on this cluster: `hush topics` creates it"
            )
        topic_id = cluster.ids([source.topic])[source.topic]
        if position is not None and position.topic_id != topic_id:
            raise EngineError(
                f"the table holds releases of an earlier topic {source.topic!r}, which was "
                "deleted: name another --table, or drop it"
            )
        known: Mapping[str, int] = {} if position is None else position.offsets
        begins = {str(n): known.get(str(n), 0) for n in range(partitions)}
        done = [] if position is None else position.done
        self._progress = SinkProgress(SinkPosition(topic_id, begins, done))
        self._schemas = Schemas(source.kafka, source.topic, source.options)
        self._unread = set(range(partitions))
        self._heard = time.monotonic()
        # An offset that the topic no longer has is an error: do not silently begin elsewhere.
        reset = "earliest" if position is None else "error"
        self._client = consumer(source.kafka, True, {"auto.offset.reset": reset, **source.options})
        self._client.assign(
            [TopicPartition(source.topic, n, o) for n, o in self._progress.offsets().items()]
        )

    @property
    def ended(self) -> bool:
        """Whether the topic has been read to its end."""
        return not self._unread

    @property
    def silent(self) -> bool:
        """Whether the topic has more, of which nothing has come for `SILENCE_SECONDS`."""
        return bool(self._unread) and time.monotonic() - self._heard > SILENCE_SECONDS

    def read(self, seconds: float) -> SinkBatch | None:
        """Read until a batch is full, ``seconds`` have passed, or the topic's end is reached.

        Returns:
            Releases that became complete; None if none did.

        Raises:
            EngineError: the broker reports an error, or a record is damaged.
        """
        found: list[Released] = []
        rows, until = 0, time.monotonic() + seconds
        while rows < MANY and (left := until - time.monotonic()) > 0:
            message = self._client.poll(left)
            if message is None:
                break
            if message.error():
                if self._ended(message):
                    break
                continue
            self._heard = time.monotonic()
            record = self._schemas.decode(raw(message))
            release = self._progress.take(message.partition(), message.offset(), record)
            if release is not None:
                found.append(release)
                rows += len(release.rows)
        return SinkBatch(found, self._progress.position()) if found else None

    def _ended(self, message: Any) -> bool:
        """Whether a message marks the end of the last partition that was not yet at its end."""
        if message.error().code() != KafkaError._PARTITION_EOF:
            topic = self._source.topic
            check(self._source.kafka, topic, message.error(), topic, "reader")
            return False
        self._heard = time.monotonic()
        self._unread.discard(message.partition())
        return not self._unread

    def close(self) -> None:
        """Leave the broker."""
        self._client.close()
