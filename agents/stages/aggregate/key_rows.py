"""Key rows of the aggregate stage: states, the index of due rows, and choosing rows.

A row has the fixed layout of its mechanism. If most of its numbers are 0 (`Traits.sparse`), it is
packed whenever that is shorter. So the length of a row shows its layout, and its content decides
the layout. A row in the fixed layout can always be read; it is packed when it changes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....mechanisms.columns import I64, Part, Rows
from ....mechanisms.contract import Traits
from ....mechanisms.keys import Keys, concat
from ....topics.records import Trigger
from ...deployment.model import Pipeline
from ...state.layout import after, due_at, key_of, key_row, rows_of
from ...state.rows.sparse import pack, unpack
from ...state.store import Changes, KeyLimit, StateReader, scan_prefix
from ..step import Step, route


class KeyRows:
    """Rows of one mechanism as bytes: due trigger, then the state."""

    def __init__(self, traits: Traits) -> None:
        self._fresh, self._sparse = traits.rows, traits.sparse
        self._layout = key_row(traits.row_dtype)

    def load(
        self,
        reader: StateReader,
        window: int,
        keys: Keys,
        first: bool = False,
        names: list[bytes] | None = None,
    ) -> Rows:
        """Read k rows; rows that are not stored are fresh, with nothing due.

        Args:
            keys: k of them, in canonical order.
            first: whether this is the first release of the window, before which no rows are stored:
                a single look then replaces one for each key.
            names: names of their rows (`named`), if they are known.
        """
        prefix, rows = rows_of(window), self._fresh(keys)
        if len(keys) == 0 or (first and _none_between(reader, prefix, keys)):
            return rows
        stored = reader.get_many(names or named(window, keys))
        known = np.flatnonzero(np.fromiter([v is not None for v in stored], bool, len(stored)))
        if not len(known):
            return rows
        state, due = rows.state.copy(), rows.due.copy()
        self._read([v for v in stored if v is not None], known, state, due)
        return Rows(rows.key, state, due)

    def store(self, window: int, rows: Rows, step: Step, names: list[bytes] | None = None) -> None:
        """Put rows and their index entries into a step.

        Args:
            step: step that receives the rows and, as local changes, the entries.
            names: names of the rows (`named`), if they are known.
        """
        if len(rows.key) == 0:
            return
        names = names or named(window, rows.key)
        # A row that equals a fresh one is deleted, since `load` makes a fresh row where none is
        # stored.
        values = self._packed(rows) if self._sparse else self._fixed(rows)
        step.rows.update(zip(names, values, strict=True))
        for place in np.flatnonzero(rows.due != 0).tolist():
            if values[place] is not None:
                step.local[due_at(window, int(rows.due[place])) + key_of(names[place])] = b""

    def _fixed(self, rows: Rows) -> list[bytes | None]:
        laid, fresh = self._laid(rows), self._laid(self._fresh(rows.key))
        values: list[bytes | None] = laid.view(f"V{laid.shape[1]}")[:, 0].tolist()
        for place in np.flatnonzero((laid == fresh).all(axis=1)).tolist():
            values[place] = None
        return values

    def _packed(self, rows: Rows) -> list[bytes | None]:
        fresh = self._fresh(rows.key[:1])
        (none,) = pack(fresh.due, _numbers(fresh.state)).tolist()
        column = pack(rows.due, _numbers(rows.state))
        values = [None if value == none else value for value in column.tolist()]
        for place in np.flatnonzero(np.diff(column.offsets) >= self._layout.itemsize).tolist():
            one = slice(place, place + 1)
            alone = Rows(rows.key[one], rows.state[one], rows.due[one])
            values[place] = self._laid(alone).tobytes()
        return values

    def _laid(self, rows: Rows) -> NDArray[np.uint8]:
        """Rows (r, bytes) in the fixed layout."""
        laid = np.zeros(len(rows.key), self._layout)
        laid["due"], laid["state"] = rows.due, rows.state
        return laid.view(np.uint8).reshape(len(laid), self._layout.itemsize)

    def _read(
        self,
        values: Sequence[bytes],
        known: NDArray[np.intp],
        state: NDArray[Any],
        due: NDArray[np.int32],
    ) -> None:
        """Put stored rows into the places ``known`` of states and due triggers."""
        if self._sparse:
            fixed = np.array([len(value) == self._layout.itemsize for value in values])
            packed, width = known[~fixed], _numbers(state[:1]).shape[1]
            due[packed], numbers = unpack(Keys.of(compress(values, ~fixed)), width)
            _put_numbers(state, packed, numbers)
            values, known = list(compress(values, fixed)), known[fixed]
        laid = np.frombuffer(b"".join(values), self._layout)
        state[known], due[known] = laid["state"], laid["due"]


def _numbers(state: NDArray[Any]) -> I64:
    """All numbers (r, w) of r states, field by field."""
    fields = [state[name].reshape(len(state), -1) for name in state.dtype.names or ()]
    return np.concatenate(fields, axis=1, dtype=np.int64)


def _put_numbers(state: NDArray[Any], rows: NDArray[np.intp], numbers: I64) -> None:
    """Write numbers, as `_numbers` lists them, into some of the states."""
    begin = 0
    for name in state.dtype.names or ():
        shape = state[name].shape[1:]
        end = begin + math.prod(shape)
        state[name][rows] = numbers[:, begin:end].reshape(len(rows), *shape)
        begin = end


def named(window: int, keys: Keys) -> list[bytes]:
    """Names of the rows of k keys."""
    prefix = rows_of(window)
    return [prefix + key for key in keys]


def _none_between(reader: StateReader, prefix: bytes, keys: Keys) -> bool:
    """Whether nothing is stored between the first and the last of these sorted keys."""
    return next(reader.scan(prefix + keys[0], prefix + keys[-1] + b"\0"), None) is None


def stored_keys(reader: StateReader, window: int, begun: bytes | None) -> Iterator[bytes]:
    """Yield keys above ``begun`` (None: all) with a row, in canonical order."""
    prefix = rows_of(window)
    start = prefix if begun is None else prefix + begun + b"\0"
    return (key_of(row) for row, _ in reader.scan(start, after(prefix)))


def due_keys(reader: StateReader, window: int, due: int, begun: bytes | None) -> Iterator[bytes]:
    """Yield keys in the index of a trigger, in canonical order.

    The index is a hint: the row of such a key may have become due at another trigger.

    Args:
        due: index of the trigger; -1 stands for every trigger.
        begun: a key; only those above it. None: all.
    """
    prefix = due_at(window, due)
    start = prefix if begun is None else prefix + begun + b"\0"
    return (key[len(prefix) :] for key, _ in reader.scan(start, after(prefix)))


def due_entries(window: int, due: int, keys: Sequence[bytes]) -> Changes:
    """Delete the index entries of ``keys`` at trigger ``due``, which has passed."""
    prefix = due_at(window, due)
    return {prefix + key: None for key in keys}


class DueKeys:
    """Chooses the rows that a release reads at one aggregate shard.

    Args:
        partition: cells partition, which decides the public keys that belong here.
    """

    def __init__(self, pipeline: Pipeline, partition: int) -> None:
        self._pipeline = pipeline
        self._partition = partition
        self._all = pipeline.traits.load == "all"
        self._carries = pipeline.traits.carries

    def keys(
        self, reader: StateReader, trigger: Trigger, part: Part, most: KeyLimit, every: bool
    ) -> Keys | None:
        """Choose all keys that the release reads, in canonical order; None if too many are due.

        Args:
            part: merged sums of the micro-batch; their keys are always read.
            most: most due keys that one step may read.
            every: whether every stored row is due.
        """
        if self._all:
            stored = scan_prefix(reader, rows_of(trigger.window))
            wanted = {key_of(row) for row, _ in stored}
        else:
            due = self.due(reader, trigger, None, most, every)
            if most.end(due) is not None:
                return None
            wanted = set(due)
        wanted.update(self.seeds(trigger, None))
        return united(part, wanted)

    def due(
        self,
        reader: StateReader,
        trigger: Trigger,
        begun: bytes | None,
        most: KeyLimit,
        every: bool,
    ) -> list[bytes]:
        """List keys above ``begun`` that are due, in canonical order.

        The result exceeds ``most`` exactly if more keys are due.

        Args:
            begun: key to continue after; None: begin with the first one.
            most: keys that the caller wants.
        """
        if self._carries:  # every row of the previous window, which has one trigger
            return most.first(stored_keys(reader, trigger.window - 1, begun))
        if every:
            return most.first(stored_keys(reader, trigger.window, begun))
        always = most.first(due_keys(reader, trigger.window, -1, begun))
        now = most.first(due_keys(reader, trigger.window, trigger.index, begun))
        return sorted({*always, *now})

    def seeds(self, trigger: Trigger, begun: bytes | None) -> list[bytes]:
        """List public keys of this shard that have no row yet, in canonical order.

        Args:
            trigger: the trigger; the list is empty unless it is its window's first.
            begun: a key; only those above it. None: all.
        """
        if trigger.index != 1 or self._pipeline.public_keys is None:
            return []
        keys = Keys.of(sorted(self._pipeline.public_keys))
        home = route(keys, self._pipeline.cells_partitions)
        mine = keys.take(np.flatnonzero(home == self._partition))
        return [k for k in mine if begun is None or k > begun]

    def live(self, trigger: Trigger, rows: Rows, part: Part) -> Rows:
        """Drop rows found through stale index entries.

        Args:
            part: sums of the micro-batch; a key that it holds is read in any case.
        """
        if self._all or self._carries:
            return rows
        # The index is a hint, so check it against the row itself: the mechanism would release a
        # stale row before its time.
        unsure = np.flatnonzero(~np.isin(rows.due, (-1, trigger.index)))
        if len(unsure) == 0 or _all_touched(rows.key, part):
            return rows
        touched = set(part.key.tolist())
        stale = [key not in touched for key in rows.key.take(unsure).tolist()]
        keep = np.ones(len(rows.due), np.bool_)
        keep[unsure[stale]] = False
        return Rows(rows.key[keep], rows.state[keep], rows.due[keep])

    def seeded(self, trigger: Trigger, rows: Rows) -> tuple[Rows, Rows]:
        """Make public keys due at every trigger; return all rows, and the rows of public keys."""
        seeds = set(() if self._carries else self.seeds(trigger, None))
        if not seeds:
            none = np.zeros(0, np.intp)
            return rows, Rows(rows.key.take(none), rows.state[none], rows.due[none])
        public = np.fromiter((k in seeds for k in rows.key), bool, len(rows.key))
        rows = rows._replace(due=np.where(public, -1, rows.due).astype(np.int32))
        mine = np.flatnonzero(public)
        return rows, Rows(rows.key.take(mine), rows.state[mine], rows.due[mine])


def united(part: Part, further: Collection[bytes]) -> Keys:
    """Put keys of partial sums and further keys together, in canonical order.

    Args:
        part: merged sums, whose keys are in that order.
        further: further keys in any order, with or without repeats.
    """
    if not further and not part.lane.any():
        return part.key  # with one lane, each key occurs once
    return concat([part.key, Keys.of(further)]).unique()[0]


def _all_touched(keys: Keys, part: Part) -> bool:
    """Whether merged sums of one lane cover all rows."""
    return len(part.key) == len(keys) and not part.lane.any()
