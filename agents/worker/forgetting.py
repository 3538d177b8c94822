"""Forgetting: noise keys are erased once their epochs have no releases left.

Every worker erases the keys on its own machine, whatever shards it has. The key of an epoch may go
once each aggregate shard of its pipeline, on any worker, has *committed* the publication of the
last trigger of each of its windows, which markers in changelogs show. After its last trigger a
window takes no more records, so no late record can need the key. Before that, a shard may have to
publish again after a crash, perhaps on this machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from ...errors import EngineError, RewoundError
from ...mechanisms.noise import Charge
from ...topics.config.access.ratchet_file import RatchetFile
from ...topics.config.model import Kafka
from ...topics.names import Names
from ...topics.records import Marker
from ..clock.ledger import Ledger
from ..clock.log import ClockLog
from ..clock.timeline import NEVER, Timeline
from ..deployment.model import Deployment, Pipeline
from ..kafka.clients import read_to_end
from ..kafka.markers import last_markers

EVERY = 1 << 61  # more triggers than there will ever be


class _Body(msgspec.Struct, frozen=True):
    pipeline: str = ""
    epoch: int = 0
    key_fingerprint: str = ""


class _Line(msgspec.Struct, frozen=True):
    """The fields of a ledger record that forgetting needs."""

    seq: int
    kind: str
    body: _Body


class LedgerTail:
    """The charges of a ratchet; each read continues where the last one ended.

    Args:
        ratchet: name of the ratchet, as in its charges.
        since: number of the first record whose charge is wanted.
    """

    def __init__(self, ratchet: str, since: int) -> None:
        self._ratchet = ratchet
        self._since = since
        self.place = 0  # next offset in the topic
        self.records = 0
        self.charges: list[Charge] = []

    def take(self, value: bytes) -> None:
        """Take the next record.

        Raises:
            EngineError: a record before it is missing.
        """
        line = msgspec.json.decode(value, type=_Line)
        if line.seq != self.records:
            raise EngineError(f"the ledger has a gap before record {line.seq}: restore the topic")
        self.records += 1
        body = line.body
        mine = line.kind == "charge" and body.key_fingerprint == self._ratchet
        if mine and line.seq >= self._since:
            self.charges.append(Charge(line.seq, body.pipeline, body.epoch))

    def passed(self) -> None:
        """Drop the charges that were read, because the ratchet has passed them."""
        self._since = self.records
        self.charges = []


def check_ratchet(
    ratchet: RatchetFile, ledger: Ledger, deployment: Deployment, lines: Mapping[str, Timeline]
) -> None:
    """Check, at a start, that the cluster was not rewound behind this machine's ratchet.

    Args:
        ratchet: the ratchet, read before the ledger.
        lines: each pipeline's timeline.

    Raises:
        RewoundError: the ratchet has passed records that the ledger lacks.
        EngineError: it has forgotten the key of an epoch that has triggers left.
    """
    if ratchet.step > len(ledger.records):
        raise RewoundError(
            f"{ratchet.path}: the ratchet has passed {ratchet.step} ledger records, and there are "
            f"{len(ledger.records)}: the cluster was set back, or this is another deployment's"
        )
    forgetting = {p.name: p for p in deployment.pipelines if p.own_key == ratchet.name}
    for (name, epoch), record in ledger.charges.items():
        if name in forgetting and lines[name].first is not None:
            floor = lines[name].over
            if floor < NEVER and epoch >= forgetting[name].windows.epoch(floor):
                ratchet.key(Charge(record.seq, name, epoch))


class Forgetting:
    """Moves the ratchet of this machine on, as far as the deployment has published.

    Args:
        pipelines: all pipelines of the deployment.
    """

    def __init__(
        self,
        kafka: Kafka,
        names: Names,
        pipelines: tuple[Pipeline, ...],
        ratchet: RatchetFile,
        clock: ClockLog,
    ) -> None:
        self._kafka = kafka
        self._names = names
        self._pipelines = {p.name: p for p in pipelines if p.own_key == ratchet.name}
        self._ratchet = ratchet
        self._clock = clock
        self._tail = LedgerTail(ratchet.name, ratchet.step)
        self._seen: dict[str, int] = {}  # versions at which nothing was left to forget

    async def round(self) -> None:
        """Forget the keys that may go; if nothing has ended since the last round, read nothing.

        Raises:
            EngineError: the file cannot be written, or the ledger has a gap.
        """
        versions = {name: self._clock.over(name).version for name in self._pipelines}
        if versions == self._seen:
            return
        # Read the ledger after the markers: an epoch that the markers show as over was charged
        # before, so the ledger holds its charge.
        changelogs = {
            self._names.changelog("aggregate", name): p.cells_partitions
            for name, p in self._pipelines.items()
        }
        floors = self.floors(await last_markers(self._kafka, changelogs, self._names.place))
        topic, tail = self._names.ledger, self._tail
        async for records, position, _ in read_to_end(self._kafka, topic, 0, tail.place):
            for record in records:
                tail.take(record.value)
            tail.place = position
        # In a thread, because a slow disk must not block the event loop.
        await asyncio.to_thread(
            self._ratchet.forget, tail.records, tail.charges, lambda one: over(one, floors)
        )
        tail.passed()
        ended = {name: first_open(p, self._clock, EVERY) for name, p in self._pipelines.items()}
        self._seen = versions if floors == ended else {}

    def floors(self, markers: Mapping[str, list[Marker | None]]) -> dict[str, int | None]:
        """Find each pipeline's first epoch that may still be released; None: it has not started.

        Args:
            markers: last committed markers of all aggregate shards, by changelog.
        """
        found: dict[str, int | None] = {}
        for name, p in self._pipelines.items():
            shards = markers[self._names.changelog("aggregate", name)]
            closed = min(0 if one is None else one.closed.get(name, 0) for one in shards)
            found[name] = first_open(p, self._clock, closed)
        return found


def first_open(pipeline: Pipeline, clock: ClockLog, closed: int) -> int | None:
    """Find the first epoch that is not over after ``closed`` triggers; None before the start."""
    window = clock.over(pipeline.name).floor(closed)
    if window is None or window >= NEVER:
        return window
    return pipeline.windows.epoch(window)


def over(charge: Charge, floors: Mapping[str, int | None]) -> bool:
    """Whether no floor needs a charge's key; that of a pipeline not configured here stays."""
    floor = floors.get(charge.pipeline)
    return floor is not None and charge.epoch < floor
