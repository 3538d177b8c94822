"""Two sets of metrics: one that anyone may scrape, and one with functions of raw data.

The public set is an allowlist: configuration, schedule, budget and releases made. Every operational
figure (throughput, lag, drops, sizes, delays) belongs to the operator's metrics, which are served
on another port, by default on the loopback interface.
"""

from __future__ import annotations

import platform
import time
from collections import Counter as Counting
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from ...formats.events.reasons import REASONS
from ...mechanisms.accounting.composition import MANY, Spent
from ...topics.config.toml.values import format_duration
from ...topics.records import Trigger
from ..clock.ledger import Ledger
from ..deployment.model import Pipeline
from ..deployment.sharing import Charging
from ..version import code_version
from .health.losses import CAUSES

SERVES = "Whether this worker serves."
OUTCOMES = ("fired", "published", "refused")
EVENTS = (
    "routed", "seen", "accepted", "bounded", "late", "future", "retired", "invalid", "released",
    "manifests",
)  # fmt: skip


def share_left(standing: Spent, terms: Charging) -> float:
    """Compute the share of the epochs within the limits that are not charged yet."""
    left = terms.room(standing, MANY)
    return left / (left + standing.epochs) if left else 0.0


def waiting_series() -> CollectorRegistry:
    """Make the public metrics of a start that waits: Prometheus must not take it for a dead one.

    They have no time of the start, which a worker's own differ from: that would look as a restart.
    """
    series = CollectorRegistry()
    Gauge("hush_ready", SERVES, registry=series)
    return series


class PublicMetrics:
    """Functions of the configuration, the clock's schedule, the ledger and releases alone."""

    def __init__(self) -> None:
        self.series = CollectorRegistry()
        self._pipelines: dict[str, Pipeline] = {}
        given: Any = {"registry": self.series}
        build = Gauge("hush_build_info", "What runs here.", ["version", "python"], **given)
        build.labels(version=code_version(), python=platform.python_version()).set(1)
        self.ready = Gauge("hush_ready", SERVES, **given)
        names = ["pipeline", "mechanism", "outcome"]
        said = "Triggers that fired or were refused; releases of shards that were published."
        self._releases = Counter("hush_releases", said, names, **given)
        self._began = Gauge("hush_start_timestamp_seconds", "When this process began.", **given)
        self._began.set(time.time())
        self._last = Gauge(
            "hush_last_release_timestamp_seconds",
            "Scheduled time of the last trigger.",
            ["pipeline"],
            **given,
        )
        budget = ["pipeline", "unit"]
        self._epsilon = Gauge("hush_epsilon_spent", "By all epochs together.", budget, **given)
        self._epsilon_sum = Gauge("hush_epsilon_sum", "Sum over epochs.", budget, **given)
        self._epsilon_limit = Gauge("hush_epsilon_limit", "Configured limit.", budget, **given)
        self._delta = Gauge("hush_delta_spent", "Sum over epochs.", budget, **given)
        self._delta_limit = Gauge("hush_delta_limit", "Configured limit.", budget, **given)
        self._epoch = Gauge("hush_epsilon_epoch", "Per unit and epoch.", budget, **given)
        self._delta_epoch = Gauge("hush_delta_epoch", "Per unit and epoch.", budget, **given)
        cap = [*budget, "period", "members"]  # the period of a limit without end is "for good"
        self._cap = Gauge("hush_epsilon_cap", "Of each unit over its period.", cap, **given)
        self._delta_cap = Gauge("hush_delta_cap", "Likewise.", cap, **given)
        self._end = Gauge(
            "hush_final_release_timestamp_seconds",
            "Scheduled time of the last trigger of a retired pipeline.",
            ["pipeline"],
            **given,
        )
        self._left = Gauge("hush_budget_remaining_ratio", "Of the limit.", ["pipeline"], **given)
        self._noise = Gauge(
            "hush_noise_stddev", "At the last trigger.", ["pipeline", "level"], **given
        )

    def watch(self, ready: Callable[[], bool]) -> None:
        """Make `hush_ready` call ``ready`` at each scrape."""
        self.ready.set_function(lambda: float(ready()))

    def declare(self, pipeline: Pipeline) -> None:
        """Publish figures of the configuration."""
        self._pipelines[pipeline.name] = pipeline
        unit = {"pipeline": pipeline.name, "unit": pipeline.unit_name}
        self._epoch.labels(**unit).set(float(pipeline.epsilon))
        self._delta_epoch.labels(**unit).set(float(pipeline.delta))
        for outcome in OUTCOMES:  # begin at 0, else `rate` misses the first refusal
            self._outcome(pipeline, outcome, 0)
        terms = pipeline.terms
        if terms.limit_epsilon is not None:
            self._epsilon_limit.labels(**unit).set(float(terms.limit_epsilon))
        if terms.limit_delta is not None:
            self._delta_limit.labels(**unit).set(float(terms.limit_delta))
        if (lifetime := pipeline.lifetime) is not None:
            period = "for good" if lifetime.period is None else format_duration(lifetime.period)
            cap = unit | {"period": period, "members": " + ".join(lifetime.members)}
            self._cap.labels(**cap).set(float(lifetime.epsilon))
            self._delta_cap.labels(**cap).set(float(lifetime.delta))
        error = pipeline.mechanism.error(pipeline.traits.foremost)
        for output, stddev in zip(pipeline.traits.outputs, error.tolist(), strict=True):
            labels = {"pipeline": pipeline.name, "level": output.name}
            self._noise.labels(**labels).set(stddev * float(output.grid))

    def spent(self, pipeline: Pipeline, ledger: Ledger) -> None:
        """Publish the spent budget: what the ledger has charged is public."""
        unit = {"pipeline": pipeline.name, "unit": pipeline.unit_name}
        spent = ledger.spent(pipeline.name)
        # At the scrape: composing is slow, and a backlog may charge thousands of epochs.
        self._epsilon.labels(**unit).set_function(lambda: float(spent.composed()))
        self._epsilon_sum.labels(**unit).set(float(spent.epsilon))
        self._delta.labels(**unit).set(float(spent.delta))
        standing, terms = ledger.standing(pipeline), pipeline.terms
        if terms.limited:
            left = self._left.labels(pipeline=pipeline.name)
            left.set_function(lambda: share_left(standing, terms))

    def triggered(self, pipeline: Pipeline, trigger: Trigger) -> None:
        """Count a scheduled trigger, whether or not anything is ever published for it."""
        self._outcome(pipeline, "fired")
        self._last.labels(pipeline=pipeline.name).set(trigger.scheduled / 1e6)

    def published(self, pipeline: str) -> None:
        """Count a release of one shard that has become readable."""
        self._outcome(self._pipelines[pipeline], "published")

    def retired(self, pipeline: Pipeline, window: int) -> None:
        """Publish the time of a pipeline's last trigger, the one before ``window``."""
        last = pipeline.windows.times(window - 1)[-1]
        self._end.labels(pipeline=pipeline.name).set(last / 1e6)

    def refused(self, pipeline: Pipeline) -> None:
        """Count a window that could not be paid for."""
        self._outcome(pipeline, "refused")

    def _outcome(self, pipeline: Pipeline, outcome: str, number: int = 1) -> None:
        kind = pipeline.config["mechanism"]["kind"]
        self._releases.labels(pipeline=pipeline.name, mechanism=kind, outcome=outcome).inc(number)


class OperatorMetrics:
    """Exact figures of raw data: they stay inside the trust boundary."""

    def __init__(self) -> None:
        self.series = CollectorRegistry()
        given: Any = {"registry": self.series}
        self._events = Counter(
            "hush_events", "Events by outcome.", ["pipeline", "outcome"], **given
        )
        self._dead = Counter(
            "hush_dead_letters", "Bad records by reason.", ["pipeline", "reason"], **given
        )
        self.step = Histogram(
            "hush_step_duration_seconds",
            "Time of one part of a step.",
            ["stage"],
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
            **given,
        )
        self.delay = Histogram(
            "hush_release_delay_seconds",
            "From a trigger to its release.",
            ["pipeline"],
            buckets=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300),
            **given,
        )
        self.recovery = Gauge(
            "hush_recovery_remaining_records", "Changelog rows to restore.", ["store"], **given
        )
        self.standby_lag = Gauge(
            "hush_standby_lag_records", "Changelog rows that a copy lacks.", ["store"], **given
        )
        self.snapshot = Gauge(
            "hush_snapshot_timestamp_seconds", "Of the newest one in the store.", ["store"], **given
        )
        self.snapshot_failures = Counter(
            "hush_snapshot_failures", "Uploads that failed, and snapshots refused.", **given
        )
        said = "Of the input and not used; `store` is the topic and partition that a shard reads."
        self.lag = Gauge("hush_lag_records", said, ["store"], **given)
        self.watermark = Gauge(
            "hush_watermark_timestamp_seconds",
            "Last beat used.",
            ["pipeline", "partition"],
            **given,
        )
        self.ledger_failures = Counter(
            "hush_ledger_write_failures", "Lost transactions of the clock and ledger.", **given
        )
        self.loss = Gauge(
            "hush_loss_alarm",
            "Whether more than `loss_share` of the records are lost.",
            ["pipeline", "cause"],
            **given,
        )
        self.state = Gauge("hush_state_size_bytes", "On disk.", ["store"], **given)
        self.room = Gauge("hush_state_free_bytes", "Left on the disk of the state.", **given)
        ProcessCollector(**given)  # memory, processor and open files: they follow the load

    def declare(self, pipeline: Pipeline) -> None:
        """Begin every series at 0; otherwise `rate` would miss the first event."""
        name = pipeline.name
        for outcome in EVENTS:
            self._events.labels(pipeline=name, outcome=outcome).inc(0)
        for reason in REASONS:
            self._dead.labels(pipeline=name, reason=reason).inc(0)
        for cause in CAUSES:
            self.loss.labels(pipeline=name, cause=cause).set(0)
        self.delay.labels(pipeline=name)

    def forget(self, shard: str, store: str, partition: str, pipelines: Iterable[str]) -> None:
        """End the series of a shard that has left, or its last figures would stay for ever.

        Args:
            shard: name of its input partition.
            store: name of its table.
        """
        ended: list[tuple[Gauge, tuple[str, ...]]] = [
            (self.lag, (shard,)), (self.recovery, (store,)), (self.state, (store,)),
            (self.snapshot, (store,)),
        ]  # fmt: skip
        ended += [(self.watermark, (pipeline, partition)) for pipeline in pipelines]
        for gauge, labels in ended:
            with suppress(KeyError):  # it never had a figure
                gauge.remove(*labels)

    def forget_standby(self, store: str) -> None:
        """End the series of a copy that no longer follows its changelog."""
        with suppress(KeyError):  # it never had a figure
            self.standby_lag.remove(store)

    def count(self, counts: Counting[tuple[str, str]]) -> None:
        """Add the counts of one committed step, by (pipeline, outcome)."""
        for (pipeline, outcome), number in counts.items():
            if outcome.startswith("invalid:"):
                reason = outcome.removeprefix("invalid:")
                self._dead.labels(pipeline=pipeline, reason=reason).inc(number)
                outcome = "invalid"
            if number:
                self._events.labels(pipeline=pipeline, outcome=outcome).inc(number)
        for pipeline in {name for name, outcome in counts if outcome == "accepted"}:
            bounded = counts[pipeline, "seen"] - counts[pipeline, "accepted"]
            self._events.labels(pipeline=pipeline, outcome="bounded").inc(max(bounded, 0))
