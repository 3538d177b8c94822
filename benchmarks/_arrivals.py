"""New records of some topics, each yielded once, so that waiting does not read topics again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from hushstream.agents.kafka.logs import check, consumer
from hushstream.topics.config.model import Kafka

OPTIONS = {
    "auto.offset.reset": "earliest",
    "enable.partition.eof": False,
    "fetch.wait.max.ms": 300,  # nothing waits for a topic's end: poll the broker less often
}


class Arrivals:
    """Committed records of topics, from their beginning.

    Args:
        topics: numbers of partitions by topic.
    """

    def __init__(self, kafka: Kafka, topics: Mapping[str, int]) -> None:
        self._kafka = kafka
        self._client = consumer(kafka, committed=True, more=OPTIONS)
        places = [(topic, n) for topic, number in topics.items() for n in range(number)]
        self._client.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])

    def __enter__(self) -> Arrivals:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect from the broker."""
        self._client.close()

    def take(self, seconds: float) -> Iterator[tuple[str, bytes]]:
        """Topic and value of new records; waits at most ``seconds`` for the first one.

        Raises:
            EngineError: a permanent error of the client; an `OutageError` if it is temporary.
        """
        while (message := self._client.poll(seconds)) is not None:
            seconds = 0.0
            topic, error = message.topic(), message.error()
            if error is None:
                yield topic, message.value() or b""
            else:
                check(self._kafka, topic or self._kafka.bootstrap, error, topic or "")
