"""Everything that a worker, or a replay, was started with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...topics.config.load import Config
from ...topics.names import Names
from ..clock.ledger import Ledger
from ..deployment.model import Deployment, Input


@dataclass(frozen=True)
class WorkerSetup:
    """What `startup.prepare` found and checked.

    Attributes:
        config: as it was read.
        deployment: its pipelines, compiled.
        names: of all topics, with the genesis id of the ledger.
        ledger: as it was read at the start.
        secret: the root key.
        data_dir: folder of local state.
        member: stable name of this worker in the consumer group; empty: it has none.
    """

    config: Config
    deployment: Deployment
    names: Names
    ledger: Ledger
    secret: bytes
    data_dir: Path
    member: str


def begin_of(ledger: Ledger, source: Input) -> list[int]:
    """Where each partition of an input began when its first pipeline was declared."""
    numbers = [ledger.pipelines[p.name] for p in source.pipelines if p.name in ledger.pipelines]
    first = min(numbers, key=lambda body: body["number"], default={})
    return first.get("begins") or [0] * source.partitions
