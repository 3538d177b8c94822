"""The tables for the releases of one topic; their types follow from the configuration."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from ...agents.deployment.model import Deployment, Pipeline
from ...agents.deployment.published.connect_sink import key_kinds
from ...agents.deployment.published.shapes import key_names, value_names
from ...errors import ConfigError
from ...topics.assembly import Released, in_order
from ...topics.releases import Row
from ..tables import (
    FIXED,
    PARTS,
    TIME,
    ColumnNames,
    column_names,
    corners,
    figures,
    whole_key,
)

ColumnKind = Literal["text", "whole", "truth", "real", "time"]
ARROW: Mapping[ColumnKind, Any] = {
    "text": pa.string(), "whole": pa.int64(), "truth": pa.bool_(), "real": pa.float64(),
    "time": TIME,
}  # fmt: skip
KINDS: Mapping[str | None, ColumnKind] = {
    "int64": "whole", "boolean": "truth", "string": "text", None: "text",
}  # fmt: skip
FIRST: Mapping[str, ColumnKind] = {
    "release_id": "text", "pipeline": "text", "window_start": "time", "window_end": "time",
    "trigger": "whole", "released": "time", "final": "truth",
}  # fmt: skip
OF_RELEASES: Mapping[str, ColumnKind] = {
    "pipeline": "text", "window_start": "time", "window_end": "time", "trigger": "whole",
    "triggers": "whole", "released": "time", "final": "truth", "rows": "whole",
    "epsilon": "real", "delta": "real",
}  # fmt: skip


@dataclass(frozen=True)
class SinkLayout:
    """Tables of one release topic.

    The first has a row for each released row, identified by ``release_id``; the second a row for
    each complete release. Columns of the first are ``release_id``, ``pipeline``, those of
    `table_of`, and `whole_key`.

    Attributes:
        table: name of the first table.
        pipeline: the pipeline or view that the topic belongs to.
        keys: column and type of each field of the key.
        axes: axes of a map.
        values: names of released values.
        replaces: whether each release replaces its predecessor, so that missing keys are gone.
        asserted: fields of the key that hold whole numbers as far as a user says; where one does
            not, its column is null.
    """

    table: str
    pipeline: str
    topic: str
    keys: Mapping[str, tuple[str, ColumnKind]]
    axes: tuple[str, ...]
    values: tuple[str, ...]
    replaces: bool
    asserted: frozenset[str] = frozenset()

    @cached_property
    def whole_key(self) -> str | None:
        """The column of the whole key as JSON; None if no rows need it.

        A column of text shows the text ``5`` and the number 5 alike, so that it does not identify
        a key; nor does a null in a column that was to hold whole numbers.
        """
        texts = any(kind == "text" for _, kind in self.keys.values())
        needed = self.asserted or (texts and not self.replaces)
        return self._names.whole_key if needed else None

    @cached_property
    def columns(self) -> dict[str, ColumnKind]:
        """Columns of the first table in their order."""
        found = dict(FIRST) | dict(self.keys.values())
        found |= {self._names.others[name]: "real" for name in _figures(self.axes, self.values)}
        # Last: a database can append it to a view that others use.
        return found if self.whole_key is None else {**found, self.whole_key: "text"}

    @cached_property
    def _names(self) -> ColumnNames:
        return column_names(_figures(self.axes, self.values), self.keys)

    @property
    def schema(self) -> Any:
        """The first table's columns as Arrow names them."""
        return pa.schema({name: ARROW[kind] for name, kind in self.columns.items()})

    def rows(self, releases: Sequence[Released]) -> Any:
        """Make an Arrow table of all rows of complete releases, in the releases' order.

        Raises:
            ConfigError: a field of the key is not of the type that follows from its configuration.
        """
        placed = [(one, row) for one in releases for row in sorted(one.rows, key=in_order)]
        found: dict[str, Any] = {
            "release_id": [row.release_id for _, row in placed],
            "pipeline": [row.pipeline for _, row in placed],
        }
        found |= {name: [of(one) for one, _ in placed] for name, (_, of) in FIXED.items()}
        for field, (name, kind) in self.keys.items():
            found[name] = [self._key(field, kind, row) for _, row in placed]
        others = dict(corners(placed, self.axes)) | dict(figures(placed, self.values))
        found |= {self._names.others[name]: column for name, column in others.items()}
        if self.whole_key is not None:
            found[self.whole_key] = [whole_key(row) for _, row in placed]
        return pa.table({name: found[name] for name in self.columns}, self.schema)

    def releases(self, releases: Sequence[Released]) -> Any:
        """Make an Arrow table with one row for each complete release."""
        found = [
            {
                "pipeline": one.pipeline, "window_start": one.window.start,
                "window_end": one.window.end, "trigger": one.trigger,
                "triggers": one.manifest.triggers, "released": one.scheduled, "final": one.final,
                "rows": len(one.rows), "epsilon": float(one.manifest.privacy.epsilon),
                "delta": float(one.manifest.privacy.delta),
            }
            for one in releases
        ]  # fmt: skip
        return pa.Table.from_pylist(found, pa.schema({n: ARROW[k] for n, k in OF_RELEASES.items()}))

    def _key(self, field: str, kind: ColumnKind, row: Row) -> Any:
        value = row.key.get(field)
        if value is None:
            return None
        if kind == "text":
            return value if isinstance(value, str) else json.dumps(value)
        if type(value) is bool and kind == "truth":
            return value
        if type(value) is int and kind == "whole" and -(1 << 63) <= value < 1 << 63:
            return value
        if field in self.asserted:
            return None
        what = "whole number of 64 bits" if kind == "whole" else "truth value"
        raise ConfigError(
            f"pipeline {self.pipeline!r}: a release has a value in key column {field!r} that is no "
            f"{what}: name another --table"
        )

    def unheld(self, releases: Sequence[Released]) -> list[str]:
        """List fields of the key that are not the whole numbers that a user says they are."""
        rows = [row for one in releases for row in one.rows]
        return [
            field
            for field in sorted(self.asserted)
            if any(row.key.get(field) is not None and self._key(field, "whole", row) is None
                   for row in rows)
        ]  # fmt: skip


def layouts(
    deployment: Deployment, only: Collection[str], table: str | None, integers: Collection[str]
) -> list[SinkLayout]:
    """Find the tables of pipelines and views, one layout for each release topic.

    Args:
        only: pipelines and views to include; empty: all.
        table: name of the only table; None: that of the topic's first pipeline.
        integers: key columns that hold whole numbers, if not configured as such.

    Raises:
        ConfigError: a name is unknown, or several topics would become one table.
    """
    every = {p.name: p for p in deployment.pipelines}
    topics = {p.name: p.release_topic for p in deployment.pipelines}
    topics |= {v.name: v.release_topic for v in deployment.views}
    for name in only:
        if name not in topics:
            raise ConfigError(f"pipeline {name!r} is unknown; expected one of {', '.join(topics)}")
    wanted = list(dict.fromkeys(topic for n, topic in topics.items() if not only or n in only))
    if table is not None and len(wanted) > 1:
        raise ConfigError(f"--table {table} is for one pipeline: choose it by --pipeline")
    found = [_of_pipelines([p for p in every.values() if p.release_topic == topic], integers)
             for topic in wanted if topic in {p.release_topic for p in every.values()}]  # fmt: skip
    found += [
        _layout(v.name, v.release_topic,
                {n: _kinds(v.source, integers)[n] for n in v.key_names}, (),
                [one.label for one in v.values], True,
                _asserted([v.source], integers) & set(v.key_names))
        for v in deployment.views if v.release_topic in wanted
    ]  # fmt: skip
    known = {name for one in found for name in one.keys}
    if strange := sorted(set(integers) - known):
        raise ConfigError(f"no key column {strange[0]!r}; there is {', '.join(sorted(known))}")
    return [one if table is None else replace(one, table=table) for one in found]


def _of_pipelines(pipelines: Sequence[Pipeline], integers: Collection[str]) -> SinkLayout:
    """The layout of a topic written by one pipeline and those that follow it."""
    keys: dict[str, str | None] = {}
    axes: dict[str, None] = {}
    values: dict[str, None] = {}
    for p in pipelines:
        for name, kind in _kinds(p, integers).items():
            keys[name] = kind if keys.get(name, kind) == kind else None
        axes |= dict.fromkeys(axis["name"] for axis in p.traits.keys.geometry().get("axes", ()))
        values |= dict.fromkeys(value_names(p))
    first = pipelines[0]
    replaces = any(p.traits.keys.replaces for p in pipelines)
    asserted = _asserted(pipelines, integers)
    return _layout(
        first.name, first.release_topic, keys, tuple(axes), list(values), replaces, asserted
    )


def _kinds(p: Pipeline, integers: Collection[str]) -> dict[str, str | None]:
    return key_kinds(p) | {name: "int64" for name in key_names(p) if name in integers}


def _asserted(pipelines: Sequence[Pipeline], integers: Collection[str]) -> frozenset[str]:
    """The key columns that hold whole numbers, although no configuration says so."""
    return frozenset(
        name
        for p in pipelines
        for name, kind in key_kinds(p).items()
        if name in integers and kind != "int64"
    )


def _layout(
    name: str, topic: str, keys: Mapping[str, str | None], axes: tuple[str, ...],
    values: Sequence[str], replaces: bool, asserted: frozenset[str],
) -> SinkLayout:  # fmt: skip
    columns = column_names(_figures(axes, values), keys).keys
    placed = {field: (columns[field], KINDS[kind]) for field, kind in keys.items()}
    return SinkLayout(name, name, topic, placed, axes, tuple(values), replaces, asserted)


def _figures(axes: Sequence[str], values: Sequence[str]) -> list[str]:
    """Columns of numbers: both ends of cells, and values with their errors."""
    ends = [f"{axis}{end}" for axis in axes for end in ("_low", "_high")]
    return ends + [f"{value}{part}" for value in values for part in PARTS]


def undeclared(layout: SinkLayout, deployment: Deployment) -> list[str]:
    """List key columns that are taken as text because their type is not configured."""
    found: list[str] = []
    for p in deployment.pipelines:
        if p.release_topic == layout.topic:
            unsure = {name for name, kind in key_kinds(p).items() if kind is None}
            found += [
                name for name in layout.keys if name in unsure and layout.keys[name][1] == "text"
            ]
    return list(dict.fromkeys(found))
