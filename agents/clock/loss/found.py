"""Lost records: a raw topic begins above the place where a shard would continue reading.

If a worker noticed only when it reads, it would be ready for half a minute at each start and own
the clock meanwhile, charging epochs of which nothing can be released.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import NamedTuple

from aiokafka.structs import TopicPartition as Place
from confluent_kafka import Consumer, KafkaError, TopicPartition

from ....errors import EngineError, OutageError
from ....topics.config.model import Kafka
from ....topics.names import Names
from ....topics.records import Marker, decode_marker
from ...deployment.model import Deployment
from ...kafka import clients
from ...kafka.cluster import Cluster
from ...kafka.logs import PATIENCE_SECONDS, check, consumer, watermarks
from ...kafka.markers import TAIL
from ...state.layout import MARKER
from ..begins import begin_of
from ..ledger import Ledger

Places = Mapping[str, list[int]]
"""Offsets of each partition, by raw topic."""


class Loss(NamedTuple):
    """Records of one partition that can no longer be used."""

    topic: str
    partition: int
    # begin, end: offsets of the first lost record, and after the last
    begin: int
    end: int
    clock: int  # next entry of the clock log for the shard


def find_lost(
    kafka: Kafka,
    cluster: Cluster,
    names: Names,
    deployment: Deployment,
    ledger: Ledger,
    begins: Places,
    resumed: Places,
) -> list[Loss]:
    """Compare the beginning of each raw partition with its shard's marker.

    Args:
        resumed: offsets at which reading continues after accepted losses.
    """
    found = []
    for source in deployment.streams:
        known = begin_of(begins, ledger, source)
        accepted = resumed.get(source.topic, [])
        floors = [max(a, b) for a, b in zip(known, [*accepted, *known][: len(known)], strict=True)]
        # Before the markers, which a running worker may move forwards but never back.
        starts = cluster.offsets.begins(source.topic, source.partitions)
        for n, (floor, start) in enumerate(zip(floors, starts, strict=True)):
            if start <= floor:
                continue
            marker = _last(kafka, names.changelog("ingest", source.name), n)
            mine = marker is not None and marker.genesis == names.genesis
            at, clock = (marker.applied, marker.clock) if marker and mine else (0, 0)
            if start > (at := max(at, floor)):
                found.append(Loss(source.topic, n, at, start, clock))
    return found


def check_lost(found: Iterable[Loss]) -> None:
    """Refuse to start if records were lost.

    Raises:
        EngineError: records were lost; the message says what to do.
    """
    # Do not name offsets: in a raw topic they are exact counts.
    if places := ", ".join(sorted(f"{one.topic}-{one.partition}" for one in found)):
        raise EngineError(
            f"records of {places} were deleted before they were used (retention of the topic): "
            "nothing is charged or released until they are restored, or until you have accepted "
            "the loss with `hush accept-loss`, which writes it to the ledger"
        )


async def check_kept(kafka: Kafka, tp: tuple[str, int], applied: int) -> None:
    """Check that a raw partition still has all records from ``applied`` on, which its shard needs.

    Raises:
        EngineError: some were deleted.
    """
    place = Place(*tp)
    async with clients.reader(kafka) as client:
        begin = (await client.beginning_offsets([place]))[place]
    if begin > applied:
        check_lost([Loss(place.topic, place.partition, applied, begin, 0)])


def _last(kafka: Kafka, changelog: str, partition: int) -> Marker | None:
    """The last committed marker of a shard; None if it has none."""
    with closing(consumer(kafka, committed=True)) as client:
        begin, end = watermarks(client, TopicPartition(changelog, partition))
        for start in clients.backwards(begin, end, TAIL, TAIL):
            row = _last_row(kafka, client, TopicPartition(changelog, partition, start))
            if row is not None:
                return decode_marker(row)
    return None


def _last_row(kafka: Kafka, client: Consumer, place: TopicPartition) -> bytes | None:
    client.assign([place])
    row: bytes | None = None
    while True:
        message = client.poll(PATIENCE_SECONDS)
        if message is None:
            raise OutageError(f"{place.topic} could not be read: the broker is silent")
        if (error := message.error()) is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                return row
            check(kafka, f"{place.topic}-{place.partition}", error, place.topic)
        elif message.key() == MARKER:
            row = message.value()
