"""A bench of shards on the tests' broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream.deploy.broker import Broker
from hushstream.topics.config.model import Kafka

from .bench import Bench


@pytest.fixture
def bench(broker: Broker, unique: Callable[[str], str], tmp_path: Path) -> Bench:
    name = unique("shard")
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in client.create_topics(
        [NewTopic(t, 1, 1) for t in (name, f"{name}-out", f"{name}-log")]
    ).values():
        future.result()
    return Bench(Kafka(bootstrap=broker.bootstrap), name, tmp_path)
