"""The decisions of the clock: a fold over clock log and ledger, and the records that come next.

Pure: times and offsets are given to it, and its owner writes what it decides.
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
"""Microseconds: the ledger is public, and a finer time would tell how busy its writer was."""
REQUEST_AHEAD = 86_400_000_000  # microseconds; a request for a later time would charge for ever


def take_request(
    requested: dict[str, int], request: TriggerRequest, external: Iterable[str]
) -> None:
    """Take the next request into those that are in force; repeats change nothing.

    Args:
        requested: time up to which each pipeline may fire, microseconds since 1970; changed.
    """
    for name in external:
        if request.pipelines and name not in request.pipelines:
            continue
        if request.cancel:
            requested.pop(name, None)
        else:
            # The later time wins: a request that was repeated or delayed takes nothing back.
            requested[name] = max(requested.get(name, request.at), request.at)


def too_early(request: TriggerRequest, sent: int) -> bool:
    """Whether a request is ignored: at ``sent``, microseconds, its time was over a day ahead."""
    return request.at > sent + REQUEST_AHEAD


class Clock:
    """The state of the clock's owner: a fold over clock log and ledger, and what comes next.

    Args:
        ledger: the owner's; what it takes, this class sees.
        salt: a text that no other opening of a clock has, for charges.

    Attributes:
        timelines: where each pipeline stands.
        offsets: of the last beat or cut, by raw topic and partition.
        time: the latest of all records, microseconds since 1970.
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

        Pipelines that are not configured now are followed too: a snapshot must not forget them.
        """
        name = getattr(record, "pipeline", None)
        if name is not None:
            self.timelines.setdefault(name, Timeline(0))
        advance(self.timelines, record)
        # Never back, whichever owner wrote the record: a later owner begins at this time.
        self.time = max(self.time, record.time)
        if isinstance(record, Beat | Trigger):
            self.offsets = record.offsets

    def begin(self, snapshot: Snapshot) -> None:
        """Stand where a snapshot stands."""
        known = {name: timeline.horizon for name, timeline in self.timelines.items()}
        self.timelines = resumed(snapshot, dict.fromkeys(snapshot.pipelines, 0) | known)
        self.time, self.offsets = snapshot.time, snapshot.offsets

    def standings(self) -> dict[str, PipelineStanding]:
        """Say where all pipelines stand that the log has named, as a snapshot does."""
        every = {name: timeline.standing() for name, timeline in self.timelines.items()}
        return {name: one for name, one in every.items() if one != PipelineStanding()}

    def request(self, request: TriggerRequest) -> None:
        """Let the schedule of external pipelines advance to a time; repeats change nothing.

        A cancelled request is forgotten; triggers that it has fired stay.
        """
        external = (name for name, pipeline in self._pipelines.items() if pipeline.external)
        take_request(self.requested, request, external)

    def starts(self, now: int) -> list[Start]:
        """List first windows, for pipelines that the clock has not seen yet."""
        found = []
        for name, pipeline in self._pipelines.items():
            if self.timelines[name].first is None:
                # A follower begins where the other one ends, however late its worker is.
                begun = pipeline.external or pipeline.follows is not None
                window = 0 if begun else pipeline.windows.window(now)
                found.append(Start(name, window, now, self._key(pipeline)))
        return found

    def retirements(self, now: int) -> list[Retired]:
        """List ends of pipelines that the ledger has retired and the clock log does not say yet.

        The ledger alone decides: an owner that runs an older configuration obeys it too.
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
            held: whether a trigger must wait, and with it all later ones of its pipeline.
        """
        found: list[tuple[Pipeline, Due]] = []
        for name, pipeline in self._pipelines.items():
            limit = self.requested.get(name) if pipeline.external else now
            timeline = self.timelines[name]
            if limit is not None and timeline.first is not None:
                # A request for the future waits for it: what is not due yet is not spent.
                until, end = min(limit, now), self._ledger.end(pipeline)
                dues = pipeline.windows.due(timeline, until, MOST_TRIGGERS, end)
                found += takewhile(lambda one: not held(*one), ((pipeline, d) for d in dues))
        # Ties are broken by numbers of the ledger, so that every owner fires in the same order.
        found.sort(key=lambda f: (f[1].scheduled, f[0].number, f[1].window))
        return found[:MOST_TRIGGERS]

    def fire(self, pipeline: Pipeline, due: Due, now: int) -> tuple[list[Record], ClockRecord]:
        """Make the records of one due trigger.

        Returns:
            A charge for the ledger, where the epoch has none yet, and the trigger. Or, where the
            limit does not allow a charge, the records of `refuse`: an epoch without a charge never
            has a trigger.

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
        # An epoch may be open since before a restart. It goes on only under what was charged: other
        # settings or another key would release more than the charge pays for.
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
        """List windows that have begun, or may receive records soon, and cannot be paid for.

        Charges are never taken back, so an epoch that cannot be paid for now cannot be later,
        unless the limit is raised; a raised limit counts for epochs that have not begun. A pipeline
        that is triggered by request is refused at its triggers, since its windows do not follow
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
                    # One is enough: the refusal closes its whole epoch, and the next beat looks
                    # at the epoch after it.
                    break
        return found

    def refuse(self, pipeline: Pipeline, window: int, now: int) -> tuple[list[Record], ClockRecord]:
        """Make the records that refuse an epoch from ``window``, its first refused one, on."""
        epoch = pipeline.windows.epoch(window)
        name = pipeline.name
        end = (epoch + 1) * pipeline.windows.per_epoch
        body = {"pipeline": name, "epoch": epoch, "reason": "the budget's limit is reached"}
        known = (name, epoch) in self._ledger.refused
        records = [] if known else [self._next("refused", now, body)]
        return records, Skipped(name, epoch, window, now, end)

    def _next(self, kind: str, now: int, body: dict[str, Any]) -> Record:
        """The next record of the ledger, with the minute in which it is written."""
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
