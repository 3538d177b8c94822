"""Follow the committed records of one topic in order, across failures of the broker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ...agents.deployment.cluster.rights import Role
from ...agents.kafka.access.refusals import refusal
from ...agents.kafka.logs import check, consumer, passing, raw
from ...errors import EngineError
from ...formats.events.decode import RawRecord
from ...topics.config.model import Kafka

POLL_SECONDS = 0.5
AGAIN_SECONDS = 1.0
ANSWER_SECONDS = 10.0
BATCH = 2_000
LAST = 500  # offsets before the end, markers included, to search first

Taker = Callable[[list[RawRecord]], None]


class Tail(threading.Thread):
    """A follower of one topic. It restarts after errors from which the client does not recover.

    Args:
        topic: topic to follow, which may be created later.
        begun: called before the first record, and whenever reading restarts from the beginning.
        take: called with records, in order within each partition.
        span: time before the newest record to read, microseconds; None: everything.
        options: further options of librdkafka, which win.
        end: time of the last record that matters, microseconds since 1970; None: all do.
        role: role that has the right to read the topic.

    Attributes:
        caught_up: event that is set once all earlier records have been taken.
        trouble: why nothing can be read now; empty: no known reason.
    """

    def __init__(
        self,
        kafka: Kafka,
        topic: str,
        begun: Callable[[], None],
        take: Taker,
        span: int | None = None,
        options: Mapping[str, Any] | None = None,
        end: int | None = None,
        role: Role = "reader",
    ) -> None:
        super().__init__(name=f"tail {topic}", daemon=True)
        self._kafka, self._topic, self._span = kafka, topic, span
        self._begun, self._taken, self._options = begun, take, dict(options or {})
        self._last, self._role = end, role
        self._since = 0  # milliseconds; earlier records are skipped
        self._ended = threading.Event()
        self.caught_up = threading.Event()
        self.trouble = ""

    def end(self) -> None:
        """Let the thread end; it takes no more records."""
        self._ended.set()

    def run(self) -> None:
        """Follow until `end`."""
        while not self._ended.is_set():
            try:
                self._follow()
            except KafkaException as error:
                self.trouble = str(error.args[0].str())
            except EngineError as error:
                self.trouble = str(error)
            except Exception as error:  # a thread that ended would look like a topic at rest
                self.trouble = f"this is a mistake of hush: {type(error).__name__}: {error}"
            self._ended.wait(AGAIN_SECONDS)

    def _follow(self) -> None:
        more = {"auto.offset.reset": "earliest", **self._options}
        with closing(consumer(self._kafka, True, more)) as client:
            places = self._places(client)
            self._begun()
            client.assign(places)
            unread = {place.partition for place in places}
            self.trouble = ""
            while not self._ended.is_set():
                self._batch(client, unread)

    def _batch(self, client: Consumer, unread: set[int]) -> None:
        records = []
        for message in client.consume(BATCH, POLL_SECONDS):
            error = message.error()
            if error is None:
                if message.timestamp()[1] >= self._since:
                    records.append(raw(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
            elif not _passes(error):
                check(self._kafka, self._topic, error, self._topic, self._role)
        if records:
            self._taken(records)
        if not unread and not self.caught_up.is_set():
            self.caught_up.set()
            self._taken([])

    def _places(self, client: Consumer) -> list[TopicPartition]:
        """Find where to begin, and the time from which records count.

        The broker's time index leads near it, possibly to older records: a transaction marker
        carries the time of its commit, however old the records are.
        """
        listed = client.list_topics(self._topic, timeout=ANSWER_SECONDS).topics[self._topic]
        refused = refusal(self._kafka, listed.error, "READ", self._topic, self._role)
        if refused is not None:
            raise refused
        if listed.error is not None or not listed.partitions:
            raise EngineError("there is no such topic" if listed.error else "it has no partition")
        numbers = sorted(listed.partitions)
        newest = -1 if self._span is None else max(self._newest(client, n) for n in numbers)
        self._since = 0
        if self._span is None or newest < 0:
            return [TopicPartition(self._topic, n, 0) for n in numbers]
        if self._last is not None:  # another pipeline may continue the topic
            newest = min(newest, self._last // 1000)
        self._since = max(newest - self._span // 1000, 0)
        wanted = [TopicPartition(self._topic, n, self._since) for n in numbers]
        return list(client.offsets_for_times(wanted, timeout=ANSWER_SECONDS))

    def _newest(self, client: Consumer, partition: int) -> int:
        """Latest time of the last records of a partition, milliseconds; -1 if there is none.

        The broker's own answer includes transaction markers, which carry other times.
        """
        place = TopicPartition(self._topic, partition)
        low, end = client.get_watermark_offsets(place, timeout=ANSWER_SECONDS)
        back = LAST
        while low < end and not self._ended.is_set():
            begin = max(low, end - back)
            client.assign([TopicPartition(self._topic, partition, begin)])
            times = [message.timestamp()[1] for message in self._to_end(client)]
            if times or begin == low:
                return max(times, default=-1)
            back *= 10
        return -1

    def _to_end(self, client: Consumer) -> Iterator[Message]:
        """Committed records of the one assigned partition, to its current end."""
        while not self._ended.is_set():
            for message in client.consume(BATCH, POLL_SECONDS):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    return
                elif not _passes(error):
                    check(self._kafka, self._topic, error, self._topic, self._role)


def _passes(error: KafkaError) -> bool:
    """Whether an error is temporary: the client retries."""
    return passing(error) or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
