"""Restarts with standbys: others take over before a worker stops, and it comes back warm.

A named worker stays in its group when it stops, since it usually comes back to the same tables. Its
shards and the clock would then wait until its session ends, although standbys hold open copies. So
a worker with standbys leaves the group at once. It keeps working meanwhile, as every owner does in
a rebalance: the next owner of a shard, or of the clock, fences it, which ends it here. Before the
worker joins again, it brings the tables on its disk up to date, so that its shards open at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Protocol

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition as TP
from confluent_kafka import KafkaException
from faust.exceptions import FaustError

from ...errors import HushError
from ..kafka.transport import Consumer
from ..stages.topology import Place
from .tables.standbys import Standbys

log = logging.getLogger("hushstream.worker")

GROUP_SECONDS = 3.0  # for the group to answer
WARM_SECONDS = 30.0  # for tables on the disk to catch up with their changelogs, nearly
STOP_SECONDS = 20.0
TAKEN_SECONDS = 6.0  # for others to take over; an idle shard does not notice that it was fenced
LOOK_SECONDS = 0.05
ASK = 20  # looks between two questions to the group


class Leaver(Protocol):
    """A shard, or the clock, that another worker takes over."""

    def leave(self) -> None:
        """Go on until another worker has fenced it, and do not open again."""

    @property
    def left(self) -> bool:
        """Whether it has ended, or has not begun."""


async def hand_over(
    consumer: Consumer, others: Callable[[], bool], served: Callable[[], Mapping[Any, Leaver]]
) -> None:
    """Leave the group, and serve until others have taken over, at most for `TAKEN_SECONDS`.

    Args:
        others: asks the group whether it has other members; may block.
        served: lists what this worker serves.
    """
    try:
        async with asyncio.timeout(GROUP_SECONDS):
            if not await _asked(others):
                return
            _leave(served())  # before they can be fenced
            await consumer.leave()
    except (TimeoutError, KafkaError) as error:
        log.debug("the group was not left (%s)", type(error).__name__)
        return
    log.info("left the group: others take over")
    for look in range(int(TAKEN_SECONDS / LOOK_SECONDS)):
        if _leave(served()):
            return
        if look % ASK == ASK - 1 and not await _asked(others):
            return  # all others have left, as when a whole machine stops
        await asyncio.sleep(LOOK_SECONDS)


async def come_back(
    standbys: Standbys, claimed: Collection[Place], others: Callable[[], bool]
) -> None:
    """Bring tables up to date while others serve, at most for `WARM_SECONDS`.

    Args:
        claimed: partitions whose tables are on the disk.
        others: the same as for `hand_over`.
    """
    if claimed and await _asked(others):
        await standbys.warm({TP(*place) for place in claimed}, WARM_SECONDS)


async def tell_positions(consumer: Consumer) -> None:
    """Commit the shards' positions to the group, whose monitors would see a backlog otherwise."""
    with suppress(TimeoutError, KafkaError, FaustError):
        async with asyncio.timeout(GROUP_SECONDS):
            await consumer.commit()


async def stop_app(app: Any) -> None:
    """Stop Faust, with shards and clock; only log its errors, which would hide the cause."""
    stopping = asyncio.ensure_future(app.stop())
    await asyncio.wait([stopping], timeout=STOP_SECONDS)
    if stopping.done() and not stopping.cancelled() and stopping.exception() is not None:
        log.warning("the consumer did not stop cleanly", exc_info=stopping.exception())


async def _asked(others: Callable[[], bool]) -> bool:
    """Whether there are others; False if the group does not say."""
    found = False
    with suppress(HushError, KafkaException):
        found = await asyncio.to_thread(others)
    return found


def _leave(served: Mapping[Any, Leaver]) -> bool:
    """Make everything leave, also what a rebalance has just opened; return whether all has left."""
    for one in served.values():
        one.leave()
    return all(one.left for one in served.values())
