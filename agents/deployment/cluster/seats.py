"""Seats: pipelines of one input share topics, and each has partitions of its own in them.

No partition holds records of two pipelines, so order, compaction, deletion and ownership are as
with separate topics. Stages use the topic names of their pipeline; `Names.place` maps these to the
cluster. A seat is pinned in the ledger and never moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ....topics.names import Names, Seat
from ..model import Deployment, Input, Pipeline


def seated(deployment: Deployment, names: Names) -> Names:
    """Give each pipeline without a seat a seat in the shared topics of its input.

    Args:
        names: names, with the seats that the ledger has pinned.
    """
    if not deployment.shared:
        return names
    seats = dict(names.seats)
    for source in deployment.streams:
        for p in declared_in_order(source):
            if names.cells(p.name) not in seats:
                seats |= _next(source, p, names, seats)
    return names._replace(seats=seats)


def declared_in_order(source: Input) -> list[Pipeline]:
    """Sort an input's pipelines in order of declaration: each after the one that it follows."""
    return sorted(source.pipelines, key=lambda p: len(p.lineage))


def _next(source: Input, p: Pipeline, names: Names, seats: Mapping[str, Seat]) -> dict[str, Seat]:
    flow, log = names.flow(source.name), names.changelog("flow", source.name)
    ends, found = taken(seats.values()), dict[str, Seat]()
    place = ends.get(flow, 0)
    stages = [] if p.direct else [("bound", names.units(p.name), p.units_partitions)]
    # The table of a shard has the number of the partition that the shard reads.
    for stage, topic, number in [*stages, ("aggregate", names.cells(p.name), p.cells_partitions)]:
        found[topic] = Seat(flow, place, number)
        found[names.changelog(stage, p.name)] = Seat(log, place, number)
        place += number
    if p.traits.feedback:
        keys = names.keys(source.name)
        found[names.selected(p.name)] = Seat(keys, ends.get(keys, 0), 1)
    return found


def taken(seats: Iterable[Seat]) -> dict[str, int]:
    """Compute the partitions that each shared topic needs."""
    found: dict[str, int] = {}
    for seat in seats:
        found[seat.topic] = max(found.get(seat.topic, 0), seat.first + seat.partitions)
    return found


def own(names: Names, layout: Iterable[str]) -> dict[str, Seat]:
    """Pick the seats of some topics, which are those of one pipeline."""
    return {topic: names.seats[topic] for topic in layout if topic in names.seats}


def read_seats(declared: Mapping[str, Any]) -> dict[str, Seat]:
    """Read the seats in a pipeline's record; an earlier version wrote none."""
    return {topic: Seat(*seat) for topic, seat in declared.get("seats", {}).items()}


def refused(declared: Mapping[str, Any], before: Iterable[Seat]) -> str | None:
    """Say what is wrong with the seats in a pipeline's record; None if nothing is.

    Two pipelines in one partition would take each other's records for their own.

    Args:
        before: seats of all pipelines declared before.
    """
    mine, others = read_seats(declared), list(before)
    for topic, seat in mine.items():
        if seat.partitions != declared["partitions"].get(topic) or seat.first < 0:
            return f"gives topic {topic} another seat than it has partitions"
        if any(_meet(seat, one) for one in others):
            return f"gives topic {topic} partitions of {seat.topic} that are taken"
        others.append(seat)
    return None


def _meet(one: Seat, other: Seat) -> bool:
    same = one.topic == other.topic
    ends = one.first + one.partitions, other.first + other.partitions
    return same and one.first < ends[1] and other.first < ends[0]
