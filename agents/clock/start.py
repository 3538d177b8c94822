"""Checks at a start: every trigger was paid for, and raw topics still reach the clock log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress

from confluent_kafka import KafkaError, TopicPartition

from ...errors import LedgerError, OutageError, RewoundError
from ...formats.events.decode import RawRecord
from ...topics.config.model import Kafka
from ...topics.names import Names
from ...topics.records import is_snapshot
from ..deployment.model import Deployment
from ..kafka.access.refusals import of_group, refusal
from ..kafka.clients import backwards
from ..kafka.cluster import Cluster
from ..kafka.logs import PATIENCE_SECONDS, consumer, raw, watermarks
from ..kafka.offsets import confirmed
from .genesis import read_ledger
from .ledger import Ledger
from .log import ALL, entries_of
from .paid import Clocked
from .snapshots import GROWTH, TAIL, Opening, needed
from .timeline import Timeline, advance, fold, resumed

LIST = 10_000  # records of one list


def check_clock_log(
    kafka: Kafka, cluster: Cluster, names: Names, ledger: Ledger, deployment: Deployment
) -> tuple[Ledger, dict[str, Timeline]]:
    """Check the clock log against ledger and raw topics.

    Returns:
        The ledger, read again if the clock has charged something meanwhile; and the timelines of
        all pipelines.

    Raises:
        LedgerError: a trigger was not paid for by this ledger.
        RewoundError: raw topics end below what the clock log has covered.
        EngineError: the clock log has a gap.
    """
    read, horizons = Clocked(), {p.name: p.traits.horizon for p in deployment.pipelines}
    lines = read_standing(kafka, names, horizons, read)
    ledger = check_paid(cluster, read, ledger, names)
    for topic, partitions in ((i.topic, i.partitions) for i in deployment.inputs):
        _check_ends(cluster, topic, read.reached.get(topic, [0] * partitions))
    return ledger, lines


def read_clock(kafka: Kafka, names: Names, horizons: Mapping[str, int]) -> Clocked:
    """Read the whole clock log, decoding only the last beat of each list.

    Args:
        horizons: triggers per window, by pipeline.

    Raises:
        EngineError: the log has a gap, or goes back.
    """
    read = Clocked()
    read_standing(kafka, names, horizons, read)
    return read


def read_standing(
    kafka: Kafka, names: Names, horizons: Mapping[str, int], read: Clocked
) -> dict[str, Timeline]:
    """Read the timelines of all pipelines at the end of the clock log, from the needed snapshot on.

    Raises:
        EngineError: the log has a gap, goes back, or the broker is silent.
    """
    start = beginning_of(kafka, names.clock)
    opening, timelines = Opening(start), fold((), dict(horizons))
    for records in committed_lists(kafka, names.clock, start):
        entries = entries_of(records, ALL)
        if (snapshot := opening.first(entries)) is not None:
            timelines = resumed(snapshot, dict(horizons))
            read.begin(snapshot)
        for _, record in entries:
            advance(timelines, record)
            read.take(record)
    opening.end()
    return timelines


def last_triggers(kafka: Kafka, names: Names, pipelines: Iterable[str]) -> dict[str, int]:
    """Read the number of the last trigger of each pipeline, configured or not; 0 before the first.

    Raises:
        EngineError: the log has a gap, goes back, or the broker is silent.
    """
    found = read_standing(kafka, names, dict.fromkeys(pipelines, 0), Clocked())
    return {name: line.ordinal for name, line in found.items()}


def beginning_of(kafka: Kafka, topic: str) -> int:
    """Find where a reader of the clock log begins; see `snapshots.beginning`."""
    with closing(consumer(kafka, committed=True)) as client:
        begin, end = watermarks(client, TopicPartition(topic, 0))
    for start in backwards(begin, end, TAIL, GROWTH):
        lists = committed_lists(kafka, topic, start)
        found = needed(r.value for records in lists for r in records if is_snapshot(r.value))
        if found is not None:
            return max(found, begin)
    return begin


def check_paid(cluster: Cluster, read: Clocked, ledger: Ledger, names: Names) -> Ledger:
    """Return the ledger that pays for every trigger; read it again if it lacks a charge.

    A running clock charges and fires in one transaction, so a ledger that is read after the clock
    log has every charge that the log needs, unless brokers have yet to end that transaction in the
    ledger. They are given `kafka.outage_timeout`.

    Raises:
        LedgerError: a trigger was not paid for.
    """
    with suppress(LedgerError):
        read.check_paid(ledger)
        return ledger
    until = time.monotonic() + cluster.kafka.outage_timeout / 1e6
    while True:
        ending = time.monotonic() < until and cluster.offsets.open(names.ledger)
        ledger = read_ledger(cluster, names.deployment)
        try:
            read.check_paid(ledger)
            return ledger
        except LedgerError:
            if not ending:
                raise


def committed_lists(kafka: Kafka, topic: str, start: int = 0) -> Iterator[list[RawRecord]]:
    """Read the committed records of a topic of one partition, from its beginning to its end.

    Args:
        start: offset at which to begin, unless the topic begins later.

    Yields:
        Lists of records, at most `LIST` of them; possibly empty.

    Raises:
        OutageError: the broker is silent, or the partition has no leader.
        RightError: the cluster refuses the right to read.
    """
    with closing(consumer(kafka, committed=True)) as client:
        place = TopicPartition(topic, 0)
        begin, _ = watermarks(client, place)
        client.assign([TopicPartition(topic, 0, max(begin, start))])
        ended, heard = False, time.monotonic()
        while not ended:
            found = client.consume(LIST, timeout=0.2)
            errors = [m.error() for m in found if m.error()]
            for error in errors:
                refused = None if of_group(error) else refusal(kafka, error, "READ", topic)
                if refused is not None:
                    raise refused
            ended = any(e.code() == KafkaError._PARTITION_EOF for e in errors)
            if found:
                heard = time.monotonic()
            if time.monotonic() - heard > PATIENCE_SECONDS:
                raise OutageError(f"{topic} could not be read to its end: the broker is silent")
            yield [raw(m) for m in found if not m.error()]


def _check_ends(cluster: Cluster, topic: str, reached: list[int]) -> None:
    """Refuse a raw topic that ends below a beat or cut, because it has lost counted records.

    Its next records would get offsets that were counted already, and would never be seen.
    """

    def behind() -> str:
        ends = cluster.offsets.ends(topic, len(reached))
        return topic if any(a < b for a, b in zip(ends, reached, strict=True)) else ""

    if confirmed(behind):
        raise RewoundError(f"topic {topic} ends before what the clock log has covered of it")
