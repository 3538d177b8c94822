"""Comparison of views with their source's release topic, without any key or raw log.

A view is a function of the committed records of its source's topic, so it is recomputed from these
rather than from their recomputation. One shard writes a view, in one order, so what readers see is
a prefix of what is recomputed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..agents.deployment.model import Deployment, ReleaseView
from ..agents.stages.step import Out, Step
from ..agents.stages.view.stage import ViewStage
from ..formats.events.decode import RawRecord
from ..topics.config.model import Kafka
from .compare import ReplayOutcome, digest, of_out, of_raw
from .engine import STEP, VirtualShard
from .replay_logs import Span, StreamLog, spans


class ViewCheck:
    """The recomputed records of one view, compared with those that readers see, in their order."""

    def __init__(self, view: ReleaseView, outs: Sequence[Out]) -> None:
        self._topic = view.release_topic
        self._outs = outs
        self._places = {digest(of_out(out)): place for place, out in enumerate(outs)}
        self._next = 0
        self._copies = 0

    def take(self, record: RawRecord, committed: bool, outcome: ReplayOutcome) -> None:
        """Take the next record of the topic: first all committed ones, then all records."""
        place = self._places.get(digest(of_raw(0, record)))
        if place is None:
            outcome.found("differing", f"{self._topic}: {record.key!r}")
        elif not committed:
            self._copies += 1
        elif place < self._next:
            outcome.found("doubled", f"{self._topic}: {record.key!r}")
        else:
            if place > self._next:
                lost = self._outs[self._next]
                outcome.found("lost", f"{self._topic}: {lost.key!r}", place - self._next)
            self._next = place + 1
            outcome.compared += 1

    def finish(self, outcome: ReplayOutcome) -> None:
        """Count missing records as pending, and copies in aborted transactions."""
        outcome.pending += len(self._outs) - self._next
        outcome.aborted += max(self._copies - self._next, 0)


def compare_views(kafka: Kafka, deployment: Deployment, outcome: ReplayOutcome) -> None:
    """Recompute all views of a deployment and compare them.

    Raises:
        EngineError: a topic cannot be read.
    """
    for view in deployment.views:
        # The view is read first, so that the source then has all records behind it.
        (published,) = spans(kafka, view.release_topic, 1)
        (source,) = spans(kafka, view.source.release_topic, 1)
        if source.begin and any(one.historic for one in view.values):
            outcome.left_out.append(
                f"view {view.name}: it looks back at releases of {view.source.name} that were "
                "deleted"
            )
            continue
        log = StreamLog(kafka, source, STEP, whole=False)
        try:
            check = ViewCheck(view, recomputed(view, log, source.begin))
        finally:
            log.close()
        for committed in (True, False):
            _published(kafka, published, check, committed, outcome)
        check.finish(outcome)


def _published(
    kafka: Kafka, span: Span, check: ViewCheck, committed: bool, outcome: ReplayOutcome
) -> None:
    def take(record: RawRecord) -> None:
        check.take(record, committed, outcome)

    log = StreamLog(kafka, span, STEP, whole=False, committed=committed, seen=take)
    try:
        log.drain()
    finally:
        log.close()


def recomputed(view: ReleaseView, log: StreamLog, begin: int) -> list[Out]:
    """Make the records of a view from its source's topic, which begins at ``begin``."""
    outs: list[Out] = []

    def take(step: Step) -> None:
        outs.extend(step.out)

    shard = VirtualShard(ViewStage([view], begin), log, "")
    while shard.advance(STEP, take):
        pass
    return outs
