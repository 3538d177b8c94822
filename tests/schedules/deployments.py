"""The deployments that schedules run: small, with every kind of stage, each compiled once."""

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
from hushstream.topics.config.toml.values import format_instant
from hushstream.topics.names import Names

from . import world
from .broker import Broker
from .keys import RATCHET
from .log import START, Log
from .loop import VirtualLoop
from .patches import GENESIS, SECRET

EVERY = 5  # seconds between two triggers; a window has two
OUTAGE = 60.0  # seconds that a worker waits for the broker
PATIENCE = 20.0  # seconds that a worker waits for the schema registry
SESSION = 6.0
RAW = 2  # partitions of the raw topic

TEXT = """
[deployment]
name = "sim"
[kafka]
outage_timeout = "60s"
{tables}
[engine]
data_dir = "/data"
units_partitions = 2
cells_partitions = {cells}
{engine}
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
time = {{ field = {time} }}
{encoding}
[[pipeline]]
name = "p"
input = "events"
window = {{ {window}, origin = "2019-03-07T23:06:40Z"{hop} }}
triggers = {{ every = "5s" }}
schedule = "{schedule}"
budget = {{ {budget} }}
{mechanism}
{besides}
"""

HISTOGRAM = """key = ["page"]
{keys}
mechanism = {{ kind = "histogram", budget = 4 }}
"""
PAGES = """key = ["page"]
aggregate = [{aggregate}]
{more}
"""
QUANTILES = """key = ["page"]
{keys}
inputs = {{ value = "fare" }}
[pipeline.mechanism]
kind = "quantile"
low = 0
high = 100
at = [0.1, 0.5, 0.9]
bands = 16
"""
SPACE = """inputs = {{ x = "x", y = "y" }}
[pipeline.mechanism]
kind = "{kind}"
{more}
[pipeline.mechanism.domain]
depth = {depth}
split = "{split}"
axes = [{{ name = "x", low = 0, high = 2 }}, {{ name = "y", low = -1, high = 1 }}]
"""
VALUES = """inputs = {{ value = "fare" }}
aggregate = [{{ kind = "sum", field = "fare", low = 0, high = 100 }}]
[pipeline.mechanism]
kind = "{kind}"
slot = 2_500_000
slots_per_trigger = 2
origin = 1_552_000_000_000_000
expected = 8
"""
SURVEY = """aggregate = [{ kind = "mean", field = "fare", low = 0, high = 100, grid = 0.001 }]
[pipeline.mechanism]
kind = "topl"
salt = "sim"
reports = 2
period = 10
share = "1/4"
buckets = 8
levels = 8
"""

LISTED = 'public_keys = [["a"], ["b"], ["c"]]'


def _variant(
    cells: int, delay: str, step: int, partitioner: str, keys: str = "", schedule: str = "wall"
) -> dict[str, Any]:
    return {"cells": cells, "delay": delay, "step": step, "partitioner": partitioner,
            "mechanism": HISTOGRAM.format(keys=keys), "schedule": schedule,
            "hop": "", "window": 'length = "10s"', "begins": (), "tables": "", "encoding": "",
            "besides": "", "engine": "",
            "budget": "epsilon = 40.0, delta = 1e-3",
            "time": '"t", format = "epoch_us"'}  # fmt: skip


def _of_kind(mechanism: str, **more: str) -> dict[str, Any]:
    return _variant(1, "0s", 7, "murmur2") | {"mechanism": mechanism} | more


HISTOGRAMS = (
    _variant(1, "0s", 1000, "murmur2", LISTED),
    _variant(2, "3s", 5, "murmur2", LISTED),
    _variant(1, "2s", 7, "none", LISTED),
    _variant(1, "0s", 1000, "murmur2"),  # keys are found and fed back to the shards that bound
    _variant(2, "3s", 6, "none"),
    _variant(1, "0s", 1000, "murmur2", LISTED, "external"),
)
LATE = _variant(1, "0s", 1000, "murmur2", LISTED + '\nlateness = "2s"')
"""Records that come up to two seconds after a window are in time."""
CAPPED = """epsilon = 40, delta = 1e-3, per_unit = { epsilon = 80, delta = 1e-2, period = "1d" }"""
COUNT, DISTINCT = '{ kind = "count" }', '{ kind = "distinct", field = "city" }'
OTHERS = {
    "quantile": _of_kind(QUANTILES.format(keys=LISTED)),
    "distinct": _of_kind(PAGES.format(aggregate=DISTINCT, more=LISTED)),
    "hopping": _of_kind(PAGES.format(aggregate=COUNT, more=LISTED), hop=', hop = "5s"'),
    "capped": _of_kind(PAGES.format(aggregate=COUNT, more=""), budget=CAPPED),
    "sessions": _of_kind(PAGES.format(aggregate=COUNT, more='session = "3s"\nlateness = "3s"')),
    "phdstream": _of_kind(SPACE.format(
        kind="phdstream", depth=2, split="all", more="bound = 2\nfloor = 2")),
    "privhp": _of_kind(SPACE.format(kind="privhp", depth=4, split="binary", more="k = 4")),
    "pak": _of_kind(VALUES.format(kind="pak")),
    "tops": _of_kind(VALUES.format(kind="tops")),
    "topl": _of_kind(SURVEY, budget="epsilon = 8.0", time='"slot", format = "epoch_s"'),
}  # fmt: skip
"""Deployments of the other mechanisms, by kind."""
VIEW = """[[view]]
name = "v"
source = "p"
values = [{ of = "count" }, { kind = "running", of = "count" }]
"""
FOLLOWER = """until = {until}
[[pipeline]]
name = "q"
follows = "p"
input = "events"
key = ["page"]
window = {{ length = "10s" }}
triggers = {{ every = "5s" }}
budget = {{ epsilon = 20.0, delta = 1e-3 }}
aggregate = [{{ kind = "count" }}]
{listed}
"""
FURTHER = {
    "views": _of_kind(PAGES.format(aggregate=COUNT, more=LISTED), besides=VIEW),
    "ratchet": _of_kind(
        PAGES.format(aggregate=COUNT, more=LISTED), besides="forget_keys = true",
        tables=f'[secret]\nratchet = "{RATCHET.name}"\nratchet_file = "/keys/hush.ratchet"',
    ),
    "framed": _of_kind(
        PAGES.format(aggregate=COUNT, more=LISTED), encoding='format = "avro"',
        tables='[registry]\nurl = "http://registry"\noutage_timeout = "20s"',
    ),
    "grown": _of_kind(HISTOGRAM.format(keys=LISTED), partitioner="none"),
    "followed": _of_kind(PAGES.format(aggregate=COUNT, more=LISTED)),
}  # fmt: skip
"""Deployments with views, forgotten keys, schemas, or an operator who changes them.

In all of them, a unit's records are within its bound in any order.
"""
ALONE = _variant(1, "0s", 7, "murmur2", LISTED) | {"window": "horizon = 2", "begins": (1,)}
ALONE["mechanism"] = ALONE["mechanism"].replace("budget = 4", 'bound = "records", budget = 3')
"""One raw partition and one shard of each stage; records count as they arrive."""
VARIANTS = {str(n): one for n, one in enumerate(HISTOGRAMS)} | OTHERS | FURTHER
VARIANTS |= {"late": LATE, "alone": ALONE}


@dataclass(frozen=True, eq=False)
class Template:
    """A deployment that has begun but has no worker yet.

    Attributes:
        kind: "histogram", or the name in `OTHERS` or `FURTHER`.
    """

    kind: str
    config: Config
    deployment: Deployment
    names: Names
    logs: dict[tuple[str, int], Log]
    topics: dict[str, int]
    ids: dict[str, str]
    settings: dict[str, dict[str, str]]
    begins: tuple[int, ...]

    def build(self, broker: Broker) -> None:
        """Give a broker the topics of the deployment."""
        broker.logs = {place: log.copy() for place, log in self.logs.items()}
        broker.topics, broker.ids = dict(self.topics), dict(self.ids)
        broker.settings = dict(self.settings)


@lru_cache(None)
def followed(until: int, partitions: int, standing: bool) -> tuple[Config, Deployment]:
    """The deployment in which a pipeline ends and another one follows it.

    Args:
        until: end of the schedule, microseconds since 1970.
        partitions: number of partitions of the raw topic.
        standing: whether workers keep copies.
    """
    besides = FOLLOWER.format(until=format_instant(until), listed=LISTED)
    config = _config("followed", standing, {"besides": besides})
    return config, compile_config(config, {"events": partitions})


def _config(variant: str, standing: bool, more: dict[str, str] | None = None) -> Config:
    engine = {"engine": "standbys = 1"} if standing else {}
    return loads(TEXT.format(**VARIANTS[variant] | engine | (more or {})), environ={})


@lru_cache(None)
def template(variant: str, trimmed: bool, standing: bool = False) -> Template:
    """The deployment for these arguments.

    Args:
        variant: one of `VARIANTS`.
        trimmed: whether raw records were deleted before the deployment began.
        standing: whether workers keep copies of each other's tables.
    """
    config = _config(variant, standing)
    here = world.World.__new__(world.World)
    here.loop = VirtualLoop(Random(0))
    here.broker = broker = Broker(here.loop, Random(0))
    world.enter(here)
    begins = VARIANTS[variant]["begins"] or ((3, 1) if trimmed else (0, 0))
    broker.create("events", len(begins), {"cleanup.policy": "delete"})
    for number, offset in enumerate(begins):
        for _ in range(offset):
            broker.append(("events", number), None, b"{}", None, ())
        broker.trim(("events", number), offset)
    deployment = compile_config(config, {"events": len(begins)})
    Beginning(Cluster(config.kafka), deployment, -1, int(START * 1e6), SECRET).begin()
    kind = variant if variant in OTHERS or variant in FURTHER else "histogram"
    return Template(
        kind, config, deployment, Names("sim", GENESIS), broker.logs, broker.topics, broker.ids,
        broker.settings, begins,
    )  # fmt: skip
