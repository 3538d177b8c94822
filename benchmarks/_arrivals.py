"""What comes into some topics, each record once: what waits for it need not read all anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from hushstream.agents.kafka.logs import check, consumer
from hushstream.topics.config.model import Kafka

OPTIONS = {
    "auto.offset.reset": "earliest",
    "enable.partition.eof": False,
    "fetch.wait.max.ms": 300,  # nobody waits for the end, so the broker need not be asked so often
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
        """Leave the broker."""
        self._client.close()

    def take(self, seconds: float) -> Iterator[tuple[str, bytes]]:
        """Topic and value of what has come; waits for the first one for so many seconds.

        Raises:
            EngineError: what the client says does not pass; an `OutageError` if it does later.
        """
        while (message := self._client.poll(seconds)) is not None:
            seconds = 0.0
            topic, error = message.topic(), message.error()
            if error is None:
                yield topic, message.value() or b""
            else:
                check(self._kafka, topic or self._kafka.bootstrap, error, topic or "")
