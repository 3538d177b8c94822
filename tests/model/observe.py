"""The actions of workers in a simulated schedule, as actions of the model.

A schedule here has what the model has: one raw partition with records of one unit, one shard that
bounds and one that releases. The workers know nothing of this. Transactions are read at the
simulation's broker when their end is decided, since that is when they take effect.

A shard opens when the broker fences earlier owners for a producer that waits for this. Two further
fences take no state away from its owner, who may commit with another producer until it learns of
them: the same request once more, long after its answer; and that of a worker which has lost its
first producer before its second one has started.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from hushstream.agents.stages.aggregate.computation import Computation
from hushstream.agents.stages.aggregate.nonces import Nonce, Opening
from hushstream.agents.state.layout import MARKER
from hushstream.agents.worker import worker
from hushstream.agents.worker.shards.shard import Shard
from hushstream.formats.events.decode import utc
from hushstream.mechanisms.noise import NONCE
from hushstream.topics.frames import Barrier, CellsFrame, decode
from hushstream.topics.records import decode_marker

from ..schedules import bugs, patches
from ..schedules.broker import Owner
from ..schedules.clients import SimProducer
from ..schedules.log import START, Transaction
from ..schedules.loop import HERE, Process
from ..schedules.schedule import Schedule, quiet
from ..schedules.verdict import RELEASES

Action = tuple[str, str, str, int, int, int, int]  # see `Traces.tla`
Found = dict[str, list[tuple[int, Any]]]  # records of a transaction by topic: (offset, record)


class Watch:
    """Notes what a schedule does, until its cluster is rewound.

    Attributes:
        actions: actions in the order in which they took effect.
        starting: producers that wait for their ids, and their processes, which may be dead.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._broker = broker = schedule.world.broker
        self._names = names = schedule.template.names
        self._ids = {
            names.transactional_id("clock", "clock", 0): "clock",
            names.transactional_id("ingest", "events", 0): "bound",
            names.transactional_id("aggregate", names.cells("p"), 0): "sums",
            names.transactional_id("publish", names.cells("p"), 0): "sums",
        }
        # A shard with two producers has an owner once the second has started: until then, an
        # earlier owner may still publish. By id of the last producer: the shard, and the first id.
        self._last = {
            names.transactional_id("ingest", "events", 0): ("bound", ""),
            names.transactional_id("publish", names.cells("p"), 0): (
                "sums", names.transactional_id("aggregate", names.cells("p"), 0),
            ),
        }  # fmt: skip
        (begin,) = schedule.template.begins
        self.actions: list[Action] = []
        self.starting: dict[SimProducer, Process] = {}
        self.counts: dict[tuple[str, int], int] = {}  # exact counts, by worker and trigger
        self._items: list[tuple[int, str, int]] = []  # items of the cells log: offset, kind, number
        self._applied = 0  # number of these that "sums" has applied
        self._passed = begin  # records of the model that beats have passed
        self._charges: dict[str, int] = {}  # by hash: the trigger in the same transaction
        self._nonces: dict[str, int] = {}
        self._fired: dict[tuple[str, int], int] = {}  # ordinals, by window and index
        self._windows = schedule.template.deployment.pipelines[0].windows
        self._initialise, self._end = broker.initialise, broker._end
        broker.initialise = self._opened  # type: ignore[method-assign]
        broker._end = self._ended  # type: ignore[method-assign]

    def tell(
        self, what: str, worker: str = "", shard: str = "", number: int = 0, count: int = 0,
        charge: int = 0, nonce: int = 0,
    ) -> None:  # fmt: skip
        """Note an action."""
        if not self._schedule.faults.resets.rewound:
            self.actions.append((what, worker, shard, number, count, charge, nonce))

    def _opened(self, identity: str, who: str = "") -> int:
        epoch = self._initialise(identity, who)
        if identity in self._last:
            shard, first = self._last[identity]
            whole = not first or self._broker.holder(first) == who
            what = "late" if not self._awaits(identity, who) else "open" if whole else "half"
            self.tell(what, who, shard)
        return epoch

    def _awaits(self, identity: str, who: str) -> bool:
        """Whether a living producer of a worker waits for this transactional id."""
        return any(
            producer._id == identity and process.name == who and not process.dead
            for producer, process in self.starting.items()
        )

    def _ended(self, owner: Owner, transaction: Transaction, commit: bool) -> None:
        name = next(name for name, one in self._broker.owners.items() if one is owner)
        what, found = self._ids.get(name, ""), self._found(transaction)
        if what == "clock" and commit:
            self._fire(found)
        elif what == "bound" and commit:
            self._bound(owner.holder, found)
        elif what == "sums" and commit:
            self._sum(owner.holder, found)
        elif what and what != "clock":
            self._attempt(owner.holder, what, found)
        self._end(owner, transaction, commit)

    def _found(self, transaction: Transaction) -> Found:
        found: Found = {}
        for topic, number in transaction.places:
            log = self._broker.logs[topic, number]
            found[topic] = [
                (offset, record)
                for offset, (record, one) in enumerate(zip(log.records, log.owners, strict=True))
                if one is transaction and record is not None
            ]
        return found

    def _fire(self, found: Found) -> None:
        ledger = [record.value for _, record in found.get(self._names.ledger, ())]
        charges = [value for value in ledger if json.loads(value)["kind"] == "charge"]
        for _, record in found.get(self._names.clock, ()):
            told = json.loads(record.value)
            if "offsets" not in told:
                continue
            good = self._good(told["offsets"]["events"][0])
            if good > self._passed:
                self._passed = good
                self.tell("beat", number=good)
            if told["type"] == "trigger":
                start = utc(self._windows.opens(told["window"]))
                self._fired[start, told["index"]] = told["ordinal"]
                for value in charges:
                    self._charges[hashlib.sha256(value).hexdigest()] = told["ordinal"]
                paid = self._charges.get(told["charge"], 0)
                self.tell("trigger", number=good, count=len(charges), charge=paid)

    def _good(self, cut: int) -> int:
        """The model's records before an offset: the readable ones, and those before the begin."""
        (begin,) = self._schedule.template.begins
        records = self._broker.logs["events", 0].records[begin:cut]
        return begin + sum(r is not None and not r.value.startswith(b"bad") for r in records)

    def _bound(self, worker: str, found: Found) -> None:
        for offset, record in found.get(self._names.cells("p"), ()):
            what, number = _item(record.value)
            self._items.append((offset, what, number))
            for _ in range(number if what == "rec" else 1):
                self.tell(what, worker, "bound", number if what == "barrier" else 0)

    def _sum(self, worker: str, found: Found) -> None:
        rows = found.get(self._names.changelog("aggregate", "p"), ())
        for marker in [decode_marker(r.value) for _, r in rows if r.key == MARKER]:
            for offset, what, number in self._items:
                if self._applied <= offset < marker.applied:
                    self._take(worker, what, number)
            self._applied = max(self._applied, marker.applied)
        for body in _manifests(found):
            self._release("release", worker, body)

    def _take(self, worker: str, what: str, number: int) -> None:
        if what == "rec":
            for _ in range(number):
                self.tell("take", worker, "sums")
        else:
            self.tell("close", worker, "sums", number, self.counts.get((worker, number), -1))

    def _release(self, what: str, worker: str, body: dict[str, Any]) -> None:
        nonce = self._nonces.setdefault(body["nonce"], len(self._nonces) + 1)
        charge = self._charges.get(body["privacy"]["charge"], 0)
        trigger = self._fired.get((body["window"]["start"], body["trigger"]), 0)
        self.tell(what, worker, "sums", trigger, 0, charge, nonce)

    def _attempt(self, worker: str, shard: str, found: Found) -> None:
        """Note reads of a transaction that was then aborted."""
        bodies = _manifests(found)
        if bodies:
            self._release("tried", worker, bodies[0])
        elif found.get(self._names.cells("p")) or found.get(RELEASES):
            self.tell("attempt", worker, shard)


def _item(value: bytes) -> tuple[str, int]:
    """An item of the cells log: a number of records, or the barrier of a trigger."""
    frame = decode(value)
    if isinstance(frame, Barrier):
        return "barrier", frame.trigger.ordinal
    assert isinstance(frame, CellsFrame)
    return "rec", int(frame.part.sums[:, 0].sum())


def _manifests(found: Found) -> list[dict[str, Any]]:
    values = [record.value for _, record in found.get(RELEASES, ())]
    return [json.loads(value) for value in values if b'"hush.manifest/' in value]


class Alone(Schedule):
    """A schedule whose records belong to one unit and go to one partition."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, "alone")
        self.watch = Watch(self)

    def _record(self, number: int, at: float) -> tuple[int, bytes, bytes]:
        made = {"user": "u", "page": self.world.random.choice("abc"), "t": int((START + at) * 1e6)}
        return self._addressed("u", json.dumps(made).encode(), number)


_watching: list[Watch] = []


def install() -> None:
    """Watch what no transaction shows: exact contents, starts of producers, restored states."""
    run, restored, start = Computation.run, Shard._restored, SimProducer.start

    def counted(self: Any, reader: Any, trigger: Any, chosen: Any, *more: Any) -> Any:
        here = HERE.get()
        assert here is not None
        count = int(chosen.part.sums[:, 0].sum())
        _watching[-1].counts[here.name, trigger.ordinal] = count
        return run(self, reader, trigger, chosen, *more)

    async def started(self: SimProducer) -> None:
        starting, here = _watching[-1].starting, HERE.get()
        assert here is not None
        starting[self] = here
        try:
            await start(self)
        finally:
            del starting[self]

    async def told(self: Shard) -> None:
        await restored(self)
        here, marker = HERE.get(), self.marker
        if "aggregate" in self._spec.changelog:
            assert here is not None
            closed = marker.upstream.get("p", [0])[0]
            _watching[-1].tell("state", here.name, "sums", closed, marker.closed.get("p", 0))

    Computation.run = counted  # type: ignore[method-assign]
    SimProducer.start = started  # type: ignore[method-assign]
    Shard._restored = told  # type: ignore[method-assign]


def kept_nonce() -> None:
    """Shards of a process open with its first nonce; it draws the others, for the same schedule."""

    def drawn(random: Callable[[int], bytes]) -> Opening:
        nonces = list[bytes]()

        def opening(pipeline: str, shard: int) -> Nonce:
            nonces.append(random(NONCE))
            return lambda trigger: nonces[0]

        return opening

    worker.drawn = drawn  # type: ignore[attr-defined]


BUGS = bugs.BUGS | {"kept nonce": kept_nonce}


def actions(seed: int, good: bool = True) -> list[Action]:
    """Run a seed, which must be ``good``, and return its workers' actions."""
    schedule = Alone(seed)
    _watching[:] = [schedule.watch]
    outcome = schedule.run()
    assert outcome.good or not good, vars(outcome)
    return schedule.watch.actions


def main() -> None:
    """Print the actions of some seeds, a line for each; run in its own process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--bug", default="")
    args = parser.parse_args()
    patches.install()
    install()
    if args.bug:
        BUGS[args.bug]()
    quiet()
    for seed in args.seeds:
        print(json.dumps(actions(seed, not args.bug)))
    sys.stdout.flush()
    os._exit(0)  # skip the interpreter's slow clean-up of what the processes left


if __name__ == "__main__":
    main()
