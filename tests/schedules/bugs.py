"""Mistakes, put back one at a time; the simulation must find each of them. Seven are old ones.

Each is a function that changes the product within this process; call it after `patches.install`.
`FOUND_AT` has a seed whose schedule objects. If a change of the product has moved it,
`FOUND_WITHIN` limits the schedules that a search may take. `ONLY` names the kind of fault that
these need, if few seeds have it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from hushstream.agents.clock import known, owner
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.kafka import clients, patience
from hushstream.agents.kafka.markers import Sought
from hushstream.agents.registry.asking import Asking
from hushstream.agents.stages import step
from hushstream.agents.stages.aggregate.computation import Computation
from hushstream.agents.stages.view import stage as view
from hushstream.agents.worker import admission, forgetting, opening, tasks
from hushstream.agents.worker.setup import WorkerSetup
from hushstream.agents.worker.shards import shard, transaction
from hushstream.agents.worker.shards.shard import Shard
from hushstream.agents.worker.tables.evidence import TOLD, Known, known_of
from hushstream.agents.worker.tables.local_state import LocalState
from hushstream.agents.worker.worker import Worker
from hushstream.formats.schemas.schema import Verdict

from .standing_bugs import AT, OF_STANDBYS, WITHIN
from .world import VirtualTime


def cancelled_clock() -> None:
    """A client that stops after an outage raises a `CancelledError`, and the clock's task ends.

    No code checked how a task ended, and a cancelled task reports nothing by itself.
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
    """A worker that was taken for dead keeps its shards, although others may have owned them."""
    Worker._was_away = lambda self: False  # type: ignore[method-assign]
    Shard.doubt = lambda self: None  # type: ignore[method-assign]


def frozen_sleep() -> None:
    """A shard sleeps once, for the whole time left by the wall clock."""

    async def until(self: Shard, not_before: int) -> None:
        left = not_before / 1e6 - VirtualTime.time()
        if left > 0:
            await asyncio.sleep(left)

    Shard._until = until  # type: ignore[method-assign]


def forgotten_floor() -> None:
    """A raw partition is read from offset 0, even if it began later when the deployment did."""
    WorkerSetup.begin_of = lambda self, source, partition: 0  # type: ignore[method-assign]


def stale_genesis() -> None:
    """A local table is trusted, whatever genesis its marker names."""

    def from_table(self: LocalState, store: Any) -> Known | None:
        return known_of(*store.get_many(TOLD))

    LocalState._known = from_table  # type: ignore[method-assign]


def believed_table() -> None:
    """A table that knows more than its changelog is trusted: a rewind goes unnoticed."""

    async def believe(self: LocalState, known: Known) -> Sought:
        """Trust the table without a check."""
        return Sought(known.marker, found=True, before=True)

    assert hasattr(LocalState, "_sought")
    LocalState._sought = believe  # type: ignore[method-assign]
    admission.check_tables = lambda *_: 0  # type: ignore[assignment]
    unread_entry()  # the clock log often shows it, too


class Unheard:
    """The answer to a refused batch; an error appears only when its offset is read."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    @property
    def offset(self) -> int:
        """The offset, which a refused batch does not have."""
        raise self._error


def committed_refusal() -> None:
    """A step commits without a check of its batches' answers; only the last is read, too late."""

    async def answers(sent: Any) -> list[Any]:
        told = await asyncio.gather(*sent, return_exceptions=True)
        return [Unheard(one) if isinstance(one, BaseException) else one for one in told]

    transaction.answers = answers  # type: ignore[assignment]


def same_epoch() -> None:
    """A request without an answer is sent again with the same epoch, as by aiokafka."""
    clients.send_once = lambda producer: producer  # type: ignore[assignment]


def lost_end() -> None:
    """The clock ignores the end of a pipeline, and continues beside the pipeline that follows."""
    Ledger.end = lambda self, pipeline: None  # type: ignore[method-assign]


def counted_before() -> None:
    """Added partitions count from the first trigger on."""
    admission.with_joined = lambda deployment, since: deployment  # type: ignore[assignment]


def denied_schema() -> None:
    """While the schema registry is away, its schemas count as unknown."""

    async def answer(self: Asking, place: Any, number: int) -> Any:
        try:
            return await self._fetch(place, number)
        except Exception:
            return Verdict.UNKNOWN

    Asking._answer = answer  # type: ignore[method-assign]


def view_anew() -> None:
    """A view that opens reads its source from the start and does not know what it has published."""
    opened = view._Tail.open

    def anew(self: Any, reader: Any, begin: int) -> None:
        opened(self, reader, 0)
        self.releases = view.InOrder(self.view.source.name, self.view.source.codec, None)

    view._Tail.open = anew  # type: ignore[method-assign]


def early_forgetting() -> None:
    """A key is forgotten once the last trigger was fired, even if it was not released."""

    def floors(self: forgetting.Forgetting, markers: Any) -> dict[str, int | None]:
        return {
            name: forgetting.first_open(p, self._clock, forgetting.EVERY)
            for name, p in self._pipelines.items()
        }

    forgetting.Forgetting.floors = floors  # type: ignore[method-assign]


def unread_end() -> None:
    """A shard or clock that opens believes any leader about the end of its log."""
    transact = transaction.transact

    async def believing(*given: Any) -> int:
        return await transact(*given[:-1], None)

    shard.transact = believing  # type: ignore[assignment]
    owner.ClockOwner._check_end = lambda self, *_: None  # type: ignore[method-assign]


def uncounted_frames() -> None:
    """Frames between stages have no numbers: one that comes twice counts twice."""
    step.Received.check = lambda self, origin, frame: step.UNKNOWN  # type: ignore[method-assign]
    step.Received.take = lambda self, origin, number: None  # type: ignore[method-assign]


def unread_releases() -> None:
    """A shard does not look at what it has published: without its state it publishes that again."""

    async def has_released(*_: Any) -> bool:
        return False

    opening.has_released = has_released


def unread_entry() -> None:
    """A shard does not look whether the clock log still has the last entry that it applied."""
    opening.check_passed = lambda clock, marker: None


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
OF_DEPLOYMENTS: dict[str, Callable[[], None]] = {
    "lost end": lost_end,
    "counted before": counted_before,
    "denied schema": denied_schema,
    "view anew": view_anew,
    "early forgetting": early_forgetting,
}
"""Mistakes that need what few deployments have: generations, growth, schemas, views, a ratchet."""


def changed_number() -> None:
    """One number of a release is larger by one step, for any mechanism."""
    run = Computation.run

    def changed(self: Any, *given: Any) -> Any:
        releases = run(self, *given)
        if releases.value.size:
            releases.value.flat[0] += 1
        return releases

    Computation.run = changed  # type: ignore[method-assign]


OF_RECIPES: dict[str, Callable[[], None]] = {
    "unread end": unread_end,
    "uncounted frames": uncounted_frames,
    "unread releases": unread_releases,
    "unread entry": unread_entry,
}
"""Mistakes that need faults of guided schedules; `RECIPES` has a schedule for each."""
RECIPES = {
    "unread end": """{"seed": 5000036,
        "faults": [["forget", 1, 8.0, 0.0], ["behind", 2, 5.0, 1.0]]}""",
    "uncounted frames": """{"seed": 34, "faults": [["truncated", 0, 7.8, 0.442]]}""",
    "unread releases": """{"seed": 41, "faults": [["truncated", 0, 7.41, 0.562]]}""",
    "unread entry": """{"seed": 24, "faults": [["truncated", 0, 7.99, 0.84]]}""",
}

OF_RELEASES: dict[str, Callable[[], None]] = {"changed number": changed_number}
"""Mistakes outside the protocol that every mechanism can make."""
EVERY: dict[str, Callable[[], None]] = (
    BUGS | OF_DEPLOYMENTS | OF_STANDBYS | OF_RECIPES | OF_RELEASES
)
FOUND_WITHIN = {
    "cancelled clock": 300,
    "stale idle shard": 2500,
    "frozen sleep": 800,
    "forgotten floor": 20,
    "stale genesis": 200,
    "believed table": 2700,
    "committed refusal": 200,
    "same epoch": 100,
    "lost end": 200,
    "counted before": 200,
    "denied schema": 1200,
    "view anew": 200,
    "early forgetting": 800,
    **WITHIN,
}
FOUND_AT = {  # a seed that objects; a change of the product may move it
    "cancelled clock": 138,
    "stale idle shard": 1370,
    "frozen sleep": 184,
    "forgotten floor": 2,
    "stale genesis": 10,
    "believed table": 3770,
    "committed refusal": 4,
    "same epoch": 46,
    "lost end": 16,
    "counted before": 28,
    "denied schema": 549,
    "view anew": 79,
    "early forgetting": 281,
    **AT,
}
ONLY = {"believed table": "rewind", "blind copy": "ahead"}
