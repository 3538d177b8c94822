"""Decoded records: typed columns, and the rows of them that each pipeline uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast, overload

import numpy as np
from numpy.typing import NDArray

from ...mechanisms.columns import I64, compact
from ...mechanisms.contract import Mechanism
from ...mechanisms.keys import Keys, concat
from .fields import PipelineFields
from .reasons import Bad

Flags = NDArray[np.bool_]
MAX_UNIT = 4096  # bytes of one encoded unit


class UnitTexts(Sequence[Any]):
    """The unit of each record, as text in one buffer or as a value beside it.

    Attributes:
        data: the buffer.
        low, high: (n,) bounds of each text.
        integer: (n,) whether the text is that of an integer.
        rest: values of the rows that are not in the buffer; None means no unit.
    """

    def __init__(
        self, data: NDArray[np.uint8], low: I64, high: I64, integer: Flags, rest: dict[int, Any]
    ) -> None:
        self.data, self.low, self.high, self.integer, self.rest = data, low, high, integer, rest

    def __len__(self) -> int:
        return len(self.low)

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> list[Any]: ...
    def __getitem__(self, row: int | slice) -> Any:
        if isinstance(row, slice):
            return [self[n] for n in range(*row.indices(len(self)))]
        if row in self.rest:
            return self.rest[row]
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        text = self.data[self.low[row] : self.high[row]].tobytes().decode()
        return int(text) if self.integer[row] else text

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))


class View(NamedTuple):
    """The rows of the decoded records that one pipeline uses, in log order."""

    rows: NDArray[np.intp]  # (n,) rows of the record list
    keys: Keys  # (k,) distinct
    key: NDArray[np.intp]  # (n,)
    value: I64  # (n, c)
    sign: NDArray[np.int8]  # (n,)
    bad: Bad  # rows that this pipeline cannot use


class Decoded(NamedTuple):
    """All records of a list; ``bad`` rows are absent from every view."""

    time: I64  # (N,) microseconds; undefined in bad rows
    unit: Sequence[Any]  # (N,) hashable unit values; None in bad rows
    views: tuple[View, ...]
    bad: Bad


Numbers = tuple[NDArray[np.float64] | None, Flags | None]
"""Numbers of a value column and the records in it; None: every record is in it, as 1."""


def on_grid(p: PipelineFields, size: int, columns: Sequence[Numbers]) -> I64:
    """(size, c) value columns of a pipeline, clipped and in units of their grids."""
    out = np.zeros((size, len(p.columns)), np.int64)
    for place, (column, (floats, counted)) in enumerate(zip(p.columns, columns, strict=True)):
        if floats is None:
            out[:, place] = 1 if counted is None else counted
            continue
        clipped = np.clip(floats, float(column.low), float(column.high))
        steps = np.rint(clipped / float(column.grid)).astype(np.int64)
        out[:, place] = steps if counted is None else np.where(counted, steps, 0)
    return out


def keyed(
    p: PipelineFields,
    m: Mechanism,
    rows: NDArray[np.intp],
    keys: Keys,
    key: NDArray[np.intp],
    columns: Mapping[str, NDArray[Any]],
    value: I64,
    sign: NDArray[np.int8],
    bad: Bad,
) -> View:
    """Rows of a pipeline whose records have keys; if it has public keys, others are dropped.

    Args:
        rows: (n,) rows to use.
        keys, key: distinct keys, and (n,) the key of each row.
        columns: (N,) mechanism inputs of all records, if the mechanism makes values from them.
        value, sign: (N, c) and (N,) for all records.
        bad: rows that the pipeline cannot use.
    """
    if p.allowed is not None:
        listed = np.fromiter((k in p.allowed for k in keys), bool, len(keys))[key]
        rows, key = rows[listed], key[listed]
    if m.traits.inputs:
        made = m.encode({name: column[rows] for name, column in columns.items()})
        rows, key, values = rows[made.keep], key[made.keep], made.value[made.keep]
    elif len(rows) == len(sign):  # the usual case: no copy
        return View(rows, keys, key, value, sign, bad)
    else:
        values = value[rows]
    used, place = compact(key, len(keys))
    if len(used) < len(keys):
        keys, key = keys.take(used), place
    return View(rows, keys, key, values, sign[rows], bad)


def encoded(
    m: Mechanism,
    rows: NDArray[np.intp],
    columns: Mapping[str, NDArray[Any]],
    sign: NDArray[np.int8],
    bad: Bad,
) -> View:
    """Rows of a pipeline whose mechanism makes keys from its inputs.

    Columns and signs are for all records; ``bad`` has rows that the pipeline cannot use.
    """
    made = m.encode({name: column[rows] for name, column in columns.items()})
    keep = np.flatnonzero(made.keep)
    used, key = np.unique(made.key[keep], return_inverse=True)
    rows = rows[keep]
    key = key.astype(np.intp)
    return View(rows, made.keys.take(used), key, made.value[keep], sign[rows], bad)


def merged(one: Decoded, rest: Decoded, rows: NDArray[np.intp]) -> Decoded:
    """Merge results of disjoint records, in log order.

    ``one`` covers all records except ``rows``, which ``rest`` covers; their times and units are
    filled in in ``one``.
    """
    units = cast(UnitTexts, one.unit)
    one.time[rows] = rest.time
    units.rest.update(zip(rows.tolist(), rest.unit, strict=True))
    pairs = zip(one.views, rest.views, strict=True)
    views = tuple(_merged(mine, other, rows) for mine, other in pairs)
    return Decoded(one.time, units, views, _placed(rest.bad, rows))


def _placed(bad: Bad, rows: NDArray[np.intp]) -> Bad:
    return {int(rows[row]): reason for row, reason in bad.items()}


def _merged(one: View, other: View, rows: NDArray[np.intp]) -> View:
    """Merge views of disjoint rows, in log order; ``other`` numbers its rows within ``rows``."""
    at = np.concatenate([one.rows, rows[other.rows]])
    order = np.argsort(at, kind="stable")
    keys, place = concat([one.keys, other.keys]).unique()
    key = place[np.concatenate([one.key, other.key + len(one.keys)])]
    used, key = compact(key[order], len(keys))
    return View(
        at[order],
        keys.take(used),
        key,
        np.concatenate([one.value, other.value])[order],
        np.concatenate([one.sign, other.sign])[order],
        _placed(other.bad, rows),
    )
