"""Exact quantiles of the records of a window, with which a simulation compares."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..columns import I64
from ..truth import Truth, WindowRecords
from .bands import Bands


def exact_answers(
    bands: Bands, at: Mapping[str, Fraction], own: tuple[str, str, str], seen: WindowRecords
) -> Truth:
    """Counts and quantiles by key; a key with a total below one record has no quantile.

    Args:
        bands: bands of the values.
        at: share of each quantile, by its name.
        own: names of the numbers of records: all, those below the range, those above it.
        seen: records of the window.
    """
    steps, sign = seen.value[:, 0], seen.sign.astype(np.int64)
    names, place = seen.keys.tolist(), bands.place(steps)
    values: dict[str, dict[bytes, float]] = {name: {} for name in (*at, *own)}
    order = np.lexsort((steps, seen.key))
    starts = np.searchsorted(seen.key[order], np.arange(len(names) + 1))
    for number, name in enumerate(names):
        mine = order[starts[number] : starts[number + 1]]
        total = int(sign[mine].sum())
        ends = (int(sign[mine][place[mine] == one].sum()) for one in (0, bands.number - 1))
        for label, count in zip(own, (total, *ends), strict=True):
            values[label][name] = float(count)
        for label, q in at.items():
            values[label][name] = _quantile(bands, steps[mine], sign[mine], q)
    held = {name: int(values[own[0]][name]) for name in names}
    return Truth(len(seen.key), held, values, every=True)


def _quantile(bands: Bands, steps: I64, sign: NDArray[Any], q: Fraction) -> float:
    """The least value with at least q of the records at or below it, clipped to the range."""
    below = np.cumsum(sign)
    if not len(below) or below[-1] < 1:
        return float("nan")
    reached = below * q.denominator >= q.numerator * int(below[-1])
    value = int(np.clip(steps[np.argmax(reached)], bands.edges[0], bands.edges[-1]))
    return float(value * bands.grid)
