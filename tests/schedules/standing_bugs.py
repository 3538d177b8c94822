"""Mistakes of copies and of the hand-over, put back one at a time; `bugs` lists them.

Their seeds are those of deployments with standbys, from `recipe.STANDING` on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from aiokafka.errors import ProducerFenced
from aiokafka.structs import TopicPartition
from hushstream.agents.clock import owner
from hushstream.agents.kafka.clients import reached, reader
from hushstream.agents.kafka.patience import through_outages
from hushstream.agents.state.layout import MARKER
from hushstream.agents.worker.owned_clock import OwnedClock
from hushstream.agents.worker.shards.shard import Shard
from hushstream.agents.worker.tables import local_state, standbys
from hushstream.agents.worker.tables.evidence import TOLD, Known, known_of
from hushstream.agents.worker.tables.local_state import LocalState
from hushstream.topics.records import Marker, decode_marker

from .loop import HERE
from .recipe import STANDING


def unread_copy() -> None:
    """A shard continues from a copy without reading the changelog beyond it."""
    restored = LocalState.open

    async def believing(self: LocalState) -> Marker | None:
        if not self.ready:
            return await restored(self)
        async with reader(self._shared.kafka) as client:
            self.end = (await reached(client, {self.place: self.position}))[self.place]
        (row,) = self.table.get_many([MARKER])
        return None if row is None else decode_marker(row)

    LocalState.open = believing  # type: ignore[method-assign]


def uncommitted_copy() -> None:
    """A copy takes all rows of its changelog, even those of uncommitted transactions."""
    standbys.reader = partial(reader, committed=False)


def foreign_copy() -> None:
    """A copy is trusted, whatever genesis its table belonged to."""
    own = LocalState._known

    def believing(self: LocalState, store: Any) -> Known | None:
        stands_by = isinstance(self.moved, partial)
        return known_of(*store.get_many(TOLD)) if stands_by else own(self, store)

    LocalState._known = believing  # type: ignore[method-assign]


def mixed_copy() -> None:
    """A copy follows its changelog even after a rewind."""

    async def continues(*_: Any) -> bool:
        return True

    local_state.continues = continues


def blind_copy() -> None:
    """A copy is no evidence of a rewound cluster: it is followed and used as far as it goes."""
    restored = LocalState.open

    async def ends(client: Any, known: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = await client.end_offsets([*known])
        return found

    async def believing(self: LocalState) -> Marker | None:
        if not self.ready:
            return await restored(self)
        async with reader(self._shared.kafka) as client:
            self.end = (await client.end_offsets([self.place]))[self.place]
            await self.follow(client, self.end, self._shared.executor)
        (row,) = self.table.get_many([MARKER])
        return None if row is None else decode_marker(row)

    mixed_copy()
    standbys.reached = ends
    LocalState.open = believing  # type: ignore[method-assign]


def copy_without_end() -> None:
    """A copy is still followed after its shard has taken it: old rows overwrite new ones."""
    begun = standbys.Standbys.match

    async def take(self: standbys.Standbys, tp: Any) -> LocalState | None:
        copy = self._copies.get(tp)
        return copy.state if copy is not None and copy.state.ready else None

    async def match(self: standbys.Standbys, wanted: Any) -> None:
        await begun(self, wanted | {tp for tp, one in self._copies.items() if one.state.ready})

    standbys.Standbys.take = take  # type: ignore[method-assign]
    standbys.Standbys.match = match  # type: ignore[method-assign]


def unaware_shards() -> None:
    """Shards of a worker that has left reopen after they are fenced, like those that stay."""
    Shard.leave = lambda self: None  # type: ignore[method-assign]


def unaware_clock() -> None:
    """The clock of a worker that has left reopens after it is fenced."""
    OwnedClock.leave = lambda self: None  # type: ignore[method-assign]


def two_clocks() -> None:
    """No clock is ever fenced: it beats until its worker has ended, beside the next clock."""
    made = owner.transactional_producer

    def own(kafka: Any, identity: str, timeout: int) -> Any:
        process = HERE.get()
        return made(kafka, f"{identity}.{process.name if process else ''}", timeout)

    owner.transactional_producer = own


def late_clock() -> None:
    """A fenced clock reopens, even if its worker has left meanwhile."""

    async def again(self: owner.ClockOwner, error: BaseException) -> None:
        await asyncio.sleep(3.0 if isinstance(error, ProducerFenced) else 1.0)
        await self.close()
        await through_outages(self.progress, self._acquire, self.close, self._kafka.outage_timeout)

    owner.ClockOwner._again = again  # type: ignore[method-assign]


OF_STANDBYS: dict[str, Callable[[], None]] = {
    "unread copy": unread_copy,
    "uncommitted copy": uncommitted_copy,
    "foreign copy": foreign_copy,
    "blind copy": blind_copy,
    "copy without end": copy_without_end,
    "unaware shards": unaware_shards,
    "unaware clock": unaware_clock,
    "two clocks": two_clocks,
    "late clock": late_clock,
}
WITHIN = {
    "unread copy": 100,
    "uncommitted copy": 300,
    "foreign copy": 300,
    "blind copy": 6000,
    "copy without end": 100,
    "unaware shards": 100,
    "unaware clock": 100,
    "two clocks": 200,
    "late clock": 600,
}
AT = {
    "unread copy": STANDING + 7,
    "uncommitted copy": STANDING + 42,
    "foreign copy": STANDING + 10,
    "blind copy": STANDING + 4214,
    "copy without end": STANDING + 6,
    "unaware shards": STANDING,
    "unaware clock": STANDING,
    "two clocks": STANDING + 14,
    "late clock": STANDING + 601,
}
