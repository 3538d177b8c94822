"""An orderly stop beside standbys: leave the group first, and serve until others have taken over.

A named worker stays in its group when it stops, since it usually comes back to the same tables. Its
shards would wait for it, and the clock for the end of its session, while open copies stand by. So
such a worker leaves the group at once, and goes on meanwhile as every owner does in a rebalance:
whoever opens a shard or the clock fences it, which ends it here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from aiokafka.errors import KafkaError
from confluent_kafka import KafkaException

from ...errors import HushError
from ..kafka.transport import Consumer

log = logging.getLogger("hushstream.worker")

GROUP_SECONDS = 3.0  # for the group to answer
TAKEN_SECONDS = 6.0  # for others to take over; what is idle meanwhile does not learn of it
LOOK_SECONDS = 0.05


class Leaver(Protocol):
    """What another worker takes over: a shard, or the clock."""

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
            if not await asyncio.to_thread(others):
                return
            _leave(served())  # before they can be fenced
            await consumer.leave()
    except (TimeoutError, HushError, KafkaError, KafkaException) as error:
        log.debug("the group was not left (%s)", type(error).__name__)
        return
    log.info("left the group: others take over")
    for _ in range(int(TAKEN_SECONDS / LOOK_SECONDS)):
        if _leave(served()):
            return
        await asyncio.sleep(LOOK_SECONDS)


def _leave(served: Mapping[Any, Leaver]) -> bool:
    """Have everything leave, also what a rebalance has opened since; return whether it has."""
    for one in served.values():
        one.leave()
    return all(one.left for one in served.values())
