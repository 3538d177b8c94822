"""A cluster that comes back as it was some time before: a restored disk, or a mirror.

All logs and the coordinator of transactions go back to the same moment. Transactions that had been
decided then are carried out, the others are aborted, and every producer is fenced: its sequence
numbers are no longer those that the broker expects.
"""

from __future__ import annotations

from typing import NamedTuple

from .broker import Broker
from .log import Place, Transaction
from .machine import Machine


class Kept(NamedTuple):
    """What one partition held at a moment."""

    start: int
    end: int
    aborted: frozenset[Transaction]
    open: tuple[tuple[Transaction, bool], ...]  # and whether it was committed already


Snapshot = dict[Place, Kept]


def snapshot(broker: Broker) -> Snapshot:
    """Note what all partitions hold."""
    return {
        place: Kept(log.start, log.end, frozenset(log.aborted),
                    tuple((one, one.ending and one.commit) for one in log.open))
        for place, log in broker.logs.items()
    }  # fmt: skip


def copies_of(machine: Machine) -> dict[Place, int]:
    """How far the copies of tables are that a worker keeps for others, in their changelogs."""
    standbys = machine.worker._standbys if machine.alive and machine.worker is not None else None
    copies = [] if standbys is None else standbys._copies.values()
    return {tuple(one.state.place): one.state.position for one in copies if one.state.ready}


def lacks(kept: Snapshot, copies: dict[Place, int]) -> bool:
    """Whether partitions would end before their copies, also when what is open there has ended."""
    return any(kept[place].end + len(kept[place].open) < reached
               for place, reached in copies.items() if place in kept)  # fmt: skip


def restore(broker: Broker, kept: Snapshot) -> None:
    """Set all partitions back."""
    for owner in broker.owners.values():
        owner.epoch += 1
        if owner.transaction is not None:
            owner.transaction.timer.cancel()
            owner.transaction = None
    for place, then in kept.items():
        log = broker.logs[place]
        log.start, log.aborted = then.start, set(then.aborted)
        del log.records[then.end :], log.owners[then.end :]
        log.open = {one: log.owners.index(one) for one, _ in then.open}
        for one, commit in then.open:
            log.mark(one, commit)
