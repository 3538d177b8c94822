"""Rests between the steps of a shard.

A step costs some milliseconds, however few records it takes, and writes a frame to each partition
of the next stage. With one step per beat, a process would spend more on steps than on events. So
shards rest after each step, longer the more of them a process has. Then the steps per second do not
grow with the number of shards, and frames grow instead. Where rests are long, fetching pauses, too:
each fetch names all partitions, and each list that it finds passes through the agents.

How steps are cut changes no release. A release waits for no rest either: a shard does not rest
while it has not passed on a trigger that the clock has written, and meanwhile no fetch pauses. It
only waits for the last records before the trigger, or for the barriers of all senders, so that one
step takes all of them. Shortly before a trigger is scheduled, rests and pauses end early, so that
it finds little work left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Protocol

from aiokafka.structs import TopicPartition as TP

from ....topics.records import Marker
from ...clock.log import ClockLog
from ...deployment.model import Pipeline
from ...kafka.backlog import Queued

EACH = 0.15  # seconds of rest for each shard of the process
# Twelve shards that take a fourth of the steps use half the CPU. A longer rest would save little
# more; it would leave the operator's figures and dead letters further behind, and a trigger more
# work.
LEAST = 1.0
LONGEST = 20.0  # the work that is left when a trigger comes by request grows with it
# Parts of a rest by which it ends before a trigger is scheduled: first where raw records are taken,
# then where that work is passed on to.
EARLY, LATER = 0.2, 0.1
FETCHES = 5  # fetches in a rest that find little
PAUSE = 1.0  # most seconds between two of them shortly before a trigger is scheduled
ENOUGH = 1 << 20  # bytes of waiting records that justify a step at once


def kept(among: float) -> float:
    """Seconds from the end of a step to the next one of the same shard.

    Args:
        among: number of shards of the process.

    >>> kept(4), kept(60), kept(400)
    (1.0, 9.0, 20.0)
    """
    return min(max(among * EACH, LEAST), LONGEST)


def shortened(seconds: float, ahead: float, early: float) -> float:
    """Seconds of a rest of ``seconds`` if a trigger is scheduled ``ahead`` seconds from its begin.

    A rest that begins shortly before the trigger is not worth another step.

    >>> [shortened(10.0, ahead, 2.0) for ahead in (3.0, 4.5, 11.0, 13.0)]
    [10.0, 2.5, 9.0, 10.0]
    """
    return seconds if ahead < 2 * early else min(seconds, ahead - early)


def paused(seconds: float) -> float:
    """Seconds between two fetches that find little, where rests last ``seconds``.

    >>> paused(1.0), paused(20.0)
    (0.2, 4.0)
    """
    return seconds / FETCHES


def missing(pipeline: Pipeline, upstreams: int, marker: Marker) -> int:
    """Count the senders that have not ended the open micro-batch of a shard with this marker."""
    ended = marker.upstream.get(pipeline.name, [])
    begun = pipeline.joined or (0,) * upstreams
    return sum(one <= marker.closed.get(pipeline.name, 0) for one in [*ended, *begun[len(ended) :]])


class Marked(Protocol):
    """A shard with its last committed marker."""

    marker: Marker


class Rests:
    """The length of rests for all shards of one process.

    Args:
        shards: all open shards of this process.
    """

    def __init__(self, clock: ClockLog, shards: Mapping[TP, Marked]) -> None:
        self._clock = clock
        self._shards = shards
        self._pressing: dict[TP, Callable[[Marker], bool]] = {}
        self._pipelines: dict[str, Pipeline] = {}

    @property
    def seconds(self) -> float:
        """Seconds of a rest: see `kept`."""
        return kept(len(self._shards))

    def pause(self) -> float:
        """Seconds between two fetches that find little; 0.0 while a trigger waits for a shard."""
        asked = self._pressing
        if any(tp in asked and asked[tp](one.marker) for tp, one in self._shards.items()):
            return 0.0
        whole = paused(self.seconds)
        if whole <= PAUSE:
            return whole
        near = whole + EARLY * self.seconds
        return whole if self._ahead(self._pipelines.values(), near) is None else PAUSE

    def length(self, pipelines: Collection[Pipeline], raw: bool) -> float:
        """Compute the seconds of a rest that begins now; arguments as for `add`."""
        whole = self.seconds
        early = whole * (EARLY if raw else LATER)
        ahead = self._ahead(pipelines, whole + early)
        return whole if ahead is None else shortened(whole, ahead, early)

    def _ahead(self, pipelines: Collection[Pipeline], within: float) -> float | None:
        """Compute the seconds until the next scheduled trigger; None if that is later."""
        now = int(time.time() * 1e6)
        found = [self._clock.scheduled(one, now + int(1e6 * within)) for one in pipelines]
        return min(((at - now) / 1e6 for at in found if at is not None), default=None)

    def add(self, tp: TP, pipelines: Collection[Pipeline], raw: bool, upstreams: int = 0) -> Rest:
        """Make the rest of one shard; from now on `pause` minds its triggers.

        Args:
            pipelines: pipelines whose records it takes.
            raw: whether it reads the clock log itself, rather than barriers of shards that do.
            upstreams: number of shards that send barriers.
        """
        clock = self._clock
        self._pipelines |= {one.name: one for one in pipelines}

        def pressing(marker: Marker) -> bool:
            last = [(one.name, *clock.called(one.name)) for one in pipelines]
            if raw:
                return any(place >= marker.clock for _, place, _ in last)
            return any(ordinal > marker.closed.get(name, 0) for name, _, ordinal in last)

        def ready(marker: Marker, waiting: Queued) -> bool:
            if raw:
                asked = [one.name for one in pipelines if clock.called(one.name)[0] >= marker.clock]
                return any(waiting.end >= clock.cut(name, *tp) for name in asked)
            return pressing(marker) and any(
                waiting.barriers >= missing(one, upstreams, marker) for one in pipelines
            )

        self._pressing[tp] = pressing
        return Rest(partial(self.length, pipelines, raw), ready)


class Rest:
    """The rest of one shard; times are seconds of the event loop.

    Args:
        ready: whether a shard with this marker can pass on a trigger with the records that wait.
    """

    def __init__(
        self, length: Callable[[], float], ready: Callable[[Marker, Queued], bool]
    ) -> None:
        self._length = length
        self._ready = ready
        self._over: float | None = None  # end of the rest; None: there is none
        self._timer: asyncio.TimerHandle | None = None  # ends a rest

    def stepped(self, now: float, more: bool) -> None:
        """Note the end of a step.

        Args:
            more: whether the stage has more to do without new input; then there is no rest.
        """
        self._over = None if more else now + self._length()

    def left(self, now: float, marker: Marker, waiting: Queued) -> float:
        """Compute how long to wait before the next step; 0.0: take it now."""
        if self._over is None or waiting.size >= ENOUGH:
            return 0.0
        left = self._over - now
        return left if left > 0 and not self._ready(marker, waiting) else 0.0

    def waits(self, marker: Marker, waiting: Queued, wake: Callable[[], None]) -> bool:
        """Whether the next step is not due yet; ``wake`` is called when it is."""
        loop = asyncio.get_running_loop()
        left = self.left(loop.time(), marker, waiting)
        if left and self._timer is None:
            self._timer = loop.call_later(left, self._end, wake)
        return left > 0

    def _end(self, wake: Callable[[], None]) -> None:
        self._timer = None
        wake()
