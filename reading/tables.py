"""Complete releases as Arrow tables: one row per window, trigger and key, flat columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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
_FIRST = ("release_id", "pipeline", *FIXED)  # columns of every table of a sink
WHOLE_KEY = "hush_key"
PARTS = {"": "value", "_stddev": "stddev", "_low": "low", "_high": "high"}
Placed = tuple[Released, Row]


class ColumnNames(NamedTuple):
    """Names of a table's columns, of which no two are alike in any case of letters."""

    others: Mapping[str, str]  # of figures and ends of cells, by the names that were wanted
    keys: Mapping[str, str]  # by field of the key
    whole_key: str  # of the column of the whole key, if there is one


def column_names(others: Iterable[str], keys: Iterable[str]) -> ColumnNames:
    """Name columns apart, without regard to case, as databases do.

    A field of the key with the name of another column is called ``key_<name>``; what is taken even
    so gets underscores.

    >>> column_names(["count"], ["count", "key_count", "Zone", "zone"]).keys
    {'count': 'key_count_', 'key_count': 'key_count', 'Zone': 'Zone', 'zone': 'zone_'}
    """
    taken: set[str] = set()

    def free(name: str) -> str:
        while name.casefold() in taken:
            name += "_"
        taken.add(name.casefold())
        return name

    named = {name: free(name) for name in (*_FIRST, *others)}
    fields = list(keys)
    own = [field for field in fields if field.casefold() not in taken]
    found = {field: free(field) for field in own}
    found |= {field: free(f"key_{field}") for field in fields if field not in found}
    return ColumnNames(named, {field: found[field] for field in fields}, free(WHOLE_KEY))


def table_of(releases: Sequence[Released], latest: bool = False) -> Any:
    """Make an Arrow table of complete releases of one pipeline and those that follow it.

    Columns are `FIXED`; one per field of the key; ``<axis>_low`` and ``<axis>_high`` for each axis
    of a map; ``<value>``, ``<value>_stddev``, ``<value>_low`` and ``<value>_high`` for each value:
    doubles, null if the release has none. A key field with the name of another column is called
    ``key_<name>``. If one pipeline follows another, there is a column ``pipeline``. A field of the
    key with values of several types becomes text; then ``hush_key`` has the whole key as JSON.

    Args:
        releases: releases in any order.
        latest: whether to keep only the newest row of each window and key.

    Returns:
        A ``pyarrow.Table``, by window, then trigger, then key or a view's order; without
        releases the fixed columns.
    """
    rows = placed(releases, latest)
    columns, names = flat(releases, rows)
    if any(_mixed(columns[names.keys[field]], field, rows) for field in names.keys):
        columns[names.whole_key] = pa.array([whole_key(row) for _, row in rows], pa.string())
    return pa.table(columns)


def bodies_of(releases: Sequence[Released], latest: bool = False) -> list[dict[str, Any]]:
    """Make the rows of `table_of` as objects, in which a field of the key has its own value."""
    rows = placed(releases, latest)
    columns, names = flat(releases, rows)
    return [
        body | {column: row.key.get(field) for field, column in names.keys.items()}
        for body, (_, row) in zip(pa.table(columns).to_pylist(), rows, strict=True)
    ]


def placed(releases: Sequence[Released], latest: bool = False) -> list[Placed]:
    """List the rows of releases in the order of `table_of`."""
    return newest(releases) if latest else list(_every(releases))


def flat(
    releases: Sequence[Released], rows: Sequence[Placed]
) -> tuple[dict[str, Any], ColumnNames]:
    """Make the columns of rows; which there are follows from the manifests alone.

    The column of the whole key is not among them.
    """
    columns = {
        name: pa.array([of(release) for release, _ in rows], kind)
        for name, (kind, of) in FIXED.items()
    }
    if len({release.pipeline for release in releases}) > 1:
        columns["pipeline"] = pa.array([release.pipeline for release, _ in rows], pa.string())
    others = dict(corners(rows, _names(axes_of(release) for release in releases)))
    others |= figures(rows, _names(release.manifest.value_names for release in releases))
    fields = _names(release.manifest.key_names for release in releases)
    names = column_names(others, fields)
    columns |= {
        names.keys[field]: _inferred([row.key.get(field) for _, row in rows]) for field in fields
    }
    return columns | {names.others[name]: column for name, column in others.items()}, names


def axes_of(release: Released) -> list[str]:
    """Names of the axes that the cells of a release have; none unless it is a map."""
    space = json.loads(bytes(release.manifest.space) or b"{}")
    return [axis["name"] for axis in space.get("axes", ())]


def whole_key(row: Row) -> str:
    """Write the key of a row as JSON, which differs wherever keys do."""
    return json.dumps(row.key, ensure_ascii=False, sort_keys=True)


def _mixed(column: Any, field: str, rows: Sequence[Placed]) -> bool:
    """Whether values that are no text became text."""
    values = (row.key.get(field) for _, row in rows)
    return column.type == pa.string() and any(type(one) not in (str, type(None)) for one in values)


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
    """A column of one type; text if no other holds all values."""
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
