"""PAK for the contract suite: both thresholds, all counters, warm-up published or kept back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from hushstream.mechanisms.catalogue import find
from hushstream.mechanisms.columns import Releases
from hushstream.mechanisms.in_memory import Trace
from hushstream.mechanisms.pak.mechanism import Pak, RankQuantile
from hushstream.mechanisms.pak.running import FINE, Running
from hushstream.mechanisms.pak.settings import PakParameters
from hushstream.mechanisms.parts.thresholds.smooth_quantile import SmoothQuantile
from hushstream.mechanisms.slots.relearning import Exceedance
from hushstream.mechanisms.slots.slots import Slots

from ...oracles.smooth_quantile import exact_bound, sorted_runs
from ..case import Case
from .tops import SETTING, distance, exact_sums, exact_truth, trace_for

BASE = PakParameters(
    bound=2, warmup=3, slots_per_trigger=4, slot=10, origin=500, expected=20, factor=1.5, split=0.5
)


def _at_least(slots: Slots, trace: Trace, value: int) -> int:
    more = exact_sums(slots, trace, value) - exact_sums(slots, trace, value - 1)
    return int(more[: slots.warmup_slots].sum())


def rounded_up(slots: Slots, trace: Trace) -> list[int]:
    """Positive accepted warm-up values, rounded up to thresholds, ascending."""
    out: list[int] = []
    for low, high in zip((0, *slots.thresholds[:-1]), slots.thresholds, strict=True):
        over = _at_least(slots, trace, high + 1) if high < slots.top else 0
        out += [high] * (_at_least(slots, trace, low + 1) - over)
    return out


def threshold_exactly(mechanism: Pak, trace: Trace) -> int:
    """τ without noise, by its definition."""
    slots, chooser = mechanism.slots, mechanism.chooser
    if chooser is None:
        return slots.top
    positive = rounded_up(slots, trace)
    above = [sum(v > theta for v in positive) for theta in slots.thresholds]
    if isinstance(chooser, Exceedance):
        scores = [-n - more for n, more in zip(above, chooser.penalty, strict=True)]
        return slots.thresholds[scores.index(max(scores))]
    if isinstance(chooser, RankQuantile):
        found = min(range(len(above)), key=lambda i: abs(above[i] - chooser.rank + 1))
        target = chooser.factor * slots.thresholds[found]
    else:
        assert isinstance(chooser, SmoothQuantile)
        target = smooth_target(chooser, slots, positive, _zeros(slots, trace))
    return next((x for x in slots.thresholds if x >= target), slots.top)


def _zeros(slots: Slots, trace: Trace) -> int:
    """Accepted warm-up records of value zero."""
    plain = trace._replace(value=np.ones_like(trace.value))
    return _at_least(slots, plain, 1) - _at_least(slots, trace, 1)


def smooth_target(
    chooser: SmoothQuantile, slots: Slots, positive: list[int], zeros: int
) -> Fraction:
    """r·(x_P + κ(S/a)G), S by its definition over all pairs."""
    values = sorted(positive + [slots.thresholds[0]] * zeros)
    values = [0] * (chooser.rank - len(values)) + values
    place = len(values) - chooser.rank + 1
    runs = sorted_runs(values, place, slots.top)
    bound = max(Fraction(exact_bound(runs, chooser.b)), Fraction(1, 1 << 20))
    spread = chooser.kappa * bound / chooser.a
    return chooser.factor * (values[place - 1] + spread * chooser.offset)


def exact(mechanism: Pak, trace: Trace, releases: Sequence[Releases]) -> None:
    """Without noise every prefix sum is exact."""
    slots, steps = mechanism.slots, mechanism.counter.steps
    tau = threshold_exactly(mechanism, trace)
    assert releases[slots.warmup - 1].public["threshold"].tolist() == [tau]
    truth = exact_truth(mechanism, trace, releases, tau)
    if mechanism.sum_epsilon is None:
        truth[: slots.warmup_slots] = 0
    prefix = np.cumsum(truth)[slots.warmup_slots - 1 :]
    rows = [row for release in releases for row in release.value.tolist()]
    if mechanism.sum_epsilon is None:
        rows = [[0, 0], *rows]
    assert [row[1] for row in rows] == (prefix * steps).tolist()
    assert [row[0] for row in rows[1:]] == (np.diff(prefix) * steps).tolist()
    views(mechanism.running, prefix, [row[2:] for row in rows[1:]], steps)


def views(running: Running, prefix: np.ndarray, rows: list[list[int]], steps: int) -> None:
    """Sliding sums and averages are exact; decayed sums are within their rounding."""
    sums = np.diff(prefix)
    for end, row in enumerate(rows, 1):
        last = sums[max(0, end - running.width) : end] if running.width else []
        if running.width:
            assert row[0] == last.sum() * steps
            assert abs(row[1] / FINE - last.mean() * steps) <= 0.5 / FINE
        if running.keep:
            weights = float(running.keep) ** np.arange(end - 1, -1, -1)
            assert abs(row[-1] / FINE - (weights @ sums[:end]) * steps) <= 0.5 / FINE * 5
        assert len(row) == 2 * bool(running.width) + bool(running.keep)


def case(name: str, parameters: PakParameters) -> Case:
    mechanism: Pak = find("pak").build(parameters, SETTING)
    return Case(
        name,
        mechanism,
        lambda seed: trace_for(mechanism.slots, seed),
        lambda trace, releases: exact(mechanism, trace, releases),
        distance,
        bound=float(parameters.bound),
    )


CASES = [
    case("pak-auto", BASE),
    case("pak-tree", replace(BASE, counter="tree", publish_warmup=False)),
    case("pak-watched", replace(BASE, watch=0.1, factor=0.0)),
    case("pak-hierarchy", replace(BASE, counter="hierarchy", tail=0.1)),
    case("pak-learnt-anew", replace(BASE, relearn=4, counter="tree", tail=0.1)),
    case(
        "pak-views",
        replace(BASE, relearn=2, counter="hierarchy", factor=0.0, sliding=5, decay=0.75),
    ),
    case("pak-smooth", replace(BASE, threshold="smooth", counter="matrix", resolution=4, tail=0.2)),
    case("pak-top", replace(BASE, threshold="top", counter="matrix", bound=1)),
]
