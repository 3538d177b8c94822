"""Replay: recompute releases in memory from the logs and the secret, and compare every byte.

Raw log, clock log and ledger determine the content of a release; the secret and the nonces in its
manifests determine its noise. Workers may have crashed, been fenced or repeated work, but one run
of the same engine over the same logs must give the same records. Re-partitioned pipelines are
replayed from their units log, whose order counts; that log is itself compared with the decoded raw
log for lost and doubled events.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from ..agents.clock.begins import begin_of
from ..agents.clock.genesis import read_ledger
from ..agents.clock.ledger import Ledger
from ..agents.clock.paid import Clocked
from ..agents.clock.snapshots import Opening
from ..agents.deployment.model import Deployment, Pipeline
from ..agents.kafka.cluster import Cluster
from ..agents.kafka.logs import PartitionLog, read_topic
from ..agents.stages.bound.stage import FRAMES
from ..agents.stages.step import Out
from ..agents.worker.admission import prepare
from ..agents.worker.setup import WorkerSetup
from ..errors import ConfigError, EngineError
from ..formats.events.decode import RawRecord
from ..topics.config.load import Config
from ..topics.config.model import Kafka
from ..topics.names import Names
from ..topics.records import Snapshot
from .compare import ReleaseCheck, ReplayOutcome, compare_dead_letters, compare_names
from .compare_latest import LatestCheck
from .compare_units import Comparison
from .engine import STEP, OfflineEngine, Recorded, Streaming
from .raw_log import RawLog
from .replay_keys import ReplayKeys, Sealed, left_out, opened
from .replay_logs import Span, StreamLog, Timed, recorded_schemas, spans, timed
from .replay_nonces import published_nonces
from .replay_reach import Reach, named_offsets, offsets_of
from .replay_views import compare_views

AHEAD = 200_000  # events by which a units log may be ahead of the recomputation
Report = Callable[[str, int, int], None]  # current step, progress, total


@dataclass
class Logs:
    """The logs that a replay reads; releases first, so that the other logs cover all of them.

    Spans are read later; those of raw, units and clock logs while the engine runs.
    """

    releases: list[Span] = field(default_factory=list)
    latest: list[Span] = field(default_factory=list)
    dead: dict[str, list[PartitionLog]] = field(default_factory=dict)
    units: list[Span] = field(default_factory=list)
    clock: Span = field(default_factory=lambda: Span("", 0, 0, 0))
    read: Clocked = field(default_factory=lambda: Clocked())
    ledger: Ledger = field(default_factory=Ledger)
    raw: list[Span] = field(default_factory=list)
    reach: Reach | None = None

    @property
    def size(self) -> int:
        """Number of raw offsets, slightly more than the number of raw records."""
        return sum(span.end - span.begin for span in self.raw)


def replay(
    config: Config,
    pipelines: Collection[str] = (),
    windows: Collection[int] | None = None,
    report: Report = lambda what, done, total: None,
    escrow_key: Path | None = None,
) -> ReplayOutcome:
    """Recompute and compare the releases of a deployment.

    Args:
        config: configuration, with the noise key and the cluster's address.
        pipelines: names of pipelines; all of them if empty.
        windows: numbers of windows to compare; all of them if None.
        report: called with the current step, its progress and its total (0: unknown).
        escrow_key: an auditor's private key, which opens the keys in ``secret.escrow_file``.

    Raises:
        ConfigError: a pipeline is unknown, the noise key is missing, or a sealed key does not open.
        LedgerError: the ledger is broken, or a trigger was not paid for.
        EngineError: a log cannot be read, or lacks what is needed.
    """
    plan = prepare(config, role="auditor")
    deployment = select(plan.deployment, pipelines)
    logs = read_logs(plan, deployment, report)
    sealed: Sealed = {}
    if escrow_key is not None:
        place, keys = Path(config.secret.escrow_file), ReplayKeys(plan, deployment, {})
        reach = reach_of(deployment, logs)
        fired = (t for p in deployment.pipelines for t in reach.triggers(p.name))
        sealed = opened(place, escrow_key, keys, fired)
    return recompute(plan, deployment, logs, windows, report, sealed)


def recompute(
    plan: WorkerSetup,
    deployment: Deployment,
    logs: Logs,
    windows: Collection[int] | None = None,
    report: Report = lambda what, done, total: None,
    sealed: Sealed = MappingProxyType({}),
) -> ReplayOutcome:
    """Run the engine over the logs that `read_logs` found, reading raw logs meanwhile, and compare.

    ``plan`` is a worker's setup; ``windows`` are the numbers of windows to compare; ``report`` is
    called with progress; ``sealed`` are keys from escrow. Raises `EngineError` if a log cannot be
    read, or lacks what is needed.
    """
    total, used = logs.size * max(len(deployment.pipelines), 1), 0

    def progress(more: int) -> None:
        nonlocal used
        used += more
        if more:
            report("recomputing", used, max(total, used))

    outcome, reach = ReplayOutcome(), reach_of(deployment, logs)
    keys = ReplayKeys(plan, deployment, sealed)
    checks: dict[str, list[ReleaseCheck | LatestCheck]] = defaultdict(list)
    for p in deployment.pipelines:
        first, mine = reach.first(p.name), reach.triggers(p.name)
        if windows is not None and first is not None and min(windows, default=first) < first:
            raise EngineError(
                f"pipeline {p.name!r}: a requested window began before the snapshot at the start "
                "of the clock log: engine.keep_clock sets how long the log is kept"
            )
        if forgotten := keys.forgotten(mine):
            outcome.left_out.append(left_out(p.name, forgotten))
        without = {t.window for t in forgotten}
        released = ReleaseCheck(p, mine, windows, first, plan.sealing, without)
        checks[p.release_topic].append(released)
        if p.latest_topic:
            checks[p.latest_topic].append(LatestCheck(p, released))
    report("reading nonces", 0, 0)
    published = published_nonces(plan.config.kafka, deployment, logs.releases)
    with _Streams(plan.config.kafka, plan.names, deployment, logs, outcome, checks) as streams:
        engine = OfflineEngine(
            replace(reach.renumbered(deployment), views=()),
            plan.names.apart,
            plan.secret,
            streams.raw,
            streams.clock,
            Recorded(
                units=streams.units,
                opening=published.opening,
                begun=reach.standing(),
                schemas=recorded_schemas(plan.config.kafka, plan.names, deployment),
                own=keys.own,
                sealing=plan.sealing,
            ),
            Streaming(streams.sent, trim=True),
        )
        engine.run(progress)
        while streams.insist():
            engine.run(progress)
        streams.finish()
    places = {(s.topic, s.partition): s.begin for s in logs.raw}
    for topic, p in _compared(deployment, reach):
        begins = offsets_of(reach, places)
        sure = named_offsets(logs.read.begun.get(p.name, {}))
        log = logs.dead[topic][0]
        compare_dead_letters(topic, engine.outs[topic], log, outcome, begins, sure, p.told)
    if deployment.shared:
        for topic, logs_of in logs.dead.items():
            compare_names(topic, logs_of[0], plan.ledger.pipelines, outcome)
    compare_views(plan.config.kafka, deployment, outcome)
    report("recomputing", max(total, used), max(total, used))
    return outcome


class _Streams:
    """Logs that are read during or after the engine's run, with the checks of their records."""

    def __init__(
        self,
        kafka: Kafka,
        names: Names,
        deployment: Deployment,
        logs: Logs,
        outcome: ReplayOutcome,
        releases: Mapping[str, Sequence[ReleaseCheck | LatestCheck]],
    ) -> None:
        self._kafka = kafka
        self._outcome = outcome
        self._spans = [*logs.releases, *logs.latest]
        self._releases = releases
        self._checks = {
            names.home(s.topic, s.partition): Comparison(f"{s.topic}-{s.partition}", outcome)
            for s in logs.units
        }
        largest = deployment.largest
        self.raw = {
            (s.topic, s.partition): RawLog(kafka, s, STEP, largest[s.topic]) for s in logs.raw
        }
        reach = reach_of(deployment, logs)
        self._made = {names.units(p.name): reach.units(p.name) for p in deployment.pipelines}
        self.clock = StreamLog(kafka, logs.clock, STEP, make=reach.clock)
        homes = {names.home(s.topic, s.partition): s for s in logs.units}
        self.units = {place: self._of_units(kafka, place, s) for place, s in homes.items()}

    def _of_units(self, kafka: Kafka, place: tuple[str, int], span: Span) -> StreamLog:
        check = self._checks[place]
        return StreamLog(
            kafka, span, FRAMES, whole=False, make=self._made[place[0]],
            seen=lambda one: check.found(one.value), wait=lambda: check.ahead > AHEAD,
        )  # fmt: skip

    def sent(self, out: Out) -> bool:
        """Take a recomputed record of a units or public topic; False for other topics."""
        for check in self._releases.get(out.topic, ()):  # each takes its own pipeline's records
            check.expect(out)
        if units := self._checks.get((out.topic, out.partition)):
            units.sent(out.value or b"")
        return units is not None or out.topic in self._releases

    def insist(self) -> bool:
        """Whether units logs were held back and must continue now, since nothing else moves."""
        held = [log.insist() for log in self.units.values()]
        return any(held)

    def finish(self) -> None:
        """Read the records that no stage has read, and compare the rest."""
        for place, log in self.units.items():
            log.drain()
            self._checks[place].finish()
        for span in self._spans:
            for committed in (True, False):
                self._published(span, committed)
        every = [check for checks in self._releases.values() for check in checks]
        # The judgement of the latest topic depends on which releases have been published.
        for one in sorted(every, key=lambda check: isinstance(check, LatestCheck)):
            one.finish(self._outcome)

    def _published(self, span: Span, committed: bool) -> None:
        def take(record: RawRecord) -> None:
            for check in self._releases[span.topic]:
                check.take(span.partition, record, committed)

        log = StreamLog(self._kafka, span, STEP, whole=False, committed=committed, seen=take)
        with closing(log):
            log.drain()

    def __enter__(self) -> _Streams:
        return self

    def __exit__(self, *_: object) -> None:
        for log in (self.clock, *self.units.values()):
            log.close()
        for raw in self.raw.values():
            raw.close()


def select(deployment: Deployment, pipelines: Collection[str]) -> Deployment:
    """The deployment with the named pipelines, or all if none is named; raises `ConfigError`."""
    known = [p.name for p in deployment.pipelines]
    if strange := sorted(set(pipelines) - set(known)):
        raise ConfigError(f"pipeline {strange[0]!r} is unknown; expected one of {', '.join(known)}")
    if not pipelines:
        return deployment
    chosen = deployment.only(pipelines)
    kept = tuple(one for one in chosen.inputs if one.pipelines)
    stating = {one.attributes.topic for one in kept if one.attributes is not None}
    beside = tuple(one for one in deployment.inputs if one.topic in stating)
    return replace(chosen, inputs=kept + beside)


def read_logs(plan: WorkerSetup, deployment: Deployment, report: Report) -> Logs:
    """Read the logs of a deployment; releases before the clock log, so that each has its trigger.

    Raises `EngineError` if a log cannot be read, or lacks what is needed.
    """
    kafka, names = plan.config.kafka, plan.names
    logs = Logs()
    topics = {p.release_topic: p.release_partitions for p in deployment.pipelines}
    newest = {p.latest_topic: p.release_partitions for p in deployment.pipelines if p.latest_topic}
    logs.releases = [one for topic, n in topics.items() for one in spans(kafka, topic, n)]
    logs.latest = [one for topic, n in newest.items() for one in spans(kafka, topic, n)]
    logs.dead = _set_aside(kafka, deployment, report)
    for p in deployment.pipelines:
        if not p.direct:
            topic, first = names.place(names.units(p.name))
            logs.units += spans(kafka, topic, p.units_partitions, first)
    _read_clock(kafka, names.clock, logs, deployment)
    reach = reach_of(deployment, logs)
    logs.ledger = read_ledger(Cluster(kafka, role="auditor"), deployment.name)
    logs.read.check_paid(logs.ledger)
    for source in deployment.inputs:
        begins = begin_of(plan.begins, logs.ledger, source)
        for span in spans(kafka, source.topic, source.partitions):
            begin = reach.begin(span.topic, span.partition, begins[span.partition])
            if source.beside:  # all that is left of it, since a unit's newest record counts
                begin = span.begin
            _check_whole(span, begin)
            end = logs.read.end(span.topic, span.partition)
            start = begin if reach.partial else span.begin
            logs.raw.append(span._replace(begin=start, end=end))
    whose = {names.units(p.name): p.name for p in deployment.pipelines}
    for span in logs.units:
        topic, number = names.home(span.topic, span.partition)
        _check_whole(span, reach.units_begin(whose[topic], number))
    return logs


def _set_aside(
    kafka: Kafka, deployment: Deployment, report: Report
) -> dict[str, list[PartitionLog]]:
    """Read the topics of bad, late and far-future records."""
    logs, read = {}, 0

    def advance(records: int) -> None:
        nonlocal read
        read += records
        report(f"reading {topic}", read, 0)

    for topic in dict.fromkeys(t for p in deployment.pipelines for t in _dead_topics(p)):
        logs[topic] = read_topic(kafka, topic, 1, True, advance)
    return logs


def _check_whole(span: Span, needed: int) -> None:
    if span.begin > needed:
        raise EngineError(
            f"{span.topic}-{span.partition} begins at offset {span.begin}: records from {needed} "
            "on were deleted, so releases cannot be recomputed; replay earlier, or keep "
            "more"
        )


def reach_of(deployment: Deployment, logs: Logs) -> Reach:
    """Find what can be recomputed: everything, unless the clock log was trimmed."""
    return logs.reach or Reach(deployment, 0, None, logs.read.triggers)


def _compared(deployment: Deployment, reach: Reach) -> list[tuple[str, Pipeline]]:
    """Topics of records set aside, each with its pipeline.

    It is unknown which records were late in windows that began before a snapshot.
    """
    if reach.partial:
        return [(p.dlq_topic, p) for p in deployment.pipelines if p.dlq_topic]
    return [(t, p) for p in deployment.pipelines for t in _dead_topics(p)]


def _dead_topics(pipeline: Pipeline) -> list[str]:
    return [t for t in (pipeline.dlq_topic, pipeline.late_topic) if t]


def _read_clock(kafka: Kafka, topic: str, logs: Logs, deployment: Deployment) -> None:
    """Read the clock log once; record its span for the engine.

    Raises `EngineError` if the log was trimmed and does not begin with a snapshot.
    """
    (span,) = spans(kafka, topic, 1)
    opening, read = Opening(span.begin), logs.read
    begun: list[tuple[int, Snapshot]] = []

    def seen(one: Timed) -> None:
        if (snapshot := opening.first([(one.offset, one.record)])) is not None:
            read.begin(snapshot)
            begun.append((one.offset, snapshot))
        read.take(one.record)

    with closing(StreamLog(kafka, span, STEP, whole=False, make=timed, seen=seen)) as log:
        log.drain()
    opening.end()
    logs.clock = span._replace(end=log.end)
    place, first = begun[0] if begun else (0, None)
    logs.reach = Reach(deployment, place, first, read.triggers)
