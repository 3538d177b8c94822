"""Faults in a schedule, how long they last, and which ends of workers they warrant."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hushstream.agents.state.layout import MARKER
from hushstream.agents.worker.leaving import STOP_SECONDS
from hushstream.agents.worker.startup import LEAVE_SECONDS
from hushstream.topics.records import decode_marker

from .deployments import OUTAGE, PATIENCE
from .draws import OF_BROKERS, Draws
from .ends import (
    AWAY,
    CLOCKS,
    FORGOTTEN,
    GONE,
    OF_ONE,
    OLDER,
    REFUSAL,
    REGISTRY,
    UNASSIGNED,
    UNSTOPPED,
)
from .isolation import Isolation
from .keys import lose as lose_keys
from .machine import Machine
from .network import SERVER
from .operator import Operator
from .recipe import Fault
from .registry import WAYS
from .resets import Resets
from .world import World

FURTHER = 10**14  # apart from all seeds of schedules and of draws


class Faults:
    """The faults of one schedule.

    Args:
        world: world in which they happen.
        machines: machines of all workers.
        told: called with each event in words.
        changelog: changelog of the stage that reads the raw topic.
        kind: kind of deployment, see `deployments.FURTHER`.
        operator: operator who changes it; None: no changes.

    Attributes:
        resets: resets of logs to an earlier state.
    """

    def __init__(
        self,
        world: World,
        machines: list[Machine],
        told: list[str],
        changelog: str,
        kind: str = "",
        operator: Operator | None = None,
    ) -> None:
        self._world = world
        self._kind = kind
        self._operator = operator
        self._unanswered = 0.0
        self._changelog = changelog
        self._machines = machines
        self._told = told
        self._down = 0
        self._away = 0.0
        self._held: list[tuple[str, float, float]] = []
        self._clocks = False
        self._draws = Draws(world, len(machines), kind)
        self._further = Random(world.seed + FURTHER)
        self._isolation = Isolation(world, self._further, self._at, self._forget)
        down = self._go_down, self._come_back
        self.resets = Resets(world, machines, told, self._at, down, self._sleep)

    def plan(self, until: float, given: Sequence[Fault] | None = None) -> float:
        """Plan faults that begin before a time; return when the last of them is over.

        Args:
            given: faults in place of the drawn ones, which are still drawn so that everything else
                stays the same.
        """
        self.drawn = self._draws.all(until)
        end = until
        wanted = self.drawn if given is None else self._draws.possible(given)
        for kind, number, at, size in wanted:
            machine = self._machines[number % len(self._machines)]
            of = next(one for one in (self, self._isolation, self.resets) if hasattr(one, kind))
            lasts = getattr(of, kind)(machine, at, size)
            where = "broker" if kind in OF_BROKERS else machine.name
            self._told.append(f"{at:.3f} s: {kind} {where}, {lasts:.3f} s")
            end = max(end, at + lasts)
        return end + 0.1

    def heal(self) -> None:
        """Set all clocks right; all other faults have ended by themselves."""
        for machine in self._machines:
            machine.set_clock(0.0)

    def warrants(self, text: str, name: str) -> bool:
        """Whether the faults so far justify that this worker ends with this error."""
        if UNSTOPPED in text:
            return self._held_up(name)
        if any(one in text for one in AWAY):
            return self._away > OUTAGE - 20
        if UNASSIGNED in text:  # the outage came during a rebalance
            return self._away > OUTAGE - 20
        if self._clocks and CLOCKS in text:
            return True
        if REGISTRY in text:
            return self._unanswered > PATIENCE - 5
        if self._operator is not None and self._operator.warrants(text):
            return True
        if self.resets.rewound and (FORGOTTEN in text or GONE in text):
            return True
        if self.resets.of_one and any(one in text for one in OF_ONE):
            return True
        if self._isolation.was_behind(name) and "Error: " in text:
            return text.startswith(REFUSAL) or any(one in text for one in OLDER)
        return self.resets.rewound and text.startswith(REFUSAL)

    def _held_up(self, name: str) -> bool:
        """Whether an outage or a pause left a stop that ends now too little time."""
        now = self._world.loop.now
        begun = now - LEAVE_SECONDS
        held = [min(end, now) - max(at, begun) for who, at, end in self._held if who in ("", name)]
        return max(held, default=0.0) > LEAVE_SECONDS - STOP_SECONDS

    def _at(self, at: float, work: object, *args: object) -> None:
        self._world.loop.call_at(at, work, *args, context=SERVER)

    # -- each returns how long it lasts -----------------------------------------------------------

    def kill(self, machine: Machine, at: float, size: float) -> float:
        """Crash; the disk stays as the last write left it."""
        away = size**2 * 20
        self._at(at, machine.kill, away)
        return away

    def wipe(self, machine: Machine, at: float, size: float) -> float:
        """Crash and lose the disk."""
        self._at(at, machine.kill, size * 10)
        self._at(at, machine.wipe)
        return size * 10

    def old(self, machine: Machine, at: float, size: float) -> float:
        """Crash; the disk comes back in an earlier state."""
        self._at(at * size, machine.keep)
        self._at(at, machine.kill, 1 + size * 10)
        self._at(at + 0.5, machine.restore)
        return 1 + size * 10

    def mistake(self, machine: Machine, at: float, size: float) -> float:
        """Crash; the disk then has tables of another genesis."""
        self._at(at, machine.kill, 1 + size * 10)
        self._at(at + 0.5, machine.mistake)
        return 1 + size * 10

    def pause(self, machine: Machine, at: float, size: float) -> float:
        """Suspend the process, perhaps for longer than its session."""
        return self._sleep(machine, at, 0.1 + size**2 * 40)

    def _sleep(self, machine: Machine, at: float, seconds: float) -> float:
        self._held.append((machine.name, at, at + seconds))
        self._at(at, machine.pause, seconds)
        return seconds

    def outage(self, machine: Machine, at: float, size: float) -> float:
        """Take the broker away; one outage in ten is longer than a worker's patience."""
        seconds = 0.1 + size**2 * 45 if size < 0.9 else OUTAGE + (size - 0.9) * 300
        self._away = max(self._away, seconds)
        self._held.append(("", at, at + seconds))
        self._at(at, self._go_down)
        self._at(at + seconds, self._come_back)
        if size > 0.4:
            self._at(at + seconds + size * 2, self._forget_all)
        return seconds + 2

    def _go_down(self) -> None:
        self._down += 1
        self._world.broker.go_down()

    def _come_back(self) -> None:
        self._down -= 1
        if not self._down:
            self._world.broker.come_back()

    def _forget_all(self) -> None:
        for machine in self._machines:
            if machine.process is not None:
                self._world.group.forget(machine.process)

    def rebalance(self, machine: Machine, at: float, size: float) -> float:
        """Rebalance the group."""
        self._at(at, self._world.group.rebalance)
        return 0.0

    def forget(self, machine: Machine, at: float, size: float) -> float:
        """The group takes a live worker for dead."""
        self._at(at, self._forget, machine)
        return 2.0

    def _forget(self, machine: Machine) -> None:
        if machine.process is not None:
            self._world.group.forget(machine.process)

    def stop(self, machine: Machine, at: float, size: float) -> float:
        """SIGTERM, as in a rolling restart."""
        self._at(at, machine.stop)
        return 0.0

    def rolling(self, machine: Machine, at: float, size: float) -> float:
        """SIGTERM to one machine after the other, sometimes before the previous one is back."""
        apart = 0.5 + size * 7
        for number, one in enumerate(self._machines):
            self._at(at + number * apart, one.stop)
        return len(self._machines) * apart

    def slow(self, machine: Machine, at: float, size: float) -> float:
        """All answers take longer."""
        self._at(at, setattr, self._world.broker, "slow", size * 4)
        self._at(at + 1 + size * 10, setattr, self._world.broker, "slow", 0.0)
        return 1 + size * 10

    def lossy(self, machine: Machine, at: float, size: float) -> float:
        """Answers are lost after the work was done."""
        self._at(at, setattr, self._world.broker, "lossy", size * 0.5)
        self._at(at + 0.2 + size * 8, setattr, self._world.broker, "lossy", 0.0)
        return 0.2 + size * 8

    def clock(self, machine: Machine, at: float, size: float) -> float:
        """A machine's clock is set: by up to an hour, mostly back."""
        self._clocks = True
        ahead = (size - 0.7) * 5000 if size < 0.3 or size > 0.95 else (size - 0.8) * 40
        self._at(at, machine.set_clock, ahead)
        return 0.0

    def retention(self, machine: Machine, at: float, size: float) -> float:
        """Delete raw records that were applied."""
        self._at(at, self._retain)
        return 0.0

    def _retain(self) -> None:
        for machine in self._machines:
            shards = {} if machine.worker is None else machine.worker.shards
            for tp, shard in shards.items():
                if tp.topic == "events":
                    below = min(shard.applied, self._committed(tp.partition))
                    self._world.broker.trim((tp.topic, tp.partition), below)

    def _committed(self, partition: int) -> int:
        """The offset before which raw records were applied, as readers know it.

        A worker may know a higher one: of a step whose commit was answered while its marker is on
        its way, which takes less time than any retention, or from a history that a rewind took
        away. Then the cluster has other records at these offsets, which no worker has read. To
        delete them would be a loss, not retention.
        """
        changelog = self._world.broker.logs[self._changelog, partition]
        rows = changelog.read(changelog.start, 1 << 30)[0]
        markers = [decode_marker(row.value or b"") for row in rows if row.key == MARKER]
        return max((marker.applied for marker in markers), default=0)

    def torn(self, machine: Machine, at: float, size: float) -> float:
        """Requests of transactions come late or twice."""
        self._at(at, setattr, self._world.broker, "torn", 0.02 + size * 0.3)
        self._at(at + 1 + size * 8, setattr, self._world.broker, "torn", 0.0)
        return 1 + size * 8

    def refusal(self, machine: Machine, at: float, size: float) -> float:
        """Give a third of the partitions leaders that refuse what current producers send."""
        self._at(at, self._change_leaders, False)
        return 0.0

    def known(self, machine: Machine, at: float, size: float) -> float:
        """Give them leaders that take one batch of each producer for known, without an offset."""
        self._at(at, self._change_leaders, True)
        return 0.0

    def _change_leaders(self, known: bool) -> None:
        for place in sorted(self._world.broker.logs):
            if self._draws.leaders.random() < 1 / 3:
                self._world.broker.change_leader(place, known)

    # -- faults of some deployments ----------------------------------------------------------------

    def registry(self, machine: Machine, at: float, size: float) -> float:
        """The schema registry does not answer; one time in ten for longer than a worker waits."""
        seconds = 0.2 + size**2 * 15 if size < 0.9 else PATIENCE + (size - 0.9) * 100
        self._unanswered = max(self._unanswered, seconds)
        way = WAYS[int(size * 97) % len(WAYS)]
        self._at(at, setattr, self._world, "registry", way)
        self._at(at + seconds, setattr, self._world, "registry", "")
        return seconds + 1

    def keyfile(self, machine: Machine, at: float, size: float) -> float:
        """Crash; then the file with forgotten keys lacks its last contents."""
        self._at(at, machine.kill, 1 + size * 10)
        self._at(at + 0.5, self._lose_keys, machine, 1 + int(size * 97) % 3)
        return 1 + size * 10

    @staticmethod
    def _lose_keys(machine: Machine, number: int) -> None:
        if not machine.alive:  # it may run again by now, after a fault that began earlier
            lose_keys(machine.name, number)

    def growth(self, machine: Machine, at: float, size: float) -> float:
        """Add partitions to the raw topic; an operator counts them later."""
        if self._operator is None or self._kind != "grown":
            return 0.0
        self._operator.grow(at, size * 8)
        return size * 8 + 8

    def generation(self, machine: Machine, at: float, size: float) -> float:
        """An operator ends the pipeline and lets another one follow it."""
        if self._operator is None or self._kind != "followed":
            return 0.0
        return self._operator.follow(at) + 6 - at

    # -- faults that only guided schedules add -----------------------------------------------------

    def power(self, machine: Machine, at: float, size: float) -> float:
        """The power fails: each table loses some of its last writes."""
        self._world.undo = {} if self._world.undo is None else self._world.undo
        self._at(at, machine.kill, 1 + size * 10)
        self._at(at + 0.5, machine.lose, self._further)
        return 1 + size * 10

    def skew(self, machine: Machine, at: float, size: float) -> float:
        """Each broker's clock is wrong by up to ten seconds."""
        self._clocks = True
        self._at(at, self._skew, 20.0)
        self._at(at + 1 + size * 10, self._skew, 0.0)
        return 1 + size * 10

    def _skew(self, most: float) -> None:
        for _, log in sorted(self._world.broker.logs.items()):
            log.ahead = (self._further.random() - 0.5) * most
