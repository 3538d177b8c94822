"""Mistakes, put back one at a time: the simulation must find each of them. Six are old ones.

Each is a function that changes the product within this process, to be called after
`patches.install`. `FOUND_AT` says which schedule objects first, `FOUND_WITHIN` how many may pass
until one does where that has changed, and `ONLY` which kind of fault these must have, where few of
all seeds have it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from hushstream.agents.clock import known, owner
from hushstream.agents.kafka import clients, patience
from hushstream.agents.stages.aggregate.computation import Computation
from hushstream.agents.worker import admission, tasks, transaction
from hushstream.agents.worker.evidence import TOLD, Known, known_of
from hushstream.agents.worker.local_state import LocalState
from hushstream.agents.worker.setup import WorkerSetup
from hushstream.agents.worker.shard import Shard
from hushstream.agents.worker.worker import Worker

from .world import VirtualTime


def cancelled_clock() -> None:
    """A client that stops after an outage lets its `CancelledError` through: the clock's task ends.

    Nobody looked at how a task ended, and a cancelled one says nothing by itself.
    """

    async def stop_quietly(client: Any) -> None:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(client.stop(), clients.STOP_SECONDS)

    owner.stop_quietly = stop_quietly  # type: ignore[assignment]
    known.stop_quietly = stop_quietly  # type: ignore[assignment]
    owner.OUTAGES = patience.OUTAGES[:-1]  # type: ignore[assignment]

    def ended(self: tasks.Tasks, task: asyncio.Task[None]) -> None:
        if task in self._running and not task.cancelled() and task.exception() is not None:
            self._fail(task.exception())  # type: ignore[arg-type]

    tasks.Tasks._ended = ended  # type: ignore[method-assign]


def stale_idle_shard() -> None:
    """A worker that was taken for dead keeps its shards, whoever owned them meanwhile."""
    Worker._was_away = lambda self: False  # type: ignore[method-assign]
    Shard.doubt = lambda self: None  # type: ignore[method-assign]


def frozen_sleep() -> None:
    """A shard sleeps once, for the whole time that the wall clock says is left."""

    async def until(self: Shard, not_before: int) -> None:
        left = not_before / 1e6 - VirtualTime.time()
        if left > 0:
            await asyncio.sleep(left)

    Shard._until = until  # type: ignore[method-assign]


def forgotten_floor() -> None:
    """A raw partition is read from offset 0, wherever it began when the deployment did."""
    WorkerSetup.begin_of = lambda self, source, partition: 0  # type: ignore[method-assign]


def stale_genesis() -> None:
    """A local table is believed, whatever genesis its marker names."""

    def from_table(self: LocalState, store: Any) -> Known | None:
        return known_of(*store.get_many(TOLD))

    LocalState._known = from_table  # type: ignore[method-assign]


def believed_table() -> None:
    """A table that knows more than its changelog is believed: nobody notices a rewound cluster."""

    async def believe(self: LocalState, known: Known) -> bool:
        """Look at nothing."""
        return True

    LocalState._refuse_rewound = believe  # type: ignore[method-assign]
    admission.check_tables = lambda *_: 0  # type: ignore[assignment]


class Unheard:
    """The answer to a batch that was refused, as one who does not look at it sees it."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    @property
    def offset(self) -> int:
        """Where it lies: nowhere."""
        raise self._error


def committed_refusal() -> None:
    """A step commits whatever became of its batches; the last one is looked at, and too late."""

    async def answers(sent: Any) -> list[Any]:
        told = await asyncio.gather(*sent, return_exceptions=True)
        return [Unheard(one) if isinstance(one, BaseException) else one for one in told]

    transaction.answers = answers  # type: ignore[assignment]


def same_epoch() -> None:
    """A request that was not answered is sent again, and its epoch goes on, as aiokafka has it."""
    clients.send_once = lambda producer: producer  # type: ignore[assignment]


BUGS: dict[str, Callable[[], None]] = {
    "cancelled clock": cancelled_clock,
    "stale idle shard": stale_idle_shard,
    "frozen sleep": frozen_sleep,
    "forgotten floor": forgotten_floor,
    "stale genesis": stale_genesis,
    "believed table": believed_table,
    "committed refusal": committed_refusal,
    "same epoch": same_epoch,
}


def changed_number() -> None:
    """One number of a release is larger by a step, whatever the mechanism."""
    run = Computation.run

    def changed(self: Any, *given: Any) -> Any:
        releases = run(self, *given)
        if releases.value.size:
            releases.value.flat[0] += 1
        return releases

    Computation.run = changed  # type: ignore[method-assign]


OF_RELEASES: dict[str, Callable[[], None]] = {"changed number": changed_number}
"""Mistakes outside the protocol, which every mechanism can make."""
FOUND_WITHIN = {
    "cancelled clock": 300,
    "stale idle shard": 2500,
    "frozen sleep": 800,
    "forgotten floor": 20,
    "stale genesis": 200,
    "believed table": 2500,
    "committed refusal": 200,
    "same epoch": 100,
}
FOUND_AT = {  # a seed that objects; a change of the product may move it
    "cancelled clock": 138,
    "stale idle shard": 876,
    "frozen sleep": 180,
    "forgotten floor": 2,
    "stale genesis": 10,
    "believed table": 1630,
    "committed refusal": 4,
    "same epoch": 25,
}
ONLY = {"believed table": "rewind"}
