"""Replaces queries in a configuration by the settings that they mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import ConfigError

if TYPE_CHECKING:
    from .columns import QuerySource

Place = tuple[str | int, ...]
Table = dict[str, Any]


def expand(data: Table) -> Iterator[tuple[Place, str]]:
    """Put the settings of each query into its pipeline's table; yield mistakes and places."""
    pipelines = data.get("pipeline")
    for place, pipeline in enumerate(pipelines if isinstance(pipelines, list) else ()):
        if isinstance(pipeline, dict) and isinstance(pipeline.get("query"), str):
            for setting, message in _expand(pipeline, _sources(data)):
                yield ("pipeline", place, *setting), message


def _expand(pipeline: Table, sources: list[QuerySource]) -> Iterator[tuple[Place, str]]:
    from .query import compile_query

    clip = pipeline.get("clip", {})
    bounds = (
        {k: v for k, v in clip.items() if isinstance(v, dict)} if isinstance(clip, dict) else {}
    )
    try:
        meant = compile_query(str(pipeline["query"]), sources, bounds)
    except ConfigError as error:
        yield ("query",), str(error)
        meant = {"input": sources[0].name if sources else "", "key": ["key"]}  # report the rest too
    for name, value in meant.items():
        yield from _put(pipeline, name, value)
    window = pipeline.get("window")
    if "triggers" not in pipeline and isinstance(window, dict) and "length" in window:
        pipeline["triggers"] = {"every": window.get("hop", window["length"])}


def _put(pipeline: Table, name: str, value: Any) -> Iterator[tuple[Place, str]]:
    """Put one setting into a table; settings of a subtable are merged."""
    there = pipeline.get(name)
    if there is None:
        pipeline[name] = value
    elif not (isinstance(there, dict) and isinstance(value, dict)):
        yield (name,), "is set by query: leave it out"
    else:
        for inner, one in value.items():
            if there.setdefault(inner, one) != one:
                yield (name, inner), "is set by query: leave it out"


def _sources(data: Table) -> list[QuerySource]:
    """The inputs that are complete enough for a query; their mistakes are reported elsewhere."""
    from .columns import QuerySource  # here: only queries need the SQL parser

    given = data.get("input")
    found = []
    for table in given if isinstance(given, list) else ():
        if not isinstance(table, dict):
            continue
        unit, time = table.get("unit"), table.get("time")
        units = [unit] if isinstance(unit, str) else unit if isinstance(unit, list) else []
        field = time.get("field") if isinstance(time, dict) else None
        found.append(
            QuerySource(
                str(table.get("name", "")),
                str(table.get("topic", "")),
                tuple(map(str, units)),
                None if field is None else str(field),
                None if (of := table.get("attributes_of")) is None else str(of),
            )
        )
    lookups = data.get("lookup")
    for table in lookups if isinstance(lookups, list) else ():
        if isinstance(table, dict):
            name, topic = str(table.get("name", "")), str(table.get("topic", ""))
            found.append(QuerySource(name, topic, (), None, public=True))
    return found
