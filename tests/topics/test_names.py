"""Names: everything internal carries the genesis id, and no two things share a name."""

from __future__ import annotations

import re

from hushstream.topics.names import (
    OWNERS,
    Names,
    dead_letter_topic,
    genesis_of,
    late_topic,
    latest_topic,
    ledger_topic,
    releases_topic,
    reserved,
)
from hypothesis import given
from hypothesis import strategies as st

WORD = st.from_regex(r"[a-z][a-z0-9-]{0,12}", fullmatch=True)
LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")


def internal(names: Names, pipeline: str) -> list[str]:
    stages = ("ingest", "bound", "aggregate")
    return [
        names.clock,
        names.requests,
        names.begins,
        names.units(pipeline),
        names.cells(pipeline),
        names.selected(pipeline),
        *(names.changelog(stage, pipeline) for stage in stages),
        *(names.transactional_id(stage, pipeline, 0) for stage in stages),
    ]


@given(WORD, st.from_regex(r"[0-9a-f]{10}", fullmatch=True), WORD)
def test_internal_names_are_distinct_legal_and_hold_the_genesis(deployment, genesis, pipeline):
    names = Names(deployment, genesis)
    listed = internal(names, pipeline)
    assert len(set(listed)) == len(listed)
    assert all(genesis in name and LEGAL.match(name) for name in listed)
    assert genesis in names.group
    makers = (releases_topic, latest_topic, dead_letter_topic, late_topic)
    public = [f(pipeline) for f in makers]
    assert not set(public) & set(listed)
    assert all("_" not in name for name in public)  # '.' and '_' collide in metric names


@given(WORD, WORD, WORD)
def test_another_genesis_shares_nothing_but_the_ledger(deployment, one, other):
    first, second = Names(deployment, "g" + one), Names(deployment, "h" + other)
    assert not set(internal(first, "p")) & set(internal(second, "p"))
    assert first.group != second.group
    assert first.ledger == second.ledger == ledger_topic(deployment) == f"{deployment}.ledger.v1"


def test_transactional_ids_name_stage_topic_and_partition():
    names = Names("d", "g")
    ids = {
        names.transactional_id(stage, topic, partition)
        for stage in ("ingest", "bound")
        for topic in ("a", "b")
        for partition in (0, 1, 11)
    }
    assert len(ids) == 12
    assert all(i.startswith(names.base + ".") for i in ids)


def test_public_names_are_those_that_readers_rely_on():
    assert releases_topic("zones") == "hush.zones.releases.v1"
    assert latest_topic("zones") == "hush.zones.latest.v1"
    assert latest_topic("zones", "maps.v3") == "maps.v3.latest"
    assert dead_letter_topic("zones") == "hush.zones.dlq"
    assert late_topic("zones") == "hush.zones.late"


@given(WORD, st.from_regex(r"[0-9a-f]{10}", fullmatch=True), WORD)
def test_names_of_every_deployment_are_reserved_and_those_of_its_releases_are_not(
    deployment, genesis, pipeline
):
    names = Names(deployment, genesis)
    for topic in internal(names, pipeline)[:-3]:  # the last are no topics
        assert genesis_of(topic) == (deployment, genesis)
        assert reserved(topic) == f"an internal topic of deployment {deployment}"
    assert reserved(ledger_topic(deployment)) == f"the ledger of deployment {deployment}"
    assert reserved(OWNERS) and reserved("__consumer_offsets") and reserved("__transaction_state")
    free = (releases_topic, dead_letter_topic, late_topic, latest_topic)
    assert not any(reserved(named(pipeline)) for named in free)
    assert not reserved(pipeline) and not reserved(f"{deployment}.{genesis}.mine")
