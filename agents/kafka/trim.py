"""Trims internal topics below applied positions, whose records are in state and changelogs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from aiokafka.structs import TopicPartition as TP
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from ...topics.config.access.clients import librdkafka_options
from ...topics.config.model import Kafka
from .logs import passing
from .patience import OUTAGES, asked_to_end

log = logging.getLogger("hushstream.trim")

PATIENCE_SECONDS = 10.0
CHECK_SECONDS = 30.0


class Trimmer:
    """Deletes records of internal topics that no shard will read again.

    A new worker first fetches at the group's offset, and only then at the shard's own position. The
    group's offset lags a little, so each round cuts at the positions of the *previous* round, which
    that offset has passed long ago.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._options = librdkafka_options(kafka)
        self._before: dict[TP, int] = {}
        self._cut: dict[TP, int] = {}

    async def round(
        self, applied: Mapping[TP, int], check: Callable[[], Awaitable[object]]
    ) -> None:
        """Cut each partition at its offset of the previous round, and wait for the broker.

        A refused cut is logged and retried in the next round, since it only costs disk space.
        Before a cut, the cluster's history is checked: if it was rewound, a worker that has lost
        its tables may need records below the applied position.

        Args:
            applied: position that each open shard of this worker has applied.
            check: raises an error if the cluster was rewound.

        Raises:
            RewoundError: the cluster was rewound.
        """
        due = {tp: n for tp, n in self._before.items() if n > self._cut.get(tp, 0)}
        self._before = dict(applied)
        due = {tp: n for tp, n in due.items() if tp in applied}  # the others have new owners
        if not due:
            return
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await check()
        except OUTAGES:
            if asked_to_end():
                raise
            return  # the next round tries again
        await asyncio.to_thread(self._delete, due)

    def _delete(self, due: Mapping[TP, int]) -> None:
        client = AdminClient(self._options | {"socket.timeout.ms": 10_000})
        places = [TopicPartition(tp.topic, tp.partition, offset) for tp, offset in due.items()]
        answers = client.delete_records(places, request_timeout=PATIENCE_SECONDS)
        refused = {}
        for place, answer in answers.items():
            try:
                answer.result(PATIENCE_SECONDS)
                tp = TP(place.topic, place.partition)
                self._cut[tp] = due[tp]
            except TimeoutError:
                continue  # it only costs disk space, and the next round retries
            except KafkaException as error:
                if not passing(error.args[0]):  # outages are logged elsewhere
                    refused[_text(error)] = place.topic
        for reason, topic in refused.items():
            log.warning("%s is not trimmed: %s", topic, reason)


def _text(error: KafkaException) -> str:
    denied = error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    more = " (workers need DELETE on the topic)" if denied else ""
    return f"{error.args[0].str()}{more}"
