"""The deployments that schedules run: small, with every kind of stage, compiled once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

from hushstream.agents.clock.genesis import Beginning
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Deployment
from hushstream.agents.kafka.cluster import Cluster
from hushstream.topics.config.load import Config, loads
from hushstream.topics.names import Names

from . import world
from .broker import START, Broker, Log
from .loop import VirtualLoop
from .patches import GENESIS, SECRET

EVERY = 5  # seconds between two triggers; a window has two
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
trim_interval = "1s"
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
{keys}
window = {{ length = "10s", origin = "2019-03-07T23:06:40Z" }}
triggers = {{ every = "5s" }}
schedule = "{schedule}"
budget = {{ epsilon = 40.0, delta = 1e-3 }}
mechanism = {{ kind = "histogram", budget = 4 }}
"""

LISTED = 'public_keys = [["a"], ["b"], ["c"]]'


def _variant(
    cells: int, delay: str, step: int, partitioner: str, keys: str = "", schedule: str = "wall"
) -> dict[str, Any]:
    return {"cells": cells, "delay": delay, "step": step, "partitioner": partitioner,
            "keys": keys, "schedule": schedule}  # fmt: skip


VARIANTS = (
    _variant(1, "0s", 1000, "murmur2", LISTED),
    _variant(2, "3s", 5, "murmur2", LISTED),
    _variant(1, "2s", 7, "none", LISTED),
    _variant(1, "0s", 1000, "murmur2"),  # keys are found, and fed back to the shards that bound
    _variant(2, "3s", 6, "none"),
    _variant(1, "0s", 1000, "murmur2", LISTED, "external"),
)
LATE = _variant(1, "0s", 1000, "murmur2", LISTED + '\nlateness = "2s"')
"""No part of `VARIANTS`: what comes two seconds after a window is in time."""


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
        variant: which of `VARIANTS`, or the number after them for `LATE`.
        trimmed: whether raw records were deleted before the deployment began.
    """
    config = loads(TEXT.format(**(*VARIANTS, LATE)[variant]), environ={})
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
    Beginning(Cluster(config.kafka), deployment, -1, int(START * 1e6), SECRET).begin()
    return Template(
        config, deployment, Names("sim", GENESIS), broker.logs, broker.topics, broker.ids,
        broker.settings, begins,
    )  # fmt: skip
