"""Checks the clock log against the ledger: every trigger was paid for, and no cut goes back."""

from __future__ import annotations

from ...errors import EngineError, LedgerError
from ...topics.records import Beat, ClockRecord, Snapshot, Start, Trigger
from .ledger import Ledger

STALE = (
    "the clock log knows more than the ledger does, so the ledger was replaced by an older or "
    "another copy; restore the newest one. If it is lost for good, begin a new deployment (another "
    "deployment.name), and count what both have spent"
)


class Clocked:
    """The result of one pass over the clock log: its triggers, and how far it reaches.

    Attributes:
        reached: last cut or beat of each raw topic.
        begun: `reached` at each pipeline's start in this log. Raw records below it may have been
            read by workers that did not know the pipeline.
        snapshots: all snapshots; if the pass did not begin at 0, it began at the first one.
    """

    def __init__(self) -> None:
        self.triggers: list[Trigger] = []
        self.snapshots: list[Snapshot] = []
        self._begun: Snapshot | None = None
        self.reached: dict[str, list[int]] = {}
        self.begun: dict[str, dict[str, list[int]]] = {}

    def begin(self, snapshot: Snapshot) -> None:
        """Begin the pass at a snapshot."""
        self._begun, self.reached = snapshot, dict(snapshot.offsets)

    def take(self, record: ClockRecord) -> None:
        """Take the next record.

        Raises:
            EngineError: a beat or cut lies below an earlier one, or covers fewer partitions.
        """
        if isinstance(record, Trigger):
            self.triggers.append(record)
        if isinstance(record, Start):
            self.begun[record.pipeline] = dict(self.reached)
        if isinstance(record, Snapshot):
            self.snapshots.append(record)
        if isinstance(record, Beat | Trigger | Snapshot):
            _check_forward(record, self.reached)

    def end(self, topic: str, partition: int) -> int:
        """Look up the last cut or beat of a raw partition: no record above it may be used."""
        ends = self.reached.get(topic, [])
        return ends[partition] if partition < len(ends) else 0

    def check_paid(self, ledger: Ledger) -> None:
        """Check that every trigger was paid for by its charge, or by its snapshot's ledger.

        Raises:
            LedgerError: a trigger has no charge, counts other charges than the ledger has, or
                covers more or fewer partitions than the ledger counted then; or a snapshot is of
                another ledger.
        """
        for snapshot in self.snapshots:
            _check_ledger(snapshot, ledger)
        epochs: dict[str, set[int]] = {}
        if self._begun is not None:  # each charge was written with its epoch's first trigger
            for (name, epoch), charge in ledger.charges.items():
                if charge.seq < self._begun.records:
                    epochs.setdefault(name, set()).add(epoch)
        for record in self.triggers:
            epochs.setdefault(record.pipeline, set()).add(record.epoch)
            _check_paid(record, ledger, len(epochs[record.pipeline]))
            _check_counted(record, ledger)


def _check_ledger(snapshot: Snapshot, ledger: Ledger) -> None:
    """Check that the ledger of a snapshot is a prefix of this one."""
    there = 0 < snapshot.records <= len(ledger.records)
    if not there or ledger.records[snapshot.records - 1].hash() != snapshot.head:
        raise LedgerError(
            f"a snapshot of the clock names {snapshot.records} ledger records that this ledger "
            f"does not have, or has others of: {STALE}"
        )


def _check_paid(trigger: Trigger, ledger: Ledger, epochs: int) -> None:
    charge = ledger.charges.get((trigger.pipeline, trigger.epoch))
    place = f"trigger {trigger.ordinal} of pipeline {trigger.pipeline!r}"
    if charge is None:
        raise LedgerError(f"{place} was never charged by this ledger: {STALE}")
    if (charge.seq, charge.hash()) != (trigger.charge_seq, trigger.charge):
        raise LedgerError(f"{place} names another charge than ledger record {charge.seq}: {STALE}")
    if charge.body["config_hash"] != trigger.config_hash:
        raise LedgerError(f"{place} ran under another configuration than was charged")
    if trigger.epochs not in (0, epochs):  # 0: written before triggers had this field
        raise LedgerError(f"{place} states {trigger.epochs} epochs, {epochs} were charged by then")


def _check_counted(trigger: Trigger, ledger: Ledger) -> None:
    """Check that a trigger covers the partitions of grown topics that the ledger counted then."""
    since = ledger.joined(trigger.pipeline)
    for topic in {body["topic"] for body in ledger.grown if trigger.pipeline in body["triggers"]}:
        counted = sum(last < trigger.ordinal for last in since)
        if (covered := len(trigger.offsets.get(topic, []))) != counted:
            raise LedgerError(
                f"trigger {trigger.ordinal} of pipeline {trigger.pipeline!r} covers {covered} "
                f"partitions of topic {topic}, and by the ledger {counted} count: {STALE}"
            )


def _check_forward(record: ClockRecord, reached: dict[str, list[int]]) -> None:
    for topic, offsets in record.offsets.items():  # type: ignore[union-attr]
        before = reached.get(topic, [])
        fewer = len(offsets) < len(before)  # partitions are never removed
        if fewer or any(now < then for now, then in zip(offsets, before, strict=False)):
            raise EngineError(f"the clock log goes back on topic {topic}")
        reached[topic] = offsets
