"""A cluster that is reset to an earlier state: from a restored disk or a mirror.

All logs and the coordinator of transactions go back to the same time. Transactions that were
decided by then are completed, others are aborted, and every producer is fenced: the broker no
longer expects its sequence numbers.
"""

from __future__ import annotations

from typing import NamedTuple

from .broker import Broker
from .log import Log, Place, Transaction
from .machine import Machine


class Kept(NamedTuple):
    """The state of one partition at a time."""

    start: int
    end: int
    aborted: frozenset[Transaction]
    open: tuple[tuple[Transaction, bool], ...]  # and whether it was committed already
    stable: int


Snapshot = dict[Place, Kept]


def snapshot(broker: Broker) -> Snapshot:
    """Note the state of all partitions."""
    return {
        place: Kept(log.start, log.end, frozenset(log.aborted),
                    tuple((one, one.ending and one.commit) for one in log.open), log.stable)
        for place, log in broker.logs.items()
    }  # fmt: skip


def copies_of(machine: Machine) -> dict[Place, int]:
    """The changelog positions of the copies that a worker keeps for others."""
    standbys = machine.worker._standbys if machine.alive and machine.worker is not None else None
    copies = [] if standbys is None else standbys._copies.values()
    return {tuple(one.state.place): one.state.position for one in copies if one.state.ready}


def lacks(kept: Snapshot, copies: dict[Place, int]) -> bool:
    """Whether partitions would end before their copies, even after open transactions end."""
    return any(kept[place].end + len(kept[place].open) < reached
               for place, reached in copies.items() if place in kept)  # fmt: skip


def restore(broker: Broker, kept: Snapshot) -> None:
    """Set all partitions back."""
    broker.old = {}  # a former leader has the same disks
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


def truncate(log: Log, end: int) -> None:
    """Cut one partition at an offset before which no transaction was open."""
    del log.records[end:], log.owners[end:]
    log.open = {one: begun for one, begun in log.open.items() if begun < end}
