"""A shard of a view learns where its topic begins, also while brokers change leaders."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.structs import TopicPartition
from hushstream.agents.stages.topology import VIEW
from hushstream.agents.worker.shards import maker
from hushstream.topics.config.model import Kafka


@pytest.mark.parametrize(("stage", "begin"), [(VIEW, 7), ("ingest", 0)])
def test_its_leader_is_waited_for_as_long_as_other_brokers(
    stage: str, begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    def cluster(kafka: Kafka, patience: float) -> Any:
        waited.append(patience)
        return SimpleNamespace(offsets=SimpleNamespace(begins=lambda topic, number: [7] * number))

    monkeypatch.setattr(maker, "Cluster", cluster)
    setup: Any = SimpleNamespace(config=SimpleNamespace(kafka=Kafka(outage_timeout=90_000_000)))
    topology: Any = SimpleNamespace(of=lambda topic, number: SimpleNamespace(stage=stage))
    none: Any = None
    made = maker.ShardMaker(setup, none, topology, none, none)
    assert asyncio.run(made.begin(TopicPartition("releases", 0))) == begin
    assert waited == ([90.0] if stage == VIEW else [])
