"""The deployments that schedules run: small, with every kind of stage, compiled once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

from hushstream.agents.clock.genesis import begin
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Deployment
from hushstream.agents.kafka.cluster import Cluster
from hushstream.topics.config.load import Config, loads
from hushstream.topics.names import Names

from . import world
from .broker import START, Broker, Log
from .loop import VirtualLoop
from .patches import GENESIS, SECRET

LENGTH, EVERY = 20, 10  # seconds: a window, and between its triggers
OUTAGE = 60.0  # seconds that a worker waits for the broker
SESSION = 6.0
RAW = 2  # partitions of the raw topic

TEXT = """
[deployment]
name = "sim"
[kafka]
outage_timeout = "60s"
[engine]
data_dir = "/data"
units_partitions = 2
cells_partitions = {cells}
beat_interval = "1s"
publish_delay = "{delay}"
max_future_skew = "30s"
session_timeout = "6s"
transaction_timeout = "8s"
trim_interval = "3s"
step_records = {step}
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "{partitioner}"
time = {{ field = "t", format = "epoch_us" }}
[[pipeline]]
name = "p"
input = "events"
key = ["page"]
public_keys = [["a"], ["b"], ["c"]]
window = {{ length = "20s" }}
triggers = {{ every = "10s" }}
budget = {{ epsilon = 8.0, delta = 1e-4 }}
mechanism = {{ kind = "histogram", budget = 4 }}
"""

VARIANTS: tuple[dict[str, Any], ...] = (
    {"cells": 1, "delay": "0s", "step": 1000, "partitioner": "murmur2"},
    {"cells": 2, "delay": "3s", "step": 5, "partitioner": "murmur2"},
    {"cells": 1, "delay": "2s", "step": 7, "partitioner": "none"},
    {"cells": 2, "delay": "0s", "step": 1000, "partitioner": "murmur2"},
)


@dataclass(frozen=True, eq=False)
class Template:
    """A deployment that has begun, before its first worker."""

    config: Config
    deployment: Deployment
    names: Names
    logs: dict[tuple[str, int], Log]
    topics: dict[str, int]
    ids: dict[str, str]
    settings: dict[str, dict[str, str]]
    begins: tuple[int, ...]

    def build(self, broker: Broker) -> None:
        """Give a broker these topics."""
        broker.logs = {place: log.copy() for place, log in self.logs.items()}
        broker.topics, broker.ids, broker.settings = self.topics, self.ids, self.settings


@lru_cache(None)
def template(variant: int, trimmed: bool) -> Template:
    """One of the deployments.

    Args:
        variant: which of `VARIANTS`.
        trimmed: whether raw records were deleted before the deployment began.
    """
    config = loads(TEXT.format(**VARIANTS[variant]), environ={})
    here = world.World.__new__(world.World)
    here.loop = VirtualLoop(Random(0))
    here.broker = broker = Broker(here.loop, Random(0))
    world.enter(here)
    broker.create("events", RAW, {"cleanup.policy": "delete"})
    begins = (3, 1) if trimmed else (0, 0)
    for number, offset in enumerate(begins):
        for _ in range(offset):
            broker.append(("events", number), None, b"{}", None, ())
        broker.trim(("events", number), offset)
    deployment = compile_config(config, {"events": RAW})
    begin(Cluster(config.kafka), deployment, -1, int(START * 1e6), SECRET)
    return Template(
        config, deployment, Names("sim", GENESIS), broker.logs, broker.topics, broker.ids,
        broker.settings, begins,
    )  # fmt: skip
