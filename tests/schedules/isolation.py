"""Faults that separate workers, brokers and leaders from each other."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from .deployments import SESSION
from .log import View
from .machine import Machine
from .world import World

AFTER = 3.0  # seconds in which a worker may end by what a former leader said


class Isolation:
    """Faults that separate one machine, or some of the brokers, from the others.

    Args:
        world: world in which they happen.
        random: random choice of partitions, while the schedule runs.
        at: calls a function at a time.
        forget: makes the group take a machine for dead.

    Attributes:
        behind_of: names of machines that ask former leaders, from when and until when.
    """

    def __init__(
        self,
        world: World,
        random: Random,
        at: Callable[..., None],
        forget: Callable[[Machine], None],
    ) -> None:
        self._world, self._random = world, random
        self._at, self._forget = at, forget
        self.behind_of: list[tuple[str, float, float]] = []

    # -- each returns how long it lasts -----------------------------------------------------------

    def behind(self, machine: Machine, at: float, size: float) -> float:
        """One machine asks the former leaders of half of the partitions, which have nothing new.

        Its reading clients have old metadata: their leader is cut off from the other brokers and
        does not know it. Writing clients have their own metadata and reach the new leaders.
        """
        seconds = 0.2 + size * 12
        self.behind_of.append((machine.name, at, at + seconds))
        self._at(at, self._look_behind, machine.name)
        self._at(at + seconds, self._look_ahead, machine.name)
        return seconds

    def was_behind(self, name: str) -> bool:
        """Whether a machine asks former leaders, or did a moment ago; it may refuse then."""
        now = self._world.loop.now
        return any(who == name and at <= now <= end + AFTER for who, at, end in self.behind_of)

    def _look_behind(self, name: str) -> None:
        broker = self._world.broker
        for place, log in sorted(broker.logs.items()):
            if self._random.random() < 0.5:
                broker.old.setdefault((name, place), View(log.start, log.stable, log.end))

    def _look_ahead(self, name: str) -> None:
        broker = self._world.broker
        broker.old = {key: view for key, view in broker.old.items() if key[0] != name}
        broker.look_again()

    def leaderless(self, machine: Machine, at: float, size: float) -> float:
        """A third of the partitions have no leader, because the brokers are separated."""
        seconds = 0.2 + size**2 * 20
        self._at(at, self._lose_leaders)
        self._at(at + seconds, self._find_leaders)
        return seconds

    def _lose_leaders(self) -> None:
        broker = self._world.broker
        broker.leaderless |= {p for p in sorted(broker.logs) if self._random.random() < 1 / 3}

    def _find_leaders(self) -> None:
        self._world.broker.leaderless.clear()
        self._world.broker.look_again()

    def cut(self, machine: Machine, at: float, size: float) -> float:
        """Requests of one machine do not arrive; the group takes it for dead after a while."""
        return self._part(machine, at, 0.2 + size**2 * 25, self._world.broker.cut)

    def deaf(self, machine: Machine, at: float, size: float) -> float:
        """Requests of one machine arrive, but it gets no answers."""
        return self._part(machine, at, 0.2 + size**2 * 15, self._world.broker.deaf)

    def _part(self, machine: Machine, at: float, seconds: float, names: set[str]) -> float:
        self._at(at, names.add, machine.name)
        if seconds > SESSION:
            self._at(at + SESSION, self._forget, machine)
        self._at(at + seconds, self._rejoin, names, machine.name)
        return seconds + 2

    def _rejoin(self, names: set[str], name: str) -> None:
        names.discard(name)
        self._world.broker.send_again()
        self._world.broker.look_again()
