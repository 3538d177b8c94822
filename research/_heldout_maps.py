"""Maps of PHDStream's and PrivHP's defaults on points that were not used for tuning.

Sets of points in the plane are in two halves. Constants were chosen on the first (`TUNED`); figures
come from the second (`HELD`), which has other records, laws and seeds.

* First triggers: a window of one trigger, one record a unit. Error of a large box, abs(estimate -
  truth) / max(truth, 0.1 % of the points), for the defaults, for a window whose first trigger is
  like later ones (``start = "as later"``: one cell), and for the best uniform grid for the data.
* Distributions: sliced Wasserstein distance of PrivHP and of PHDStream with one trigger, also of
  100,000 records; ``privhp_over_phdstream_N_E`` is the median ratio for N records and ε = E.
* Coverage: share of leaves whose 95 % interval covers the exact count, ε = 1, 24 triggers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import intervals
import numpy as np
from _privhp import Input, Leaves, absorbed, distance, made, released
from _spatial import Store, Stream, box_counts, boxes, keyed, part_of
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.phdstream.settings import PHDStreamParameters, build
from hushstream.mechanisms.phdstream.tree import GRID
from hushstream.mechanisms.spatial.domain import Domain
from hushstream.mechanisms.spatial.synthetic import range_counts

EPSILONS = (0.1, 0.5, 2.0)
NUMBERS = (2_000, 20_000)
LARGE = 100_000  # for distributions alone
FLOORS = range(2, 8)
BOXES = boxes(300, seed=11)
Row = dict[str, Any]
F64 = np.ndarray


def _points(name: str) -> Callable[[], F64]:
    def load() -> F64:
        stream = intervals.DATASETS[name]()
        found: F64 = stream.point[stream.sign > 0]
        return found

    return load


def _ridge(n: int = 40_000) -> F64:
    draw = np.random.default_rng(91)
    along = draw.random((n, 1))
    curve = np.concatenate([along, 0.2 + 0.6 * along**2], axis=1)
    return curve + draw.normal(0, 0.004, (n, 2))


def _towns(n: int = 40_000) -> F64:
    draw = np.random.default_rng(92)
    weight = np.arange(1, 201) ** -1.1
    which = draw.choice(200, n, p=weight / weight.sum())
    spread = draw.uniform(0.001, 0.02, 200)[which, None]
    return draw.random((200, 2))[which] + spread * draw.normal(size=(n, 2))


def _slope(n: int = 40_000) -> F64:
    draw = np.random.default_rng(93)
    return draw.random((n, 2)) ** (1, 3)


def _cascade(n: int) -> F64:
    bits = np.random.default_rng(77).random((n, 30, 2)) < (0.8, 0.7)
    return np.einsum("nbd,b->nd", bits, 0.5 ** np.arange(1, 31))


TUNED = {
    name: _points(name)
    for name in (
        "growing circles", "eight hills", "uniform", "flights, delay and distance",
        "taxis, distance and fare",
    )
}  # fmt: skip
HELD = {
    **{
        name: _points(name)
        for name in (
            "postal codes, at random", "flights, time and distance", "taxis, tip and total",
            "cascade", "a cluster that walks",
        )
    },
    "a ridge": _ridge, "towns by Zipf's law": _towns, "a slope": _slope,
}  # fmt: skip
HALVES = {"tuned": TUNED, "held": HELD}
LAWS = {"cascade": _cascade, "a ridge": _ridge, "towns by Zipf's law": _towns, "a slope": _slope}
"""Sets of `HELD` that have any number of records."""


def samples(half: str, quick: bool) -> Iterator[tuple[str, F64]]:
    """Name and points of each set and number of records."""
    for name, load in list(HALVES[half].items())[: 3 if quick else None]:
        points = np.random.default_rng(4).permutation(np.clip(load(), 0, 1))
        for n in NUMBERS[:1] if quick else NUMBERS:
            if n <= len(points):
                yield name, points[:n]


def large_samples(half: str, quick: bool) -> Iterator[tuple[str, F64]]:
    """Name and points of each set of a half that has `LARGE` records."""
    if quick:
        return
    for name, load in HALVES[half].items():
        points = LAWS[name](LARGE) if name in LAWS else load()
        if len(points) >= LARGE:
            yield name, np.random.default_rng(4).permutation(np.clip(points, 0, 1))[:LARGE]


def one_shot(points: F64, epsilon: float, seed: str, bits: int, **given: Any) -> Leaves:
    """Leaves of one trigger; counts in records."""
    parameters = PHDStreamParameters(domain=Domain.unit(2, bits // 2, "all"), **given)
    mechanism = build(parameters, Setting(Fraction(str(epsilon)), Fraction(0), 1))
    ones = np.ones(len(points), int)
    closed = Store(mechanism.traits).closed(part_of(mechanism, Stream(ones, points, ones)), 1)
    _, out = mechanism.release(closed, keyed(seed))
    return Leaves(out.key.codes(), out.value[:, 0] / GRID)


def large(points: F64, found: Leaves, bits: int) -> float:
    """Mean relative error of large boxes."""
    ones = np.ones(len(points), int)
    low, high = BOXES["large"]
    truth = box_counts(Stream(ones, points, ones), low, high)
    shown = range_counts(Domain.unit(2, bits // 2, "all"), *found, low, high)
    return float(np.mean(np.abs(shown - truth) / np.maximum(truth, 0.001 * len(points))))


def first_trigger(name: str, points: F64, epsilon: float, runs: int) -> Row:
    """Errors at the only trigger of a window."""

    def error(**given: Any) -> float:
        each = [one_shot(points, epsilon, f"m{run}", 16, **given) for run in range(runs)]
        return float(np.mean([large(points, found, 16) for found in each]))

    row: Row = {"set": name, "records": len(points), "epsilon": epsilon, "default": error()}
    row["as later"] = error(start="as later")
    row["best floor"] = min(error(start="as later", floor=floor) for floor in FLOORS)
    return row


def distances(name: str, points: F64, epsilon: float, runs: int) -> Row:
    """Sliced Wasserstein distances of both kinds of trees."""
    source = Input(name, points, True)
    measure = distance(source)
    row: Row = {"set": name, "records": len(points), "epsilon": epsilon}
    for label, given in (("privhp", {}), ("privhp, k = 1024", {"k": 1024})):
        mechanism = made(source.domain, epsilon, expected=len(points), **given)
        part = absorbed(mechanism, source.columns, mechanism.traits.units(len(points)))
        trees = [released(mechanism, part, f"m{run}") for run in range(runs)]
        row[label] = float(np.mean([measure(tree) for tree in trees]))
        row[f"{label}, rows"] = len(trees[0].code)
    trees = [one_shot(points, epsilon, f"m{run}", 20) for run in range(runs)]
    row["phdstream"] = float(np.mean([measure(tree) for tree in trees]))
    row["phdstream, rows"] = len(trees[0].code)
    return row


def coverage(half: str, quick: bool) -> list[Row]:
    """Share of intervals that cover the exact count."""
    names = {"tuned": intervals.CHOSEN_ON, "held": intervals.CHECKED_ON}[half]
    domain = intervals.DOMAINS["quarters, depth 8"]
    rows = []
    for name in list(names)[-2:] if quick else names:
        shown = np.mean(list(intervals.snapshots(domain, names[name](), name)), axis=0)
        rows.append({"set": name, "covered": float(shown[0]), "leaves": float(shown[2])})
    return rows


def measure(half: str, quick: bool, tell: Callable[[str], None]) -> dict[str, list[Row]]:
    """All rows of a half."""
    runs = 1 if quick else 2
    found: dict[str, list[Row]] = {"first triggers": [], "distributions": []}
    for name, points in samples(half, quick):
        for epsilon in EPSILONS[:2] if quick else EPSILONS:
            tell(f"{name}, {len(points)} records, ε = {epsilon:g}")
            found["first triggers"].append(first_trigger(name, points, epsilon, runs))
            found["distributions"].append(distances(name, points, epsilon, runs))
    for name, points in large_samples(half, quick):
        for epsilon in EPSILONS:
            tell(f"{name}, {len(points)} records, ε = {epsilon:g}")
            found["distributions"].append(distances(name, points, epsilon, runs))
    tell("intervals")
    return found | {"intervals": coverage(half, quick)}


def totals(found: dict[str, list[Row]]) -> dict[str, float]:
    """Medians over sets, numbers of records and ε, and the least coverage of any set."""
    first, both = found["first triggers"], found["distributions"]
    ratios = [row["privhp"] / row["phdstream"] for row in both]
    sizes = sorted({(row["records"], row["epsilon"]) for row in both})
    beside = {
        f"privhp_over_phdstream_{n}_{epsilon:g}": _median(
            ratio
            for row, ratio in zip(both, ratios, strict=True)
            if (row["records"], row["epsilon"]) == (n, epsilon)
        )
        for n, epsilon in sizes
    }
    return beside | {
        "phdstream_first_trigger_large": _median(row["default"] for row in first),
        "phdstream_first_trigger_large_as_later": _median(row["as later"] for row in first),
        "phdstream_first_trigger_over_best_floor": _median(
            row["default"] / row["best floor"] for row in first
        ),
        "privhp_over_phdstream": _median(ratios),
        "privhp_over_phdstream_worst": float(max(ratios)),
        "privhp_over_fixed_k": _median(row["privhp"] / row["privhp, k = 1024"] for row in both),
        "phdstream_coverage": float(min(row["covered"] for row in found["intervals"])),
    }


def _median(values: Any) -> float:
    return float(np.median(list(values)))
