"""Reports the steps of one shard to the operator's metrics and to the worker."""

from __future__ import annotations

import time

from ...stages.step import Step
from ..shared import Shared


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

    def step(self, step: Step, waiting: int) -> None:
        """Add a committed step.

        Args:
            waiting: fetched records of the input that are not applied yet.
        """
        metrics = self._shared.metrics
        metrics.count(step.counts)
        if self._shared.losses is not None:
            self._shared.losses.count(step.counts)
        metrics.lag.labels(store=self._name).set(max(waiting, 0))
        self._watched.update(step.watermark)
        for pipeline, moment in step.watermark.items():
            labels = {"pipeline": pipeline, "partition": self._partition}
            metrics.watermark.labels(**labels).set(moment / 1e6)
        for pipeline in [p for p, what in step.counts if what == "manifests"]:
            late = max(time.time() - step.not_before / 1e6, 0.0)
            metrics.delay.labels(pipeline=pipeline).observe(late)
            self._shared.published(pipeline)

    def size(self, store: str, size: int) -> None:
        """Set the size of the shard's table, in bytes."""
        self._shared.metrics.state.labels(store=store).set(size)

    def end(self, store: str) -> None:
        """End all series of the shard."""
        self._shared.metrics.forget(self._name, store, self._partition, self._watched)
