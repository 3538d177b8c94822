"""Replay: recompute releases in memory from the logs and the secret, and compare every byte.

Raw log, clock log and ledger decide what a release contains, and the secret how it is blurred.
So whatever crashed, was fenced or was repeated while a deployment ran, the same engine run once
over the same logs must give the same records. Re-partitioned pipelines are replayed from their
units log, whose order is the one that counts; that log is itself compared with what the raw log
decodes to: nothing lost, nothing doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from hushstream.mechanisms.errors import ConfigError, EngineError, LedgerError
from hushstream.topics.config import Config
from hushstream.topics.config_model import Kafka
from hushstream.topics.records import Beat, ClockRecord, Trigger, decode_clock

from .admin import Cluster, read_ledger
from .clocklog import Entry
from .ledger import Ledger
from .logs import PartitionLog, read_topic
from .memory import STEP, Engine, used_below
from .model import Deployment, Pipeline
from .replay_compare import Outcome, compare_dead_letters, compare_releases
from .replay_logs import Span, StreamLog, frame, spans
from .replay_units import Comparison
from .run import prepare
from .stages import FRAMES
from .step import Out
from .worker import Plan, begin_of

AHEAD = 200_000  # events that a units log may be ahead of what is recomputed
Report = Callable[[str, int, int], None]  # what is being done, how much of it, of how much


@dataclass
class Logs:
    """What a replay reads; releases first, so that all of them can be explained.

    Raw and units logs are spans, which are read while the engine runs.
    """

    committed: dict[str, list[PartitionLog]] = field(default_factory=dict)
    uncommitted: dict[str, list[PartitionLog]] = field(default_factory=dict)
    dead: dict[str, list[PartitionLog]] = field(default_factory=dict)
    units: list[Span] = field(default_factory=list)
    clock: list[Entry] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    raw: list[Span] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Raw records, or a little more: offsets without a record count too."""
        return sum(span.end - span.begin for span in self.raw)


def replay(
    config: Config,
    pipelines: Collection[str] = (),
    windows: Collection[int] | None = None,
    report: Report = lambda what, done, total: None,
) -> Outcome:
    """Recompute and compare what a deployment has released.

    Args:
        pipelines: names; all of them if empty.
        windows: numbers of windows to compare; all of them if None.
        report: told about progress.

    Raises:
        ConfigError: there is no such pipeline, or no noise key.
        LedgerError: the ledger is broken, or a trigger was not paid for.
        EngineError: a log cannot be read, or lacks what is needed.
    """
    plan = prepare(config)
    deployment = select(plan.deployment, pipelines)
    logs = read_logs(plan, deployment, report)
    check_clock(logs.clock, logs.ledger)
    return recompute(plan, deployment, logs, windows, report)


def recompute(
    plan: Plan,
    deployment: Deployment,
    logs: Logs,
    windows: Collection[int] | None = None,
    report: Report = lambda what, done, total: None,
) -> Outcome:
    """Run the engine over the logs, raw ones as they are read, and compare."""
    total, used = logs.size * max(len(deployment.pipelines), 1), 0

    def progress(more: int) -> None:
        nonlocal used
        used += more
        report("recomputing", used, max(total, used))

    outcome = Outcome()
    with _Streams(plan.config.kafka, deployment, logs, outcome) as streams:
        engine = Engine(
            deployment, plan.names, plan.secret, streams.raw, logs.clock, streams.units,
            progress, streams.sent, trim=True,
        )  # fmt: skip
        engine.run()
        while streams.insist():
            engine.run()
        streams.finish()
    triggers = [record for _, record in logs.clock if isinstance(record, Trigger)]
    for pipeline in deployment.pipelines:
        mine = [t for t in triggers if t.pipeline == pipeline.name]
        topic = pipeline.release_topic
        compare_releases(
            pipeline, mine, windows, engine.outs[topic],
            logs.committed[topic], logs.uncommitted[topic], outcome,
        )  # fmt: skip
        for other in _dead_topics(pipeline):
            compare_dead_letters(other, engine.outs[other], logs.dead[other][0], outcome)
    report("recomputing", max(total, used), max(total, used))
    return outcome


class _Streams:
    """Raw and units logs of a replay, read while it runs."""

    def __init__(self, kafka: Kafka, deployment: Deployment, logs: Logs, outcome: Outcome) -> None:
        self._checks = {
            (s.topic, s.partition): Comparison(f"{s.topic}-{s.partition}", outcome)
            for s in logs.units
        }
        frames = {source.topic for source in deployment.inputs if source.frames}
        self.raw = {
            (s.topic, s.partition): StreamLog(kafka, s, FRAMES if s.topic in frames else STEP)
            for s in logs.raw
        }
        self.units = {(s.topic, s.partition): self._of_units(kafka, s) for s in logs.units}

    def _of_units(self, kafka: Kafka, span: Span) -> StreamLog:
        check = self._checks[span.topic, span.partition]
        return StreamLog(
            kafka, span, FRAMES, whole=False, make=frame,
            seen=lambda one: check.found(one.value), wait=lambda: check.ahead > AHEAD,
        )  # fmt: skip

    def sent(self, out: Out) -> None:
        """Take a record for a units topic, as recomputed."""
        self._checks[out.topic, out.partition].sent(out.value or b"")

    def insist(self) -> bool:
        """Whether units logs were held back that must go on now, since nothing else does."""
        held = [log.insist() for log in self.units.values()]
        return any(held)

    def finish(self) -> None:
        """Read what no stage has asked for, and compare what is left."""
        for place, log in self.units.items():
            log.drain()
            self._checks[place].finish()

    def __enter__(self) -> _Streams:
        return self

    def __exit__(self, *_: object) -> None:
        for log in (*self.raw.values(), *self.units.values()):
            log.close()


def select(deployment: Deployment, pipelines: Collection[str]) -> Deployment:
    """The same deployment with some of its pipelines only."""
    known = [p.name for p in deployment.pipelines]
    if strange := sorted(set(pipelines) - set(known)):
        raise ConfigError(f"there is no pipeline {strange[0]!r}; there is {', '.join(known)}")
    if not pipelines:
        return deployment
    inputs = (
        replace(i, pipelines=tuple(p for p in i.pipelines if p.name in pipelines))
        for i in deployment.inputs
    )
    return replace(deployment, inputs=tuple(i for i in inputs if i.pipelines))


def read_logs(plan: Plan, deployment: Deployment, report: Report) -> Logs:
    """Read what is needed, results before their causes: every release read is in the clock."""
    kafka, names = plan.config.kafka, plan.names
    reader = _Reader(kafka, report)
    logs = Logs()
    for p in deployment.pipelines:
        topic = p.release_topic
        if topic not in logs.committed:
            logs.committed[topic] = reader.read(topic, p.release_partitions)
            logs.uncommitted[topic] = reader.read(topic, p.release_partitions, committed=False)
        for other in _dead_topics(p):
            logs.dead[other] = reader.read(other, 1)
    for p in deployment.pipelines:
        if not p.direct:
            logs.units += spans(kafka, names.units(p.name), p.units_partitions)
    (clock,) = reader.read(names.clock, 1)
    logs.clock = [(r.offset, decode_clock(r.value or b"")) for r in clock.records]
    logs.ledger = read_ledger(Cluster(kafka), deployment.name)
    for source in deployment.inputs:
        begins = begin_of(logs.ledger, source)
        for span in spans(kafka, source.topic, source.partitions):
            _check_whole(span, begins[span.partition])
            end = used_below(logs.clock, span.topic, span.partition)
            logs.raw.append(span._replace(end=end))
    for span in logs.units:
        _check_whole(span, 0)
    return logs


class _Reader:
    def __init__(self, kafka: Kafka, report: Report) -> None:
        self._kafka = kafka
        self._report = report
        self._read = 0

    def read(self, topic: str, partitions: int, committed: bool = True) -> list[PartitionLog]:
        def advance(records: int) -> None:
            self._read += records
            self._report(f"reading {topic}", self._read, 0)

        return read_topic(self._kafka, topic, partitions, committed, advance)


def _check_whole(span: Span, needed: int) -> None:
    if span.begin > needed:
        raise EngineError(
            f"{span.topic}-{span.partition} begins at offset {span.begin}: records from {needed} "
            "on were deleted, and without them nothing can be recomputed; replay earlier, or keep "
            "more"
        )


def _dead_topics(pipeline: Pipeline) -> list[str]:
    return [t for t in (pipeline.dlq_topic, pipeline.late_topic) if t]


def check_clock(entries: Sequence[Entry], ledger: Ledger) -> None:
    """Every trigger was paid for by the charge it names, and no cut ever went back.

    Raises:
        LedgerError: a trigger without its charge, or that counts other charges than there were.
        EngineError: a beat or cut lies below an earlier one.
    """
    reached: dict[str, list[int]] = {}
    epochs: dict[str, set[int]] = {}
    for _, record in entries:
        if isinstance(record, Trigger):
            epochs.setdefault(record.pipeline, set()).add(record.epoch)
            _check_paid(record, ledger, len(epochs[record.pipeline]))
        if isinstance(record, Beat | Trigger):
            _check_forward(record, reached)


def _check_paid(trigger: Trigger, ledger: Ledger, epochs: int) -> None:
    charge = ledger.charges.get((trigger.pipeline, trigger.epoch))
    place = f"trigger {trigger.ordinal} of pipeline {trigger.pipeline!r}"
    if charge is None:
        raise LedgerError(f"{place} was never charged")
    if (charge.seq, charge.hash()) != (trigger.charge_seq, trigger.charge):
        raise LedgerError(f"{place} names another charge than ledger record {charge.seq}")
    if charge.body["config_hash"] != trigger.config_hash:
        raise LedgerError(f"{place} ran under another configuration than was charged")
    if trigger.epochs not in (0, epochs):  # 0: written before triggers said so
        raise LedgerError(f"{place} states {trigger.epochs} epochs, {epochs} were charged by then")


def _check_forward(record: ClockRecord, reached: dict[str, list[int]]) -> None:
    for topic, offsets in record.offsets.items():  # type: ignore[union-attr]
        before = reached.get(topic, [0] * len(offsets))
        if any(now < then for now, then in zip(offsets, before, strict=True)):
            raise EngineError(f"the clock log goes back on topic {topic}")
        reached[topic] = offsets
