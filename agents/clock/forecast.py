"""Forecasts the triggers that a request would fire, and their cost, before it is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ...errors import EngineError
from ...topics.config.model import Kafka
from ...topics.names import Names
from ...topics.records import Snapshot, decode_request
from ..deployment.model import Pipeline
from ..kafka.cluster import Cluster
from .clock import take_request, too_early
from .ledger import Ledger
from .log import ALL, entries_of
from .snapshots import Opening
from .start import beginning_of, committed_lists
from .timeline import Timeline, advance, fold, resumed

MOST = 10_000  # most triggers to count; beyond it the figures mean "at least"


@dataclass(frozen=True)
class TriggerForecast:
    """Triggers of one pipeline that are due up to some time."""

    pipeline: str
    due: int
    triggers: int  # triggers that would fire
    charges: int  # epochs that they would charge, within the limits
    refused: int  # epochs that would be refused for good, because a limit is reached
    more: bool  # whether there are more than were counted
    # epsilon, delta: cost of these charges for a unit that is in all of their epochs
    epsilon: Fraction
    delta: Fraction


class Standing:
    """The state of pipelines, given triggers per window; each look continues from the last.

    Attributes:
        snapshot: newest snapshot that a look has met.
    """

    def __init__(self, kafka: Kafka, names: Names, horizons: Mapping[str, int]) -> None:
        self._kafka = kafka
        self._names = names
        self._timelines = fold((), dict(horizons))
        self._horizons = dict(horizons)
        self._position: int | None = None
        self._opening = Opening(0)
        self.snapshot: Snapshot | None = None

    def look(self) -> dict[str, Timeline]:
        """Fold new records of the clock log; return the timelines by pipeline.

        Raises:
            EngineError: the log has a gap, or the broker is silent.
        """
        topic = self._names.clock
        if self._position is None:
            self._position = beginning_of(self._kafka, topic)
            self._opening = Opening(self._position)
        for records in committed_lists(self._kafka, topic, self._position):
            entries = entries_of(records, ALL)
            if (snapshot := self._opening.first(entries)) is not None:
                self._timelines = resumed(snapshot, self._horizons)
            for _, record in entries:
                advance(self._timelines, record)
                if isinstance(record, Snapshot):
                    self.snapshot = record
            if records:
                self._position = records[-1].offset + 1
        return self._timelines


class InForce:
    """Requests on ``topic`` from its present end on, folded as the clock's owner folds them.

    Raises:
        EngineError: the end of the topic cannot be read.
    """

    def __init__(self, cluster: Cluster, topic: str, pipelines: Iterable[str]) -> None:
        self._cluster, self._topic = cluster, topic
        self._pipelines = tuple(pipelines)
        self._position = cluster.offsets.written(topic, 0)
        self._requested: dict[str, int] = {}

    def look(self, snapshot: Snapshot | None) -> Mapping[str, int]:
        """Read new requests; return the time up to which each requested pipeline may fire.

        Args:
            snapshot: newest snapshot of the clock log; requests that it has read may be deleted.

        Raises:
            EngineError: the topic cannot be read.
        """
        if snapshot is not None and snapshot.requests > self._position:
            self._requested, self._position = dict(snapshot.requested), snapshot.requests
        for message in self._cluster.read(self._topic, start=self._position):
            self._position = message.offset() + 1
            self._take(message)
        return self._requested

    def _take(self, message: Any) -> None:
        try:
            request = decode_request(message.value())
        except EngineError:
            return
        if not too_early(request, message.timestamp()[1] * 1000):
            take_request(self._requested, request, self._pipelines)


def forecast(pipeline: Pipeline, timeline: Timeline, ledger: Ledger, at: int) -> TriggerForecast:
    """Count unfired triggers that are scheduled up to ``at``, microseconds since 1970."""
    name, windows = pipeline.name, pipeline.windows
    dues = windows.due(timeline, at, MOST, ledger.end(pipeline))
    epochs = Counter(windows.epoch(due.window) for due in dues)  # in firing order
    over = [e for e in epochs if (name, e) in ledger.refused]
    fresh = [e for e in epochs if (name, e) not in ledger.charges and e not in over]
    room = ledger.affordable(pipeline, fresh)
    fires = len(dues) - sum(epochs[e] for e in (*over, *fresh[room:]))
    return TriggerForecast(
        name,
        due=len(dues),
        triggers=fires,
        charges=room,
        refused=len(fresh) - room,
        more=len(dues) == MOST,
        epsilon=room * pipeline.epsilon,
        delta=room * pipeline.delta,
    )
