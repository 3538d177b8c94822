"""A deployment owns the release topics that it writes; a second one sees this before it writes."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import NewTopic
from hushstream.agents.kafka.access import owners
from hushstream.agents.worker.admission import prepare
from hushstream.errors import EngineError
from hushstream.topics.names import OWNERS
from hushstream.topics.records import encode

from ...clock.deployed import Deployed, made, unbegun

__all__ = ["made"]


@pytest.fixture
def other(made, broker, unique, tmp_path) -> Deployed:
    """Another deployment with a pipeline of the same name."""
    run = unbegun(broker, lambda name: unique(f"{name}2"), tmp_path / "other")
    run.toml.write_text(run.toml.read_text().replace(f"{run.name}-p", f"{made.name}-p"))
    return run


def test_two_deployments_cannot_share_a_release_topic(made, other):
    with pytest.raises(EngineError, match=f"is written by deployment '{made.name}'"):
        other.begin()
    own = [topic for topic in other.cluster.topics() if topic.startswith(f"{other.name}.")]
    assert own == []  # nothing was created
    prepare(made.config())
    made.begin()  # a repetition is safe


@pytest.mark.parametrize("shared", ["dead letters", "late records"])
def test_nor_topics_of_what_is_set_aside(made, other, shared):
    if shared == "late records":
        for run in (made, other):
            run.edit('unit = "user"', 'unit = "user"\non_error = "drop"\nlate = "topic"')
        made.begin()
    other.toml.write_text(other.toml.read_text() + f'release = {{ topic = "{other.name}-out" }}\n')
    kind = "dlq" if shared == "dead letters" else "late"
    with pytest.raises(EngineError, match=rf"{made.name}-p\.{kind} is written by deployment"):
        other.begin()


def test_a_deployment_with_names_of_its_own_is_let_in(made, other):
    other.edit('unit = "user"', 'unit = "user"\non_error = "drop"')
    other.toml.write_text(other.toml.read_text() + f'release = {{ topic = "{other.name}-out" }}\n')
    other.begin()
    prepare(other.config())
    prepare(made.config())


def test_the_first_claim_counts_and_nonsense_claims_nothing(made):
    topic = made.deployment.pipelines[0].release_topic
    identity = made.cluster.ids([topic])[topic]
    later = encode(owners.Claim(topic, identity, "later"))
    made.write(OWNERS, b"", b"{", b'{"topic": 1}', later)
    prepare(made.config())
    made.recreate(topic, 1)
    with pytest.raises(EngineError, match="without `hush topics`"):
        prepare(made.config())
    made.begin()  # claims the new topic
    prepare(made.config())


def release_to(run: Deployed, topic: str) -> None:
    run.edit('unit = "user"', 'unit = "user"\non_error = "drop"')
    run.toml.write_text(run.toml.read_text() + f'release = {{ topic = "{topic}" }}\n')


@pytest.mark.parametrize("kind", ["orders", "ledger", "clock", "owners", "releases", "half"])
def test_a_topic_that_holds_what_others_wrote_is_refused_before_anything_is_made(
    broker, unique, tmp_path, kind
):
    run = unbegun(broker, unique, tmp_path)
    topic = f"{run.name}-taken"
    run.client.create_topics([NewTopic(topic, 2, 1)])[topic].result(120)
    run.settle(lambda topics: topic in topics)
    own, header = f"{run.name}-p|", [("hush-row", b"hush.release/2")]
    producer = run.producer()
    given = {
        "orders": (b"17", b'{"order": 17}', None),
        "ledger": (None, b'{"seq":0,"kind":"genesis"}', None),
        "clock": (None, b'{"beat":1}', None),
        "owners": (topic.encode(), b'{"topic":"a","topic_id":"b","deployment":"c"}', None),
        "releases": (b"other|2026|x", b"{}", header),
        "half": (own.encode(), b"{}", None),
    }
    key, value, headers = given[kind]
    producer.produce(topic, b"{}", key=f"{own}2026|x", headers=header, partition=0)
    producer.produce(topic, value, key=key, headers=headers, partition=1)
    assert producer.flush(120) == 0
    release_to(run, topic)
    with pytest.raises(EngineError, match=f"topic {topic} exists, no deployment has claimed it"):
        run.begin()
    assert not [t for t in run.cluster.topics() if t.startswith(f"{run.name}.")]


def test_a_topic_of_our_own_releases_is_claimed_again(made):
    """As after the loss of `hush.owners.v1`, or for a topic restored from a backup."""
    p = made.deployment.pipelines[0]
    made.recreate(p.release_topic, 1)
    producer = made.producer()
    header = [("hush-manifest", b"hush.manifest/2")]
    producer.produce(p.release_topic, b"{}", key=f"{p.name}|2026|0", headers=header)
    assert producer.flush(120) == 0
    made.begin()
    prepare(made.config())


def test_a_topic_of_dead_letters_holds_dead_letters_alone(made):
    p = made.deployment.pipelines[0]
    made.recreate(p.dlq_topic, 1)
    producer = made.producer()
    producer.produce(p.dlq_topic, b"", headers=[("__streams.errors.reason", b"malformed")])
    assert producer.flush(120) == 0
    made.begin()
    made.recreate(p.dlq_topic, 1)
    made.write(p.dlq_topic, b'{"order": 17}')
    with pytest.raises(EngineError, match="no dead letters of"):
        made.begin()


def test_ledgers_are_claimed_and_those_of_earlier_versions_need_not_be(made, monkeypatch):
    ledger = made.names.ledger
    identity = made.cluster.ids([ledger])[ledger]
    assert owners._owners(made.cluster)[ledger, identity] == made.name
    claims = owners._owners(made.cluster)
    del claims[ledger, identity]
    monkeypatch.setattr(owners, "_owners", lambda _: claims)
    prepare(made.config())
    claims[ledger, identity] = "other"
    with pytest.raises(EngineError, match=f"{ledger} is written by deployment 'other'"):
        prepare(made.config())
