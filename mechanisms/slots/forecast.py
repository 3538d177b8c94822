"""Forecast of a stream of values: errors of sums of ranges and of running totals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..columns import F64, I64, Releases
from ..contract import Noise
from ..forecast import bound_cut, by_key, in_turn, percent, rounded, sample_of
from ..in_memory import replays
from ..noise.trial import noise_of
from ..planner import Forecast, Question
from ..workload import Workload
from .aim import sample_values
from .slots import Slots
from .stream import SlotStream
from .whole import Arrived, arrived, closed

SCORE = "root mean squared error of sums between two triggers, as a share of them"
_PLACES = 9  # number of range ends; the sums between all pairs are judged


class StreamLook(NamedTuple):
    """Sums of ranges in one window, their errors, and the loss by clipping."""

    truth: F64  # (ranges,) sums
    error: F64  # (ranges,)
    total: tuple[float, float]  # the last running total, and the error of the released one
    theta: float
    clipped: float  # share of the sum above the threshold


def forecast(
    question: Question, parameters: Any, mechanism: SlotStream, slots: Slots, plays: range
) -> Forecast:
    """The figures of a candidate, from runs of its mechanism."""
    works = [work for epoch in sample_of(question).epochs for work in epoch]
    turns = list(enumerate(plays or range(1)))
    looks = in_turn([
        _looks(mechanism, slots, work, [
            noise_of(question.name, play, turn * len(works) + place) for turn, play in turns
        ])
        for place, work in enumerate(works)
    ])  # fmt: skip
    cut = bound_cut(question, slots.bound)
    figures = _figures(looks, cut)
    each = np.array([np.mean(look.error**2) for look in looks]) / max(figures["range"], 1e-9) ** 2
    wait = slots.horizon - slots.warmup
    return Forecast(
        parameters, figures["score"], "simulation",
        f"running totals at {wait} of {slots.horizon} triggers of a window, and sums between "
        "any two of them",
        _off(figures), "; ".join(_lost(figures, slots)), cut, None, figures,
        each=by_key(each, len(turns)),
    )  # fmt: skip


def _looks(
    mechanism: SlotStream, slots: Slots, work: Workload, noises: Sequence[Noise]
) -> Iterator[StreamLook]:
    """The figures of one window under each noise."""
    records = arrived(slots, work)
    value = records.value.astype(np.float64)
    sums = np.bincount(records.slot, value, slots.slots) * float(slots.grid)
    exact = np.concatenate([[0.0], np.cumsum(sums)])
    first = slots.warmup_slots
    begin = max(first, slots.slots // 4)  # the same for all warm-ups tried
    ends = np.unique(np.linspace(begin, slots.slots, _PLACES).round().astype(int))
    lower, upper = np.triu_indices(len(ends), 1)
    truth = exact[ends[upper]] - exact[ends[lower]]
    whole = max(float(value.sum()), 1.0)
    told = np.union1d([first], ends)
    begun = len(told) - len(ends)  # 1 where the first end lies beyond the warm-up
    for theta, shown in _prefixes(mechanism, records, told, work, noises):
        found = shown[begun:][upper] - shown[begun:][lower]
        above = float(np.maximum(value - theta, 0).sum()) / whole
        late = exact[-1] - (0.0 if shown[0] else exact[first])
        yield StreamLook(
            truth,
            np.abs(found - truth),
            (late, abs(shown[-1] - late)),
            theta * float(slots.grid),
            above,
        )


def _prefixes(
    mechanism: SlotStream, records: Arrived, ends: I64, work: Workload, noises: Sequence[Noise]
) -> Iterator[tuple[int, F64]]:
    """The threshold and (m,) released running totals at some numbers of slots, for each noise."""
    grid = float(mechanism.traits.outputs[1].grid)
    entries = closed(mechanism.slots, records, ends)
    for place, noise in enumerate(noises):
        found = mechanism.prefixes(entries, ends, noise)
        if found is None:
            runs = replays(mechanism, work, noises[place:])
            yield from (_released(mechanism.slots, grid, outs, ends) for outs in runs)
            return
        yield found[0], found[1].astype(np.float64) * grid


def _released(slots: Slots, grid: float, outs: Sequence[Releases], ends: I64) -> tuple[int, F64]:
    """The threshold and running totals in the releases of a window."""
    shown, theta = np.zeros(slots.slots + 1), slots.top
    for out in outs:
        theta = int(out.public["threshold"][0]) if "threshold" in out.public else theta
        if len(out.key):
            shown[out.key.codes().astype(np.int64) + 1] = out.value[:, 1] * grid
    return theta, shown[ends]


def _figures(looks: Sequence[StreamLook], cut: float) -> dict[str, float]:
    truth = np.concatenate([look.truth for look in looks])
    error = np.concatenate([look.error for look in looks])
    totals = np.array([look.total for look in looks])
    rms = float(np.sqrt(np.mean(error**2)))
    return {
        "range": float(np.sqrt(np.mean(truth**2))),
        "off": rms,
        "total": float(totals[:, 0].mean()),
        "total_off": float(np.sqrt(np.mean(totals[:, 1] ** 2))),
        "threshold": float(np.median([look.theta for look in looks])),
        "clipped": float(np.mean([look.clipped for look in looks])),
        "cut": cut,
        "score": rms / max(float(np.sqrt(np.mean(truth**2))), 1e-9),
    }


def _off(figures: dict[str, float]) -> str:
    share = figures["total_off"] / max(figures["total"], 1e-9)
    if figures["range"]:
        truth = f"it is {rounded(figures['range'])} ({percent(figures['score'])})"
    else:
        truth = "there is nothing to add up: all records come early in their window"
    return (
        f"the sum between two triggers is off by {rounded(figures['off'])} where {truth}; a "
        f"window's total of {rounded(figures['total'])} by {rounded(figures['total_off'])} "
        f"({percent(share)})"
    )


def _lost(figures: dict[str, float], slots: Slots) -> Iterator[str]:
    yield (
        f"values above a threshold of about {rounded(figures['threshold'])} count as that much, "
        f"which takes {figures['clipped']:.1%} off the sum"
    )
    if figures["cut"]:
        yield f"the bound cuts off {figures['cut']:.1%} of the records"
    yield f"the first {slots.warmup} of {slots.horizon} triggers only find the threshold"


def rates(question: Question, slots: Slots) -> tuple[int, float]:
    """Records per slot, and the mean excess over a value that few records exceed, in steps."""
    sample, every = sample_of(question), sample_values(question, slots)
    records = max(1, round(sample.records / max(sample.windows, 1) / slots.slots))
    high = float(np.quantile(every, 0.99))
    above: F64 = every[every > high]
    return records, max(1.0, float((above - high).mean()) if len(above) else 1.0)


def warmups(given: int, horizon: int) -> list[int]:
    """Lengths of a warm-up to try, the given one first."""
    wanted = (given, 1, 2, round(horizon / 16), round(horizon / 8), round(horizon / 4))
    return list(dict.fromkeys(max(1, w) for w in wanted if w < horizon))
