"""Faults that set logs back: the whole cluster, or one log alone."""

from __future__ import annotations

import re
from collections.abc import Callable

from .machine import Machine
from .rewind import Snapshot, copies_of, lacks, restore, snapshot, truncate
from .world import World

SNAPSHOTS = 15  # snapshots of the last three seconds before a copy is ahead of its cluster
TOLD_OF = re.compile(r".*\.((ingest|bound|aggregate)\..*-changelog|units|cells|clock|ledger\.v1)")
"""Logs of which other logs show that one alone has lost its end."""


class Resets:
    """Faults after which logs are as they were some seconds ago.

    Args:
        world: world in which they happen.
        machines: machines of all workers.
        told: called with each event in words.
        at: calls a function at a time.
        down: functions that take the brokers away and bring them back.
        sleep: suspends a machine from a time on for some seconds.

    Attributes:
        rewound: whether logs were set back; workers may then refuse the cluster.
        of_one: whether one log alone was.
    """

    def __init__(
        self,
        world: World,
        machines: list[Machine],
        told: list[str],
        at: Callable[..., None],
        down: tuple[Callable[[], None], Callable[[], None]],
        sleep: Callable[[Machine, float, float], float],
    ) -> None:
        self._world, self._machines, self._told = world, machines, told
        self._at, self._sleep = at, sleep
        self._go_down, self._come_back = down
        self.rewound = self.of_one = False
        self._kept: Snapshot = {}
        self._history = self._kept_of = 0  # resets so far, and those before `_kept`

    # -- each returns how long it lasts -----------------------------------------------------------

    def rewind(self, machine: Machine, at: float, size: float) -> float:
        """Reset the cluster by some seconds; workers continue, die, or lose everything."""
        self._at(max(at - 0.5 - size * 8, 0.1), self._keep)
        self._at(at, self._go_back, int(size * 97) % 3)
        self._at(at + 1.0, self._come_back)
        return 3.0

    def _keep(self) -> None:
        self._kept, self._kept_of = snapshot(self._world.broker), self._history

    def _go_back(self, way: int) -> None:
        self.rewound = True
        self._go_down()
        if self._kept_of != self._history:
            self._keep()  # the cluster was reset since, maybe to before that state
        restore(self._world.broker, self._kept)
        self._history += 1
        self._kept_of = self._history
        for machine in self._machines if way else ():
            machine.kill(1.0)
            if way == 2:
                machine.wipe()

    def ahead(self, machine: Machine, at: float, size: float) -> float:
        """The cluster lacks the last records of a copy; all other machines lose their disks.

        It is reset to the state that lacks least of the copy, so that often nothing else shows the
        rewind. Half of the time, this machine sleeps meanwhile and wakes when the logs have grown
        again.
        """
        kept: list[tuple[int, Snapshot]] = []
        for number in range(SNAPSHOTS, 0, -1):
            self._at(max(at - 0.2 * number, 0.1), self._keep_one, kept)
        if asleep := int(size * 97) % 2 * (2 + size * 8):
            self._sleep(machine, at - 0.01, asleep)
        self._at(at, self._lose_but, machine, kept)
        self._at(at + 0.5, self._come_back)
        return asleep + 3.0

    def _keep_one(self, kept: list[tuple[int, Snapshot]]) -> None:
        kept.append((self._history, snapshot(self._world.broker)))

    def _lose_but(self, machine: Machine, kept: list[tuple[int, Snapshot]]) -> None:
        self._keep()
        copies = copies_of(machine)
        left = [one for history, one in kept if history == self._history] or [self._kept]
        self._kept = next((one for one in left[::-1] if lacks(one, copies)), left[-1])
        self._go_back(0)
        for one in self._machines:
            if one is not machine:
                one.kill(1.0)
                one.wipe()

    def truncated(self, machine: Machine, at: float, size: float) -> float:
        """One log alone loses its last transactions, as in an unclean election; disks are lost."""
        kept: list[tuple[int, Snapshot]] = []
        self._at(max(at - 0.1 - size * 4, 0.1), self._keep_one, kept)
        self._at(at, self._truncate, kept, int(size * 9973))
        self._at(at + 1.0, self._come_back)
        return 3.0

    def _truncate(self, kept: list[tuple[int, Snapshot]], number: int) -> None:
        self._go_down()
        for machine in self._machines:
            machine.kill(1.0)
            machine.wipe()
        (history, then), logs = kept[0], self._world.broker.logs
        if history != self._history:
            return
        ours = [place for place in sorted(then) if TOLD_OF.fullmatch(place[0])]
        shorter = [place for place in ours if then[place].stable < logs[place].end]
        if shorter:
            self.rewound = self.of_one = True
            self._history += 1
            place = shorter[number % len(shorter)]
            self._world.broker.old = {}  # nor does a former leader have more
            truncate(logs[place], then[place].stable)
            self._told.append(f"{self._world.loop.now:.3f} s: {place[0]}-{place[1]} is shorter")
