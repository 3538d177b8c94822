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
from .aggregate import Frame
from .clocklog import Entry
from .ledger import Ledger
from .logs import PartitionLog, read_topic
from .memory import Engine, RawLogs
from .model import Deployment, Pipeline
from .replay_compare import Outcome, compare_dead_letters, compare_releases
from .replay_units import compare_units
from .run import prepare
from .worker import Plan, begin_of

Places = dict[tuple[str, int], list[Frame]]
Report = Callable[[str, int, int], None]  # what is being done, how much of it, of how much


@dataclass
class Logs:
    """Everything that a replay reads; releases first, so that all of them can be explained."""

    committed: dict[str, list[PartitionLog]] = field(default_factory=dict)
    uncommitted: dict[str, list[PartitionLog]] = field(default_factory=dict)
    dead: dict[str, list[PartitionLog]] = field(default_factory=dict)
    units: Places = field(default_factory=dict)
    clock: list[Entry] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    raw: RawLogs = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Raw records read."""
        return sum(map(len, self.raw.values()))


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
    """Run the engine over logs that were read, and compare."""
    total, used = logs.size * max(len(deployment.pipelines), 1), 0

    def progress(more: int) -> None:
        nonlocal used
        used += more
        report("recomputing", used, max(total, used))

    engine = Engine(deployment, plan.names, plan.secret, logs.raw, logs.clock, logs.units, progress)
    engine.run()
    outcome = Outcome()
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
        if not pipeline.direct:
            name = plan.names.units(pipeline.name)
            sent = {(name, n): [o for o in engine.outs[name] if o.partition == n]
                    for n in range(pipeline.units_partitions)}  # fmt: skip
            compare_units(sent, logs.units, outcome)
    report("recomputing", max(total, used), max(total, used))
    return outcome


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
            name = names.units(p.name)
            for n, log in enumerate(reader.read(name, p.units_partitions)):
                logs.units[name, n] = [Frame(r.offset, r.value or b"") for r in log.records]
    (clock,) = reader.read(names.clock, 1)
    logs.clock = [(r.offset, decode_clock(r.value or b"")) for r in clock.records]
    logs.ledger = read_ledger(Cluster(kafka), deployment.name)
    for source in deployment.inputs:
        found = reader.read(source.topic, source.partitions)
        for n, log in enumerate(found):
            _check_whole(source.topic, n, log.begin, begin_of(logs.ledger, source)[n])
            logs.raw[source.topic, n] = log.records
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


def _check_whole(topic: str, partition: int, begin: int, needed: int) -> None:
    if begin > needed:
        raise EngineError(
            f"{topic}-{partition} begins at offset {begin}: records from {needed} on were deleted "
            "by retention, and without them nothing can be recomputed; replay earlier, or keep more"
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
