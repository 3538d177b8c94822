"""Seats: no two pipelines share a partition, and no seat ever moves."""

from __future__ import annotations

from typing import Any

import pytest
from hushstream.agents.clock.ledger import FORMAT, SHARED, Ledger
from hushstream.agents.deployment.cluster.seats import refused, seated, taken
from hushstream.agents.deployment.cluster.topic_specs import layout
from hushstream.agents.deployment.model import Deployment
from hushstream.errors import LedgerError
from hushstream.topics.names import Names, Seat, genesis_of

from ....support import NAMES, deployment

SWAP = {'name = "test"': 'name = "test"\nshared_topics = true'}


def shared(*names: str, **more: Any) -> Deployment:
    return deployment(partitions=3, units=2, cells=3, pipelines=names, swap=SWAP, **more)


def places(names: Names, *pipelines: str) -> list[tuple[str, int]]:
    """Cluster partitions of units, cells and tables for these pipelines."""
    found = []
    for p in pipelines:
        for topic, number in ((names.units(p), 2), (names.cells(p), 3), (names.selected(p), 1)):
            found += [names.place(topic, n) for n in range(number)]
        logs = (names.changelog("bound", p), 2), (names.changelog("aggregate", p), 3)
        found += [names.place(topic, n) for topic, number in logs for n in range(number)]
    return found


def test_pipelines_share_three_topics_and_no_partition():
    names = seated(shared("p", "q", "r"), NAMES)
    found = places(names, "p", "q", "r")
    assert len(found) == len(set(found)) == 3 * 11
    numbers = taken(names.seats.values())
    assert numbers.pop(NAMES.flow("events")) == numbers.pop(NAMES.changelog("flow", "events")) == 15
    assert numbers == {NAMES.keys("events"): 3}
    assert {names.home(*place) for place in found} == set(places(NAMES, "p", "q", "r"))
    assert seated(deployment(pipelines=("p", "q")), NAMES) == NAMES


def test_a_table_has_the_number_of_the_partition_that_its_shard_reads():
    names = seated(shared("p", "q"), NAMES)
    for p in ("p", "q"):
        for stage, topic in (("bound", names.units(p)), ("aggregate", names.cells(p))):
            assert names.place(topic, 1)[1] == names.place(names.changelog(stage, p), 1)[1]


def test_a_pipeline_without_units_or_feedback_takes_no_place_for_them():
    more = {"partitioner": "murmur2", "more": 'public_keys = [["a"]]'}
    names = seated(shared("p", "q", **more), NAMES)
    assert taken(names.seats.values()) == {
        NAMES.flow("events"): 6, NAMES.changelog("flow", "events"): 6,
    }  # fmt: skip


def test_a_seat_stays_whatever_comes_later_and_wherever_it_stands_in_the_file():
    first = seated(shared("p", "q"), NAMES)
    later = seated(shared("r", "q"), first)  # p was removed from the file
    assert {**later.seats, **first.seats} == later.seats
    assert not set(places(later, "r")) & set(places(first, "p", "q"))
    assert seated(shared("p", "q"), later) == later


def test_shared_topics_are_known_as_internal_ones():
    names = seated(shared("p"), Names("shop", "0123456789"))
    assert {genesis_of(seat.topic) for seat in names.seats.values()} == {("shop", "0123456789")}


def declared(made: Deployment, names: Names, pipeline: str) -> dict[str, Any]:
    (source,) = made.streams
    p = next(p for p in source.pipelines if p.name == pipeline)
    parts = layout(source, p, names)
    seats = {topic: seat for topic, seat in names.seats.items() if topic in parts}
    return {"pipeline": pipeline, "number": p.number, "partitions": parts, "seats": seats}


def ledger(shares: bool = True) -> Ledger:
    body = {"format": SHARED, "shared_topics": True} if shares else {"format": FORMAT}
    made = Ledger()
    made.take(made.next("genesis", 1, {**body, "genesis": "abcdef"}).encode())
    return made


def test_the_ledger_gives_back_the_seats_that_it_was_told():
    made, names = shared("p", "q"), seated(shared("p", "q"), NAMES)
    written = ledger()
    for p in ("p", "q"):
        written.take(written.next("pipeline", 2, declared(made, names, p)).encode())
    assert written.shared and written.names("test") == names
    assert not ledger(shares=False).shared and ledger(shares=False).names("test") == NAMES


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda seat: seat._replace(first=seat.first - 1), "partitions of .* that are taken"),
        (lambda seat: seat._replace(partitions=seat.partitions + 1), "another seat than"),
        (lambda seat: seat._replace(first=-1), "another seat than"),
    ],
)
def test_the_ledger_takes_no_seat_that_is_taken_or_of_another_size(change, said):
    made, names = shared("p", "q"), seated(shared("p", "q"), NAMES)
    written = ledger()
    written.take(written.next("pipeline", 2, declared(made, names, "p")).encode())
    body = declared(made, names, "q")
    topic = NAMES.units("q")
    body["seats"] = {**body["seats"], topic: change(body["seats"][topic])}
    with pytest.raises(LedgerError, match=said):
        written.take(written.next("pipeline", 3, body).encode())


def test_a_ledger_of_topics_of_their_own_takes_no_seats():
    made, names = shared("p"), seated(shared("p"), NAMES)
    written = ledger(shares=False)
    with pytest.raises(LedgerError, match="has seats in shared topics"):
        written.take(written.next("pipeline", 2, declared(made, names, "p")).encode())


def test_seats_of_one_record_must_not_meet_either():
    seats = {"a": Seat("t", 0, 2), "b": Seat("t", 1, 2)}
    assert refused({"partitions": {"a": 2, "b": 2}, "seats": seats}, []) is not None
    seats["b"] = Seat("t", 2, 2)
    assert refused({"partitions": {"a": 2, "b": 2}, "seats": seats}, []) is None
    assert refused({"partitions": {"a": 2}}, []) is None
