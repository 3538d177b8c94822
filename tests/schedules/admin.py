"""confluent-kafka as the product uses it: administration, reads at a start, genesis, trimming.

Calls of this library block, so they return at once here; they fail while the broker is away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from aiokafka.errors import OutOfOrderSequenceNumber, ProducerFenced
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from . import world
from .broker import Broker
from .log import Place
from .loop import HERE
from .network import Again


def _reached(patience: float = 10.0) -> Broker:
    """The broker, if it answers in time; otherwise an error."""
    broker = world.current().broker
    until = broker.loop.now + patience
    while broker.away(HERE.get()):
        if broker.loop.now < until and HERE.get() is not None:
            world.VirtualTime.sleep(min(0.5, until - broker.loop.now))
            continue
        raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    return broker


class Given:
    """A future that has its result from the start."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self, timeout: float | None = None) -> Any:
        """The result."""
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


def may_read(kafka: Any, group: str) -> bool:
    """Stand for `agents.kafka.access.groups.may_read`: there is no authorizer."""
    _reached()
    return True


class Administration:
    """Stands for `confluent_kafka.admin.AdminClient`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        pass

    def list_topics(self, timeout: float = 0) -> Any:
        """All topics."""
        broker = _reached(timeout)
        return SimpleNamespace(
            topics={t: SimpleNamespace(partitions=range(n)) for t, n in broker.topics.items()},
            brokers={0: "of all partitions"},
        )

    def poll(self, timeout: float = 0) -> int:
        """Report nothing: all answers are in the futures."""
        return 0

    def describe_topics(
        self, names: Any, include_authorized_operations: bool = False
    ) -> dict[str, Given]:
        """Ids and partitions of these topics."""
        broker = _reached()
        unknown = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return {
            n: Given(
                SimpleNamespace(
                    topic_id=broker.ids[n],
                    partitions=range(broker.topics[n]),
                    authorized_operations=None,
                )
                if n in broker.topics
                else unknown
            )
            for n in names.topic_names
        }

    def describe_consumer_groups(self, names: Any) -> dict[str, Given]:
        """The one group, under any name."""
        _reached()
        told = SimpleNamespace(members=world.current().group.described())  # type: ignore[attr-defined]
        return {name: Given(told) for name in names}

    def list_offsets(self, places: Mapping[Any, Any], isolation_level: Any = None) -> Any:
        """First offsets, or ends; errors are in the futures."""
        try:
            broker = _reached()
        except KafkaException as away:
            return {place: Given(away) for place in places}
        found = {}
        for place, spec in places.items():
            log = broker.seen((place.topic, place.partition), HERE.get())
            first = type(spec) is type(OffsetSpec.earliest())
            committed = isolation_level == IsolationLevel.READ_COMMITTED
            offset = log.start if first else log.stable if committed else log.end
            found[place] = Given(SimpleNamespace(offset=offset))
        return found

    def describe_configs(self, resources: Any) -> dict[Any, Given]:
        """Settings of topics."""
        broker = _reached()
        return {
            r: Given({k: SimpleNamespace(value=v) for k, v in broker.settings[r.name].items()})
            for r in resources
        }

    def create_topics(self, topics: Any) -> dict[str, Given]:
        """Create topics."""
        broker = _reached()
        for one in topics:
            broker.create(one.topic, one.num_partitions, one.config)
        return {one.topic: Given(None) for one in topics}

    def create_partitions(self, topics: Any) -> dict[str, Given]:
        """Add partitions to topics."""
        broker = _reached()
        for one in topics:
            broker.extend(one.topic, one.new_total_count)
        return {one.topic: Given(None) for one in topics}

    def delete_records(self, places: Any, request_timeout: float = 0) -> dict[Any, Given]:
        """Trim partitions; errors are in the futures."""
        broker = world.current().broker
        if broker.away(HERE.get()):
            away = KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
            return {place: Given(away) for place in places}
        for place in places:
            broker.trim((place.topic, place.partition), place.offset)
        return {place: Given(None) for place in places}


class Message:
    """Stands for `confluent_kafka.Message`."""

    def __init__(self, place: Place, offset: int, record: Any, error: int | None = None) -> None:
        self._place, self._offset, self._record = place, offset, record
        self._error = None if error is None else KafkaError(error)

    def error(self) -> Any:
        return self._error

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._offset

    def key(self) -> Any:
        return self._record.key

    def value(self) -> Any:
        return self._record.value

    def timestamp(self) -> tuple[int, int]:
        return 1, self._record.timestamp

    def headers(self) -> Any:
        return list(self._record.headers)


class Reader:
    """Stands for `confluent_kafka.Consumer`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._committed = options["isolation.level"] == "read_committed"
        self._positions: dict[Place, int] = {}
        self._queue: list[Message] = []

    def get_watermark_offsets(self, place: TopicPartition, timeout: float = 0) -> tuple[int, int]:
        """First offset and end of a partition."""
        log = _reached().seen((place.topic, place.partition), HERE.get())
        return log.start, log.stable if self._committed else log.end

    def assign(self, places: Any) -> None:
        """Read each of these partitions to its end."""
        self._positions.clear()
        self._queue.clear()
        for place in places:
            log = _reached().seen((place.topic, place.partition), HERE.get())
            self._positions[place.topic, place.partition] = max(place.offset, log.start)
            self._read((place.topic, place.partition), first=True)

    def _read(self, at: Place, first: bool) -> None:
        before = self._positions[at]
        broker = _reached()
        seen = broker.seen(at, HERE.get())
        below = seen.stable if self._committed else seen.end
        records, end = broker.logs[at].read(before, 1 << 30, self._committed, below)
        end = max(end, before)
        self._queue += [Message(at, r.offset, r) for r in records]
        if first or end > before:
            self._queue.append(Message(at, end, None, KafkaError._PARTITION_EOF))
        self._positions[at] = end

    def poll(self, timeout: float = 0) -> Message | None:
        """The next record, after a wait if there is none."""
        if not self._queue and HERE.get() is not None:
            world.VirtualTime.sleep(max(timeout, 0.01))
            for at in self._positions:
                self._read(at, first=False)
        return self._queue.pop(0) if self._queue else None

    def consume(self, most: int, timeout: float = 0) -> list[Message]:
        """The next records."""
        found, self._queue = self._queue[:most], self._queue[most:]
        return found

    def close(self) -> None:
        """Release nothing."""


class Writer:
    """Stands for `confluent_kafka.Producer`, for claims and what `hush topics` declares."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._lines: list[tuple[Place, Any, Any]] = []
        self._id: str = options.get("transactional.id", "")
        self._epoch: int | None = None

    def init_transactions(self, timeout: float) -> None:
        """Fence the owner of the id; before the first worker, there is none."""
        if HERE.get() is not None:
            self._epoch = self._asked(lambda broker: broker.initialise(self._id, "operator"))

    @staticmethod
    def _asked(work: Callable[[Broker], Any]) -> Any:
        """Ask the broker until it answers; the process may die meanwhile."""
        while True:
            world.VirtualTime.sleep(0.02 + world.current().broker.delay())
            try:
                return work(_reached())
            except Again:
                continue
            except ProducerFenced:
                raise KafkaException(KafkaError(KafkaError._FENCED)) from None
            except OutOfOrderSequenceNumber:  # the leader has changed
                code = KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
                raise KafkaException(KafkaError(code)) from None

    def begin_transaction(self) -> None:
        """Keep the following records until the commit."""

    def produce(
        self, topic: str, value: bytes, key: Any = None, partition: int = 0, on_delivery: Any = None
    ) -> None:
        """Keep a record."""
        self._lines.append(((topic, partition), (key, value, None, ()), on_delivery))

    def commit_transaction(self, timeout: float) -> None:
        """Append the kept records, and commit all since the transaction began."""
        self.flush(timeout)
        self._end(True)

    def abort_transaction(self, timeout: float) -> None:
        """Abort all since the transaction began."""
        self._lines.clear()
        self._end(False)

    def _end(self, commit: bool) -> None:
        if (epoch := self._epoch) is not None:
            self._asked(lambda broker: broker.end(self._id, epoch, commit))

    def __len__(self) -> int:
        return len(self._lines)

    def poll(self, timeout: float) -> int:
        """Append the kept records."""
        return self.flush(timeout)

    def flush(self, timeout: float) -> int:
        """Append the kept records; none remains."""
        lines, self._lines = self._lines, []
        for place, content, told in lines:
            message = Message(place, self._append(place, content), None)
            if told is not None:
                told(None, message)
        return 0

    def _append(self, place: Place, content: tuple[Any, ...]) -> int:
        if (epoch := self._epoch) is None:
            return world.current().broker.append(place, *content).offset
        (answer,) = self._asked(lambda b: b.produce(self._id, epoch, place, [content], 30))
        return int(answer.offset)
