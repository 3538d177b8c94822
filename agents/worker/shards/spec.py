"""A shard by name, and the worker as far as a shard needs it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from faust.types import TP

from ....topics.records import Marker
from ...stages.topology import Place
from ..shared import Shared
from ..tables.local_state import LocalState
from .rest import Rest
from .transaction import Find, here


class Host(Protocol):
    """The worker, as far as a shard needs it."""

    def flow(self, tp: TP, open_: bool) -> None:
        """Resume or pause the input of a shard."""

    async def seek(self, tp: TP, position: int) -> None:
        """Fetch the input of a shard from another offset on."""

    async def before_open(self, tp: TP, marker: Marker) -> None:
        """Make ready what a shard needs whose committed marker is ``marker``."""

    def fail(self, error: BaseException) -> None:
        """Stop the worker."""


@dataclass(frozen=True)
class ShardSpec:
    """The input and the state of a shard, by name."""

    tp: TP
    transactional_id: str  # fences any other owner
    changelog: str  # topic of this stage's state; same partition number
    written: tuple[Collection[Place], Collection[Place]]  # see `Topology.written`
    begin: int = 0  # offset where the input began when the deployment did
    hold: int = 0  # rows kept in memory before they are written to disk
    step_bytes: int = 0  # of records offered to one step; 0: all that are held
    step_records: int = 0  # that one step takes at the most; 0: all that are held
    resume: int = 0  # offset before which nothing is left to use, since a loss was accepted
    place: Find = here  # where the topics lie that its stage sends to
    rest: Rest | None = None  # between its steps; None: none

    def state(self, shared: Shared, moved: Callable[[], None]) -> LocalState:
        """Make its table, closed; ``moved`` as for `LocalState`."""
        return LocalState(shared, self.changelog, self.tp.partition, self.hold, moved)
