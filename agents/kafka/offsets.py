"""Offsets of partitions, asked over confluent-kafka: a broker that knows none tells no number."""

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


class PartitionOffsets:
    """Beginnings and ends of partitions; an error may pass for ``patience`` seconds."""

    def __init__(self, admin: AdminClient, rights: Permits, patience: float) -> None:
        self._admin = admin
        self._rights = rights
        self._patience = patience

    def begins(self, topic: str, partitions: int) -> list[int]:
        """Ask for the first offset that each partition still has.

        Raises:
            OutageError: a partition has no leader.
            RightError: this user may not describe the topic.
        """
        places = [TopicPartition(topic, n) for n in range(partitions)]
        return self._ask(places, OffsetSpec.earliest(), "DESCRIBE", away)

    def ends(self, topic: str, partitions: int) -> list[int]:
        """Ask for the last stable offset of each partition: the end of what is committed.

        Raises:
            OutageError: a partition has no leader.
            RightError: this user may not describe the topic.
        """
        places = [TopicPartition(topic, n) for n in range(partitions)]
        committed = IsolationLevel.READ_COMMITTED
        return self._ask(places, OffsetSpec.latest(), "DESCRIBE", away, committed)

    def written(self, topic: str, partition: int) -> int:
        """Ask for the end of a partition, records of open transactions included.

        Raises:
            EngineError: it cannot be had; an `OutageError` if that may pass.
        """
        place, all_ = TopicPartition(topic, partition), IsolationLevel.READ_UNCOMMITTED
        try:  # a new topic is unknown for a moment: any error may pass
            return self._ask([place], OffsetSpec.latest(), "READ", lambda _: True, all_)[0]
        except KafkaException as error:
            text = f"{topic}-{partition}: its end is unknown"
            raise failed(error.args[0], text) from None

    def _ask(
        self,
        places: list[TopicPartition],
        which: OffsetSpec,
        operation: str,
        passes: Callable[[KafkaError], bool],
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> list[int]:
        """Ask for offsets; ask again, as long as patience lasts, while errors may pass."""
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
                    raise
            time.sleep(0.1)

    def _offset(self, told: Any, operation: str, place: TopicPartition) -> int:
        """The offset that a broker told.

        While a partition has no leader, librdkafka may tell an offset below zero and no error. Who
        took that for an end would take a partition that cannot be read for an empty one.
        """
        offset = int(self._rights.result(told, operation, place.topic).offset)
        if offset < 0:
            raise OutageError(
                f"{place.topic}-{place.partition}: its leader is away, so its offsets are unknown"
            )
        return offset
