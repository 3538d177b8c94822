"""Complete releases as Arrow tables: one row per window, trigger and key, flat columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ..topics.assembly import Released, newest, sorted_rows
from ..topics.releases import Row, Value

TIME = pa.timestamp("us", "UTC")
FIXED: dict[str, tuple[Any, Any]] = {
    "window_start": (TIME, lambda release: release.window.start),
    "window_end": (TIME, lambda release: release.window.end),
    "trigger": (pa.int64(), lambda release: release.trigger),
    "released": (TIME, lambda release: release.scheduled),
    "final": (pa.bool_(), lambda release: release.final),
}
PARTS = {"": "value", "_stddev": "stddev", "_low": "low", "_high": "high"}
Placed = tuple[Released, Row]


def table_of(releases: Sequence[Released], latest: bool = False) -> Any:
    """Make an Arrow table of complete releases of one pipeline and those that follow it.

    Columns are `FIXED`; one per field of the key; ``<axis>_low`` and ``<axis>_high`` for each axis
    of a map; ``<value>``, ``<value>_stddev``, ``<value>_low`` and ``<value>_high`` for each value:
    doubles, null if the release has none. A key field with the name of another column is called
    ``key_<name>``. If one pipeline follows another, there is a column ``pipeline``.

    Args:
        releases: releases in any order.
        latest: whether to keep only the newest row of each window and key.

    Returns:
        A ``pyarrow.Table``, by window, then trigger, then key or a view's order; without
        releases the fixed columns.
    """
    rows = newest(releases) if latest else list(_every(releases))
    columns = {
        name: pa.array([of(release) for release, _ in rows], kind)
        for name, (kind, of) in FIXED.items()
    }
    if len({release.pipeline for release in releases}) > 1:
        columns["pipeline"] = pa.array([release.pipeline for release, _ in rows], pa.string())
    values = _names(release.manifest.value_names for release in releases)
    boxes = _names(row.box for _, row in rows)
    numbers = dict(figures(rows, values))
    ends = dict(corners(rows, boxes))
    for name in _names(release.manifest.key_names for release in releases):
        taken = name in columns or name in numbers or name in ends
        column = [row.key.get(name) for _, row in rows]
        columns[f"key_{name}" if taken else name] = _inferred(column)
    return pa.table(columns | ends | numbers)


def _every(releases: Sequence[Released]) -> Iterator[Placed]:
    for release in sorted(releases, key=lambda one: (one.window.start, one.trigger)):
        yield from ((release, row) for row in sorted_rows(release))


def _names(found: Any) -> list[str]:
    """Distinct names in order of appearance."""
    return list(dict.fromkeys(name for names in found for name in names))


def figures(rows: Sequence[Placed], names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield the columns of released values: value, error and both ends of the interval."""
    for name in names:
        told: list[Value | None] = [row.values.get(name) for _, row in rows]
        for suffix, part in PARTS.items():
            column = [None if one is None else float(getattr(one, part)) for one in told]
            yield name + suffix, pa.array(column, pa.float64())


def corners(rows: Sequence[Placed], names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a map's axes: both ends of the cell."""
    for name in names:
        for place, suffix in enumerate(("_low", "_high")):
            column = [row.box[name][place] if name in row.box else None for _, row in rows]
            yield name + suffix, pa.array(column, pa.float64())


def _inferred(column: list[Any]) -> Any:
    """A column of one type; text if its values have several types."""
    values = [value for value in column if value is not None]
    kinds = {type(value) for value in values}
    most = max((abs(value) for value in values if type(value) is int), default=0)
    if kinds == {int} and most < 1 << 63:
        return pa.array(column, pa.int64())
    if kinds in ({float}, {int, float}) and most < 1 << 53:  # doubles are exact up to here
        return pa.array(column, pa.float64())
    if kinds == {bool}:
        return pa.array(column, pa.bool_())
    texts = [v if v is None or isinstance(v, str) else json.dumps(v) for v in column]
    return pa.array(texts, pa.string())
