"""The faults that a seed draws, and when they begin."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from .recipe import FULL, Fault, has_standbys
from .world import World

LEADERS = 10**12  # apart from all seeds of schedules; likewise below
TEARS = 10**13  # likewise
USUAL = (
    "kill", "kill", "wipe", "old", "mistake", "pause", "pause", "outage", "outage", "rebalance",
    "forget", "stop", "slow", "lossy", "clock", "clock", "retention",
) * 2 + ("rewind",)  # fmt: skip
"""Kinds that a seed draws; faults of leaders and transactions are drawn separately."""
OF_BROKERS = ("refusal", "known", "torn")
GUIDED = ("behind", "leaderless", "cut", "deaf", "power", "skew")
"""Kinds that guided schedules add, and seeds from `FULL` on draw."""
REWINDS = ("rewind", "ahead", "truncated")
OPERATED = ("grown", "followed")  # deployments that an operator changes once
OWN = 10**16  # likewise
BESIDE = 10**18  # likewise
COPIES = 10**19  # likewise
ALONE = 10**20  # likewise
SHORT = 10**21  # likewise
OF_STANDBYS = ("rolling", "rolling", "stop", "stop", "kill", "wipe", "mistake", "rewind")

AHEAD = 0.1  # share of the schedules with standbys that have such a fault
TRUNCATED = 0.1  # likewise of the schedules from `FULL` on


class Draws:
    """Draws of one schedule.

    Args:
        machines: number of workers.
        kind: kind of deployment, see `deployments.FURTHER`.

    Attributes:
        leaders: random choice of leaders, also while the schedule runs.
    """

    def __init__(self, world: World, machines: int, kind: str) -> None:
        self._world = world
        self._machines = machines
        self._kind = kind
        self.leaders = Random(world.seed + LEADERS)
        self._tears = Random(world.seed + TEARS)

    def all(self, until: float) -> list[Fault]:
        """Draw the faults that begin before a time."""
        drawn = [*self._usual(until), *self._of_leaders(until), *self._of_transactions(until)]
        drawn += self._of_deployment(until)
        if has_standbys(self._world.seed):
            drawn += self._of_standbys(until) + self._of_copies(until)
        if self._world.seed >= FULL:
            drawn += self._of_isolation(until) + self._of_logs(until)
        return self.possible(drawn)

    def possible(self, faults: Sequence[Fault]) -> list[Fault]:
        """Leave out rewinds if they would remove topics that an operator has created."""
        out = REWINDS if self._kind in OPERATED else ()
        return [fault for fault in faults if fault.kind not in out]

    def _usual(self, until: float) -> list[Fault]:
        random, drawn = self._world.random, list[Fault]()
        for _ in range(random.choice((0, 1, 1, 2, 2, 3, 4, 5))):
            at = 1.0 + random.random() * (until - 1.0)
            kind, machine = random.choice(USUAL), random.choice(range(self._machines))
            drawn.append(Fault(kind, machine, at, random.random()))
        return drawn

    def _of_leaders(self, until: float) -> list[Fault]:
        """Draw new leaders for some schedules, with a separate generator."""
        random, drawn = self.leaders, []
        for _ in range(random.choice((0, 0, 0, 0, 0, 1, 1, 2))):
            at = 1.0 + random.random() * (until - 1.0)
            drawn.append(Fault("known" if random.random() < 0.3 else "refusal", 0, at, 0.0))
        return drawn

    def _of_transactions(self, until: float) -> list[Fault]:
        """Draw torn transactions for some schedules, with a separate generator."""
        broker, random, drawn = self._world.broker, self._tears, []
        broker.bumps, broker.tears = random.random() < 0.6, random
        for _ in range(random.choice((0, 0, 1, 2))):
            at, size = 1.0 + random.random() * (until - 1.0), random.random()
            drawn.append(Fault("torn", 0, at, size))
        return drawn

    def _of_standbys(self, until: float) -> list[Fault]:
        """Draw faults that move shards to copies, and faults of what these may lack."""
        random, drawn = Random(self._world.seed + BESIDE), list[Fault]()
        for _ in range(random.choice((0, 1, 1, 2, 2, 3))):
            at = 1.0 + random.random() * (until - 1.0)
            kind, machine = random.choice(OF_STANDBYS), random.randrange(self._machines)
            drawn.append(Fault(kind, machine, at, random.random()))
        return drawn

    def _of_copies(self, until: float) -> list[Fault]:
        """Draw copies of tables that are ahead of the cluster, with a separate generator."""
        random = Random(self._world.seed + COPIES)
        if random.random() > AHEAD:
            return []
        at, machine = 3.0 + random.random() * (until - 3.0), random.randrange(self._machines)
        return [Fault("ahead", machine, at, random.random())]

    def _of_isolation(self, until: float) -> list[Fault]:
        """Draw one to three of the faults of guided schedules."""
        random, drawn = Random(self._world.seed + ALONE), list[Fault]()
        for _ in range(random.choice((1, 1, 2, 3))):
            at, machine = 1.0 + random.random() * (until - 1.0), random.randrange(self._machines)
            drawn.append(Fault(random.choice(GUIDED), machine, at, random.random()))
        return drawn

    def _of_logs(self, until: float) -> list[Fault]:
        """Draw the loss of a log's end, with a separate generator."""
        random = Random(self._world.seed + SHORT)
        if random.random() > TRUNCATED:
            return []
        return [Fault("truncated", 0, 3.0 + random.random() * (until - 3.0), random.random())]

    def _of_deployment(self, until: float) -> list[Fault]:
        """Draw faults that only some deployments can have."""
        random = Random(self._world.seed + OWN)
        most = {"framed": 2, "ratchet": 2}.get(self._kind, 0)
        number = 1 if self._kind in OPERATED else random.randrange(most + 1)
        kind = {"framed": "registry", "ratchet": "keyfile", "grown": "growth",
                "followed": "generation"}.get(self._kind, "")  # fmt: skip
        return [
            Fault(kind, random.randrange(3), 1.0 + random.random() * (until - 1.0), random.random())
            for _ in range(number)
        ]
