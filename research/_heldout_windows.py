"""First triggers of a second window: the use of the first window's map.

There are two windows of 12 triggers with equally many records (1,500 per trigger, or fewer if the
set is small), from the points of `_heldout_maps`; PHDStream has its defaults, and a unit has one
record. The second window has the same law (*steady*), continues the same set in its own order (*in
order*), or has half of another set (*half moved*) or all of it (*moved*). Figures are mean relative
errors of boxes at triggers 1, 2 and 4, over those of the map as released:

* *divided*: `mechanisms.spatial.earlier` divides leaves by the last map of the first window;
* *smooth*: `mechanisms.spatial.smooth` divides leaves without any other map;
* *both*: leaves are divided by the smoothed earlier map as far as the maps agree, else as in
  *smooth*;
* *prior tree*: a mechanism that is not in the product. The window's first trigger splits nothing
  privately; its tree has a node wherever the earlier map has 10/ε records per trigger.

*prior tree* shows why the mechanism itself uses nothing of the previous window: if the map has
moved, new places are in large leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from fractions import Fraction
from typing import Any, NamedTuple

import _benchmarks  # noqa: F401
import numpy as np
from _heldout_maps import HALVES, Row
from _spatial import Store, Stream, box_counts, boxes, keyed, part_of
from hushstream.mechanisms.contract import Noise, Setting
from hushstream.mechanisms.phdstream.events import Events
from hushstream.mechanisms.phdstream.mechanism import PHDStream
from hushstream.mechanisms.phdstream.settings import PHDStreamParameters, build
from hushstream.mechanisms.phdstream.tree import GRID
from hushstream.mechanisms.spatial.domain import Domain
from hushstream.mechanisms.spatial.earlier import LeafCounts, Mass, divided
from hushstream.mechanisms.spatial.smooth import smoothed
from hushstream.mechanisms.spatial.synthetic import range_counts

TRIGGERS, MOST = 12, 1_500
SHOWN = (1, 2, 4)
EPSILONS = (0.2, 1.0)
SQUARE = Domain.unit(2, 8, "all")
BOXES = boxes(100, seed=11)
KINDS = ("steady", "in order", "half moved", "moved")
ENOUGH = 10
Window = list[np.ndarray]


class MapAt(NamedTuple):
    """The map of one release."""

    leaves: LeafCounts
    variance: float  # median over leaves, in records squared


def parts(points: np.ndarray, each: int, windows: int = 1) -> list[Window]:
    """Windows of points in their order, with ``each`` points per trigger."""
    rows = [points[i * each : (i + 1) * each] for i in range(TRIGGERS * windows)]
    return [rows[i * TRIGGERS : (i + 1) * TRIGGERS] for i in range(windows)]


def pair(half: str, name: str, kind: str) -> tuple[Window, Window]:
    """Two windows of a set."""
    sets, draw = HALVES[half], np.random.default_rng(5)
    points = np.clip(sets[name](), 0, 1)
    each = min(len(points) // (2 * TRIGGERS), MOST)
    if kind != "in order":
        points = draw.permutation(points)
    if kind in ("steady", "in order"):
        first, second = parts(points, each, 2)
        return first, second
    names = list(sets)
    after = names[(names.index(name) + 1) % len(names)]
    other = draw.permutation(np.clip(sets[after](), 0, 1))
    each = min(each, len(other) // TRIGGERS)
    whole = each * TRIGGERS
    if kind == "half moved":
        rest = [points[whole : whole + whole // 2], other[: whole - whole // 2]]
        other = draw.permutation(np.concatenate(rest))
    return parts(points, each)[0], parts(other, each)[0]


class PriorTree(PHDStream):
    """PHDStream whose first trigger splits by an earlier map, without cost."""

    def _walk(self, events: Events, t: int, noise: Noise, carried: float) -> Any:
        usual = super()._walk(events, t, noise, carried)
        if t > 1:
            return usual
        mass, share = PRIOR[0], float(self.cost().epsilon) / ENOUGH
        return lambda estimate, level, nodes: (
            (mass.of(nodes) / TRIGGERS * share > 1) & (level < self.domain.depth)
        )


PRIOR: list[Mass] = []
FIELDS = [one.name for one in fields(PHDStream)]


def mechanism(epsilon: float, prior: LeafCounts | None) -> PHDStream:
    """PHDStream with its defaults, or with a tree from an earlier map."""
    setting = Setting(Fraction(str(epsilon)), Fraction(0), TRIGGERS)
    start: Any = None if prior is None else "as later"
    made = build(PHDStreamParameters(domain=SQUARE, start=start), setting)
    if prior is None:
        return made
    PRIOR[:] = [Mass(SQUARE, prior)]
    return PriorTree(**{name: getattr(made, name) for name in FIELDS})


def maps(made: PHDStream, window: Window, name: str) -> Iterator[MapAt]:
    """Releases of a window."""
    store, noise = Store(made.traits), keyed(name)
    for t, points in enumerate(window, 1):
        ones = np.ones(len(points), int)
        closed = store.closed(part_of(made, Stream(ones, points, ones)), t)
        rows, out = made.release(closed, noise)
        store.store(rows)
        leaves = LeafCounts(out.key.codes(), out.value[:, 0] / GRID)
        yield MapAt(leaves, float(np.median(out.variance[:, 0])) / GRID**2)


def error(points: np.ndarray, codes: np.ndarray, counts: np.ndarray) -> list[float]:
    """Mean relative errors of small, medium and large boxes."""
    ones, found = np.ones(len(points), int), []
    for low, high in BOXES.values():
        truth = box_counts(Stream(ones, points, ones), low, high)
        shown = range_counts(SQUARE, codes, counts, low, high)
        found.append(np.mean(np.abs(shown - truth) / np.maximum(truth, 0.001 * len(points))))
    return [float(one) for one in found]


def rows_of(half: str, name: str, kind: str, epsilon: float) -> Iterator[Row]:
    """Errors of one pair of windows."""
    first, second = pair(half, name, kind)
    plain = mechanism(epsilon, None)
    *_, last = maps(plain, first, "before")
    even = LeafCounts(*smoothed(SQUARE, *last.leaves))
    until = second[: max(SHOWN)]
    other = list(maps(mechanism(epsilon, last.leaves), until, "after"))
    for t, one in enumerate(maps(plain, until, "after"), 1):
        if t not in SHOWN:
            continue
        points = np.concatenate(second[:t])
        ways = {
            "as released": tuple(one.leaves),
            "smooth": smoothed(SQUARE, *one.leaves),
            "divided": divided(SQUARE, one.leaves, last.leaves, one.variance),
            "both": divided(
                SQUARE, one.leaves, even, one.variance, LeafCounts(*smoothed(SQUARE, *one.leaves))
            ),
            "prior tree": tuple(other[t - 1].leaves),
        }
        row: Row = {"set": name, "kind": kind, "epsilon": epsilon, "trigger": t}
        yield row | {way: error(points, *found) for way, found in ways.items()}


def measure(half: str, quick: bool, tell: Callable[[str], None]) -> list[Row]:
    """All rows of a half."""
    rows: list[Row] = []
    for name in list(HALVES[half])[: 2 if quick else None]:
        for kind in KINDS[::3] if quick else KINDS:
            for epsilon in EPSILONS[1:] if quick else EPSILONS:
                tell(f"{name}, {kind}, ε = {epsilon:g}")
                rows += rows_of(half, name, kind, epsilon)
    return rows


def brief(rows: list[Row]) -> list[Row]:
    """Ratios to the map as released: medians of small, medium and large boxes, and the worst."""
    found = []
    for kind in KINDS:
        for t in SHOWN:
            mine = [row for row in rows if (row["kind"], row["trigger"]) == (kind, t)]
            if not mine:
                continue
            row: Row = {"set": kind, "trigger": t}
            for way in ("smooth", "divided", "both", "prior tree"):
                ratio = np.array([np.array(one[way]) / one["as released"] for one in mine])
                middle = " ".join(f"{x:.2f}" for x in np.median(ratio, axis=0))
                row[way] = f"{middle}, ≤ {ratio.max():.2f}"
            found.append(row)
    return found


def totals(rows: list[Row]) -> dict[str, float]:
    """Figures for large boxes at the first trigger of steady and moved windows."""

    def of(kind: str) -> list[Row]:
        return [row for row in rows if (row["kind"], row["trigger"]) == (kind, 1)]

    steady, moved = of("steady"), of("moved")
    return {
        "phdstream_later_window_large": float(np.median([r["as released"][2] for r in steady])),
        "phdstream_later_window_large_earlier": float(np.median([r["both"][2] for r in steady])),
        "phdstream_later_window_earlier_over_moved_worst": max(
            r["both"][2] / r["smooth"][2] for r in moved
        ),
    }


if __name__ == "__main__":
    import json
    import sys

    table = measure(sys.argv[1] if len(sys.argv) > 1 else "held", False, lambda text: None)
    for shown in brief(table):
        print(shown)
    print(json.dumps(totals(table)))
