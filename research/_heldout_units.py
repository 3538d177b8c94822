"""Maps of people who send many records: the error by the contribution bound, and by debiasing.

Each unit gets points of `_heldout_maps` that are neighbours along the curve of cells, as if it had
a home; a tenth of all records is anywhere. Units send 20 records each, or a heavy-tailed number
(mean about 20, half send 6 or fewer). There is one window of one trigger, and whole units are
protected. The error of large boxes is measured as in `_heldout_maps`: for bounds from 1 to 32 with
and without the private total, for the bound that `parts.bounds.maps` proposes from the law of
records per unit alone, and, as a reference that is **not private**, rescaled by the exact total.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from _heldout_maps import BOXES, HALVES, Row
from _spatial import Store, Stream, box_counts, keyed
from hushstream.mechanisms.columns import Batch, merge
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.parts.bounds.maps import proposed
from hushstream.mechanisms.phdstream.settings import PHDStreamParameters, build
from hushstream.mechanisms.phdstream.tree import GRID
from hushstream.mechanisms.spatial.domain import Domain
from hushstream.mechanisms.spatial.synthetic import range_counts

BOUNDS = (1, 2, 4, 8, 16, 32)
EPSILONS = (0.5, 2.0)
SQUARE = Domain.unit(2, 8, "all")


def lengths(law: str, records: int, draw: np.random.Generator) -> np.ndarray:
    """Records of each unit, until all records are distributed."""
    if law == "20 each":
        return np.full(records // 20, 20)
    size = np.minimum(np.ceil(6 * (draw.pareto(1.4, records) + 0.2)), 400).astype(int)
    return size[: int(np.searchsorted(np.cumsum(size), records))]


def people(points: np.ndarray, law: str) -> tuple[np.ndarray, np.ndarray]:
    """(n, 2) points in order of arrival, and the unit of each."""
    draw = np.random.default_rng(17)
    size = lengths(law, len(points), draw)
    points = points[: size.sum()]
    away = draw.random(len(points)) < 0.1
    order = np.argsort(SQUARE.place(points), kind="stable")
    order[away] = draw.permutation(order[away])
    unit = np.repeat(draw.permutation(len(size)), size)
    when = draw.permutation(len(points))
    return points[order][when], unit[when]


def shown(
    points: np.ndarray, unit: np.ndarray, epsilon: float, seed: str, **given: Any
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Leaves, counts in records, and public numbers of one trigger."""
    parameters = PHDStreamParameters(domain=SQUARE, **given)
    mechanism = build(parameters, Setting(Fraction(str(epsilon)), Fraction(0), 1))
    found = mechanism.encode({"x1": points[:, 0], "x2": points[:, 1]})
    many, sign = int(unit.max()) + 1, np.ones(len(unit), np.int8)
    status = np.zeros(len(found.keys), np.int32)
    batch = Batch(found.keys, found.key, unit.astype(np.intp), found.value, sign, status)
    part = merge([mechanism.absorb(mechanism.traits.units(many), batch)[1]])
    _, out = mechanism.release(Store(mechanism.traits).closed(part, 1), keyed(seed))
    return out.key.codes(), out.value[:, 0] / GRID, out.public


def error(points: np.ndarray, codes: np.ndarray, counts: np.ndarray) -> float:
    """Mean relative error of large boxes."""
    low, high = BOXES["large"]
    ones = np.ones(len(points), int)
    truth = box_counts(Stream(ones, points, ones), low, high)
    found = range_counts(SQUARE, codes, counts, low, high)
    return float(np.mean(np.abs(found - truth) / np.maximum(truth, 0.001 * len(points))))


def row_of(name: str, law: str, points: np.ndarray, epsilon: float, runs: int) -> Row:
    """Errors of one set at one ε."""
    place, unit = people(points, law)
    sent = np.bincount(unit)
    row: Row = {"set": name, "law": law, "units": len(sent), "epsilon": epsilon}

    def mean(change: bool = False, **given: Any) -> float:
        each = []
        for run in range(runs):
            codes, counts, _ = shown(place, unit, epsilon, f"u{run}", **given)
            factor = len(place) / max(counts.sum(), 1) if change else 1.0
            each.append(error(place, codes, counts * factor))
        return float(np.mean(each))

    for bound in BOUNDS:
        row[f"{bound}"] = mean(bound=bound)
        row[f"{bound}, debiased"] = mean(bound=bound, debias=True, debias_cap=max(100, bound))
        row[f"{bound}, exact total"] = mean(True, bound=bound)
    best = proposed(np.bincount(sent), len(sent), Fraction(str(epsilon)), 1)
    row["advised"] = mean(bound=best.bound, debias=best.debias, debias_cap=best.cap)
    row["advised bound"], row["advised cap"] = best.bound, best.cap
    _, _, public = shown(
        place, unit, epsilon, "share", bound=best.bound, debias=True, debias_cap=best.cap
    )
    row["share cut"] = 1 - float(np.minimum(sent, best.bound).sum() / sent.sum())
    row["share cut, released"] = 1 - float(public["counted"][0] / max(public["records"][0], 1))
    return row


def measure(half: str, quick: bool, tell: Callable[[str], None]) -> list[Row]:
    """All rows of a half."""
    rows = []
    for name, load in list(HALVES[half].items())[: 2 if quick else None]:
        points = np.random.default_rng(4).permutation(np.clip(load(), 0, 1))[:40_000]
        for law in ("20 each", "heavy tails"):
            for epsilon in EPSILONS[:1] if quick else EPSILONS:
                tell(f"{name}, {law}, ε = {epsilon:g}")
                rows.append(row_of(name, law, points, epsilon, 1 if quick else 3))
    return rows


def brief(rows: list[Row]) -> list[Row]:
    """The rows with the columns that fit on a screen."""
    shown = (
        "set", "law", "epsilon", "1", "16", "1, debiased", "4, debiased", "16, debiased",
        "1, exact total", "advised",
    )  # fmt: skip
    return [{name: row[name] for name in shown} for row in rows]


def totals(rows: list[Row]) -> dict[str, float]:
    """Medians over rows: with the advice, with bound 1 alone, and relative to the best bound."""
    best = [min(row[f"{b}{way}"] for b in BOUNDS for way in ("", ", debiased")) for row in rows]
    return {
        "units_advised": float(np.median([row["advised"] for row in rows])),
        "units_bound_1": float(np.median([row["1"] for row in rows])),
        "units_advised_over_best": float(
            np.median([row["advised"] / one for row, one in zip(rows, best, strict=True)])
        ),
        "units_advised_over_best_worst": float(
            max(row["advised"] / one for row, one in zip(rows, best, strict=True))
        ),
    }
