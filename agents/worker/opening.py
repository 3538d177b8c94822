"""Checks before a shard goes on from its marker: the logs must be of the marker's history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.structs import TopicPartition as TP

from ...errors import RewoundError
from ...topics.config.model import Kafka
from ...topics.records import Marker
from ...topics.releases import MANIFEST
from ..clock.log import ClockLog
from ..clock.loss.found import check_kept
from ..kafka.clients import read_span, reader
from ..stages.topology import AGGREGATE, StageSpec

if TYPE_CHECKING:
    from .log_follower import LogFollower


async def check_opening(
    kafka: Kafka,
    follower: LogFollower,
    stage: StageSpec,
    tp: TP,
    marker: Marker,
    end: int,
) -> None:
    """Check that the logs are of this history, and read the beats from the marker's place on.

    Args:
        end: end of the changelog as read; the marker is the last one before it.

    Raises:
        RewoundError: a log ends before the position in the marker, or differs from what was read,
            or the shard has released more than the marker says.
        EngineError: raw records from there on were deleted.
    """
    whole = await follower.check({tp: marker.applied, follower.place: marker.clock})
    if stage.pipeline is None:
        await check_kept(kafka, tp, marker.applied)
        pipelines = [p.name for p in stage.source.pipelines]
        await follower.reach_back(marker.clock, pipelines, (tp.topic, tp.partition))
        check_passed(follower.clock, marker)
    elif stage.stage == AGGREGATE:
        shard = tp.partition - stage.first
        if await has_released(kafka, follower.clock, whole, stage, shard, marker):
            await _check_end(kafka, TP(stage.changelog, tp.partition), end)


def check_passed(clock: ClockLog, marker: Marker) -> None:
    """Check that a shard has applied the entry that is just before its place in the clock log.

    A clock log that alone loses its end and grows again would cut the stream elsewhere, and no
    replay could follow. An entry that was trimmed is not compared.

    Raises:
        RewoundError: another entry is there, or none.
    """
    there = clock.passed(marker.clock)
    if marker.passed and there is not None and there != marker.passed:
        raise RewoundError("the clock log has another entry than the last one that a shard applied")


async def has_released(
    kafka: Kafka, clock: ClockLog, whole: bool, stage: StageSpec, shard: int, marker: Marker
) -> bool:
    """Whether a shard has published a release after the one in its marker.

    If a changelog alone loses its end, and no table is left, only the release topic shows that the
    shard would release a trigger for the second time.

    Args:
        whole: whether all triggers are in ``clock``; if so, most starts need not look.
    """
    pipeline = stage.pipeline
    assert pipeline is not None
    _, fired = clock.called(pipeline.name)
    closed, first = marker.closed.get(pipeline.name, 0), clock.first(pipeline.name)
    if (whole and fired <= closed) or first is None or (closed and not marker.released):
        return False  # nothing was due, or an earlier version has written the marker
    since = marker.released + 1 if closed else pipeline.windows.opens(first) // 1000
    place = TP(pipeline.release_topic, shard % pipeline.release_partitions)
    async with reader(kafka) as client:
        begin = (await client.offsets_for_times({place: since}))[place]
        if begin is None:
            return False
        end = (await client.end_offsets([place]))[place]
        client.assign([place])
        async for records, _ in read_span(client, place, begin.offset, end):
            later = (one for one in records if one.timestamp >= since)
            if any(_ends_release(one, pipeline.name, shard) for one in later):
                return True
    return False


async def _check_end(kafka: Kafka, changelog: TP, end: int) -> None:
    """Check that another owner has written to a changelog since it was read: it has published.

    That owner has fenced this one, whose first step will be refused. A publication writes to the
    changelog before it can be read.

    Raises:
        RewoundError: nobody has, so the changelog lacks what was published.
    """
    async with reader(kafka, committed=False) as client:
        if (await client.end_offsets([changelog]))[changelog] <= end:
            name = f"{changelog.topic}-{changelog.partition}"
            raise RewoundError(f"{name} lacks a release that its shard has published")


def _ends_release(record: Any, pipeline: str, shard: int) -> bool:
    """Whether a record is the manifest of a shard."""
    if not record.headers or record.headers[0][0] != MANIFEST:
        return False
    key: bytes = record.key
    return key.startswith(f"{pipeline}|".encode()) and key.endswith(f"|manifest:{shard}".encode())
