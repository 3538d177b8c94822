"""Faults of the network between three brokers and their clients: cuts, one way, loss, delay."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from _faults import Harsh
from _switch import CALLER, Fault
from _trio import NODES, Trio

NETWORK = {"minority": 3, "controllers": 2, "alone": 2, "oneway": 3, "lossy": 2, "slow": 2}
BROKERS = {"broker", "outage", "freeze", "leader", "storm"}
LAST = (4.0, 25.0)  # seconds of a fault: below and above the brokers' session timeout


@dataclass
class Cut(Harsh):
    """A network that fails; it is repaired before a broker starts again."""

    _faults: list[list[Fault]] = field(default_factory=list)

    def inject(self, kind: str) -> None:
        """Repair the network before brokers go down, since they must come up again."""
        if kind in BROKERS:
            self._heal(*self._faults)
        super().inject(kind)

    def settle(self) -> None:
        """Repair the network, and let everything come back."""
        self._heal(*self._faults)
        super().settle()

    def _minority(self) -> None:
        """Cut a broker off from the others; clients reach all, and hear old and new leaders."""
        self._cut(_both({self.random.choice(NODES)}, NODES))

    def _controllers(self) -> None:
        """Cut the active controller off from the others."""
        self._cut(_both({self._trio.controller()}, NODES))

    def _alone(self) -> None:
        """Cut a broker off from the others and from clients."""
        self._cut(_both({self.random.choice(NODES)}, (*NODES, CALLER)))

    def _oneway(self) -> None:
        """Drop the packets of one direction only."""
        source, target = self.random.sample([*NODES, CALLER], 2)
        self._cut([Fault(source, target)])

    def _lossy(self) -> None:
        """Lose packets at random everywhere."""
        loss = self.random.uniform(0.02, 0.3)
        self._cut(_all(lambda source, target: Fault(source, target, loss)))

    def _slow(self) -> None:
        """Delay and reorder packets of one node or of all."""
        delay, node = self.random.uniform(0.02, 0.7), self.random.choice([*NODES, CALLER, None])
        late = _all(lambda source, target: Fault(source, target, 0, delay, delay / 2))
        self._cut([f for f in late if node in (None, f.source, f.target)])

    @property
    def _trio(self) -> Trio:
        assert isinstance(self.broker, Trio)
        return self.broker

    def _cut(self, faults: list[Fault]) -> None:
        self._faults.append(faults)
        self._soon(*LAST, lambda: self._heal(faults))
        self._impose()

    def _heal(self, *faults: list[Fault]) -> None:
        self._faults = [kept for kept in self._faults if all(kept is not one for one in faults)]
        self._impose()

    def _impose(self) -> None:
        assert self._trio.network is not None
        self._trio.network.impose(itertools.chain(*self._faults))


def _both(some: set[int], others: Iterable[int]) -> list[Fault]:
    return [f for n in others for one in some if n != one for f in (Fault(one, n), Fault(n, one))]


def _all(fault: Callable[[int, int], Fault]) -> list[Fault]:
    return [fault(*pair) for pair in itertools.permutations([*NODES, CALLER], 2)]
