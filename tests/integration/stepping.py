"""Stages of a shard in memory, which tests step through as a worker would."""

from __future__ import annotations

from hushstream.agents.clock.log import ClockLog
from hushstream.agents.stages.ingest.beside import Beside
from hushstream.agents.stages.ingest.stage import IngestStage
from hushstream.agents.state.layout import index_entries
from hushstream.agents.state.memory import MemoryStore
from hushstream.topics.records import Marker

from ..support import NAMES, SECRET


def ingest(made, records, log, feedback=None):
    """A first stage with its store; the test calls its steps."""
    clock = ClockLog({p.name: p.traits.horizon for p in made.pipelines}, enumerate(records))
    stage = IngestStage(made.inputs[0], 0, NAMES, SECRET, clock, Beside(feedback or {}))
    store, marker = MemoryStore(), Marker("abcdef", 0)
    stage.open(store, marker)
    return stage, store, marker, clock


def commit(store, step):
    """Do what a shard does after its transaction."""
    for key, value in step.rows.items():
        step.local.update(index_entries(key, value))
    store.write({**step.rows, **step.local}, step.units.columns())
    return step.marker
