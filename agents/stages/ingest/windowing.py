"""The window of a record: by event time, or by arrival."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ....mechanisms.columns import I64
from ...clock.timeline import Timeline
from ...deployment.model import Pipeline


def placed(
    pipeline: Pipeline, timeline: Timeline, time: I64, beat: I64
) -> tuple[I64, NDArray[np.bool_]]:
    """Find the (n,) windows of records, and (n,) whether a record lies in the far future.

    By arrival, a record belongs to the first window that is still open at the record's place in the
    log. That window is a function of the clock log and the record's place alone, so such a record
    is never late or early, whatever its event time.

    Args:
        timeline: timeline of the pipeline when the records were covered.
        time: (n,) event times, microseconds since 1970.
        beat: (n,) time of the first clock record that covers each record, microseconds since 1970.
    """
    schedule = pipeline.windows
    if not schedule.arrival:
        return schedule.windows(time), time > beat + pipeline.max_future_skew
    windows = np.full(len(time), timeline.floor, np.int64)
    if not pipeline.external:
        # After a refused epoch the next window has not begun: drop records until the next window.
        windows -= beat < schedule.start(timeline.floor)
    return windows, np.zeros(len(time), np.bool_)


def by_window(
    pipeline: Pipeline, windows: I64, units: NDArray[np.uint8], wanted: NDArray[np.bool_]
) -> Iterator[NDArray[np.intp]]:
    """Yield rows of one window at a time, such that every unit meets its records in log order.

    Windows of one epoch share a unit's bound, and all windows share its purse, if it has one. Which
    records use these up must depend on the log alone, not on where a step ended. So if a unit
    alternates between windows, its records are taken in rounds.

    Args:
        windows: (n,) window of each record.
        units: (n, 16) digests.
        wanted: (n,) which records to take.
    """
    rows = np.flatnonzero(wanted)
    place = windows[rows]
    if (pipeline.windows.per_epoch > 1 or pipeline.lifetime is not None) and len(rows):
        place = place + _rounds(place, units[rows]) * (np.ptp(place) + 1)
    for one in np.unique(place):
        yield rows[place == one]


def _rounds(windows: I64, units: NDArray[np.uint8]) -> I64:
    """Count (n,) how often each row's unit has changed its window so far."""
    words = np.ascontiguousarray(units).view(np.uint64).reshape(-1, 2)
    order = np.lexsort((words[:, 1], words[:, 0]))  # stable, so a unit's rows stay in log order
    same = (words[order][1:] == words[order][:-1]).all(axis=1)
    moved = np.zeros(len(order), np.int64)
    moved[1:] = same & (windows[order][1:] != windows[order][:-1])
    count = moved.cumsum()
    first = np.ones(len(order), bool)
    first[1:] = ~same
    rounds = np.empty(len(order), np.int64)
    rounds[order] = count - np.maximum.accumulate(np.where(first, count, 0))
    return rounds
