"""Evidence that a cluster was rewound: a table that knows more than the cluster's own logs.

Tables follow changelogs, and committed logs never shrink. So a table beyond the end of its
changelog, or with a marker that the changelog has not reached, shows that the cluster was restored
or copied from an earlier moment. Such a table is kept: to discard it would be to forget what was
released, and to release it again with other contents.

A log that was rewound may have grown again, beyond the table. Each transaction has a name that no
other one has, in its marker. So a table whose last transaction is missing where it was read comes
from another history. What is on disk would then be no state of any moment, and noise drawn for it
could cover two contents.
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
from ...state.layout import MARKER, PLAIN_POSITION, POSITION, SEEN
from ...state.rocks import read_rows

TOLD = POSITION, PLAIN_POSITION, MARKER, SEEN  # rows that tell the progress of a table
STALE_SECONDS = 20 * 3600  # below delete.retention.ms of the changelogs (24 h)
NEAR = 64  # records below a table's position in which its marker is looked for at a start
CONFIRM_SECONDS = 5.0  # a new leader may answer with an older end for a moment


@dataclass(frozen=True)
class Known:
    """The progress of a table, as the table itself records it.

    Attributes:
        position: changelog offset before which everything was in it, on disk or in memory.
        marker: the last one then.
        start: offset before which everything is on disk; None: all must be restored, since the
            changelog may lack deletions from there on, or rows lie as in an earlier version.
    """

    position: int
    marker: Marker
    start: int | None


def known_of(
    position: bytes | None, plain: bytes | None, marker: bytes | None, seen: bytes | None
) -> Known | None:
    """Read a table's progress from its rows (`TOLD`); None if they tell of none.

    Args:
        position: JSON with a changelog offset and the time when it was written, seconds.
        plain: the same of a table whose rows lie as they did before; it is evidence, and is
            restored from nothing.
        seen: what was newer than the rest when it was written (`seen_row`).
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
    """Join the two rows that tell a table's progress; None if one of them is missing."""
    return None if position is None or marker is None else position + b"\n" + marker


def check_forward(name: str, before: Marker, after: Marker | None) -> None:
    """Check that the changelog's last marker is not behind one that a table has seen.

    Args:
        after: the last one of the changelog; None: it has none.

    Raises:
        RewoundError: it is behind: the changelog was rewound, and may have grown since.
    """
    if after is None or any(new < old for old, new in _pairs(before, after)):
        raise RewoundError(f"the changelog of {name} is behind the table of it here")


def _pairs(before: Marker, after: Marker) -> Iterator[tuple[int, int]]:
    """Numbers of a marker that only grow, before and after."""
    yield before.applied, after.applied
    yield before.clock, after.clock
    for name in before.closed.keys() & after.closed.keys():
        yield before.closed[name], after.closed[name]
    for name in before.upstream.keys() & after.upstream.keys():
        yield from zip(before.upstream[name], after.upstream[name], strict=False)


def check_same(name: str, sought: Sought) -> bool:
    """Check that a table comes from the history that its changelog tells.

    Compaction deletes markers from the oldest on, up to some place, but for the newest there. So an
    older marker that is still there shows that the table's was never in this log.

    Returns:
        Whether the table may be used. If not, nothing tells: compaction has deleted its marker; or
        brokers had forgotten its transaction, whose commit they had answered, and another worker
        has aborted that. All of the table must be restored then.

    Raises:
        RewoundError: the changelog has other transactions in that place.
    """
    if sought.aborted:
        return False
    if not sought.found and sought.before:
        raise RewoundError(f"the changelog of {name} has another history than the table of it here")
    return sought.found


def check_tables(kafka: Kafka, cluster: Cluster, names: Names, data_dir: Path) -> int:
    """Hold every table of a worker against its changelog; return their number.

    This includes tables whose partitions other workers have now: those workers have no table that
    could tell them.

    Raises:
        RewoundError: a table is ahead of its changelog, or of another history.
    """
    folders = sorted((data_dir / names.genesis).glob("*/[0-9]*"))
    known = {folder: found for folder in folders if (found := known_in(folder)) is not None}
    until = time.monotonic() + CONFIRM_SECONDS
    while ahead := _ahead(cluster, names, known):
        if time.monotonic() > until:
            raise RewoundError(f"{ahead} ends before what the table of it here has read")
        time.sleep(0.2)
    _check_histories(kafka, cluster, names, known)
    return len(known)


def _check_histories(
    kafka: Kafka, cluster: Cluster, names: Names, known: dict[Path, Known]
) -> None:
    """Look for the last transaction of each table near its place in the changelog.

    Where it is not near, it may lie further off, which the shard finds out when it opens.
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
    """Hold a table against the part of its changelog partition that lies beside its position.

    Raises:
        RewoundError: other transactions are there.
        OutageError: the broker is silent.
        EngineError: it reports an error.
    """
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
                    return  # the table's transaction may be one that is just becoming visible
                break
            check(kafka, f"{place.topic}-{place.partition}", error, place.topic)
        elif message.key() == MARKER:
            there = decode_marker(message.value())
            if there == known.marker or tells_aborted(there, known.marker):
                return
            if message.offset() >= known.position:
                break
            before = True
    else:
        return
    check_same(f"{place.topic}-{place.partition}", Sought(None, False, before))


def known_in(folder: Path) -> Known | None:
    """Read the progress of a table from its folder; None where nothing can be read."""
    try:
        rows = read_rows(folder, TOLD)
    except Exception:  # damaged, or another process is changing it; its shard looks again
        return None
    return known_of(*rows)


def _ahead(cluster: Cluster, names: Names, known: dict[Path, Known]) -> str:
    """A changelog partition that ends below its table's position; empty if there is none."""
    topics = cluster.topics()
    changelogs = {folder.parent.name for folder in known} & set(topics)
    ends = {topic: cluster.offsets.ends(topic, topics[topic]) for topic in changelogs}
    for folder, one in known.items():
        topic, number = folder.parent.name, int(folder.name)
        if one.marker.genesis != names.genesis or topic not in ends:
            continue  # of a pipeline that was removed; missing topics are refused elsewhere
        if number >= len(ends[topic]) or ends[topic][number] < one.position:
            return f"{topic}-{number}"
    return ""


class LastRead:
    """The last records that a worker has read of logs, by which it knows their history again.

    A log that was rewound may have grown since, so its end alone shows nothing. Of logs that are
    the same in one place, all before is the same: no two records of clocks or releases agree.
    """

    def __init__(self) -> None:
        # Offset and value of the last record of each list since the log was last checked.
        self._known: dict[Place, list[tuple[int, bytes | None]]] = {}

    @property
    def places(self) -> list[Place]:
        """Logs of which anything was read."""
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
            before: records kept when this reading began; this one takes the place of those that
                came since. None: none of them.
        """
        known = self._known.setdefault(place, [])
        known[len(known) if before is None else before :] = [(record.offset, record.value)]

    async def check(self, client: AIOKafkaConsumer) -> None:
        """Check that each log still has what was read of it since the last check.

        Args:
            client: client with the logs assigned; its position is moved.

        Raises:
            RewoundError: another record is there.
        """
        read = {place: list(known) for place, known in self._known.items()}
        begins = await client.beginning_offsets(list(read))
        for place, known in read.items():
            there = [one for one in known if one[0] >= begins[place]]  # others were trimmed since
            if there and await _missing(client, place, there):
                raise RewoundError(f"{place.topic} lacks records that this worker has read")
            kept = self._known[place]
            if known[-1] in kept:
                del kept[: kept.index(known[-1])]


async def _missing(
    client: AIOKafkaConsumer, place: Place, known: Sequence[tuple[int, bytes | None]]
) -> bool:
    """Whether a log lacks one of some records, which are given by offset and value."""
    wanted = set(known)
    async for records, _ in read_span(client, place, known[0][0], known[-1][0] + 1):
        wanted -= {(record.offset, record.value) for record in records}
    return bool(wanted)
