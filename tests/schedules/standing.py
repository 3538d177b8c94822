"""The consumer group of a deployment with `engine.standbys = 1`, and its stand-in for Faust.

The group assigns each partition a standby member and, when the partition moves, prefers members
that have its table. Faust's assignor does roughly this. Here, chance decides much of it, so that
schedules meet more orders than one assignor would make.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from types import SimpleNamespace
from typing import Any

from faust.types import TP

from . import world
from .group import Group, SimApp

COPIES = 10**17  # apart from all seeds, and from those of draws
PREFERRED = 0.9  # share of the moving partitions that go to a member with their table
ANEW = 0.1  # share of the standbys that move to another member


class StandingApp(SimApp):
    """Stands for the Faust application of a worker that keeps copies.

    Args:
        client_id: client id of this process.
        claimed: partitions whose tables it has.

    Attributes:
        left: whether it has left its group but still serves.
        coming: by generation of the group, the partitions for which it stands by.
    """

    consumer: StandingApp

    def __init__(self, setup: Any, fail: Any, client_id: str, claimed: Iterable[Any]) -> None:
        super().__init__(setup, fail)
        self.client_id = client_id
        self.assignor = self
        self.left = False
        self.coming: dict[int, set[TP]] = {}
        self._claimed = {TP(*place) for place in claimed}
        self._standing: StandingGroup = self._group  # type: ignore[assignment]
        self._standing.begins(self)

    @property
    def has(self) -> set[TP]:
        """Partitions whose tables it has; it tells the group when it joins."""
        return self._claimed | self._assigned | self.assigned_standbys()

    def assigned_standbys(self) -> set[TP]:
        """Partitions for which it stands by."""
        return self.coming.get(self._generation, set())

    def assign(self, partitions: set[TP], generation: int) -> None:
        """Take an assignment, unless it has left."""
        if not self.left:
            super().assign(partitions, generation)

    async def leave(self) -> None:
        """Leave the group, but continue with the assigned partitions."""
        self.applied, self.left = dict, True
        self._standing.ends(self)
        await self._broker.call(lambda: self._group.leave(self), patience=20.0)


class StandingGroup(Group):
    """The coordinator of a group whose members stand by for each other."""

    def __init__(self, here: world.World, session: float) -> None:
        super().__init__(here, session)
        self._random = Random(here.seed + COPIES)
        self._having: dict[TP, list[str]] = {}  # members that have a table, the best first
        self._events = 0  # number of events; it orders the times below
        self._left: dict[str, int] = {}  # times at which workers left, by name
        self._opened: dict[str, int] = {}  # times of openings, by transactional id

    # -- who is in it -----------------------------------------------------------------------------

    def begins(self, app: StandingApp) -> None:
        """Note that a worker starts, so its machine no longer counts as having left."""
        if app.process is not None:
            self._left.pop(app.process.name, None)

    def ends(self, app: StandingApp) -> None:
        """Note that a worker leaves: its heartbeat ends, whether or not the group hears of it."""
        assert app.process is not None
        self._events += 1
        self._left[app.process.name] = self._events
        self._later(self.session, self.leave, app)

    def join(self, app: SimApp) -> None:
        """Admit a member, with its list of tables."""
        super().join(app)
        for tp in sorted(app.has):  # type: ignore[attr-defined]
            self._having.setdefault(tp, []).append(app.member_id)

    def _rejoin(self, app: SimApp) -> None:
        if not app.left:  # type: ignore[attr-defined]
            super()._rejoin(app)

    def _silent(self, app: SimApp) -> bool:
        return super()._silent(app) or app.left  # type: ignore[attr-defined]

    def described(self) -> list[Any]:
        """The members, as an administrator sees them."""
        nothing = SimpleNamespace(topic_partitions=())
        return [
            SimpleNamespace(
                client_id=app.client_id,  # type: ignore[attr-defined]
                group_instance_id=None, host="/sim", assignment=nothing,
            )
            for app in self.members.values()
        ]  # fmt: skip

    def opened(self, identity: str, who: str, before: str) -> None:
        """Object if a worker fences another one that took over after the first had left."""
        left, before_that = self._left.get(who), self._opened.get(identity, 0)
        self._events += 1
        self._opened[identity] = self._events
        if left is not None and before not in ("", who) and left < before_that:
            self.objections.append(f"{who}, which has left, took {identity} back from {before}")

    # -- who has what -----------------------------------------------------------------------------

    def _ordered(self, places: list[TP], names: list[str]) -> list[TP]:
        """Put partitions last whose tables new members have: by then, owners have enough."""
        owners = {*self._owned.values()}
        fresh = {name for name in names if name not in owners}
        return sorted(places, key=lambda tp: not fresh.isdisjoint(self._having.get(tp, ())))

    def _heir(self, tp: TP, shares: dict[str, set[TP]], most: int) -> str:
        near = [n for n in self._having.get(tp, ()) if len(shares.get(n, range(most))) < most]
        if near and self._random.random() < PREFERRED:
            return near[0]
        return super()._heir(tp, shares, most)

    def _shared(self, shares: dict[str, set[TP]]) -> None:
        """Assign each partition a standby member."""
        before, self._having = self._having, {}
        coming: dict[str, set[TP]] = {name: set() for name in shares}
        for owner, places in sorted(shares.items()):
            others = sorted(shares.keys() - {owner})
            for tp in sorted(places):
                self._having[tp] = [owner]
                near = [name for name in before.get(tp, ()) if name in others]
                if others and (not near or self._random.random() < ANEW):
                    near = [self._random.choice(others)]
                if near:
                    self._having[tp].append(near[0])
                    coming[near[0]].add(tp)
        for name, stands in coming.items():
            self.members[name].coming[self._generation] = stands  # type: ignore[attr-defined]
