"""A restart beside standbys: others take over before a worker stops, and it comes back warm.

A named worker stays in its group when it stops, since it usually comes back to the same tables. Its
shards would wait for it, and the clock for the end of its session, while open copies stand by. So
such a worker leaves the group at once, and goes on meanwhile as every owner does in a rebalance:
whoever opens a shard or the clock fences it, which ends it here. Before it joins again, it brings
the tables on its disk up to date, so that its shards are open at once there too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Protocol

from aiokafka.errors import KafkaError
from confluent_kafka import KafkaException
from faust.types import TP

from ...errors import HushError
from ..kafka.transport import Consumer
from ..stages.topology import Place
from .tables.standbys import Standbys

log = logging.getLogger("hushstream.worker")

GROUP_SECONDS = 3.0  # for the group to answer
WARM_SECONDS = 30.0  # for tables on the disk to come near the ends of their changelogs
TAKEN_SECONDS = 6.0  # for others to take over; what is idle meanwhile does not learn of it
LOOK_SECONDS = 0.05
ASK = 20  # looks until the group is asked again


class Leaver(Protocol):
    """A shard, or the clock, which another worker takes over."""

    def leave(self) -> None:
        """Go on until another worker has fenced it, and do not open again."""

    @property
    def left(self) -> bool:
        """Whether it has ended."""


async def hand_over(
    consumer: Consumer, others: Callable[[], bool], served: Callable[[], Mapping[Any, Leaver]]
) -> None:
    """Leave the group, and serve until all was taken over, at most for `TAKEN_SECONDS`.

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
            return  # all of them have left, as where a whole machine stops
        await asyncio.sleep(LOOK_SECONDS)


async def come_back(
    standbys: Standbys, claimed: Collection[Place], others: Callable[[], bool]
) -> None:
    """Bring tables up to date while others serve, at most for `WARM_SECONDS`.

    Args:
        claimed: partitions whose tables are on the disk.
        others: as for `hand_over`.
    """
    if claimed and await _asked(others):
        await standbys.warm({TP(*place) for place in claimed}, WARM_SECONDS)


async def _asked(others: Callable[[], bool]) -> bool:
    """Whether there are others; where that is not known, nobody may be there."""
    found = False
    with suppress(HushError, KafkaException):
        found = await asyncio.to_thread(others)
    return found


def _leave(served: Mapping[Any, Leaver]) -> bool:
    """Have everything leave, also what a rebalance has opened since; return whether it has."""
    for one in served.values():
        one.leave()
    return all(one.left for one in served.values())
