"""A command's deployment: its compiled pipelines, its cluster, its ledger."""

from __future__ import annotations

from ..agents.clock.genesis import read_ledger
from ..agents.clock.ledger import Ledger
from ..agents.deployment.cluster.rights import UNKNOWN, Role
from ..agents.deployment.cluster.topic_specs import internal_topics, public_topics
from ..agents.deployment.compile import compile_config
from ..agents.deployment.model import Pipeline
from ..agents.deployment.spread import MOST, StatePartitions, is_open
from ..agents.kafka.cluster import Cluster
from ..topics.config.load import Config
from ..topics.names import Names
from .options import declared


def pipeline_of(config: Config, name: str) -> Pipeline:
    """Compile one pipeline; a `ConfigError` if there is none of this name."""
    wanted = declared(config, name).name
    return next(one for one in compile_config(config).pipelines if one.name == wanted)


def cluster_of(config: Config, role: Role) -> Cluster:
    """Connect to the cluster once it answers; raises `EngineError` if it does not."""
    cluster = Cluster(config.kafka, role=role)
    cluster.wait()
    return cluster


def ledger_of(config: Config) -> Ledger:
    """Read the ledger as a verifier; errors as for `read_ledger`."""
    return read_ledger(cluster_of(config, "verifier"), config.deployment.name)


def least_partitions(config: Config) -> int:
    """Count the partitions of all topics when every input topic has one."""
    made = compile_config(config, spread=StatePartitions(1, 1))
    every = (*public_topics(made), *internal_topics(made, Names(made.name, UNKNOWN)))
    return sum(spec.partitions for spec in every)


def by_size(config: Config) -> str:
    """Say how the inputs' partitions determine those of internal topics; empty if they do not."""
    if not is_open(config):
        return ""
    return (
        "Internal topics get as many partitions as the largest input topic has when `hush topics` "
        f"first runs, at most {MOST}: with one, {least_partitions(config)} in all."
    )
