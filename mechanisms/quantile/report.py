"""Report on configured quantiles before any budget is spent."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Protocol

from ..columns import F64
from ..factorization.prefix_noise import STEPS, Process
from ..parts.bounding import Bound
from .bands import Bands
from .tree import BandTree


class PlannedQuantiles(Protocol):
    """Members of the mechanism that the report reads; all are public."""

    @property
    def horizon(self) -> int: ...
    @property
    def bound(self) -> Bound: ...
    @property
    def bands(self) -> Bands: ...
    @property
    def at(self) -> tuple[Fraction, ...]: ...
    @property
    def counter(self) -> Process: ...
    @property
    def threshold(self) -> tuple[int, ...]: ...
    def tree(self, t: int) -> BandTree: ...


def plan(mechanism: PlannedQuantiles) -> dict[str, Any]:
    """Bands, noise and thresholds; a function of public parameters alone.

    ``rank_stddev`` is by trigger the standard deviation of the number of records that a quantile is
    off by, the mean over edges and quantiles.

    Returns:
        Plain numbers, strings, lists and dictionaries, ready for JSON.
    """
    triggers = range(1, mechanism.horizon + 1)
    trees = [mechanism.tree(t) for t in triggers]
    bands = mechanism.bands
    out: dict[str, Any] = {
        "at": [float(q) for q in mechanism.at],
        "bands": bands.number,
        "low": float(bands.edges[0] * bands.grid),
        "high": float(bands.edges[-1] * bands.grid),
        "widest": float(max(b - a for a, b in _pairs(bands)) * bands.grid),
        "grid": float(bands.grid),
        "factorization": mechanism.counter.factor.name,
        "most_records_per_key": mechanism.bound.most_per_key(),
        "rank_stddev": [_rank(tree, mechanism.at) for tree in trees],
        "count_stddev": [math.sqrt(tree.total_variance) for tree in trees],
    }
    if mechanism.threshold:
        out["threshold"] = [bar / STEPS for bar in mechanism.threshold]
    return out


def _pairs(bands: Bands) -> list[tuple[int, int]]:
    return list(zip(bands.edges[:-1], bands.edges[1:], strict=True))


def _rank(tree: BandTree, at: tuple[Fraction, ...]) -> float:
    every: list[F64] = [tree.rank_variance(float(q)) for q in at]
    return math.sqrt(sum(float(one.sum()) for one in every) / (len(every) * (tree.bands - 1)))


def plan_rows(body: dict[str, Any], unit: str) -> list[tuple[str, str]]:
    """Format the result of `plan` as rows of text."""
    shown = ", ".join(f"{q:g}" for q in body["at"])
    ranks, counts = body["rank_stddev"], body["count_stddev"]
    rows = [
        ("quantiles", shown),
        (
            "bands",
            f"{body['bands'] - 2} from {body['low']:g} to {body['high']:g}, the widest "
            f"{body['widest']:g}; one below and one above",
        ),
        (
            "noise of a rank",
            f"±{ranks[0]:.4g} records at the first trigger … ±{ranks[-1]:.4g} at the last: in a "
            f"key with {100 * ranks[-1]:,.0f} records the median lies between the quantiles "
            "0.49 and 0.51, give or take",
        ),
        ("noise of a count", f"±{counts[0]:.4g} … ±{counts[-1]:.4g}"),
    ]
    if "threshold" in body:
        bars = body["threshold"]
        course = f"{bars[0]:.4g} at the first trigger … " if len(bars) > 1 else ""
        half = math.ceil(bars[-1])
        rows += [
            ("threshold of a key", f"{course}{bars[-1]:.4g}"),
            ("chance that a key appears", f"50 % at {half:,} × {unit} (one record each)"),
        ]
    return rows
