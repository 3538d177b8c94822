"""Cut windows of any length, with keys of any coarseness, from the records of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..mechanisms.columns import I64
from ..mechanisms.workload import Sample, Workload
from ..topics.config.pipelines.schedule import Schedule
from ..topics.config.toml.values import format_duration
from .records import Records

MINUTE = 60_000_000  # microseconds
_WHOLE = 0.8  # of a window's length that its records must span


class Cut(NamedTuple):
    """The whole windows of a file, or all windows if none is whole."""

    numbers: tuple[int, ...]  # of the windows
    rows: tuple[tuple[int, int], ...]  # first and end of each in the records
    whole: bool  # whether the file covers them in full
    left_out: int  # number of windows covered only in part

    @property
    def records(self) -> int:
        """Records of all windows."""
        return sum(b - a for a, b in self.rows)

    def units(self, unit: NDArray[np.int32]) -> int:
        """Units of each window, added up; ``unit`` holds the (n,) unit of each record."""
        return sum(len(np.unique(unit[a:b])) for a, b in self.rows)


class SampleRoom(NamedTuple):
    """Limits on the windows of a sample."""

    records: int  # most records
    work: int = 0  # most work of one run, in records; 0: no limit
    each: int = 0  # work of a window in addition to its records

    def share(self, found: Cut) -> float:
        """Share of the windows within the limits."""
        records = max(found.records, 1)
        least = self.records / records
        if self.work:
            least = min(least, self.work / (records + self.each * len(found.rows)))
        return least


def cut(records: Records, schedule: Schedule) -> Cut:
    """The windows of a file; a file without times is one window."""
    n = len(records.time)
    if not records.timed:
        return Cut((0,), ((0, n),), True, 0)
    number = schedule.windows(records.time)
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), n]
    found = list(pairwise(edges))
    spans = [int(records.time[b - 1] - records.time[a]) for a, b in found]
    whole = [one for one, s in zip(found, spans, strict=True) if s >= _WHOLE * schedule.length]
    if not any(spans) and n > len(found):
        whole = found  # all records of a window have one time: that of a day, or a slot
    kept = _between(found, whole) if whole else found
    numbers = tuple(int(number[a]) for a, _ in kept)
    return Cut(numbers, tuple(kept), bool(whole), len(found) - len(kept))


def _between(found: list[tuple[int, int]], whole: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Windows from the first to the last whole one, including sparse ones in between."""
    return found[found.index(whole[0]) : found.index(whole[-1]) + 1]


def sample(
    records: Records,
    schedule: Schedule,
    found: Cut,
    room: SampleRoom,
    key: NDArray[np.int32] | None = None,
    keys: int | None = None,
) -> Sample:
    """The windows as workloads, whole epochs spread evenly over the file.

    Args:
        room: limits; one epoch is taken whatever its size.
        key: (n,) number of each record's key, if different from the file's.
        keys: number of keys.
    """
    groups = [
        list(group) for _, group in groupby(
            zip(found.numbers, found.rows, strict=True), key=lambda one: schedule.epoch(one[0])
        )
    ]  # fmt: skip
    chosen = _spread(groups, room.share(found))
    number = records.key if key is None else key
    size = len(records.keys) if keys is None else keys
    epochs = tuple(tuple(_workloads(records, schedule, one, number, size)) for one in chosen)
    rows = [slice(a, b) for one in chosen for _, (a, b) in one]
    used = np.concatenate([records.unit[one] for one in rows])
    met = np.concatenate([number[one] for one in rows])
    return Sample(
        epochs, len(np.unique(used)), len(np.unique(met)), len(used),
        tuple(_notes(records, schedule, found, len(rows), len(used))),
    )  # fmt: skip


Group = list[tuple[int, tuple[int, int]]]


def _spread(groups: Sequence[Group], share: float) -> list[Group]:
    """Evenly spaced epochs, as many as fit."""
    count = max(1, min(len(groups), int(len(groups) * share)))
    places = np.unique(np.linspace(0, len(groups) - 1, count).round().astype(int))
    return [groups[i] for i in places.tolist()]


def _workloads(
    records: Records, schedule: Schedule, group: Group, key: NDArray[np.int32], keys: int
) -> Iterator[Workload]:
    begin, end = group[0][1][0], group[-1][1][1]
    ids, unit = np.unique(records.unit[begin:end], return_inverse=True)
    for number, (a, b) in group:
        rows = slice(a, b)
        ends = None
        if records.timed:
            times: I64 = np.array(schedule.times(number))
            ends = tuple(np.searchsorted(records.time[rows], times, side="right").tolist())
        yield Workload(
            unit[a - begin : b - begin].astype(np.int32), key[rows], len(ids), keys,
            records.value[rows] if records.value.shape[1] else None, records.sign[rows], ends,
            schedule.ordinal(number), {n: column[rows] for n, column in records.columns.items()},
            None if records.item is None else records.item[rows],
        )  # fmt: skip


def reported(values: Sample) -> Sample:
    """A sample of a survey's values, at the times when devices report them.

    A device reports after its value, as late as the lateness allows. If all of a window's values
    lie before its first trigger, reports come evenly over all triggers; otherwise each report comes
    at the time of its value.
    """
    epochs = tuple(tuple(_spread_out(work) for work in epoch) for epoch in values.epochs)
    if all(a is b for old, new in zip(values.epochs, epochs, strict=True)
           for a, b in zip(old, new, strict=True)):  # fmt: skip
        return values
    note = (
        "all values lie before the first trigger of their window: reports are taken to come evenly "
        "over its triggers"
    )
    return values._replace(epochs=epochs, notes=(*values.notes, note))


def _spread_out(work: Workload) -> Workload:
    early = work.ends is not None and len(work.ends) > 1 and work.ends[0] == len(work.unit)
    return work._replace(ends=None) if early else work


def _notes(
    records: Records, schedule: Schedule, found: Cut, played: int, used: int
) -> Iterator[str]:
    if not found.whole:
        span = max(int(records.time[b - 1] - records.time[a]) for a, b in found.rows)
        yield (
            f"no window of {schedule.shown} is covered in full, at most "
            f"{format_duration(span // MINUTE * MINUTE)} of one: a whole one holds more records, "
            "but noise does not grow with them, so figures will be better"
        )
    elif found.left_out:
        yield f"windows that are not covered in full are left out: {found.left_out}"
    empty = found.numbers[-1] - found.numbers[0] + 1 - len(found.numbers)
    if empty:
        yield (
            f"{empty} of {empty + len(found.numbers)} windows hold no record: the figures are of "
            "the others"
        )
    if played < len(found.numbers):
        yield (
            f"judged on {used:,} of {found.records:,} records: {played} of "
            f"{len(found.numbers)} windows, spread evenly over the file"
        )
