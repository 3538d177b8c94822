"""Losses of the spatial mechanisms, rebuilt from their stated bounds and from what releases add."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from functools import partial
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from hushstream.mechanisms.in_memory import Trace
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.phdstream.mechanism import PHDStream, ReleasedSelection
from hushstream.mechanisms.privhp.mechanism import PrivHP

from .loss import LARGE, Look, Probe
from .recorder import Label, Recorder, View, seen

GRID = 1 << 16  # parts of a record in which PHDStream releases
UNIT = 10**6
Event = tuple[int, int, int, int]  # trigger, unit, finest cell, sign


def events(mechanism: PHDStream | PrivHP, some: Iterable[Event]) -> Trace:
    """A trace of events, in the order of triggers."""
    rows = sorted(some, key=lambda one: one[0])
    domain = mechanism.domain
    cells = np.arange(1 << domain.bits, dtype=np.uint64) + np.uint64(1 << domain.bits)
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    t, unit, cell, sign = columns if rows else [np.empty(0, np.int64)] * 4
    return Trace(
        t.astype(np.intp), unit, Keys.of_codes(cells), cell.astype(np.intp),
        np.empty((len(t), 0), np.int64), sign.astype(np.int8),
    )  # fmt: skip


def shape_of(label: Label) -> int:
    """A tree of a pattern that changes with every trigger, whatever is counted."""
    if label.purpose != "split":
        return 0
    return LARGE if zlib.crc32(label.key + bytes([label.index])) % 3 else -LARGE


def most_of_unit(mechanism: PHDStream | PrivHP) -> int:
    """Events of one unit that count, as stated to people."""
    return int(mechanism.bounds("u")["budget"])


def norms(probe: Probe, shifts: list[np.ndarray]) -> float:
    """The dearest shift: ε of Laplace draws, μ of Gaussian ones."""
    if probe.linear.labels[0].kind == "gauss":
        return float(np.sqrt((probe.linear.gaussian(shifts) ** 2).sum(axis=1).max()))
    return max(probe.linear.laplace(shift) for shift in shifts)


def seen_counts(mechanism: PHDStream, trace: Trace, noise: object) -> View:
    """Unbiased counts of leaves in records; the other column is computed from them."""
    view = seen(mechanism, trace, noise)
    return {place: x / GRID for place, x in view.items() if place[2] == 1}


def probe_counts(mechanism: PHDStream) -> Probe:
    """Responses of leaves to the draws of counters, in a tree that is held in its shape."""
    gaussian = mechanism.counter.distribution == "discrete_gaussian"
    return Probe(
        partial(seen_counts, mechanism), events(mechanism, []), shape_of,
        lambda one: one.purpose != "split", rounding=2.0 if gaussian else 2.0**-14,
        impulse=1 << (36 if gaussian else 20),
    )  # fmt: skip


def counted(mechanism: PHDStream, cells: Iterable[int]) -> float:
    """The most that one accepted event loses to counters; with a lifetime, one insertion."""
    probe = probe_counts(mechanism)
    triggers = range(1, mechanism.horizon + 1)
    worlds: list[list[Event]] = []
    for cell in cells:
        worlds += [[(t, UNIT, cell, 1)] for t in triggers]
        if mechanism.deletions:
            twice = combinations_with_replacement(triggers, 2)
            worlds += [[(t, UNIT, cell, 1), (s, UNIT, cell, -1)] for t, s in twice]
    shifts = [probe.shift(events(mechanism, one)) for one in worlds]
    events_of = np.array([len(one) for one in worlds])
    return max(norms(probe, [d / n]) for d, n in zip(shifts, events_of, strict=True) if d.any())


def critical(look: Look, trace: Trace, path: list[bytes], level: int, t: int, base: Any) -> int:
    """The least noise with which the node of the path at ``level`` splits at trigger t."""
    low, high = -(1 << 20), 1 << 20
    while high - low > 1:
        middle = (low + high) // 2

        def planted(label: Label, level: int = level, middle: int = middle) -> int:
            if label.purpose != "split" or label.index < t:
                return int(base(label))
            place = path.index(label.key) if label.key in path else len(path)
            return LARGE if place < level else middle if place == level else -LARGE

        view = look(trace, Recorder(planted))
        split = (t, path[level], "status") not in view
        low, high = (low, middle) if split else (middle, high)
    return high


def chance(scale: float, least: int) -> tuple[float, float]:
    """ln P(Z ≥ least) and ln P(Z < least) of a discrete Laplace."""
    tail = -abs(least if least > 0 else 1 - least) / scale - math.log1p(math.exp(-1 / scale))
    other = math.log1p(-math.exp(tail))
    return (tail, other) if least > 0 else (other, tail)


def split_loss(mechanism: PHDStream, seed: int) -> float:
    """ε of one insertion to private splitting, below released counts that noise made hostile."""
    assert not isinstance(mechanism.selection, ReleasedSelection)
    rng, depth = np.random.default_rng(seed), mechanism.domain.depth
    step = mechanism.domain.step
    path = [(1 << level * step).to_bytes(8, "big") for level in range(depth + 1)]
    size = float(mechanism.selection.scale) / 16 * math.log(2)
    hostile: dict[Label, int] = {}

    def base(label: Label) -> int:
        """Trigger 1 counts noise alone in the finest tree."""
        if label.purpose == "split":
            return LARGE
        if label not in hostile:
            hostile[label] = int(rng.integers(-2 * size, 2 * size * depth))
        return hostile[label]

    def look(trace: Trace, noise: Recorder) -> View:
        asked.append(noise)
        return seen(mechanism, trace, noise)

    asked: list[Recorder] = []
    laws = []
    for trace in (events(mechanism, []), events(mechanism, [(2, UNIT, 0, 1)])):
        alive, law = 0.0, []
        for level in range(depth):
            least = critical(look, trace, path, level, 2, base)
            scale = next(one.parameter for one in asked[-1].asked if one.purpose == "split")
            goes, stops = chance(float(scale), least)
            law.append(alive + stops)
            alive += goes
        laws.append(np.array([*law, alive]))
    return float(np.abs(laws[0] - laws[1]).max())


def phdstream(mechanism: PHDStream, cells: Iterable[int] = (0, 1)) -> float:
    """ε (μ² for the matrix counter) of a unit's events by counting."""
    each = 2 if mechanism.lifetime else 1  # events of one insertion, as they are stated
    loss = most_of_unit(mechanism) // each * counted(mechanism, cells)
    return loss**2 if mechanism.counter.distribution == "discrete_gaussian" else loss


def seen_sums(mechanism: PrivHP, trace: Trace, noise: object) -> View:
    """The noisy sums that a tree is grown from, at every trigger."""
    view: View = {}
    whole = PrivHP.grow

    def watched(self: PrivHP, table: np.ndarray, t: int) -> Any:
        view.update({(t, place): float(x) for place, x in enumerate(table.tolist())})
        return whole(self, table, t)

    PrivHP.grow = watched  # type: ignore[method-assign]
    try:
        seen(mechanism, trace, noise)
    finally:
        PrivHP.grow = whole  # type: ignore[method-assign]
    return view


def probe_sums(mechanism: PrivHP) -> Probe:
    """Responses of the sums to draws."""
    gaussian = mechanism.counter.distribution == "discrete_gaussian"
    return Probe(
        partial(seen_sums, mechanism), events(mechanism, []), rounding=2.0 if gaussian else 0.0,
        impulse=1 << 32,
    )  # fmt: skip


def privhp(mechanism: PrivHP, cells: Iterable[int] = (0, 3)) -> float:
    """ε (μ² for Gaussian noise) of a unit's records, from the table that the tree is grown from.

    Growing has no other argument, so all that is released is computed from these numbers.
    """

    probe = probe_sums(mechanism)
    gaussian = probe.linear.labels[0].kind == "gauss"
    triggers = range(1, mechanism.horizon + 1)
    shifts = [
        probe.shift(events(mechanism, [(t, UNIT, cell, 1)])) for cell in cells for t in triggers
    ]
    loss = most_of_unit(mechanism) * norms(probe, shifts)
    return loss**2 if gaussian else loss
