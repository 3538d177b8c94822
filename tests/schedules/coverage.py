"""States of the protocol that a schedule passes through, as numbers.

A state contains what the protocol's next step may depend on, and no counted data: which transaction
has just begun, ended or become visible; how far each worker and the shard are; which worker
believes that it owns the shard; what is behind; which faults are active. Two schedules with the
same states differ only in contents and times.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from .broker import Broker
from .log import Place
from .verdict import RELEASES

MOST = 2  # larger numbers count as this one plus one


class Seen:
    """Notes the states of one schedule, at each event of a transaction.

    Args:
        schedule: schedule that has not run yet.

    Attributes:
        states: number of visits by state.
        first: time of the first visit by state, in virtual seconds.
    """

    def __init__(self, schedule: Any) -> None:
        self.states: Counter[int] = Counter()
        self.first: dict[int, float] = {}
        self._schedule = schedule
        self._broker: Broker = schedule.world.broker
        names = schedule.template.names
        self._clock, self._ledger = (names.clock, 0), (names.ledger, 0)
        self._last: Any = ()
        for name in ("initialise", "add", "end", "_expire", "_mark"):
            self._watch(name)

    def _watch(self, name: str) -> None:
        broker: Any = self._broker
        work = getattr(broker, name)

        def watched(*given: Any, **more: Any) -> Any:
            try:
                found = work(*given, **more)
            except Exception as error:
                self._note(name, given, type(error).__name__)
                raise
            self._note(name, given, "")
            return found

        setattr(broker, name, watched)

    def _note(self, name: str, given: tuple[Any, ...], error: str) -> None:
        """Note the state, and the previous state with this event."""
        identity = given[0] if isinstance(given[0], str) else _identity(self._broker, given[0])
        event = (name, error, _role(identity), self._transaction(identity))
        state = (event, self._workers(), self._shards(identity), self._logs(), self._faults())
        if self._schedule.template.config.engine.standbys:
            state = (*state, self._copies(identity))  # type: ignore[assignment]
        for number in {hash(state), hash((self._last, event))}:
            self.first.setdefault(number, self._broker.loop.now)
            self.states[number] += 1
        self._last = event

    def _transaction(self, identity: str) -> Any:
        owner = self._broker.owners.get(identity)
        if owner is None or owner.transaction is None:
            return ()  # a hash of None differs between processes
        one = owner.transaction
        return one.ending, one.commit, min(one.left, MOST)

    def _workers(self) -> Any:
        """The state of each machine's process, sorted."""
        found = []
        for machine in self._schedule.machines:
            process, worker = machine.process, machine.worker
            if process is None or process.dead:
                found.append("dead")
            elif worker is None:
                found.append("starting")
            elif getattr(worker.app, "left", False):
                found.append("leaves")
            else:
                found.append("paused" if process.paused else "lives")
        return tuple(sorted(found))

    def _shards(self, identity: str) -> Any:
        """The state of each shard with this transactional id, sorted."""
        found = []
        for machine in self._schedule.machines:
            dead = machine.process is None or machine.process.dead
            held = [] if machine.worker is None else machine.worker.shards.values()
            found += [
                (
                    dead,
                    one._closing,
                    one._doubted,
                    one._producers.steps is None,
                    one.moved,
                )
                for one in held
                if identity in (one._spec.transactional_id, one._spec.publishing_id)
            ]
        return tuple(sorted(found))

    def _copies(self, identity: str) -> Any:
        """The copies of a transactional id's table, and how far they are."""
        found = []
        for machine in self._schedule.machines:
            worker, dead = machine.worker, machine.process is None or machine.process.dead
            for tp, copy in {} if worker is None else worker._standbys._copies.items():
                stage = worker._topology.of(*tp)
                ids = worker._topology.transactional_id, worker._topology.publishing_id
                if identity in (make(stage, tp[1]) for make in ids):
                    found.append((dead, copy.lock.locked(), self._apart(copy.state)))
        return tuple(sorted(found))

    def _apart(self, state: Any) -> str:
        """Where a changelog ends, relative to a copy of its table."""
        if not state.ready:
            return "closed"
        end, reached = self._broker.logs[tuple(state.place)].stable, state.position
        return "behind" if end < reached else "here" if end == reached else "beyond"

    def _logs(self) -> Any:
        """Which logs have open transactions, and how far releases are behind triggers."""
        logs = self._broker.logs
        waiting = tuple(bool(logs[place].open) for place in (self._clock, self._ledger))
        return waiting, min(self._pending(), MOST + 1)

    def _pending(self) -> int:
        shards = self._schedule.template.deployment.pipelines[0].cells_partitions
        fired = _count(self._broker, self._clock, b'trigger"')
        released = _count(self._broker, (RELEASES, 0), b'"hush.manifest/')
        return max(fired * shards - released, 0)

    def _faults(self) -> Any:
        broker = self._broker
        return (broker.down, broker.slow > 0, broker.lossy > 0, broker.torn > 0, bool(broker.cut),
                bool(broker.deaf), bool(broker.old), bool(broker.leaderless),
                self._schedule.faults.resets.rewound)  # fmt: skip


def _role(identity: str) -> str:
    """The stage of a transactional id."""
    return identity.split(".")[-3] if identity.count(".") > 2 else identity


def _identity(broker: Broker, owner: Any) -> str:
    return next((name for name, one in broker.owners.items() if one is owner), "")


def _count(broker: Broker, place: Place, what: bytes) -> int:
    """The number of records of a log that contain ``what``; each record is read once."""
    log: Any = broker.logs[place]
    known, reached = getattr(log, "counted", (0, 0))
    if reached > len(log.records):  # the log was rewound
        known, reached = 0, 0
    known += sum(r is not None and r.value is not None and what in r.value
                 for r in log.records[reached:])  # fmt: skip
    log.counted = known, len(log.records)
    return int(known)


def told(seen: Seen) -> list[list[Any]]:
    """States and the times of their first visits, for JSON."""
    return [[number, round(at, 3)] for number, at in seen.first.items()]
