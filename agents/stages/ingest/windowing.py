"""The window that a record belongs to: by its own time, or by its arrival."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....mechanisms.contract import I64
from ...clock.timeline import Timeline
from ...deployment.model import Pipeline


def placed(
    pipeline: Pipeline, timeline: Timeline, time: I64, beat: I64
) -> tuple[I64, NDArray[np.bool_]]:
    """(n,) windows of records, and (n,) which are in the far future.

    By arrival a record belongs to the first window that is not closed where it stands in the log.
    That is a function of the clock log and of the record's place alone: no record is late, and
    none is early, whatever time it bears.

    Args:
        timeline: where the pipeline stood when the records were covered.
        time: (n,) event times.
        beat: (n,) time of the first clock record that covers each record.
    """
    schedule = pipeline.windows
    if not schedule.arrival:
        return schedule.windows(time), time > beat + pipeline.max_future_skew
    windows = np.full(len(time), timeline.floor, np.int64)
    if not pipeline.external:
        # After a refused epoch the next window has not begun: what comes until then goes with it.
        windows -= beat < schedule.start(timeline.floor)
    return windows, np.zeros(len(time), np.bool_)
