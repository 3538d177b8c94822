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
LAST = (4.0, 25.0)  # seconds of a fault: below and beyond the session of a broker, 2 s, and of all


@dataclass
class Cut(Harsh):
    """A network that fails; a broker that is to start again finds it whole."""

    _faults: list[list[Fault]] = field(default_factory=list)

    def inject(self, kind: str) -> None:
        """As for all; brokers go down when the network is whole, since they must come up."""
        if kind in BROKERS:
            self._heal(*self._faults)
        super().inject(kind)

    def settle(self) -> None:
        """The network is whole again."""
        self._heal(*self._faults)
        super().settle()

    def _minority(self) -> None:
        """A broker loses the others; clients reach all of them, and hear old and new leaders."""
        self._cut(_both({self.random.choice(NODES)}, NODES))

    def _controllers(self) -> None:
        """The same of the active controller."""
        self._cut(_both({self._trio.controller()}, NODES))

    def _alone(self) -> None:
        """A broker loses the others, and its clients."""
        self._cut(_both({self.random.choice(NODES)}, (*NODES, CALLER)))

    def _oneway(self) -> None:
        """Packets of one side no longer come, those of the other do."""
        source, target = self.random.sample([*NODES, CALLER], 2)
        self._cut([Fault(source, target)])

    def _lossy(self) -> None:
        """Every packet may be lost, on all ways."""
        loss = self.random.uniform(0.02, 0.3)
        self._cut(_all(lambda source, target: Fault(source, target, loss)))

    def _slow(self) -> None:
        """Packets come late and in another order, on all ways of one node or of all."""
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
