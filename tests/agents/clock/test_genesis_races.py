"""Several genesis runs at once: one begins, and the others give up and leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka.admin import (
    NewTopic,
)
from hushstream.agents.clock import genesis as admin
from hushstream.agents.kafka.cluster import Cluster
from hushstream.agents.worker.admission import prepare

from .deployed import Deployed, made

__all__ = ["made"]  # a fixture


class Overtaking(Cluster):
    """A cluster on which another run begins the same deployment during this one."""

    other: Callable[[], Any] | None = None

    def create(self, specs: Any, replication: int) -> list[str]:
        specs = list(specs)
        other = self.other
        if other is not None and any(s.name.endswith(".clock") for s in specs):
            self.other = None
            other()
        return super().create(specs, replication)


def test_of_two_who_begin_at_once_one_loses_and_leaves_nothing(broker, unique, tmp_path):
    run = Deployed(unique("d"), tmp_path, broker.bootstrap)
    run.client.create_topics([NewTopic(f"{run.name}-raw", 2, 1)])[f"{run.name}-raw"].result(120)
    run.settle(lambda topics: f"{run.name}-raw" in topics)
    deployment = run.deployment
    slow = Overtaking(run.config().kafka)
    slow.other = lambda: admin.Beginning(run.cluster, deployment, 1, 1, run.secret).begin()
    with pytest.raises(admin.Overtaken, match="run it again"):
        admin.Beginning(slow, deployment, 1, 2, run.secret).begin()
    ledger = admin.read_ledger(run.cluster, run.name)  # reading verifies the chain
    assert [r.kind for r in ledger.records] == ["genesis", "pipeline"]
    ours = run.names

    def left(topics: dict[str, int]) -> set[str]:
        """Internal topics of the other genesis."""
        mine = {t for t in topics if t.startswith(f"{run.name}.")}
        return {t for t in mine - {ours.ledger} if not t.startswith(ours.base)}

    run.settle(lambda topics: left(topics) == set())  # deleted is gone a moment later
    assert admin.Beginning(slow, deployment, 1, 3, run.secret).begin() == []
    prepare(run.config())


def test_any_number_may_begin_at_once(broker, unique, tmp_path):
    run = Deployed(unique("d"), tmp_path, broker.bootstrap)
    run.client.create_topics([NewTopic(f"{run.name}-raw", 2, 1)])[f"{run.name}-raw"].result(120)
    run.settle(lambda topics: f"{run.name}-raw" in topics)
    deployment = run.deployment

    def attempt(number: int) -> str:
        try:
            admin.Beginning(run.cluster, deployment, 1, number, run.secret).begin()
        except admin.Overtaken:
            return "lost"
        return "won"

    with ThreadPoolExecutor(3) as pool:
        ends = list(pool.map(attempt, range(3)))
    assert "won" in ends
    ledger = admin.read_ledger(run.cluster, run.name)
    assert [r.kind for r in ledger.records] == ["genesis", "pipeline"]
    admin.Beginning(run.cluster, deployment, 1, 9, run.secret).begin()
    prepare(run.config())
