"""The group in memory assigns standbys, and knows who has a table when a partition moves."""

from __future__ import annotations

from typing import Any

from faust.types import TP

from .loop import Process
from .standing import StandingGroup
from .world import World, enter

PLACES = {TP("t", number) for number in range(30)}


class Member:
    """A worker, as far as the group sees it."""

    def __init__(self, name: str, has: set[TP] | None = None) -> None:
        self.process = Process(name)
        self.member_id = ""
        self.has = has or set()
        self.left = self.should_stop = False
        self.coming: dict[int, set[TP]] = {}
        self._topics = ["t"]
        self.owns: set[TP] = set()
        self.stands: set[TP] = set()

    def assign(self, partitions: set[TP], generation: int) -> None:
        self.owns, self.stands = partitions, self.coming[generation]


def group_of(*members: Any) -> StandingGroup:
    world = enter(World(1))
    world.broker.create("t", len(PLACES), {})
    world.group = group = StandingGroup(world, 6.0)
    for one in members:
        group.join(one)
    world.loop.run(5.0)
    return group


def test_each_partition_has_an_owner_and_another_member_that_stands_by() -> None:
    members = [Member(name) for name in "abc"]
    group_of(*members)
    assert sorted(tp for one in members for tp in one.owns) == sorted(PLACES)
    assert sorted(tp for one in members for tp in one.stands) == sorted(PLACES)
    assert not any(one.owns & one.stands for one in members)
    alone = Member("a")
    group_of(alone)
    assert alone.owns == PLACES and not alone.stands


def test_partitions_of_a_member_that_leaves_go_mostly_where_their_copies_are() -> None:
    one, two, three = members = [Member(name) for name in "abc"]
    group = group_of(*members)
    gone, copies = set(one.owns), {tp: m for m in (two, three) for tp in m.stands}
    group.ends(one)  # type: ignore[arg-type]
    group.leave(one)  # type: ignore[arg-type]
    enter(group._world).loop.run(10.0)
    warm = sum(tp in copies[tp].owns for tp in gone)
    assert len(gone) * 0.6 < warm and two.owns | three.owns == PLACES


def test_a_member_that_comes_gets_what_it_has_tables_of() -> None:
    one, two = Member("a"), Member("b", {TP("t", number) for number in range(10)})
    group = group_of(one)
    group.join(two)  # type: ignore[arg-type]
    enter(group._world).loop.run(10.0)
    assert len(two.has & two.owns) >= 7


def test_it_objects_where_a_member_that_has_left_takes_something_back() -> None:
    one = Member("a")
    group = group_of(one, Member("b"))
    group.opened("x", "b", "a")
    group.ends(one)  # type: ignore[arg-type]
    group.opened("x", "a", "b")  # a rebalance had begun to do this
    group.opened("y", "a", "")
    assert not group.objections
    group.opened("x", "b", "a")
    group.opened("x", "a", "b")
    assert group.objections == ["a, which has left, took x back from b"]
