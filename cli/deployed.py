"""The deployment that a command is about: its compiled pipelines, its cluster, its ledger."""

from __future__ import annotations

from ..agents.clock.genesis import read_ledger
from ..agents.clock.ledger import Ledger
from ..agents.deployment.compile import compile_config
from ..agents.deployment.model import Pipeline
from ..agents.deployment.rights import Role
from ..agents.kafka.cluster import Cluster
from ..topics.config.load import Config
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
    """Read the ledger as an auditor; errors as for `read_ledger`."""
    return read_ledger(cluster_of(config, "auditor"), config.deployment.name)
