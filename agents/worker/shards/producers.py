"""The producers of a shard: one for its steps, and one for what the public reads.

Where brokers begin a new epoch with each transaction (``transaction.version`` 2), every batch shows
how many transactions its producer has made. How many of them compute a release depends on how many
keys were seen, which is secret. So batches of public topics come from a producer of their own, all
of whose transactions are publications: released rows alone decide their number
(`agents.stages.aggregate.held_release`).

**At most one transaction is open.** A transaction begins only once the last one of the other
producer has ended in the changelog. So if brokers forget an end, what hangs there is the last step
of the shard, as with one producer (`agents.kafka.forgotten`).

An earlier owner is fenced once both have started. In between it may still commit with the second
one; the state is read only afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.structs import TopicPartition

from ...kafka.clients import start_producer, stop_quietly, transactional_producer
from ...kafka.forgotten import ended
from ..shared import Shared
from .spec import ShardSpec


class Producers:
    """The producers of one shard, which are both open or both closed.

    Attributes:
        steps: producer of all steps but publications; None: closed.
        public: producer of publications; None: closed, or ``steps`` makes these, too.
    """

    def __init__(self, shared: Shared, spec: ShardSpec) -> None:
        self._kafka, self._timeout = shared.kafka, shared.transaction_timeout_ms
        self._spec = spec
        self._changelog = TopicPartition(spec.changelog, spec.tp.partition)
        self.steps: Any = None
        self.public: Any = None
        self._last: Any = None  # producer of the last transaction

    async def start(self, answered: Callable[[], Awaitable[bool]]) -> None:
        """Fence earlier owners; when this returns, their transactions have ended.

        Args:
            answered: see `end_forgotten`.
        """
        own, public = ([TopicPartition(*one) for one in places] for places in self._spec.written)
        apart = self._spec.publishing_id
        self.steps = self._made(self._spec.transactional_id)
        await start_producer(self.steps, own, () if apart else public, answered)
        if apart:
            self.public = self._made(apart)
            await start_producer(self.public, [self._changelog], public, answered)

    def _made(self, identity: str) -> Any:
        return transactional_producer(self._kafka, identity, self._timeout)

    async def next(self, publication: bool) -> Any:
        """Return the producer of the next transaction.

        Raises:
            KafkaError: the last transaction of the other has not ended, or no broker says so.
        """
        wanted = self.public if publication and self.public is not None else self.steps
        if self._last not in (None, wanted):
            await ended(self._last, self._changelog)
        self._last = wanted
        return wanted

    async def stop(self) -> None:
        """Close both; an open transaction stays open."""
        held = [one for one in (self.steps, self.public) if one is not None]
        await asyncio.gather(*map(stop_quietly, held))  # where topics are gone, each takes seconds
        self.steps = self.public = self._last = None
