"""Everything a worker was started with, and which topics its stages read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...topics.config.load import Config
from ...topics.names import Names
from ..clock.ledger import Ledger
from ..deployment.model import Deployment, Input, Pipeline


@dataclass(frozen=True)
class Plan:
    """Everything a worker was started with."""

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


def stages_of(deployment: Deployment) -> list[tuple[Input, Pipeline | None]]:
    found: list[tuple[Input, Pipeline | None]] = []
    for source in deployment.inputs:
        found.append((source, None))
        found += [(source, p) for p in source.pipelines]
    return found


def topics_of(plan: Plan, source: Input, pipeline: Pipeline | None) -> list[str]:
    if pipeline is None:
        return [source.topic]
    units = [] if pipeline.direct else [plan.names.units(pipeline.name)]
    return [*units, plan.names.cells(pipeline.name)]
