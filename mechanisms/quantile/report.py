"""Report on configured quantiles before any budget is spent."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from ..columns import F64
from .tree import BandTree


def rank_stddev(tree: BandTree, at: tuple[Fraction, ...]) -> float:
    """Root mean square rank error of a quantile, in records, over edges and quantiles."""
    every: list[F64] = [tree.rank_variance(float(q)) for q in at]
    return math.sqrt(sum(float(one.sum()) for one in every) / (len(every) * (tree.bands - 1)))


def plan_rows(body: dict[str, Any], unit: str) -> list[tuple[str, str]]:
    """Format a mechanism's plan as rows of text."""
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
