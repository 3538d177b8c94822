"""Cuts raw records into slices of micro-batches by the clock log, or bounds them directly.

A record may be used once a clock entry has passed it. The first such entry decides the record's
micro-batch, and its time decides what is in the far future. The wall clock of this process decides
nothing, so the same two logs always give the same slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....errors import EngineError
from ....formats.events.decode import Decoded, View
from ....formats.events.raw import RawRecord, offsets_of
from ....formats.events.reasons import Bad
from ....formats.schemas.schema import Known
from ....mechanisms.columns import I64, compact
from ....mechanisms.noise import derive
from ....topics.frames import Barrier, EventSlice, encode_barrier, encode_events
from ....topics.names import Names
from ....topics.records import ClockRecord, Marker, Retired, Skipped, Start, Trigger
from ...clock.timeline import Timeline, advance
from ...deployment.model import Input, Pipeline
from ...state.store import StateReader
from ..bound.bounder import Bounder
from ..expiry import Expiry
from ..feedback import lookup
from ..step import Out, Step, route_units
from .attributes import UnitAttributes
from .beside import Beside
from .dead_letters import dead_letters, late_records
from .unit_digests import UnitDigests
from .windowing import by_window, placed

Entry = tuple[int, ClockRecord]  # (place in the clock log, record)


class Segment(NamedTuple):
    """Records [low, high) of a list, and the clock record that is handled after them.

    Attributes:
        low, high: positions in the list, not offsets.
        then: record that changes a timeline; None if the list ends first.
        stated: offset of the attribute topic below which its records are applied first.
    """

    low: int
    high: int
    then: ClockRecord | None
    stated: int = 0


class Slicer:
    """Cuts one raw partition into slices of windows and micro-batches by the clock log.

    Its only state: the marker, unit rows of direct pipelines, and attributes of units.

    Args:
        source: input; each record is decoded once for all of its pipelines.
        unit_key: 32 secret bytes, for digests of units.
        beside: other sources; its statuses are for direct pipelines that adapt to them.

    Attributes:
        attributes: attributes of units; None: the input has none.
    """

    def __init__(
        self,
        source: Input,
        partition: int,
        names: Names,
        unit_key: bytes,
        beside: Beside,
    ) -> None:
        self.source = source
        self.partition = partition
        self._names = names
        # A separate key, so that readers of dead letters cannot match them with digests of units.
        self._dead_key = derive(unit_key, "dead letters")
        self._decoder = source.decoder
        statuses = lookup(beside.feedback)
        self._bounds = {
            p.name: Bounder(p, names, partition, statuses) for p in source.pipelines if p.direct
        }
        self._expiry = {name: Expiry(bound.forget) for name, bound in self._bounds.items()}
        self._units = UnitDigests(unit_key, source.partitioner, source.partitions, partition)
        self.attributes: UnitAttributes | None = None
        if source.attributes is not None:
            logs = beside.stated, beside.schemas
            self.attributes = UnitAttributes(source.attributes, partition, self._units, *logs)

    def step(
        self,
        reader: StateReader,
        marker: Marker,
        timelines: dict[str, Timeline],
        records: Sequence[RawRecord],
        fetched: int,
        entries: Sequence[Entry],
        known: Known | None = None,
    ) -> Step:
        """Use the records and clock entries that the clock allows.

        Args:
            timelines: timelines at ``marker.clock``; advanced in place with the entries handled.
            records: records from ``marker.applied`` on, in order.
            fetched: offset before which ``records`` is complete.
            entries: clock log from ``marker.clock`` on.
            known: schemas by id, for values that carry one.

        Raises:
            EngineError: the clock log names another configuration, or the input is configured to
                stop at a bad record.
        """
        segments, times, applied, clock = self._plan(marker, records, fetched, entries)
        used = segments[-1].high if segments else 0
        last = max((getattr(e, "time", 0) for place, e in entries if place < clock), default=0)
        step = Step(Marker(marker.genesis, applied, clock, marker.upstream, marker.closed))
        step.watermark = {p.name: last for p in self.source.pipelines} if last else {}
        # Decoding costs more than all the rest. So a record is parsed once for all pipelines, and
        # only after the clock has passed it; earlier, it would be parsed again at every attempt.
        decoded = self._decoder.decode(records[:used], known) if used else None
        if decoded is not None:
            digests, stray = self._units.look(decoded.unit)
            decoded = self._reject(records, decoded, stray, step)
        for segment in segments:
            self.state(reader, segment.stated, step)
            if decoded is not None and segment.high > segment.low:
                self._use(reader, timelines, records, decoded, digests, times, segment, step)
            if segment.then is not None:
                self._handle(reader, timelines, segment.then, step)
        return step

    def _plan(
        self, marker: Marker, records: Sequence[RawRecord], fetched: int, entries: Sequence[Entry]
    ) -> tuple[list[Segment], I64, int, int]:
        """Cut the list at clock records that change a timeline; beats only advance the time."""
        offsets = offsets_of(records)
        times = np.zeros(len(records), np.int64)
        segments: list[Segment] = []
        low, row, applied, clock, stated = 0, 0, marker.applied, marker.clock, 0
        mine = {p.name for p in self.source.pipelines}
        for place, record in entries:
            if self.attributes is not None and self.attributes.covered(record) > stated:
                if row > low:
                    segments.append(Segment(low, row, None, stated))
                low, stated = row, self.attributes.covered(record)
            allowed = self._allowed(record, applied)
            take = min(allowed, fetched)
            end = int(np.searchsorted(offsets, take))
            times[row:end] = getattr(record, "time", 0)
            row, applied = end, max(applied, take)
            if allowed > fetched:
                # Some records that this entry covers have not come yet. They belong to the same
                # micro-batch, so handle the entry only after the last of them.
                break
            clock = place + 1
            if getattr(record, "pipeline", None) in mine:
                segments.append(Segment(low, row, record, stated))
                low = row
        if row > low or stated:
            segments.append(Segment(low, row, None, stated))
        return segments, times, applied, clock

    def _allowed(self, record: ClockRecord, applied: int) -> int:
        if isinstance(record, Start | Skipped | Retired):
            return applied  # it has no offsets: it stands between two beats
        ends = record.offsets.get(self.source.topic)
        if ends is None or self.partition >= len(ends):
            return applied  # written before this partition was added
        return ends[self.partition]

    def _handle(
        self, reader: StateReader, timelines: dict[str, Timeline], record: ClockRecord, step: Step
    ) -> None:
        advance(timelines, record)
        if isinstance(record, Skipped | Retired) or (isinstance(record, Trigger) and record.final):
            name = record.pipeline
            if name in self._expiry:
                self._expiry[name].advance(timelines[name].over)
        if isinstance(record, Trigger):
            self._barrier(reader, record, step)

    def _barrier(self, reader: StateReader, record: Trigger, step: Step) -> None:
        """Tell the next stage that a micro-batch is complete."""
        pipeline = next(p for p in self.source.pipelines if p.name == record.pipeline)
        if pipeline.config_hash != record.config_hash:
            raise EngineError(
                f"pipeline {pipeline.name!r}: the clock charged another configuration; "
                "run the configuration that the ledger holds"
            )
        if self.partition >= len(record.offsets.get(self.source.topic, [0] * (self.partition + 1))):
            return  # the next stage does not wait for a partition that was added later
        if pipeline.direct:
            self._bounds[pipeline.name].barrier(reader, record, step)
            return
        frame = encode_barrier(Barrier(self.partition, record, np.zeros(0, np.int64)))
        topic = self._names.units(pipeline.name)
        # Send it to every partition, also to those without records: otherwise no shard could tell
        # an empty micro-batch from one in transit.
        step.out += [Out(topic, q, None, frame) for q in range(pipeline.units_partitions)]

    def state(self, reader: StateReader, end: int | None, step: Step) -> None:
        """Apply attributes below an offset; None: all usable ones."""
        if self.attributes is None:
            return
        records, bad = self.attributes.apply(reader, end, step)
        for pipeline in self.source.pipelines if bad else ():
            if pipeline.attributed is not None:
                place = self.attributes.topic, self.partition
                dead_letters(pipeline, place, records, bad, step, self._dead_key)

    def reopen(self) -> None:
        """Forget which epochs are over, until the clock log is consulted again."""
        if self.attributes is not None:
            self.attributes.reopen()
        for expiry in self._expiry.values():
            expiry.reopen()

    def sweep(self, reader: StateReader, step: Step) -> None:
        """Add deletions of some unit rows of past epochs to ``step``."""
        for expiry in self._expiry.values():
            expiry.sweep(reader, step)

    def _use(
        self,
        reader: StateReader,
        timelines: dict[str, Timeline],
        records: Sequence[RawRecord],
        decoded: Decoded,
        digests: NDArray[np.uint8],
        times: I64,
        segment: Segment,
        step: Step,
    ) -> None:
        for pipeline, view in zip(self.source.pipelines, decoded.views, strict=True):
            low, high = np.searchsorted(view.rows, (segment.low, segment.high))
            if low == high:
                continue
            rows = np.arange(low, high)
            if pipeline.attributed is not None:
                view = self._completed(reader, pipeline, view, rows, records, digests, step)
                rows = np.arange(len(view.rows))
            slices, late, future = self._slices(
                pipeline, timelines[pipeline.name], view, rows, decoded.time, times, digests, step
            )
            self._leave(pipeline, records, late, future, step)
            if pipeline.direct:
                floor = self._expiry[pipeline.name].floor
                self._bounds[pipeline.name].absorb(reader, slices, step, floor)
            else:
                self._forward(pipeline, slices, step)

    def _completed(
        self, reader: StateReader, pipeline: Pipeline, view: View, rows: NDArray[np.intp],
        records: Sequence[RawRecord], digests: NDArray[np.uint8], step: Step,
    ) -> View:  # fmt: skip
        """Complete the keys of some rows of a view with the attributes of their units."""
        assert self.attributes is not None and pipeline.attributed is not None
        some = _some(view, rows)._replace(bad={})
        given, mine = pipeline.attributed, digests[some.rows]
        made = self.attributes.complete(reader, given, some, mine, step)
        if made.bad:
            place = (self.source.topic, self.partition)
            dead_letters(pipeline, place, records, made.bad, step, self._dead_key)
        return made

    def _slices(
        self,
        pipeline: Pipeline,
        timeline: Timeline,
        view: View,
        rows: NDArray[np.intp],
        time: I64,
        beat: I64,
        digests: NDArray[np.uint8],
        step: Step,
    ) -> tuple[list[EventSlice], NDArray[np.intp], NDArray[np.intp]]:
        """Group the view's rows by window; also return the rows of late and far-future records.

        Records beyond the end of a retired pipeline are only counted: this pipeline does not serve
        their time, so they are neither late nor kept anywhere.
        """
        at = view.rows[rows]
        windows, future = placed(pipeline, timeline, time[at], beat[at])
        late, beyond = np.zeros(len(at), bool), np.zeros(len(at), bool)
        slices = []
        for here in by_window(pipeline, windows, digests[at], ~future):
            window = int(windows[here[0]])
            batch = timeline.batch(window)
            if batch == 0:
                # The window is over: its last release is out, or the clock has refused it. So the
                # record is late; counting it in another window would falsify that one. Beyond the
                # end of a retired pipeline it is no loss, since another pipeline serves that time.
                (beyond if timeline.retired(window) else late)[here] = True
                continue
            used, key = compact(view.key[rows[here]], len(view.keys))
            # Values of a session are computed from the times of its records.
            sessions = pipeline.sessions is not None
            value = time[at[here]][:, None] if sessions else view.value[rows[here]]
            slices.append(
                EventSlice(
                    window,
                    batch,
                    digests[at[here]],
                    view.keys.take(used) if len(used) < len(view.keys) else view.keys,
                    key,
                    value,
                    view.sign[rows[here]],
                )
            )
        step.counts[pipeline.name, "retired"] += int(beyond.sum())
        return slices, at[late], at[future]

    def _forward(self, pipeline: Pipeline, slices: list[EventSlice], step: Step) -> None:
        topic = self._names.units(pipeline.name)
        for one in slices:
            step.counts[pipeline.name, "routed"] += len(one.unit)
            home = route_units(one.unit, pipeline.units_partitions)
            for partition, mine in one.split(home):
                for frame in encode_events(self.partition, mine):
                    step.out.append(Out(topic, partition, None, frame))

    def _reject(
        self, records: Sequence[RawRecord], decoded: Decoded, stray: NDArray[np.bool_], step: Step
    ) -> Decoded:
        rows = np.flatnonzero(stray).tolist()
        # The bound of a direct pipeline is kept on the partition to which the partitioner assigns
        # the unit. On another partition a record would meet a fresh bound, so it is refused.
        wrong = {row: "wrong_partition" for row in rows if row not in decoded.bad}
        for pipeline, view in zip(self.source.pipelines, decoded.views, strict=True):
            bad = decoded.bad | view.bad | wrong
            if bad:
                place = (self.source.topic, self.partition)
                dead_letters(pipeline, place, records, bad, step, self._dead_key)
        return _without(decoded, wrong) if wrong else decoded

    def _leave(
        self,
        pipeline: Pipeline,
        records: Sequence[RawRecord],
        late: NDArray[np.intp],
        future: NDArray[np.intp],
        step: Step,
    ) -> None:
        for rows, outcome in ((late, "late"), (future, "future")):
            step.counts[pipeline.name, outcome] += len(rows)
            if pipeline.late_topic and len(rows):
                place = (self.source.topic, self.partition)
                kept = [records[r] for r in rows]
                late_records(pipeline, place, kept, outcome, step, self._dead_key)


def _without(decoded: Decoded, wrong: Bad) -> Decoded:
    """Leave out some rows."""
    wanted = (np.flatnonzero(~np.isin(view.rows, list(wrong))) for view in decoded.views)
    views = tuple(map(_some, decoded.views, wanted))
    return decoded._replace(views=views)


def _some(view: View, rows: NDArray[np.intp]) -> View:
    columns = {name: getattr(view, name)[rows] for name in ("rows", "key", "value", "sign")}
    return view._replace(**columns)
