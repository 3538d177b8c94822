"""Logs that a replay reads in offset order, and the schemas stored by ingest shards."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from ..agents.deployment.model import Deployment
from ..agents.kafka.logs import PATIENCE_SECONDS, check, consumer, raw, watermarks
from ..agents.stages.step import LogFrame
from ..agents.stages.topology import INGEST
from ..agents.state.layout import SAID, SCHEMA, schema_number
from ..errors import EngineError
from ..formats.schemas.schema import Known, Pinned, Schema, Verdict, decode_pinned
from ..topics.config.model import Kafka
from ..topics.names import Names
from ..topics.records import ClockRecord, decode_clock

BATCH = 1_000  # records of a changelog read at once
BUFFER_KB = 4096  # fetched ahead of each partition


class Span(NamedTuple):
    """A stretch of one partition: offsets [begin, end)."""

    topic: str
    partition: int
    begin: int
    end: int


def spans(kafka: Kafka, topic: str, partitions: int, first: int = 0) -> list[Span]:
    """Fetch the current spans of ``partitions`` partitions of a topic, from ``first`` on.

    Raises `EngineError`.
    """
    numbers = range(first, first + partitions)
    with closing(consumer(kafka, True)) as client:
        return [Span(topic, n, *watermarks(client, TopicPartition(topic, n))) for n in numbers]


class StreamLog:
    """Committed records of a span, in order; the client is opened on first use.

    Args:
        most: most records to return at once.
        whole: whether the span must be readable to its end; else it may end at an open transaction.
        committed: whether to skip records of aborted transactions.
        make: converts a message into the record for a shard; None: skip it.
        seen: called once with each record.
        wait: called before each answer; True holds back records for now.

    Attributes:
        end: end of the span; an open transaction may lower it while the span is read.
    """

    def __init__(
        self,
        kafka: Kafka,
        span: Span,
        most: int,
        *,
        whole: bool = True,
        committed: bool = True,
        make: Callable[[Any], Any] = raw,
        seen: Callable[[Any], None] = lambda record: None,
        wait: Callable[[], bool] = lambda: False,
    ) -> None:
        self._kafka = kafka
        self._span = span
        self._most = most
        self._whole = whole
        self._committed = committed
        self._make = make
        self._seen = seen
        self._wait = wait
        self._client: Consumer | None = None
        self._held: deque[Any] = deque()
        self._finished = span.begin >= span.end
        self._kept_back = self._forced = False
        self.end = span.end

    def since(self, offset: int, limit: int) -> tuple[list[Any], int]:
        """Return up to ``limit`` records from ``offset`` on, and the offset where they end.

        Offsets never go back from one call to the next. Raises `EngineError` if the broker is
        silent, or the span cannot be read to its end.
        """
        limit = min(limit, self._most)
        while self._held and self._held[0].offset < offset:
            self._held.popleft()
        self._kept_back = self._wait() and not self._forced and not self._finished
        self._forced = False
        if self._kept_back:
            return [], offset
        while len(self._held) < limit and not self._finished:
            self._read(offset)
        records = [self._held[n] for n in range(min(limit, len(self._held)))]
        return records, records[-1].offset + 1 if len(records) == limit else max(self.end, offset)

    def insist(self) -> bool:
        """Release held-back records, since nothing else moves; return whether there are any."""
        self._forced = self._kept_back
        return self._forced

    def drain(self) -> None:
        """Read the rest, so that ``seen`` is called with every record; raises as `since` does."""
        self._held.clear()
        while not self._finished:
            self._read(self.end)
            self._held.clear()

    def _read(self, offset: int) -> None:
        if self._client is None:
            self._client = consumer(
                self._kafka, self._committed, {"queued.max.messages.kbytes": BUFFER_KB}
            )
            place = TopicPartition(self._span.topic, self._span.partition, self._span.begin)
            self._client.assign([place])
        message = self._client.poll(PATIENCE_SECONDS)
        if message is None:
            raise EngineError(f"{self._name}: the broker does not respond")
        error = message.error()
        if error is not None:
            self._end_at(error, message.offset())
        elif message.offset() >= self._span.end:
            self._finish(self._span.end)
        else:
            record = self._make(message)
            if record is None:
                return
            self._seen(record)
            if record.offset >= offset:
                self._held.append(record)

    def _end_at(self, error: KafkaError, reached: int) -> None:
        """Handle the end of committed records; an open transaction may hide the rest."""
        if error.code() == KafkaError._PARTITION_EOF:
            if self._whole and reached < self._span.end:
                raise EngineError(f"{self._name} ends before offset {self._span.end}")
            self._finish(min(reached, self._span.end))
        else:
            check(self._kafka, self._name, error, self._span.topic, "auditor")

    def _finish(self, end: int) -> None:
        self._finished = True
        self.end = end
        self.close()

    @property
    def _name(self) -> str:
        return f"{self._span.topic}-{self._span.partition}"

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class Timed(NamedTuple):
    """A record of the clock topic and its offset."""

    offset: int
    record: ClockRecord


def timed(message: Any) -> Timed:
    """Decode a record of the clock topic."""
    return Timed(message.offset(), decode_clock(message.value() or b""))


def frame(message: Any) -> LogFrame:
    """Take a record of a units topic unchanged."""
    return LogFrame(message.offset(), message.value() or b"")


class RecordedSchemas:
    """The schemas that each partition used, by id, with first offsets; others were unknown."""

    def __init__(self, by_place: Mapping[tuple[str, int], Known]) -> None:
        self._by_place = by_place

    def pinned(self, topic: str, partition: int) -> Known:
        """Look up the schemas of a partition."""
        return self._by_place.get((topic, partition), {})

    def seen(self, number: int) -> None:
        """Ignore it: no schema is requested."""

    def ask(self, topic: str, partition: int, number: int) -> Schema | Verdict:
        """Answer that it is unknown: used schemas are pinned."""
        return Verdict.UNKNOWN


def recorded_schemas(kafka: Kafka, names: Names, deployment: Deployment) -> RecordedSchemas:
    """Read the schemas from the changelogs of inputs whose values carry a schema id.

    Raises `EngineError` if a changelog cannot be read.
    """
    found: dict[tuple[str, int], dict[int, Pinned]] = {}
    for source in deployment.streams:
        topics = {SCHEMA: source.topic} if source.fields.framed else {}
        if source.attributes is not None and source.attributes.fields.framed:
            topics[SAID] = source.attributes.topic
        if not topics:
            continue
        for span in spans(kafka, names.changelog(INGEST, source.name), source.partitions):
            mine = {
                tag: found.setdefault((topic, span.partition), {}) for tag, topic in topics.items()
            }

            def take(message: Any, into: Mapping[bytes, dict[int, Pinned]] = mine) -> None:
                key, value = message.key() or b"", message.value()
                if key[:1] in into and value:
                    into[key[:1]][schema_number(key)] = decode_pinned(value)

            log = StreamLog(kafka, span, BATCH, whole=False, make=take)
            try:
                log.drain()
            finally:
                log.close()
    return RecordedSchemas(found)
