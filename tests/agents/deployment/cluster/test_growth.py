"""Growth in memory: which records of added partitions count, and which growth is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hushstream.agents.clock.ledger import GROWN, Ledger
from hushstream.agents.clock.paid import Clocked
from hushstream.agents.deployment.cluster.growth import (
    extended,
    growth,
    joined,
    keyed,
    refused,
    with_joined,
)
from hushstream.errors import EngineError, LedgerError
from hushstream.topics.records import ClockRecord, Trigger, WiderTrigger

from ....support import NAMES, ORIGIN, counts, deployment, engine, event, start, trigger

MADE = deployment(partitions=2, units=2)
P = MADE.pipelines[0]
LAYOUT = {"events": 1, "log": 1}
BODY = {"topic": "events", "changelog": "log", "from": 1, "to": 2, "triggers": {"p": 1}}
USERS = range(200)


def group(name: str, page: str) -> list[Any]:
    return [event(n, f"{name}{n}", page, ORIGIN) for n in USERS]


def wide(one: Trigger) -> Trigger:
    return WiderTrigger(**msgspec.structs.asdict(one))


def run(since: tuple[int, ...], *records: ClockRecord) -> Any:
    """Two partitions with the same users, one after the other, and with users of their own."""
    again = [event(len(USERS) + n, f"old{n}", "again", ORIGIN) for n in USERS for _ in range(4)]
    again = [replace_offset(one, len(USERS) + n) for n, one in enumerate(again)]
    logs = [list(group("old", "old")), [*group("new", "new"), *again]]
    spent = [replace_offset(e, 4 * n + k) for n, e in enumerate(logs[0]) for k in range(4)]
    return engine(with_joined(MADE, {"p": since}), [spent, logs[1]], [start(P), *records])


def replace_offset(record: Any, offset: int) -> Any:
    return record._replace(offset=offset)


def test_added_partitions_count_from_the_trigger_after_the_growth_and_units_keep_their_bound():
    first, second = trigger(P, 1, [800]), wide(trigger(P, 2, [800, 1000]))
    found = run((0, 1), first, second)
    before, after = counts(found, 1), counts(found, 2)
    assert set(before) == {"old"} and before["old"] > 100
    assert abs(after["new"] - len(USERS)) < 60
    assert "again" not in after  # these units have spent their bound through the other partition


def test_a_barrier_of_an_added_partition_that_is_missing_is_missed():
    with pytest.raises(EngineError, match="barrier"):
        run((0, 0), trigger(P, 1, [800]), wide(trigger(P, 2, [800, 1000])))


def test_the_ledger_says_how_many_partitions_count_and_since_when():
    more = {**BODY, "from": 2, "to": 4, "triggers": {"p": 7, "q": 3}}
    assert extended(LAYOUT | {"units": 9}, [BODY, more]) == {"events": 4, "log": 4, "units": 9}
    assert joined("p", [BODY, more]) == (0, 1, 7, 7) and joined("q", [BODY, more]) == (0, 0, 3, 3)
    assert joined("other", [BODY, more]) == joined("p", []) == ()
    assert [p.joined for p in with_joined(MADE, {"p": (0, 1)}).pipelines] == [(0, 1)]


@pytest.mark.parametrize(
    "changes,fixed,said",
    [
        ({"from": 2, "to": 3}, (), "from 2 to 3 partitions, and it had 1"),
        ({"to": 1}, (), "from 1 to 1"),
        ({"triggers": {}}, (), "other pipelines"),
        ({"triggers": {"p": 1, "q": 1}}, (), "other pipelines"),
        ({"triggers": {"p": -1}}, (), "other pipelines"),
        ({}, ("p",), "decide where pipeline 'p' keeps its units"),
    ],
)
def test_a_record_of_a_growth_that_is_none_is_refused(changes, fixed, said):
    assert refused(BODY, {"p": LAYOUT}, ()) is None
    assert said in str(refused(BODY | changes, {"p": LAYOUT}, fixed))


def test_only_an_input_whose_units_are_spread_here_can_grow():
    source = MADE.inputs[0]
    found = growth(source, NAMES, {"p": LAYOUT}, ())
    assert found is not None and (found.before, found.after) == (1, 2)
    assert found.body({"p": 1}) == BODY | {"changelog": found.changelog}
    assert found.changelog == NAMES.changelog("ingest", "events")
    assert "hush topics --grow" in found.proposal()
    assert (
        growth(source, NAMES, {}, ()) is None
        and growth(source, NAMES, {"p": {"events": 2}}, ()) is None
    )
    for other, fixed in ((replace(source, partitioner="murmur2"), ()), (source, ("p",))):
        with pytest.raises(EngineError, match=r"bound of a unit.*another deployment\.name"):
            growth(other, NAMES, {"p": LAYOUT}, fixed)
    assert keyed({}) and keyed({"placement": {"partitioner": "murmur2"}})
    assert not keyed({"placement": {"partitioner": "none"}})


def ledger(partitioner: str = "none", reached: int = GROWN) -> Ledger:
    made = Ledger()
    placed = {"partitioner": partitioner}
    for kind, body in (
        ("genesis", {"genesis": "abcdef", "format": reached}),
        ("pipeline", {"pipeline": "p", "partitions": LAYOUT, "placement": placed}),
        ("charge", {"pipeline": "p", "epoch": 0, "config_hash": P.config_hash}),
    ):
        made.take(made.next(kind, 1, body).encode())
    return made


def test_the_ledger_takes_a_growth_in_its_format_alone_and_never_of_a_keyed_input():
    whole = ledger()
    whole.take(whole.next("grown", 2, BODY).encode())
    assert whole.joined("p") == (0, 1) and whole.layout("p") == {"events": 2, "log": 2}
    assert whole.readers("events") == ["p"] and whole.readers("other") == []
    for made, said in (
        (ledger(reached=GROWN - 1), f"format {GROWN} must come before it"),
        (ledger("murmur2"), "keeps its units"),
        (whole, "it had 2"),
    ):
        with pytest.raises(LedgerError, match=said):
            made.take(made.next("grown", 3, BODY).encode())


@pytest.mark.parametrize(
    "cuts,good",
    [([[5], [5, 1]], True), ([[5, 1], [5, 1]], False), ([[5], [5]], False), ([[5]], True)],
)
def test_each_trigger_covers_the_partitions_that_the_ledger_counts_by_then(cuts, good):
    held, read = ledger(), Clocked()
    charge = held.records[-1].hash()
    held.take(held.next("grown", 2, BODY).encode())
    for n, cut in enumerate(cuts, 1):
        read.take(msgspec.structs.replace(trigger(P, n, cut, charge=charge), charge_seq=2))
    if good:
        read.check_paid(held)
    else:
        with pytest.raises(LedgerError, match=r"covers \d partitions of topic events"):
            read.check_paid(held)


def test_the_clock_log_never_covers_fewer_partitions():
    read = Clocked()
    read.take(trigger(P, 1, [5, 1]))
    assert read.end("events", 1) == 1 and read.end("events", 2) == 0
    with pytest.raises(EngineError, match="goes back"):
        read.take(trigger(P, 2, [5]))
