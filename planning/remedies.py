"""Remedies for a pipeline that is hopeless as configured: what was tried, and with what error.

A file has no further units, so its own units are repeated: each copy is a separate unit with the
same records at the same times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import log2
from typing import NamedTuple

import numpy as np

from ..mechanisms.planner import HOPELESS
from ..mechanisms.workload import Sample, Workload
from ..topics.config.pipelines.schedule import Schedule
from ..topics.config.toml.values import Duration, format_duration
from .records import Records
from .variants import DAY, MOST_EPSILON, SECOND, Variant

GROUPS = (
    "fewer releases", "a longer window", "coarser keys", "coarser keys and a longer window",
    "a larger ε",
)  # fmt: skip
MOST = 1_000_000  # records of a repeated sample
MOST_TIMES = 2**20
STEPS = 24  # most samples tried
_LEAP = 6  # most doublings in a step


class Trial(NamedTuple):
    """One kind of change."""

    group: str  # of `GROUPS`
    variants: int  # number of variants tried
    last: str  # the variant that goes farthest
    best: str  # the variant of least error, or the last if it is hardly worse
    score: float  # error of ``best``


class Needed(NamedTuple):
    """The factor by which the units of a window would have to grow."""

    useful: int | None  # factor from which the pipeline is no longer hopeless; None: not reached
    good: int | None  # factor from which the error is as small as wanted; None: not reached
    most: int  # largest factor tried
    score: float  # error at that factor


def group_of(variant: Variant) -> str:
    """The kind of a change."""
    changes = variant.changes
    if "budget.epsilon" in changes:
        return GROUPS[4]
    if "key" in changes:
        return GROUPS[3] if "window.length" in changes else GROUPS[2]
    return GROUPS[1] if "window.length" in changes else GROUPS[0]


def trials(
    found: Sequence[tuple[Variant, float]], searched: Mapping[str, float]
) -> Iterator[Trial]:
    """The error with each kind of change.

    ``found`` holds variants in the order in which they were tried, ``searched`` the errors of those
    whose settings were searched in full, by their words.
    """
    for group in GROUPS:
        mine = [
            (searched.get(one.words, score), one.words)
            for one, score in found if group_of(one) == group
        ]  # fmt: skip
        if mine:
            score, best = min(mine, key=lambda one: one[0])
            best = mine[-1][1] if mine[-1][0] < score * 1.02 else best
            yield Trial(group, len(mine), mine[-1][1], best, score)


def untried(
    base: Variant, records: Records, found: Sequence[Trial], refused: Mapping[str, str]
) -> Iterator[str]:
    """Reasons why kinds of change were not tried; ``refused`` holds impossible ones, by kind."""
    settings, groups = base.settings, {one.group for one in found}
    for group in GROUPS:
        if group in refused and group not in groups:
            yield f"{group[0].upper()}{group[1:]} could not be tried: {refused[group]}."
    groups |= set(refused)
    if settings.window.length is not None and GROUPS[1] not in groups:
        length, span = Schedule.of(settings).shown, _duration(records.span)
        yield (
            f"A window longer than {length} was not tried, as the file spans {span}. It would hold "
            "more units, so that more could be seen."
        )
    if settings.key and settings.public_keys is None and GROUPS[2] not in groups:
        yield (
            f"Coarser keys were not tried, as nothing tells how to join values of "
            f"{settings.key[0]}. A column of fewer values (regions instead of places) needs fewer "
            "units."
        )
    if GROUPS[4] not in groups:
        yield f"No larger ε was tried: {MOST_EPSILON} is the most."


def _duration(span: int) -> str:
    if span >= DAY:
        return format_duration(Duration(span // DAY * DAY))
    return format_duration(Duration(span // SECOND * SECOND))


def times_over(sample: Sample, times: int) -> Sample:
    """A sample in which every unit is repeated ``times`` times: as many whole epochs as fit.

    Raises:
        ValueError: not even one epoch fits.
    """
    sizes = [sum(len(work.unit) for work in epoch) for epoch in sample.epochs]
    room = MOST // times
    count = min(len(sizes), len(sizes) * room // max(sum(sizes), 1)) or 1
    chosen = np.unique(np.linspace(0, len(sizes) - 1, count).round().astype(int)).tolist()
    if len(chosen) == 1 and sizes[chosen[0]] > room:
        raise ValueError(f"times: {times} is too many for {sizes[chosen[0]]} records")
    epochs = tuple(tuple(_copied(work, times) for work in sample.epochs[i]) for i in chosen)
    records = sum(len(work.unit) for epoch in epochs for work in epoch)
    return Sample(epochs, sample.units * times, sample.keys, records, sample.notes)


def _copied(work: Workload, times: int) -> Workload:
    copy = np.tile(np.arange(times, dtype=np.int32), len(work.unit))
    columns = work.columns
    return work._replace(
        unit=np.repeat(work.unit, times) * np.int32(times) + copy,
        key=np.repeat(work.key, times),
        users=work.users * times,
        value=None if work.value is None else np.repeat(work.value, times, axis=0),
        sign=None if work.sign is None else np.repeat(work.sign, times),
        ends=None if work.ends is None else tuple(end * times for end in work.ends),
        columns=None if columns is None else {n: np.repeat(c, times) for n, c in columns.items()},
    )


def needed(
    sample: Sample, score: float, good: float, judge: Callable[[Sample], float | None]
) -> Needed:
    """Search for the factor of units that lowers the error ``score`` of a sample to ``good``.

    ``judge`` gives the error of a sample, None if there is none.
    """
    times, useful = 1, None
    for _ in range(STEPS):
        target = HOPELESS if useful is None else good
        leap = int(log2(max(score / target, 1)))
        later = times * 2 ** min(max(leap, 1), _LEAP)
        if later > MOST_TIMES:
            break
        try:
            found = judge(times_over(sample, later))
        except ValueError:
            break
        if found is None:
            break
        times, score = later, found
        if useful is None and score < HOPELESS:
            useful = times
        if score <= good:
            return Needed(useful, times, times, score)
    return Needed(useful, None, times, score)
