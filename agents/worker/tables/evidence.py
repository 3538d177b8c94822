"""Evidence that a cluster was rewound: a table that is ahead of the cluster's own logs.

Tables follow changelogs, and committed logs never shrink. So a table beyond the end of its
changelog, or with a marker that the changelog has not reached, shows that the cluster was restored
or copied from an earlier moment. Such a table is kept: without it, the worker would release the
same triggers again with different contents.

A rewound log may have grown again, beyond the table's position. Each transaction has a unique name,
in its marker. So if a table's last transaction is missing where it was read, the table comes from
another history. Continuing from it would mix two histories, and the same noise could cover two
contents.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition as Place
from confluent_kafka import Consumer, KafkaError, TopicPartition

from ....errors import OutageError, RewoundError
from ....topics.config.model import Kafka
from ....topics.names import Names
from ....topics.records import Marker, decode_marker
from ...kafka.clients import read_span
from ...kafka.cluster import Cluster
from ...kafka.logs import PATIENCE_SECONDS, check, consumer, watermarks
from ...kafka.markers import Sought, tells_aborted
from ...kafka.offsets import confirmed
from ...state.layout import MARKER, PLAIN_POSITION, POSITION, SEEN
from ...state.rocks import read_rows

TOLD = POSITION, PLAIN_POSITION, MARKER, SEEN  # rows that record the progress of a table
STALE_SECONDS = 20 * 3600  # below delete.retention.ms of the changelogs (24 h)
NEAR = 64  # records below a table's position in which a start looks for its marker


@dataclass(frozen=True)
class Known:
    """The progress of a table, as the table itself records it.

    Attributes:
        position: changelog offset before which the table held everything, on disk or in memory.
        marker: the last marker at that position.
        start: offset before which everything is on disk; None: restore all, because the changelog
            may lack deletions after that offset, or the rows have an earlier version's layout.
    """

    position: int
    marker: Marker
    start: int | None


def known_of(
    position: bytes | None, plain: bytes | None, marker: bytes | None, seen: bytes | None
) -> Known | None:
    """Read a table's progress from its rows (`TOLD`); None if there is none.

    Args:
        position: JSON with a changelog offset and the time when it was written, seconds.
        plain: the same for a table in the earlier row layout; it counts as evidence, and the table
            is restored from scratch.
        seen: progress that was newer than the other rows when it was written (`seen_row`).
    """
    told, start = list[tuple[int, float, bytes]](), None
    if marker is not None and (said := json.loads(plain or position or b"null")) is not None:
        told.append((int(said["offset"]), said["time"], marker))
        if plain is None and 0 <= time.time() - said["time"] < STALE_SECONDS:
            start = int(said["offset"])
    if seen is not None:
        where, _, last = seen.partition(b"\n")
        said = json.loads(where)
        told.append((int(said["offset"]), said["time"], last))
    if not told:
        return None
    reached, _, last = max(told)  # a restore may end where the next step begins
    return Known(reached, decode_marker(last), start)


def seen_row(position: bytes | None, marker: bytes | None) -> bytes | None:
    """Join the two rows that record a table's progress; None if one is missing."""
    return None if position is None or marker is None else position + b"\n" + marker


def check_forward(name: str, before: Marker, after: Marker | None) -> None:
    """Check that the changelog's last marker is not behind one that a table has seen.

    Args:
        after: last marker of the changelog; None: it has none.

    Raises:
        RewoundError: it is behind, so the changelog was rewound.
    """
    if after is None or any(new < old for old, new in _pairs(before, after)):
        raise RewoundError(f"the changelog of {name} is behind the table of it here")


def _pairs(before: Marker, after: Marker) -> Iterator[tuple[int, int]]:
    """Pair the numbers of a marker that only grow, before and after."""
    yield before.applied, after.applied
    yield before.clock, after.clock
    for name in before.closed.keys() & after.closed.keys():
        yield before.closed[name], after.closed[name]
    for name in before.upstream.keys() & after.upstream.keys():
        yield from zip(before.upstream[name], after.upstream[name], strict=False)


def check_same(name: str, sought: Sought) -> bool:
    """Check that a table comes from the history in its changelog.

    Compaction deletes all markers below some place except the newest there. So if an older marker
    is still there, the table's marker was never in this log.

    Returns:
        Whether the table may be used. If not, its history cannot be shown, and all of it must be
        restored: either compaction has deleted its marker, or brokers forgot a transaction whose
        commit they had answered, and another worker has aborted it.

    Raises:
        RewoundError: the changelog has other transactions in that place.
    """
    if sought.aborted:
        return False
    if not sought.found and sought.before:
        raise RewoundError(f"the changelog of {name} has another history than the table of it here")
    return sought.found


def check_tables(kafka: Kafka, cluster: Cluster, names: Names, data_dir: Path) -> int:
    """Compare every table of a worker with its changelog; return the number of tables.

    This includes tables whose partitions other workers now own, since those workers may have no
    table as evidence.

    Raises:
        RewoundError: a table is ahead of its changelog, or of another history.
    """
    folders = sorted((data_dir / names.genesis).glob("*/[0-9]*"))
    known = {folder: found for folder in folders if (found := known_in(folder)) is not None}
    if ahead := confirmed(lambda: _ahead(cluster, names, known)):
        raise RewoundError(f"{ahead} ends before what the table of it here has read")
    _check_histories(kafka, cluster, names, known)
    return len(known)


def _check_histories(
    kafka: Kafka, cluster: Cluster, names: Names, known: dict[Path, Known]
) -> None:
    """Look for the last transaction of each table near its place in the changelog.

    A transaction that is not found near may lie further off; the shard finds out when it opens.
    """
    there = cluster.topics()
    with closing(consumer(kafka, committed=True)) as client:
        for folder, one in known.items():
            topic, number = folder.parent.name, int(folder.name)
            if one.marker.genesis == names.genesis and topic in there:
                check_near(kafka, cluster, client, TopicPartition(topic, number), one)


def check_near(
    kafka: Kafka, cluster: Cluster, client: Consumer, place: TopicPartition, known: Known
) -> None:
    """Compare a table with the part of its changelog partition around its position.

    Raises:
        RewoundError: other transactions are there.
        OutageError: the broker is silent.
        EngineError: it reports an error.
    """
    sought = _near(kafka, cluster, client, place, known)
    if sought is not None and sought.before:
        # Again: compaction meanwhile may have deleted the marker, but those before it first.
        sought = _near(kafka, cluster, client, place, known)
    if sought is not None:
        check_same(f"{place.topic}-{place.partition}", sought)


def _near(
    kafka: Kafka, cluster: Cluster, client: Consumer, place: TopicPartition, known: Known
) -> Sought | None:
    """Look for a table's transaction around its position; None: it is there, or may be."""
    begin = max(watermarks(client, place)[0], known.position - NEAR)
    client.assign([TopicPartition(place.topic, place.partition, begin)])
    before = False
    for _ in range(2 * NEAR):
        message = client.poll(PATIENCE_SECONDS)
        if message is None:
            raise OutageError(f"{place.topic} could not be read: the broker is silent")
        if (error := message.error()) is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                if message.offset() < cluster.offsets.written(place.topic, place.partition):
                    return None  # the table's transaction may be just becoming visible
                break
            check(kafka, f"{place.topic}-{place.partition}", error, place.topic)
        elif message.key() == MARKER:
            there = decode_marker(message.value())
            if there == known.marker or tells_aborted(there, known.marker):
                return None
            if message.offset() >= known.position:
                break
            before = True
    else:
        return None
    return Sought(None, False, before)


def known_in(folder: Path) -> Known | None:
    """Read the progress of a table from its folder; None if it cannot be read."""
    try:
        rows = read_rows(folder, TOLD)
    except Exception:  # damaged, or in use by another process; its shard checks again
        return None
    return known_of(*rows)


def _ahead(cluster: Cluster, names: Names, known: dict[Path, Known]) -> str:
    """Name a changelog partition that ends below its table's position; empty if there is none."""
    topics = cluster.topics()
    changelogs = {folder.parent.name for folder in known} & set(topics)
    ends = {topic: cluster.offsets.ends(topic, topics[topic]) for topic in changelogs}
    for folder, one in known.items():
        topic, number = folder.parent.name, int(folder.name)
        if one.marker.genesis != names.genesis or topic not in ends:
            continue  # its pipeline was removed; topics that must exist are checked elsewhere
        if number >= len(ends[topic]) or ends[topic][number] < one.position:
            return f"{topic}-{number}"
    return ""


class LastRead:
    """The last records that a worker has read of each log, to recognise the log's history.

    A rewound log may have grown since, so its end alone shows nothing. If two histories agree in
    one record, they agree in all before it: no two records of clocks or releases are equal.
    """

    def __init__(self) -> None:
        # Offset and value of the last record of each list read since the last check.
        self._known: dict[Place, list[tuple[int, bytes | None]]] = {}

    @property
    def places(self) -> list[Place]:
        """Logs of which something was read."""
        return list(self._known)

    @property
    def unchecked(self) -> bool:
        """Whether more than one record of a log waits to be checked."""
        return any(len(known) > 1 for known in self._known.values())

    def number(self, place: Place) -> int:
        """Count the records of a log that are kept."""
        return len(self._known.get(place, ()))

    def add(self, place: Place, record: Any, before: int | None) -> None:
        """Keep the last record of a list.

        Args:
            before: number of records kept when this reading began; the new one replaces those kept
                since. None: it replaces none.
        """
        known = self._known.setdefault(place, [])
        known[len(known) if before is None else before :] = [(record.offset, record.value)]

    async def check(self, client: AIOKafkaConsumer) -> None:
        """Check that each log still has the records that were read since the last check.

        Args:
            client: client with the logs assigned; its positions are moved.

        Raises:
            RewoundError: another record is there.
        """
        read = {place: list(known) for place, known in self._known.items()}
        begins = await client.beginning_offsets(list(read))
        for place, known in read.items():
            there = [one for one in known if one[0] >= begins[place]]  # others were trimmed
            if there and await _missing(client, place, there):
                raise RewoundError(f"{place.topic} lacks records that this worker has read")
            kept = self._known[place]
            if known[-1] in kept:
                del kept[: kept.index(known[-1])]


async def _missing(
    client: AIOKafkaConsumer, place: Place, known: Sequence[tuple[int, bytes | None]]
) -> bool:
    """Whether a log lacks one of the records, given by offset and value."""
    wanted = set(known)
    async for records, _ in read_span(client, place, known[0][0], known[-1][0] + 1):
        wanted -= {(record.offset, record.value) for record in records}
    return bool(wanted)
