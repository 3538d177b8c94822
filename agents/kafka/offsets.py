"""Offsets of partitions over confluent-kafka; a missing offset is an error, never a number."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from ...errors import OutageError
from .access.refusals import Permits
from .logs import failed
from .logs import passing as away

CONFIRM_SECONDS = 5.0  # a new leader may briefly report an older end


def confirmed(ask: Callable[[], str]) -> str:
    """Ask what is behind until nothing is, for `CONFIRM_SECONDS` from the first answer on.

    What counts is when it was asked: a suspended process finds an old answer.

    Args:
        ask: returns what is behind, in words; empty: nothing.

    Returns:
        The last answer.
    """
    until = 0.0
    while True:
        asked = time.monotonic()
        behind = ask()
        until = until or time.monotonic() + CONFIRM_SECONDS
        if not behind or asked > until:
            return behind
        time.sleep(0.2)


class PartitionOffsets:
    """Reads beginnings and ends of partitions; retries for ``patience`` seconds."""

    def __init__(self, admin: AdminClient, rights: Permits, patience: float) -> None:
        self._admin = admin
        self._rights = rights
        self._patience = patience

    def begins(self, topic: str, partitions: int) -> list[int]:
        """Ask for the first offset that each partition still has.

        Raises:
            EngineError: the broker gives none; an `OutageError` if that may be transient.
            RightError: this user may not describe the topic.
        """
        places = [TopicPartition(topic, n) for n in range(partitions)]
        return self._ask(places, OffsetSpec.earliest(), "DESCRIBE", away)

    def ends(self, topic: str, partitions: int) -> list[int]:
        """Ask for the last stable offset of each partition, the end of its committed records.

        Raises:
            EngineError: the broker gives none; an `OutageError` if that may be transient.
            RightError: this user may not describe the topic.
        """
        places = [TopicPartition(topic, n) for n in range(partitions)]
        committed = IsolationLevel.READ_COMMITTED
        return self._ask(places, OffsetSpec.latest(), "DESCRIBE", away, committed)

    def written(self, topic: str, partition: int) -> int:
        """Ask for the end of a partition, including open transactions.

        Raises:
            EngineError: the broker gives none; an `OutageError` if that may be transient.
        """
        place, all_ = TopicPartition(topic, partition), IsolationLevel.READ_UNCOMMITTED
        # A new topic may be unknown for a moment, so any error may be transient.
        return self._ask([place], OffsetSpec.latest(), "READ", lambda _: True, all_)[0]

    def open(self, topic: str) -> bool:
        """Whether a transaction is open in a topic of one partition."""
        return self.ends(topic, 1)[0] < self.written(topic, 0)

    def settle(self, topic: str, seconds: float) -> None:
        """Wait until no transaction is open in a topic of one partition, or time is up.

        Brokers answer a commit before its records can be read.
        """
        until = time.monotonic() + seconds
        while self.open(topic) and time.monotonic() < until:
            time.sleep(0.1)

    def _ask(
        self,
        places: list[TopicPartition],
        which: OffsetSpec,
        operation: str,
        passes: Callable[[KafkaError], bool],
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> list[int]:
        """Ask for offsets; retry transient errors as long as patience lasts.

        Raises:
            EngineError: the broker gives none; an `OutageError` if that may be transient.
        """
        until = time.monotonic() + self._patience
        while True:
            told = self._admin.list_offsets(dict.fromkeys(places, which), isolation_level=isolation)
            try:
                return [self._offset(told[place], operation, place) for place in places]
            except OutageError:
                if time.monotonic() > until:
                    raise
            except KafkaException as error:
                if time.monotonic() > until or not passes(error.args[0]):
                    topic = places[0].topic
                    raise failed(error.args[0], f"{topic}: its offsets are unknown") from None
            time.sleep(0.1)

    def _offset(self, told: Any, operation: str, place: TopicPartition) -> int:
        """Check an offset from a broker.

        While a partition has no leader, librdkafka may return a negative offset without an error.
        Taken for an end, it would make an unreadable partition look empty.
        """
        offset = int(self._rights.result(told, operation, place.topic).offset)
        if offset < 0:
            raise OutageError(
                f"{place.topic}-{place.partition}: its leader is away, so its offsets are unknown"
            )
        return offset
