"""What a snapshot makes deletable: clock log, units topics, and windows that are over."""

from __future__ import annotations

import pytest
from faust.types import TP
from hushstream.agents.clock.snapshots import ShardMarkers, Snapshots, changelogs, grouped, passed
from hushstream.topics.records import Beat, Marker, PipelineStanding, Snapshot

from ...support import NAMES, deployment, trigger

MADE = deployment(units=2, cells=1)
(P,) = MADE.pipelines
HOUR = 3_600_000_000


def markers(clock: int, bound: tuple[int, int], closed: int) -> ShardMarkers:
    """Markers of all shards: places of ingest in the clock log and of bound, the closed trigger."""
    of = {
        "ingest": [Marker("g", 7, clock=clock)],
        "bound": [Marker("g", place, closed={"p": closed}) for place in bound],
        "aggregate": [Marker("g", 3, closed={"p": closed})],
    }
    return grouped(
        MADE, NAMES, {topic: of[stage] for topic, (stage, _, _) in changelogs(MADE, NAMES).items()}
    )


def written(snapshots: Snapshots, place: int, now: int, found: ShardMarkers, floor: int) -> None:
    """Write the owner's next snapshot."""
    standing = PipelineStanding(0, place // 10, floor)
    made = snapshots.make(now, {}, {"p": standing}, (1, ""), ({}, 0), MADE, found)
    snapshots.take(place, made)


def test_units_are_trimmed_where_the_oldest_replay_begins_and_not_before_it_may():
    snapshots = Snapshots(HOUR)
    snapshots.take(0, Beat(0, {}))
    written(snapshots, 10, 1, markers(9, (100, 40), 1), 0)
    assert snapshots.below(NAMES) == {}
    snapshots.take(11, trigger(P, 2, [5]))
    written(snapshots, 20, HOUR // 2, markers(19, (300, 60), 2), 1)
    assert snapshots.below(NAMES) == {}  # a replay still needs the whole log
    snapshots.take(21, trigger(P, 3, [5]))
    written(snapshots, 30, 1 + HOUR, markers(29, (500, 80), 3), 2)
    units = NAMES.units("p")
    assert snapshots.below(NAMES) == {TP(NAMES.clock, 0): 10, TP(units, 0): 100, TP(units, 1): 40}


def test_windows_are_over_once_every_shard_has_passed_the_snapshot_that_says_so():
    snapshots = Snapshots(0)
    snapshots.take(0, Beat(0, {}))
    written(snapshots, 10, 1, markers(9, (0, 0), 1), 4)
    assert snapshots.windows() == {}
    written(snapshots, 20, 2, markers(9, (0, 0), 9), 5)
    assert snapshots.windows() == {}  # ingest has not reached the first snapshot
    written(snapshots, 30, 3, markers(15, (0, 0), 9), 6)
    assert snapshots.windows() == {"p": 4}


@pytest.mark.parametrize("late", ["bound", "aggregate"])
def test_a_shard_after_ingest_holds_a_snapshot_too(late):
    found = markers(90, (1, 2), 5)
    said = Snapshot(0, {}, {"p": PipelineStanding(0, 5, 0)}, 1, "")
    assert passed(10, said, MADE, found)
    behind = {"p": [*getattr(found, late)["p"][:-1], Marker("g", 1, closed={"p": 4})]}
    assert not passed(10, said, MADE, found._replace(**{late: behind}))


def test_a_shard_that_has_not_begun_keeps_all_of_its_units():
    found = markers(90, (70, 2), 5)
    bound = {"p": [found.bound["p"][0], None]}
    assert found._replace(bound=bound).units() == {"p": [70, 0]}
