"""Offsets of a group whose transaction was just committed, or is still open."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import TopicPartition
from hushstream.agents.deployment.cluster.topic_specs import TopicSpec
from hushstream.agents.kafka import groups
from hushstream.agents.kafka.cluster import Cluster
from hushstream.agents.kafka.groups import Committed
from hushstream.agents.kafka.logs import consumer
from hushstream.deploy.broker import Broker
from hushstream.errors import OutageError
from hushstream.topics.config.model import Kafka


def test_an_offset_in_a_transaction_is_waited_for(
    broker: Broker, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit returns before its offsets exist; until then, Kafka answers with an error."""
    cluster, topic, group = Cluster(Kafka(bootstrap=broker.bootstrap)), unique("t"), unique("g")
    cluster.wait()
    cluster.create([TopicSpec(topic, 1, {}, False, "of a test")], 1)
    assert cluster.groups.committed(group, {topic: 1}) == {}
    producer = cluster.producer(**{"transactional.id": group})
    producer.init_transactions(60)
    with closing(consumer(cluster.kafka, True, {"group.id": group})) as member:
        place = member.consumer_group_metadata()
        for n in range(8):
            producer.begin_transaction()
            at = [TopicPartition(topic, 0, n, f"text {n}")]
            producer.send_offsets_to_transaction(at, place, 60)
            producer.commit_transaction(60)
            found = cluster.groups.told(group, {topic: 1})
            assert found == {(topic, 0): Committed(n, f"text {n}")}
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 99)], place, 60)
        monkeypatch.setattr(groups, "STABLE_SECONDS", 1.0)
        with pytest.raises(OutageError, match="its offsets are unknown"):
            cluster.groups.committed(group, {topic: 1})
        producer.abort_transaction(60)
    monkeypatch.undo()
    assert cluster.groups.committed(group, {topic: 1}) == {(topic, 0): 7}
