"""The choice of key rows for a release: touched keys, those that are due, public ones at first."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ....mechanisms.columns import Part, Rows
from ....mechanisms.keys import Keys
from ....topics.records import Trigger
from ...deployment.model import Pipeline
from ...state.layout import key_of, rows_of
from ...state.store import KeyLimit, StateReader, scan_prefix
from ..routing import route
from .key_rows import due_keys, stored_keys


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
            part: sums of the micro-batch, merged; their keys are read in any case.
            most: due keys that one step may read.
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

        The result is beyond ``most`` exactly if more keys than that are due.

        Args:
            begun: key to continue after; None: begin with the first one.
            most: keys that the caller wants.
        """
        if self._carries:  # every row of the window before, which has one trigger
            return most.first(stored_keys(reader, trigger.window - 1, begun))
        if every:
            return most.first(stored_keys(reader, trigger.window, begun))
        always = most.first(due_keys(reader, trigger.window, -1, begun))
        now = most.first(due_keys(reader, trigger.window, trigger.index, begun))
        return sorted({*always, *now})

    def seeds(self, trigger: Trigger, begun: bytes | None) -> list[bytes]:
        """List public keys of this shard that have no row yet, in canonical order.

        Args:
            trigger: number of the trigger; the list is empty except at a window's first one.
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
        # The mechanism would release such a row before its time, so a hint is checked against the
        # row itself.
        unsure = np.flatnonzero(~np.isin(rows.due, (-1, trigger.index)))
        if len(unsure) == 0 or _all_touched(rows.key, part):
            return rows
        touched = set(part.key.tolist())
        stale = [key not in touched for key in rows.key.take(unsure).tolist()]
        keep = np.ones(len(rows.due), np.bool_)
        keep[unsure[stale]] = False
        return Rows(rows.key[keep], rows.cell[keep], rows.due[keep])

    def seeded(self, trigger: Trigger, rows: Rows) -> tuple[Rows, Rows]:
        """Make public keys due at every trigger; return all rows, and those of public keys."""
        seeds = set(() if self._carries else self.seeds(trigger, None))
        if not seeds:
            none = np.zeros(0, np.intp)
            return rows, Rows(rows.key.take(none), rows.cell[none], rows.due[none])
        public = np.fromiter((k in seeds for k in rows.key), bool, len(rows.key))
        rows = rows._replace(due=np.where(public, -1, rows.due).astype(np.int32))
        mine = np.flatnonzero(public)
        return rows, Rows(rows.key.take(mine), rows.cell[mine], rows.due[mine])


def united(part: Part, further: Collection[bytes]) -> Keys:
    """Put keys of partial sums and further keys together, in canonical order.

    Args:
        part: merged, so that it is in that order.
        further: any keys, in any order; each may be there several times.
    """
    if not further and not part.lane.any():
        return part.key  # of one lane: each key is there once
    return Keys.of(sorted({*further, *part.key.tolist()}))


def _all_touched(keys: Keys, part: Part) -> bool:
    """Whether merged sums of one lane are of as many keys as rows, among which they are."""
    return len(part.key) == len(keys) and not part.lane.any()
