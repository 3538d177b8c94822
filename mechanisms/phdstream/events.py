"""Events of one trigger by cell, and rows that wait for a later trigger.

Two rules defer events: the initial hold-back (everything before trigger `first` is counted at that
trigger) and a lifetime (an insertion is deleted that many triggers later). Deferred events wait in
their own rows, keyed by cell and trigger of arrival. A row that is no longer needed equals a fresh
one and may be forgotten.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..columns import I64, Closed, Rows
from ..keys import Keys, concat
from ..spatial.domain import U64, Domain
from .tree import NODE, Nodes, joined, picked

INSERT, DELETE = 0, 1
_WAITING = 0xFF
_RECORDS = np.zeros(1, np.uint64)  # before all nodes, whose codes begin at 1
_NODE_WIDTH = 8
_WIDTH = 13  # _WAITING, trigger, cell: sorts after every node, whose first byte is below 0x80


class Events(NamedTuple):
    """Insertions and deletions of one trigger, never netted, in the order of their cells."""

    cell: U64  # (e,) finest cells, ascending
    upto: I64  # (2, e+1) insertions and deletions before each cell

    @classmethod
    def of(cls, cell: U64, counts: I64) -> Events:
        """Events from cells in any order with their (2, e) insertions and deletions."""
        order = np.argsort(cell, kind="stable")
        upto = np.zeros((2, len(cell) + 1), np.int64)
        np.cumsum(counts[:, order], axis=1, out=upto[:, 1:])
        return cls(cell[order], upto)

    def within(self, domain: Domain, nodes: U64) -> I64:
        """(2, m) insertions and deletions in each node."""
        drop = (domain.bits - domain.level(nodes) * domain.step).astype(np.uint64)
        begin = np.searchsorted(self.cell, nodes << drop)
        end = np.searchsorted(self.cell, (nodes + np.uint64(1)) << drop)
        inside: I64 = self.upto[:, end] - self.upto[:, begin]
        return inside


class Waiting(NamedTuple):
    """Rows of waiting events: trigger of arrival, cell, (2, w) counts."""

    origin: I64
    cell: U64
    counts: I64


def waiting_keys(origin: I64, cell: U64) -> Keys:
    """Keys of waiting rows."""
    matrix = np.empty((len(cell), _WIDTH), np.uint8)
    matrix[:, 0] = _WAITING
    matrix[:, 1:5] = origin.astype(">u4").view(np.uint8).reshape(-1, 4)
    matrix[:, 5:] = cell.astype(">u8").view(np.uint8).reshape(-1, 8)
    return Keys.fixed(matrix)


def arrived(closed: Closed) -> Waiting:
    """The events of the micro-batch itself."""
    codes = closed.part.key.codes()  # canonical: ascending, at most one row per lane
    first = np.ones(len(codes), bool)
    first[1:] = codes[1:] != codes[:-1]
    cell = codes[first]
    counts = np.zeros((2, len(cell)), np.int64)
    counts[closed.part.lane, np.cumsum(first) - 1] = closed.part.sums[:, 0]
    return Waiting(np.full(len(cell), closed.t), cell, counts)


def split_rows(closed: Closed) -> tuple[Nodes, NDArray[np.intp]]:
    """The stored nodes, and the rows of events that wait for this trigger."""
    rows = closed.rows
    wide = np.diff(rows.key.offsets) != _NODE_WIDTH  # waiting rows sort after all nodes
    nodes = len(wide) - int(np.count_nonzero(wide))
    begin = int(rows.key.offsets[0])
    data = np.ascontiguousarray(rows.key.data[begin : begin + _NODE_WIDTH * nodes])
    codes = data.view(">u8").astype(np.uint64)
    stored = (rows.due[:nodes] == -1) & (codes > _RECORDS)
    codes = codes[stored]
    return Nodes(codes, picked(rows.state[:nodes], stored)), np.flatnonzero(
        wide & (rows.due == closed.t)
    )


def record_row(closed: Closed) -> Rows:
    """A copy of the row that holds the number of all records, due at every trigger.

    Its ``out`` is the last released number, ``first`` the exact number of records since.
    """
    key, state = Keys.of_codes(_RECORDS), np.zeros(1, NODE)
    if len(closed.rows.key) and closed.rows.key.take(np.zeros(1, np.intp)).tolist() == key.tolist():
        state = picked(closed.rows.state, np.zeros(1, np.intp))
    return Rows(key, state, np.full(1, -1, np.int32))


def beside(records: Rows | None, rows: Rows) -> Rows:
    """The rows of both, in canonical order."""
    if records is None:
        return rows
    due = np.concatenate([records.due, rows.due])
    return Rows(concat([records.key, rows.key]), joined([records.state, rows.state]), due)


def waited(closed: Closed, rows: NDArray[np.intp]) -> Waiting:
    """The events of waiting rows."""
    matrix = closed.rows.key.take(rows).packed().reshape(len(rows), _WIDTH)
    origin = np.ascontiguousarray(matrix[:, 1:5]).view(">u4").reshape(-1).astype(np.int64)
    cell = np.ascontiguousarray(matrix[:, 5:]).view(">u8").reshape(-1).astype(np.uint64)
    held = closed.rows.state[rows]
    return Waiting(origin, cell, np.stack([held["first"], held["second"]]))


def both(first: Waiting, second: Waiting) -> Waiting:
    """The events of ``first``, then those of ``second``."""
    origin, cell = (np.concatenate(pair) for pair in zip(first[:2], second[:2], strict=True))
    return Waiting(origin, cell, np.concatenate([first.counts, second.counts], axis=1))


def wait(waiting: Waiting, due: I64) -> Rows:
    """Rows of events that wait for trigger ``due`` (0 = no longer needed), in canonical order."""
    state = np.zeros(len(waiting.cell), NODE)
    state["first"], state["second"] = waiting.counts * (due > 0)
    return Rows(waiting_keys(waiting.origin, waiting.cell), state, due.astype(np.int32))


class Plan(NamedTuple):
    """The events that a trigger counts, and those that it defers."""

    events: Events
    rows: Rows


def plan(closed: Closed, rows: NDArray[np.intp], first: int, lifetime: int, horizon: int) -> Plan:
    """Events that count at this trigger, and the rows of deferred ones.

    Args:
        first: the first trigger that counts (hold-back).
        lifetime: triggers after which an insertion is deleted; 0 = never.
        horizon: the last trigger; nothing waits for a later one.
    """
    pool = both(waited(closed, rows), arrived(closed))
    if closed.t < first:
        held = wait(pool, np.full(len(pool.cell), first))
        return Plan(Events.of(pool.cell[:0], pool.counts[:, :0]), held)
    inserts, deletes = pool.counts
    expires = pool.origin + lifetime if lifetime else np.full(len(pool.cell), horizon + 1)
    over = expires <= closed.t
    later = (inserts > 0) & ~over & (expires <= horizon)
    counts = np.stack([inserts, deletes + over * inserts])
    kept = later | (np.arange(len(pool.cell)) < len(rows))  # a row that was read is written back
    deleted = np.stack([np.zeros_like(inserts), inserts])
    rest = Waiting(pool.origin[kept], pool.cell[kept], deleted[:, kept])
    waits = wait(rest, np.where(later, expires, 0)[kept])
    return Plan(Events.of(pool.cell, counts), waits)
