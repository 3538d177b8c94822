"""The bound stage of a re-partitioned pipeline: frames of events and barriers to partial sums."""

from __future__ import annotations

from collections.abc import Sequence

from ....errors import EngineError
from ....topics.frames import Barrier, Events, decode
from ....topics.names import Names
from ....topics.records import Marker
from ...deployment.model import Pipeline
from ...state.store import Reader
from ..aggregate.stage import Frame
from ..step import Step
from .stage import Bound, Statuses, route_units


class UnitsStage:
    """One partition of a units topic; its log, in its order, is what the bound is applied to."""

    def __init__(
        self,
        pipeline: Pipeline,
        partition: int,
        names: Names,
        upstreams: int,
        statuses: Statuses | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.partition = partition
        self._bound = Bound(pipeline, names, partition, statuses)
        self._upstreams = upstreams
        self._over: int | None = None
        self._garbage = False

    def over(self, floor: int) -> None:
        """Windows below ``floor`` are over, as far as what is committed says."""
        if floor != self._over:
            self._over = floor
            self._garbage = True

    def reopen(self) -> None:
        """Forget which windows are over, until the marker has said so."""
        self._over, self._garbage = None, False

    def step(
        self, reader: Reader, marker: Marker, frames: Sequence[Frame], fetched: int
    ) -> Step | None:
        """Absorb all ``frames``; None if nothing was read."""
        if fetched <= marker.applied and not frames:
            return None
        name = self.pipeline.name
        upstream = list(marker.upstream.get(name, [0] * self._upstreams))
        closed = marker.closed.get(name, 0)
        step = Step(marker)
        for frame in frames:
            taken = decode(frame.value)
            if isinstance(taken, Events):
                self._check(taken)
                if self._over is not None and taken.slice.window < self._over:
                    continue  # on its way when its window was refused
                self._bound.absorb(reader, [taken.slice], step)
            elif isinstance(taken, Barrier):
                if taken.trigger.ordinal != upstream[taken.origin] + 1:
                    raise EngineError(f"pipeline {name!r}: a barrier is missing")
                upstream[taken.origin] = taken.trigger.ordinal
                if min(upstream) > closed:
                    closed = taken.trigger.ordinal
                    self._bound.barrier(reader, taken.trigger, step)
        applied = max(fetched, marker.applied)
        step.marker = Marker(marker.genesis, applied, 0, {name: upstream}, {name: closed})
        return step

    def _check(self, events: Events) -> None:
        """Every unit must belong here: added partitions would give it a second bound."""
        homes = route_units(events.slice.unit, self.pipeline.units_partitions)
        if (homes != self.partition).any():
            raise EngineError(
                f"a unit of pipeline {self.pipeline.name!r} is on the wrong units partition: "
                "partitions were added after genesis; start a new deployment"
            )

    def forget(self, reader: Reader, step: Step, limit: int) -> bool:
        """Delete up to ``limit`` unit rows of epochs that are over; True if there were any."""
        if not self._garbage or self._over is None:
            return False
        self._garbage = self._bound.forget(reader, self._over, step, limit)
        return self._garbage
