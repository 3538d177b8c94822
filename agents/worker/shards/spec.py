"""The names and limits of a shard, and the interface of the worker to its shards."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from aiokafka.structs import TopicPartition as TP

from ....topics.records import Marker
from ...stages.topology import Place
from ..shared import Shared
from ..tables.local_state import LocalState
from .rest import Rest
from .transaction import Find, here


class Host(Protocol):
    """The interface of the worker to its shards."""

    def flow(self, tp: TP, open_: bool) -> None:
        """Resume or pause the input of a shard."""

    async def seek(self, tp: TP, position: int) -> None:
        """Fetch the input of a shard from another offset on."""

    async def before_open(self, tp: TP, marker: Marker, end: int) -> None:
        """Prepare the opening of a shard with the last marker before ``end`` of its changelog."""

    def fail(self, error: BaseException) -> None:
        """Stop the worker."""


@dataclass(frozen=True)
class ShardSpec:
    """The input and the state of a shard, by name."""

    tp: TP
    transactional_id: str  # fences any other owner, with the next
    changelog: str  # topic of this stage's state; same partition number
    written: tuple[Collection[Place], Collection[Place]]  # see `Topology.written`
    publishing_id: str = ""  # of transactions that the public reads; empty: the same
    begin: int = 0  # offset where the input began when the deployment did
    hold: int = 0  # rows kept in memory before they are written to disk
    step_bytes: int = 0  # bytes of records offered to one step; 0: all held records
    step_records: int = 0  # most records of one step; 0: all held records
    resume: int = 0  # offset before which records are skipped, since their loss was accepted
    place: Find = here  # maps topics that its stage sends to
    rest: Rest | None = None  # rest between its steps; None: none
    is_barrier: Callable[[bytes], bool] | None = None  # see `Backlog`

    def state(self, shared: Shared, moved: Callable[[], None]) -> LocalState:
        """Make the table, closed; ``moved`` as for `LocalState`."""
        return LocalState(shared, self.changelog, self.tp.partition, self.hold, moved)
