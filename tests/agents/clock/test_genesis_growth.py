"""Growth: partitions that an operator adds and counts, and partitions that stay for ever."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from hushstream.agents.clock import genesis as admin
from hushstream.agents.clock.ledger import GROWN
from hushstream.agents.worker.admission import prepare
from hushstream.deploy.broker import Broker
from hushstream.errors import EngineError
from hushstream.topics.names import Names

from ...cli.bench import typed
from .deployed import SECOND, Deployed, made

__all__ = ["made"]  # a fixture


def counting(made: Deployed, last: int = 0) -> list[str]:
    """Count the added partitions, as `hush topics --grow` does."""

    def fired(names: Names, pipelines: Collection[str]) -> dict[str, int]:
        return dict.fromkeys(pipelines, last)

    admin.Beginning(made.cluster, made.deployment, 1, 1, made.secret, fired).begin()
    return [r.kind for r in admin.read_ledger(made.cluster, made.name).records]


def test_added_raw_partitions_are_proposed_and_counted_where_an_operator_says_so(made):
    raw, changelog = f"{made.name}-raw", made.names.changelog("ingest", "events")
    made.grow(raw, 3)
    made.raw = {raw: 3}
    assert "3 partitions, the ledger pinned 2: stop all workers" in made.refused()
    with pytest.raises(EngineError, match="run `hush topics --grow`"):
        made.begin()
    assert made.cluster.partitions(changelog) == 2  # nothing was created
    made.grow(changelog, 3)  # as after a run that was interrupted
    assert "run `hush topics --grow`" in made.refused()
    for _ in range(2):  # the second time writes nothing
        assert counting(made, 7) == ["genesis", "pipeline", "format", "grown"]
    plan = prepare(made.config())
    assert plan.ledger.format == GROWN and plan.deployment.pipelines[0].joined == (0, 0, 7)
    assert made.cluster.partitions(changelog) == 3
    assert plan.begin_of(plan.deployment.inputs[0], 2) == 0
    made.begin()  # nothing is left to do
    made.grow(raw, 4)
    assert "4 partitions, the ledger pinned 3: stop all workers" in made.refused()


def test_raw_partitions_that_keep_bounds_are_never_counted(broker, unique, tmp_path):
    made = Deployed(unique("d"), tmp_path, broker.bootstrap)
    made.edit('unit = "user"', 'unit = "user"\npartitioner = "murmur2"')
    made.begin()
    made.grow(f"{made.name}-raw", 3)
    made.raw = {f"{made.name}-raw": 3}
    said = made.refused()
    assert "bound of a unit" in said and "Kafka takes none away again" in said
    with pytest.raises(EngineError, match="another deployment"):
        counting(made)
    assert len(admin.read_ledger(made.cluster, made.name).records) == 2


def test_the_size_of_inputs_decides_about_partitions_when_a_deployment_begins_and_never_again(
    broker: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    run = Deployed(unique("sized"), tmp_path, broker.bootstrap)
    words = ("topics", "-c", str(run.toml), "--bootstrap", run.bootstrap)
    raw = f"{run.name}-raw"
    run.client.create_topics([NewTopic(raw, 2, 1)])[raw].result(120)
    run.settle(lambda topics: raw in topics)
    run.edit("units_partitions = 2\ncells_partitions = 2", "")
    code, said, _ = typed(*words)
    assert code == 0 and "units_partitions = 2, cells_partitions = 2: the ledger holds" in said
    ledger = admin.read_ledger(run.cluster, run.name)
    assert ledger.genesis["spread"] == {"units": 2, "cells": 2}
    names, before = prepare(run.config()).names, run.cluster.topics()
    assert before[names.units(f"{run.name}-p")] == before[names.cells(f"{run.name}-p")] == 2
    run.grow(raw, 7)
    run.toml.write_text(run.toml.read_text() + SECOND.format(name=run.name))
    assert typed(*words, "--grow")[0] == 0
    after = run.cluster.topics()
    assert after[names.units(f"{run.name}-p")] == after[names.cells(f"{run.name}-q")] == 2
    assert {p.cells_partitions for p in prepare(run.config()).deployment.pipelines} == {2}
    run.edit("[engine]", "[engine]\nunits_partitions = 4")
    assert "would have 4 partitions" in run.refused() and typed(*words)[0] == 4
