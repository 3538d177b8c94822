"""Tables of topics that the settings of a pipeline name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from ....formats.events.expressions.looked_up import PublicTable
from ....topics.config.pipelines.pipeline import PipelineSettings


def stated_tables(pipeline: PipelineSettings) -> tuple[PublicTable, ...]:
    """Every table that a topic states, each once, wherever settings look it up."""
    asked = pipeline.where, pipeline.derive, pipeline.aggregate
    found = {table.origin: table for table in _tables(asked) if table.origin is not None}
    return tuple(found[origin] for origin in sorted(filter(None, found)))


def _tables(value: Any) -> Iterator[PublicTable]:
    if isinstance(value, PublicTable):
        yield value
    elif isinstance(value, Mapping):
        yield from _tables(tuple(value.values()))
    elif isinstance(value, tuple):
        for one in value:
            yield from _tables(one)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _tables(tuple(getattr(value, one.name) for one in fields(value)))
