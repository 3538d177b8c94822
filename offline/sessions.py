"""The sessions of a file's records, as a pipeline with sessions counts them, unbounded."""

from __future__ import annotations

import numpy as np

from ..agents.deployment.model import Pipeline
from ..agents.stages.bound.sessions import values_of
from ..formats.events.decode import Decoded, View


def in_sessions(p: Pipeline, view: View, decoded: Decoded) -> View:
    """Make one row of each session, at its last record.

    Args:
        p: a pipeline with sessions.
        view: view of its records.
        decoded: all records, with times and units.
    """
    assert p.sessions is not None
    time = decoded.time[view.rows]
    numbers: dict[object, int] = {}
    unit = [numbers.setdefault(decoded.unit[row], len(numbers)) for row in view.rows.tolist()]
    whose = np.array(unit, np.int64)
    epoch = p.windows.windows(time) // p.windows.per_epoch
    order = np.lexsort((time, epoch, view.key, whose))
    same = np.ones(len(order), bool)
    for column in (whose, view.key, epoch):
        same[1:] &= column[order][1:] == column[order][:-1]
    same[1:] &= np.diff(time[order]) <= p.sessions.gap
    begins = np.flatnonzero(~same[1:]) + 1
    low = np.concatenate([[0], begins])[: len(order)]
    high = np.concatenate([begins, [len(order)]])[: len(order)]
    last = order[high - 1]
    value, kept = values_of(p, time[order][low], time[last], high - low)
    rows = last[kept]
    by_log = np.argsort(view.rows[rows], kind="stable")
    rows = rows[by_log]
    sign = np.ones(len(rows), np.int8)
    return view._replace(rows=view.rows[rows], key=view.key[rows], value=value[by_log], sign=sign)
