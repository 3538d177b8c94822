"""A small deployment, and what tests of genesis do to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewPartitions,
    NewTopic,
)
from hushstream.agents.clock.appending import Line, append, ledger_line
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.deployment.published.statement import charge_body
from hushstream.agents.worker.admission import prepare
from hushstream.deploy.broker import Broker
from hushstream.errors import EngineError, HushError
from hushstream.topics.names import Names, ledger_topic

from ...integration.local import Local

TOML = """
[deployment]
name = "{name}"
[engine]
units_partitions = 2
cells_partitions = 2
[[input]]
name = "events"
topic = "{name}-raw"
unit = "user"
time = {{ format = "record" }}
[[pipeline]]
name = "{name}-p"
input = "events"
key = ["page"]
window = {{ length = "1d" }}
triggers = {{ every = "6h" }}
budget = {{ epsilon = 1.0, delta = 1e-6 }}
"""


SECOND = TOML[TOML.index("[[pipeline]]") :].replace("{name}-p", "{name}-q")


class Deployed(Local):
    """A deployment with what tests do to it."""

    def __init__(self, name: str, folder: Path, bootstrap: str) -> None:
        super().__init__(folder, bootstrap, TOML.format(name=name), {f"{name}-raw": 2})
        self.name = name
        self.client = AdminClient({"bootstrap.servers": bootstrap})

    def edit(self, old: str, new: str) -> None:
        text = self.toml.read_text()
        assert old in text
        self.toml.write_text(text.replace(old, new))

    def recreate(self, topic: str, partitions: int) -> None:
        self.delete(topic)
        self.client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(120)
        self.settle(lambda topics: topic in topics)

    def delete(self, topic: str) -> None:
        self.client.delete_topics([topic])[topic].result(120)
        self.settle(lambda topics: topic not in topics)

    def grow(self, topic: str, partitions: int) -> None:
        new = NewPartitions(topic, partitions)
        self.client.create_partitions([new])[topic].result(120)
        self.settle(lambda topics: topics[topic] == partitions)

    def settle(self, true: Callable[[dict[str, int]], bool]) -> None:
        until = time.monotonic() + 150
        while not true(self.cluster.topics()):
            assert time.monotonic() < until
            time.sleep(0.05)

    def refused(self, kind: type[HushError] = EngineError) -> str:
        """The message with which a worker refuses to start."""
        with pytest.raises(kind) as caught:
            prepare(self.config())
        return str(caught.value)

    @property
    def names_begun(self) -> Names:
        """Names of the genesis that took place, even if its ledger is gone."""
        (base,) = {t[: -len(".begins")] for t in self.cluster.topics()
                   if t.startswith(f"{self.name}.") and t.endswith(".begins")}  # fmt: skip
        return Names(self.name, base[len(self.name) + 1 :])

    def write(self, topic: str, *values: bytes) -> None:
        """Produce bytes, as any client with the rights can."""
        producer = self.producer()
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(120) == 0

    def charge(self, fingerprint: str) -> None:
        body = charge_body(self.deployment.pipelines[0], 0, "1.0", fingerprint)
        identity, topic = self.names.transactional_id("clock", "clock", 0), ledger_topic(self.name)

        def lines(ledger: Ledger) -> list[Line]:
            return [ledger_line(topic, ledger.next("charge", 1, body))]

        append(self.cluster, identity, topic, None, lines)


@pytest.fixture
def made(broker: Broker, unique: Callable[[str], str], tmp_path: Path) -> Deployed:
    deployed = Deployed(unique("d"), tmp_path, broker.bootstrap)
    deployed.begin()
    return deployed


def topic_of(made: Deployed, which: str) -> str:
    names, pipeline = made.names, f"{made.name}-p"
    found: dict[str, Any] = {
        "raw": f"{made.name}-raw",
        "cells": names.cells(pipeline),
        "units": names.units(pipeline),
        "changelog": names.changelog("bound", pipeline),
    }
    return str(found[which])


def unbegun(broker: Broker, unique: Callable[[str], str], tmp_path: Path) -> Deployed:
    """A configuration whose raw topic exists, and nothing else."""
    run = Deployed(unique("d"), tmp_path, broker.bootstrap)
    raw = f"{run.name}-raw"
    run.client.create_topics([NewTopic(raw, 2, 1)])[raw].result(120)
    run.settle(lambda topics: raw in topics)
    return run
