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
    kafka: Kafka, follower: LogFollower, stage: StageSpec, tp: TP, clock: TP, marker: Marker
) -> None:
    """Check that the logs are of this history, and read the beats from the marker's place on.

    Args:
        clock: partition of the clock log.

    Raises:
        RewoundError: a log ends before the position in the marker, or differs from what was read,
            or the shard has released more than the marker says.
        EngineError: raw records from there on were deleted.
    """
    await follower.check({tp: marker.applied, clock: marker.clock})
    if stage.pipeline is None:
        await check_kept(kafka, tp, marker.applied)
        pipelines = [p.name for p in stage.source.pipelines]
        await follower.reach_back(marker.clock, pipelines, (tp.topic, tp.partition))
    elif stage.stage == AGGREGATE:
        await check_released(kafka, follower.clock, stage, tp.partition - stage.first, marker)


async def check_released(
    kafka: Kafka, clock: ClockLog, stage: StageSpec, shard: int, marker: Marker
) -> None:
    """Check that a shard has published no release after the one in its marker.

    If a changelog alone loses its end, and no table is left, only the release topic shows that the
    shard would release a trigger for the second time.

    Raises:
        RewoundError: a later manifest of the shard is there.
    """
    pipeline = stage.pipeline
    assert pipeline is not None
    _, fired = clock.called(pipeline.name)
    closed, first = marker.closed.get(pipeline.name, 0), clock.first(pipeline.name)
    if fired <= closed or first is None or (closed and not marker.released):
        return  # nothing was due, or an earlier version has written the marker
    since = marker.released + 1 if closed else pipeline.windows.opens(first) // 1000
    place = TP(pipeline.release_topic, shard % pipeline.release_partitions)
    async with reader(kafka) as client:
        begin = (await client.offsets_for_times({place: since}))[place]
        if begin is None:
            return
        end = (await client.end_offsets([place]))[place]
        client.assign([place])
        async for records, _ in read_span(client, place, begin.offset, end):
            later = (one for one in records if one.timestamp >= since)
            if any(_ends_release(one, pipeline.name, shard) for one in later):
                raise RewoundError(
                    f"shard {shard} of pipeline {pipeline.name!r} has published a release that its "
                    "changelog lacks"
                )


def _ends_release(record: Any, pipeline: str, shard: int) -> bool:
    """Whether a record is the manifest of a shard."""
    if not record.headers or record.headers[0][0] != MANIFEST:
        return False
    key: bytes = record.key
    return key.startswith(f"{pipeline}|".encode()) and key.endswith(f"|manifest:{shard}".encode())
