"""The decisions of the clock: a fold over clock log and ledger that makes the next records.

This module is pure: it is given times and offsets, and the clock's owner writes the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any

from ...errors import EngineError, LedgerError
from ...topics.config.pipelines.schedule import Due
from ...topics.records import (
    Beat,
    ClockRecord,
    Offsets,
    PipelineStanding,
    Retired,
    Skipped,
    Snapshot,
    Start,
    Trigger,
    TriggerRequest,
    WiderTrigger,
)
from ..deployment.model import Deployment, Pipeline
from ..deployment.published.statement import charge_body, limits
from .ledger import Ledger
from .ledger_record import Record
from .timeline import Timeline, advance, fold, resumed

MOST_TRIGGERS = 200  # of one transaction
PUBLIC_TIME = 60_000_000
"""Microseconds: the ledger is public, and a finer time would show how busy its writer was."""
REQUEST_AHEAD = 86_400_000_000  # microseconds; a later one could charge without end


def take_request(
    requested: dict[str, int], request: TriggerRequest, external: Iterable[str]
) -> None:
    """Add a request to those in force; repeats change nothing.

    Args:
        requested: time up to which each pipeline may fire, microseconds since 1970; modified.
    """
    for name in external:
        if request.pipelines and name not in request.pipelines:
            continue
        if request.cancel:
            requested.pop(name, None)
        else:
            # The later time wins, so a repeated or delayed request takes nothing back.
            requested[name] = max(requested.get(name, request.at), request.at)


def too_early(request: TriggerRequest, sent: int) -> bool:
    """Whether to ignore a request because its time is over a day after ``sent``, microseconds."""
    return request.at > sent + REQUEST_AHEAD


class Clock:
    """The state of the clock's owner: a fold over clock log and ledger that makes the next records.

    Args:
        ledger: ledger of the owner, shared with this object.
        salt: text unique to this opening of the clock, for charges.

    Attributes:
        timelines: timeline of each pipeline.
        offsets: offsets of the last beat or cut, by raw topic and partition.
        time: latest time of all records, microseconds since 1970.
        requested: time up to which an external pipeline may fire, microseconds since 1970.
    """

    def __init__(
        self,
        deployment: Deployment,
        ledger: Ledger,
        version: str,
        key_fingerprint: str,
        salt: str = "",
    ) -> None:
        self._salt = salt
        self._pipelines = {p.name: p for p in deployment.pipelines}
        self._ledger = ledger
        self._version = version
        self._fingerprint = key_fingerprint
        horizons = {p.name: p.traits.horizon for p in deployment.pipelines}
        self.timelines: dict[str, Timeline] = fold((), horizons)
        self.offsets: Offsets = {}
        self.time = 0
        self.requested: dict[str, int] = {}

    def apply(self, record: ClockRecord) -> None:
        """Take a record of the clock log.

        This includes pipelines that are not configured now, because snapshots must keep them.
        """
        name = getattr(record, "pipeline", None)
        if name is not None:
            self.timelines.setdefault(name, Timeline(0))
        advance(self.timelines, record)
        # Never backwards, whichever owner wrote the record: a later owner begins at this time.
        self.time = max(self.time, record.time)
        if isinstance(record, Beat | Trigger):
            self.offsets = record.offsets

    def begin(self, snapshot: Snapshot) -> None:
        """Begin at a snapshot."""
        known = {name: timeline.horizon for name, timeline in self.timelines.items()}
        self.timelines = resumed(snapshot, dict.fromkeys(snapshot.pipelines, 0) | known)
        self.time, self.offsets = snapshot.time, snapshot.offsets

    def standings(self) -> dict[str, PipelineStanding]:
        """Summarise the timelines of all pipelines in the log, for a snapshot."""
        every = {name: timeline.standing() for name, timeline in self.timelines.items()}
        return {name: one for name, one in every.items() if one != PipelineStanding()}

    def request(self, request: TriggerRequest) -> None:
        """Let the schedule of external pipelines advance to a time; repeats change nothing.

        A cancelled request is dropped; triggers that it has fired stay.
        """
        external = (name for name, pipeline in self._pipelines.items() if pipeline.external)
        take_request(self.requested, request, external)

    def starts(self, now: int) -> list[Start]:
        """List the first windows of pipelines that are new to the clock."""
        found = []
        for name, pipeline in self._pipelines.items():
            if self.timelines[name].first is None:
                # A follower begins where its predecessor ends, however late its worker is.
                begun = pipeline.external or pipeline.follows is not None
                window = 0 if begun else pipeline.windows.first(now)
                found.append(Start(name, window, now, self._key(pipeline)))
        return found

    def retirements(self, now: int) -> list[Retired]:
        """List the ends of pipelines that are retired in the ledger but not yet in the clock log.

        The ledger alone decides, so an owner with an older configuration obeys it too.
        """
        found = []
        for name, pipeline in self._pipelines.items():
            end, timeline = self._ledger.end(pipeline), self.timelines[name]
            if end is not None and timeline.first is not None and timeline.end is None:
                found.append(Retired(name, end, now))
        return found

    def due(
        self, now: int, held: Callable[[Pipeline, Due], bool] = lambda *_: False
    ) -> list[tuple[Pipeline, Due]]:
        """List triggers whose time has come, earliest first, at most `MOST_TRIGGERS`.

        Args:
            held: returns whether a trigger, and all later ones of its pipeline, must wait.
        """
        found: list[tuple[Pipeline, Due]] = []
        for name, pipeline in self._pipelines.items():
            limit = self.requested.get(name) if pipeline.external else now
            timeline = self.timelines[name]
            if limit is not None and timeline.first is not None:
                # A request for a future time waits until then: nothing is spent early.
                until, end = min(limit, now), self._ledger.end(pipeline)
                dues = pipeline.windows.due(timeline, until, MOST_TRIGGERS, end)
                found += takewhile(lambda one: not held(*one), ((pipeline, d) for d in dues))
        # Ties are broken by numbers of the ledger, so that every owner fires in the same order.
        found.sort(key=lambda f: (f[1].scheduled, f[0].number, f[1].window))
        return found[:MOST_TRIGGERS]

    def fire(self, pipeline: Pipeline, due: Due, now: int) -> tuple[list[Record], ClockRecord]:
        """Make the records of one due trigger.

        Returns:
            The epoch's charge for the ledger, if it has none yet, and the trigger. If the limit
            does not allow a charge, the records of `refuse`: an epoch without a charge never has a
            trigger.

        Raises:
            EngineError: the epoch was charged for another configuration or another key.
            LedgerError: the pipeline is retired before this epoch.
        """
        epoch = pipeline.windows.epoch(due.window)
        place = pipeline.name, epoch
        if self._ledger.over(*place):
            raise LedgerError(f"pipeline {pipeline.name!r} is retired before epoch {epoch}")
        records = []
        charge = self._ledger.charges.get(place)
        if charge is None:
            if not self._payable(pipeline, epoch):
                return self.refuse(pipeline, due.window, now)
            body = charge_body(pipeline, epoch, self._version, self._key(pipeline))
            charge = self._next("charge", now, body | {"salt": self._salt})
            records.append(charge)
        # The epoch may have been charged before a restart. It continues only under the charged
        # settings and key: others would release more than the charge pays for.
        self._check(pipeline, charge)
        timeline = self.timelines[pipeline.name]
        final = due.index == pipeline.windows.triggers(due.window)
        made = WiderTrigger if self._ledger.joined(pipeline.name) else Trigger
        trigger = made(
            now, self.offsets, pipeline.name, timeline.ordinal + 1, due.window, due.index, final,
            due.scheduled, epoch, charge.seq, charge.hash(), pipeline.config_hash,
            charge.body["code_version"], self._key(pipeline),
            self._ledger.epochs(pipeline.name) + len(records), *limits(pipeline),
        )  # fmt: skip
        return records, trigger

    def unpaid(self, now: int) -> list[tuple[Pipeline, int]]:
        """List windows that cannot be paid for and have begun, or may receive records soon.

        Charges are never taken back, so an epoch that cannot be paid for now cannot be paid for
        later, unless the limit is raised; a raised limit applies to epochs that have not begun. A
        pipeline triggered by request is refused at its triggers, since its windows do not follow
        this time.
        """
        found = []
        for name, pipeline in self._pipelines.items():
            timeline = self.timelines[name]
            if pipeline.external or timeline.first is None:
                continue
            last = pipeline.windows.window(now + pipeline.max_future_skew) + 1
            end = self._ledger.end(pipeline)
            for window in range(timeline.floor, last if end is None else min(last, end)):
                open_ = window not in timeline.closed and not timeline.done.get(window)
                if open_ and not self._payable(pipeline, pipeline.windows.epoch(window)):
                    found.append((pipeline, window))
                    # One is enough: its refusal closes the whole epoch, and the next beat examines
                    # the next epoch.
                    break
        return found

    def refuse(self, pipeline: Pipeline, window: int, now: int) -> tuple[list[Record], ClockRecord]:
        """Make the records that refuse an epoch from its window ``window`` on."""
        epoch = pipeline.windows.epoch(window)
        name = pipeline.name
        end = (epoch + 1) * pipeline.windows.per_epoch
        body = {"pipeline": name, "epoch": epoch, "reason": "the budget's limit is reached"}
        known = (name, epoch) in self._ledger.refused
        records = [] if known else [self._next("refused", now, body)]
        return records, Skipped(name, epoch, window, now, end)

    def _next(self, kind: str, now: int, body: dict[str, Any]) -> Record:
        """Make the next record of the ledger, with the minute in which it is written."""
        return self._ledger.next(kind, now // PUBLIC_TIME * PUBLIC_TIME, body)

    def _key(self, pipeline: Pipeline) -> str:
        """Fingerprint of the noise key under which a pipeline releases."""
        return pipeline.own_key or self._fingerprint

    def _payable(self, pipeline: Pipeline, epoch: int) -> bool:
        place = pipeline.name, epoch
        if place in self._ledger.charges:
            return True
        return place not in self._ledger.refused and self._ledger.affordable(pipeline, [epoch]) > 0

    def _check(self, pipeline: Pipeline, charge: Record) -> None:
        if charge.body["config_hash"] != pipeline.config_hash:
            raise EngineError(
                f"pipeline {pipeline.name!r}: its open epoch was charged for another "
                "configuration; restore that one, or rename the pipeline"
            )
        if charge.body["key_fingerprint"] != self._key(pipeline):
            raise EngineError(
                "the noise key is not the one that was charged: use the key with the fingerprint "
                f"{charge.body['key_fingerprint']}"
            )
