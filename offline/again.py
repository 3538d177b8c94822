"""Send dead letters to their raw topic again, each at most once.

Two kinds become usable without another configuration, which would be another pipeline: records in a
partition other than the input's partitioner gives, because they are now placed by it, and records
whose schema was not known.

A record that counts twice is worse than a lost one. So a record is sent only if no pipeline of its
input has used it; then all of them count it. The copies and the position reached in the dead-letter
topic are committed in one transaction. The position is stored twice: as a group's, which Kafka
forgets after a week, and as a mark in the topic, which is invisible while an earlier worker's
transaction is open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, takewhile
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from ..agents.deployment.model import Input, Pipeline
from ..agents.kafka.cluster import Cluster
from ..agents.kafka.logs import consumer
from ..agents.kafka.set_aside import Letter, Origin, letters, mark, tried
from ..agents.stages.ingest.unit_digests import partition_text
from ..errors import ConfigError, EngineError
from ..formats.events.decode import Decoded, RawRecord
from ..topics.names import Names

PARTITIONERS = {"none": "murmur2_random", "murmur2": "murmur2_random", "crc32": "consistent_random"}
"""librdkafka's name of each partitioner of an input."""
FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
CHUNK = 5_000  # letters of one transaction
SECONDS = 60.0


def producer_to(cluster: Cluster, source: Input, group: str) -> Producer:
    """A transactional producer for an input's topic; it ends transactions the group left open."""
    producer = cluster.producer(
        **{"transactional.id": group, "compression.type": "zstd", "linger.ms": 20,
           "partitioner": PARTITIONERS[source.partitioner]}
    )  # fmt: skip
    producer.init_transactions(SECONDS)
    return producer


class Unsent(NamedTuple):
    """Numbers of dead letters that were (or would be) sent, and of others by reason."""

    sent: int = 0
    unusable: int = 0  # still unusable
    used: int = 0  # by a pipeline of the input, or sent before
    closed: int = 0  # their windows are over
    gone: int = 0  # there is no complete copy
    other: int = 0  # set aside for a reason that was not requested

    def plus(self, more: Unsent) -> Unsent:
        return Unsent(*(a + b for a, b in zip(self, more, strict=True)))

    @property
    def left(self) -> int:
        """Letters that could be sent after a further repair, or for another reason."""
        return self.unusable + self.other


class Copy(NamedTuple):
    """A record to send again."""

    letter: Letter
    key: bytes | None
    partition: int  # -1: the partitioner decides
    time: int  # of the event, milliseconds since 1970


@dataclass(frozen=True)
class Again:
    """Untried dead letters of all pipelines of an input.

    Args:
        cluster: the cluster, with the connection of the deployment.
        source: the input.
        names: names of the deployment.
        reason: only letters with this reason; None: all.
    """

    cluster: Cluster
    source: Input
    names: Names
    reason: str | None = None

    @property
    def _first(self) -> Pipeline:
        """The pipeline whose dead letters are read: those to send are in every pipeline's topic."""
        return self.source.pipelines[0]

    @property
    def group(self) -> str:
        """The group that holds the position, which no consumer joins."""
        return f"{self.names.base}.{self._first.name}.again"

    @property
    def topic(self) -> str:
        if self._first.dlq_topic is None:
            raise ConfigError(f"input {self.source.name!r} keeps no dead letters")
        return self._first.dlq_topic

    @cached_property
    def until(self) -> int:
        """End of the topic at the first call: later letters wait for the next run."""
        known = self.cluster.partitions(self.topic, "READ")
        return self.cluster.offsets.ends(self.topic, 1)[0] if known else 0

    def tried(self) -> tuple[int, set[Origin]]:
        """Find the first untried letter, and the records that were tried before."""
        found = self.cluster.groups.committed(self.group, {self.topic: 1})
        return tried(self.cluster, self.topic, found.get((self.topic, 0), 0), self._first.told)

    def foreseen(self) -> Unsent:
        """Say what `send` would do, without doing it."""
        total = Unsent()
        for _, done, _ in self._chunks():
            total = total.plus(done)
        return total

    def send(self, told: Callable[[int], None] = lambda _: None) -> Unsent:
        """Send what can be used now; no letter is ever tried twice.

        Args:
            told: called with the number of letters after each transaction.

        Raises:
            EngineError: the cluster refuses a transaction; earlier ones stay.
        """
        total = Unsent()
        # It ends an earlier run's open transaction before the position is read.
        producer = producer_to(self.cluster, self.source, self.group)
        member = consumer(self.cluster.kafka, True, {"group.id": self.group})
        try:
            place = member.consumer_group_metadata()
            for copies, done, end in self._chunks():
                self._commit(producer, place, copies, end)
                total = total.plus(done)
                told(sum(done))
        except KafkaException as error:
            fenced = error.args[0].code() in FENCED
            why = "another run has begun" if fenced else error.args[0].str()
            raise EngineError(
                f"{self.source.topic} could not be written: {why}; "
                f"{total.sent} records were sent before, and are not sent twice"
            ) from None
        finally:
            member.close()
        return total

    def _commit(self, producer: Producer, place: Any, copies: Sequence[Copy], end: int) -> None:
        producer.begin_transaction()
        for one in copies:
            producer.produce(
                self.source.topic, one.letter.value, key=one.key, partition=one.partition,
                timestamp=one.time, headers=list(one.letter.headers),
            )  # fmt: skip
            producer.poll(0)
        producer.produce(self.topic, None, partition=0, headers=mark(end))
        producer.send_offsets_to_transaction([TopicPartition(self.topic, 0, end)], place, SECONDS)
        producer.commit_transaction(SECONDS)

    def _chunks(self) -> Iterator[tuple[list[Copy], Unsent, int]]:
        """Yield the copies to send of the next letters, their figures, and the position after."""
        if not self.until:
            return
        position, before = self.tried()
        used = self._used()
        every = letters(self.cluster, self.topic, position, whose=self._first.told)
        found = takewhile(lambda letter: letter.place < self.until, every)
        while chunk := list(islice(found, CHUNK)):
            copies, done = self._judged(chunk, used, before)
            yield copies, done, chunk[-1].place + 1

    def _used(self) -> Callable[[Letter], bool]:
        """Tell whether a pipeline of the input has used a record."""
        known = [
            {one.origin for one in letters(self.cluster, p.dlq_topic or "", whose=p.told)}
            for p in self.source.pipelines[1:]
        ]
        return lambda letter: any(letter.origin not in dead for dead in known)

    def _judged(
        self, chunk: Sequence[Letter], used: Callable[[Letter], bool], before: set[Origin]
    ) -> tuple[list[Copy], Unsent]:
        found = self._framed(chunk) if self.source.fields.framed else self._decoded(chunk)
        fate: list[str] = []
        copies: list[Copy] = []
        for letter, copy in zip(chunk, found, strict=True):
            fate.append(self._fate(letter, copy, used(letter) or letter.origin in before))
            if copy is not None and fate[-1] == "sent":
                copies.append(copy)
                before.add(letter.origin)
        return copies, Unsent(**{name: fate.count(name) for name in Unsent._fields})

    def _fate(self, letter: Letter, copy: Copy | None, used: bool) -> str:
        if self.reason not in (None, letter.reason) or letter.origin[0] != self.source.topic:
            return "other"  # or a statement of attributes, which is not a record of the input
        if self._first.dlq_payload != "raw" or letter.value is None or _hashed(letter):
            return "gone"
        if copy is None:
            return "unusable"
        if used:
            return "used"
        return "sent" if self._open(copy.time * 1_000) else "closed"

    def _open(self, moment: int) -> bool:
        """Whether a pipeline may still release a window of an event time in microseconds."""
        now = time.time_ns() // 1_000
        return any(
            p.external or p.windows.times(p.windows.holding(moment)[-1])[-1] > now
            for p in self.source.pipelines
        )

    def _framed(self, chunk: Sequence[Letter]) -> list[Copy | None]:
        """Copy letters with an unknown schema unchanged: only workers have schemas."""
        return [
            Copy(one, one.key, one.partition, one.timestamp)
            if one.reason == "unknown_schema"
            else None
            for one in chunk
        ]

    def _decoded(self, chunk: Sequence[Letter]) -> list[Copy | None]:
        records = [
            RawRecord(n, one.timestamp, one.key, one.value or b"") for n, one in enumerate(chunk)
        ]
        decoded = self.source.decoder.decode(records)
        bad = set(decoded.bad) | set.intersection(*(set(view.bad) for view in decoded.views))
        return [
            None if row in bad else self._copy(letter, row, decoded)
            for row, letter in enumerate(chunk)
        ]

    def _copy(self, letter: Letter, row: int, decoded: Decoded) -> Copy:
        moment = int(decoded.time[row]) // 1_000
        if self.source.partitioner == "none":
            return Copy(letter, letter.key, letter.partition, moment)
        return Copy(letter, partition_text(decoded.unit[row]), -1, moment)


def _hashed(letter: Letter) -> bool:
    return letter.key is None and (letter.value or b"").startswith(b"blake2b:")
