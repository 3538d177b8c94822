"""Applies each unit's contribution bound, and sends exact partial sums by key."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ....mechanisms.columns import Batch, Part, merge
from ....mechanisms.keys import Keys
from ....mechanisms.pairs import homes, split
from ....topics.frames import Barrier, EventSlice, encode_barrier, encode_cells, split_part
from ....topics.names import Names
from ....topics.records import Trigger
from ...deployment.model import Pipeline
from ...state.layout import below, bound_total, sessions_of, sortable, totals_of, units_of
from ...state.rows.columns import RowColumns
from ...state.store import Changes, Overlay, StateReader
from ..feedback import Statuses
from ..step import Out, Step, route
from .codec import UnitCodec, distinct
from .purses import Opened, PurseCodec


class Bounder:
    """Applies the bound of one pipeline at one shard; pure given its reader and statuses.

    Args:
        names: names of the topics that partial sums go to.
        origin: number of this shard among the senders of its cells topic.
        statuses: public statuses of keys, for mechanisms that adapt to them.
    """

    def __init__(
        self, pipeline: Pipeline, names: Names, origin: int, statuses: Statuses | None
    ) -> None:
        self.pipeline = pipeline
        self._names = names
        self._origin = origin
        self._statuses = statuses
        self._codec = UnitCodec(pipeline.traits)
        self._cap = None if pipeline.lifetime is None else pipeline.lifetime.cap
        self._purses = None if self._cap is None else PurseCodec(self._cap)
        self._prefix = units_of(pipeline.number)
        self._cells = names.cells(pipeline.name)

    def absorb(
        self,
        reader: StateReader,
        events: Iterable[EventSlice],
        step: Step,
        floor: int | None = None,
    ) -> None:
        """Bound a run of slices, in log order.

        Args:
            step: step that receives changed unit rows, counts, and frames of partial sums, merged
                over all slices of a micro-batch.
            floor: window below which all windows are over; None: unknown.
        """
        sums: dict[tuple[int, int], list[Part]] = {}
        for one in events:
            part = self._absorb(reader, one, step, floor)
            sums.setdefault((one.window, one.batch), []).append(part)
            step.counts[self.pipeline.name, "seen"] += len(one.unit)
            if self.pipeline.traits.counting:
                step.counts[self.pipeline.name, "accepted"] += int(part.sums[:, 0].sum())
        for (window, batch), parts in sums.items():
            self._send(window, batch, parts[0] if len(parts) == 1 else merge(parts), step)

    def _absorb(self, reader: StateReader, one: EventSlice, step: Step, floor: int | None) -> Part:
        epoch = self.pipeline.windows.epoch(one.window)
        keys, unit = distinct(one.unit, self._prefix + sortable(self._row_of(epoch)))
        # Read through this step's changes: an earlier slice may have used up a part of the bound.
        rows = step.units.read(reader, keys)
        batch = Batch(
            one.keys,
            one.key,
            unit,
            one.value,
            one.sign,
            self._status(one),
            self.pipeline.windows.ordinal(one.window),
        )
        if self._cap is None:
            units, part = self.pipeline.mechanism.absorb(self._codec.decode(rows), batch)
            rows = self._codec.encode(units)
        else:
            rows, part = self._capped(rows, batch, epoch, floor)
        step.units.put(RowColumns(keys, rows))
        if self.pipeline.traits.totals:
            self._count(reader, one, part, step.rows)
        return part

    def _row_of(self, epoch: int) -> int:
        """Number under which rows of an epoch are kept: the epoch, or its period under a cap."""
        return epoch if self._cap is None else self._cap.period(epoch)

    def purse_of(self, window: int) -> int:
        """First window of the period of ``window``; 0 if the cap never renews."""
        assert self._cap is not None
        epochs = self._cap.epochs
        if epochs is None:
            return 0
        first = self._cap.period(self.pipeline.windows.epoch(window)) * epochs
        return first * self.pipeline.windows.per_epoch

    def _capped(self, rows: Keys, batch: Batch, epoch: int, floor: int | None) -> tuple[Keys, Part]:
        """Bound capped units; return new rows, and what was accepted and is paid for."""
        assert self._cap is not None and self._purses is not None
        over = None if floor is None else self.pipeline.windows.epoch(floor)
        opened = self._purses.take(rows, epoch, over)
        units = self._codec.decode(opened.mine)
        done = self._cap.absorb(self.pipeline.mechanism, opened.purse, units, batch)
        opened = Opened(done.purse, self._codec.encode(done.units), opened.others)
        return self._purses.put(opened, epoch, self._codec.blank), done.part

    def _status(self, one: EventSlice) -> NDArray[np.int32]:
        if not self.pipeline.traits.feedback or self._statuses is None:
            return np.zeros(len(one.keys), np.int32)
        as_of = one.batch - 1 - self.pipeline.delay
        if not self.pipeline.traits.pairs:
            return self._statuses(self.pipeline.name, one.window, one.keys, as_of)
        parts = split(one.keys)
        status = self._statuses(self.pipeline.name, one.window, parts.keys, as_of)
        return np.asarray(status[parts.key])

    def _count(self, reader: StateReader, one: EventSlice, part: Part, changes: Changes) -> None:
        row = bound_total(self.pipeline.number, one.window, one.batch)
        (stored,) = Overlay(reader, changes).get_many([row])
        before = np.frombuffer(stored, np.int64) if stored else np.zeros_like(part.totals)
        changes[row] = (before + part.totals).tobytes()

    def _send(self, window: int, batch: int, part: Part, step: Step) -> None:
        part = part._replace(totals=np.zeros_like(part.totals))  # the barrier carries them
        keys = homes(part) if self.pipeline.traits.pairs else part.key
        home = route(keys, self.pipeline.cells_partitions)
        for partition, mine in split_part(part, home):
            for frame in encode_cells(self._origin, window, batch, mine):
                step.out.append(Out(self._cells, partition, None, frame))

    def barrier(self, reader: StateReader, trigger: Trigger, step: Step) -> None:
        """Tell every aggregate shard that a micro-batch is complete here.

        Args:
            trigger: trigger that ends the micro-batch.
            step: step that receives a barrier for each cells partition, with this shard's totals.
        """
        totals = np.zeros(self.pipeline.traits.totals, np.int64)
        row = bound_total(self.pipeline.number, trigger.window, trigger.index)
        (stored,) = Overlay(reader, step.rows).get_many([row])
        if stored:
            totals = np.frombuffer(stored, np.int64)
            step.rows[row] = None
        frame = encode_barrier(Barrier(self._origin, trigger, totals))
        for partition in range(self.pipeline.cells_partitions):
            step.out.append(Out(self._cells, partition, None, frame))

    def forget(self, reader: StateReader, floor: int, step: Step, limit: int) -> bool:
        """Delete unit rows of epochs, or periods of a cap, that are over; return whether any were.

        Args:
            floor: window below which all windows are over.
            step: step that receives the deletions; its ``more`` is set if rows may be left.
            limit: most rows to delete.
        """
        number = self.pipeline.number
        ranges = [
            below(units_of(number), self._row_of(self.pipeline.windows.epoch(floor))),
            below(totals_of(number), floor),  # left by refused windows
            below(sessions_of(number), self.pipeline.windows.epoch(floor)),  # likewise
        ]
        found = 0
        for begin, end in ranges:
            for key, _ in islice(reader.scan(begin, end), limit - found):
                step.rows.setdefault(key, None)
                found += 1
        step.more = step.more or found == limit
        return found > 0
