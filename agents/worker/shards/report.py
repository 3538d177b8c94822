"""Reports the steps of one shard to the operator's metrics and log, and to the worker."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from ...kafka.outage import OUTAGE
from ...kafka.patience import AWAY
from ...stages.step import Stage, Step
from ..shared import Shared

log = logging.getLogger("hushstream.shard")


class ShardReport:
    """Series of one shard.

    Args:
        name: name of its input partition.
    """

    def __init__(self, shared: Shared, partition: int, name: str) -> None:
        self._shared = shared
        self._partition = str(partition)
        self._name = name
        self._watched: set[str] = set()  # pipelines whose watermark was reported

    def step(self, step: Step) -> None:
        """Add a committed step."""
        metrics = self._shared.metrics
        metrics.count(step.counts)
        if self._shared.losses is not None:
            self._shared.losses.count(step.counts)
        self._used(step.watermark)
        for pipeline in [p for p, what in step.counts if what == "manifests"]:
            late = max(time.time() - step.not_before / 1e6, 0.0)
            metrics.delay.labels(pipeline=pipeline).observe(late)
            self._shared.published(pipeline)
        for text in step.tells:
            log.info("%s", text)

    def failed(self, error: BaseException, leaving: bool) -> None:
        """Log a failed transaction.

        Args:
            leaving: whether another worker is opening the shard, which makes transactions fail.
        """
        if isinstance(error, AWAY):
            OUTAGE.sign(type(error).__name__)
        elif not leaving:
            said = "%s: a transaction failed (%s); reopening"
            log.warning(said, self._name, type(error).__name__)

    def standing(self, store: str, size: int, end: int, stage: Stage) -> None:
        """Set how the shard stands, whether or not it commits steps.

        Args:
            size: bytes of its table.
            end: end of its input, as last heard; 0: not heard yet.
        """
        self._shared.metrics.state.labels(store=store).set(size)
        self._shared.metrics.lag.labels(store=self._name).set(max(end - stage.position, 0))
        self._used(stage.watermark)

    def _used(self, watermark: Mapping[str, int]) -> None:
        self._watched.update(watermark)
        for pipeline, moment in watermark.items():
            labels = {"pipeline": pipeline, "partition": self._partition}
            self._shared.metrics.watermark.labels(**labels).set(moment / 1e6)

    def end(self, store: str) -> None:
        """End all series of the shard."""
        self._shared.metrics.forget(self._name, store, self._partition, self._watched)
