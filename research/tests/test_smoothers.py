"""Predictions of ToPS's smoothers: where each is best, and the totals that all of them see."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

sys.path[:0] = [str(Path(__file__).parents[2] / name) for name in ("research", "benchmarks")]
try:
    import smoothers
    from _values import Stream
finally:
    del sys.path[:2]


def cell(values: np.ndarray) -> dict[str, list[float]]:
    row = smoothers.row_of(Stream("s", values.astype(np.int64), 400), Fraction(1, 5), 2)
    assert row is not None and row["width"] > 1
    return {kind: row[kind] for kind in smoothers.KINDS}


def test_the_mean_is_best_where_nothing_changes_and_the_last_block_where_much_does() -> None:
    draw = np.random.default_rng(2)
    steady = cell(draw.exponential(20, 8192))
    slots = {kind: error for kind, (_, error) in steady.items()}
    assert slots["mean"] < 1.001 * min(slots.values()) < slots["recent"]
    wave = 20 + 19 * np.sin(np.arange(8192) / 400)
    moving = cell(draw.exponential(wave))
    assert moving["recent"][1] < moving["mean"][1]


def test_totals_have_the_noise_of_the_tree_and_nothing_else() -> None:
    short = Stream("s", np.full(8192, 10), 400)
    made = smoothers.heldout.defaults(short, Fraction(1, 5))
    ratios = []
    for run in range(20):
        theta, totals = smoothers.noisy_totals(short, made, run)
        wanted = np.mean([made.tree.variance(theta, n, n + 1) for n in range(len(totals))])
        ratios.append(np.mean((totals - min(10, theta) * made.width) ** 2) / wanted)
    assert np.mean(ratios) == pytest.approx(1, rel=0.4)  # 340 blocks: three deviations


def test_figures_are_relative_to_the_last_block() -> None:
    errors = {kind: [2.0 + place, 1.0] for place, kind in enumerate(smoothers.KINDS)}
    first, *others = smoothers.totals_of([{"stream": "a", "epsilon": 1.0} | errors])
    assert first == {"smoother": "recent", "ranges": 1, "slots": 1, "ranges_worst": 1, "best": 1}
    assert [one["ranges"] for one in others] == pytest.approx([1.5, 2, 2.5, 3])
