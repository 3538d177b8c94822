"""The study of depths: fine boxes lie around records, and a deeper tree resolves what is small."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path[:0] = [str(Path(__file__).parents[2] / name) for name in ("research", "benchmarks")]
try:
    import depths
    import intervals
    from _spatial import Stream
finally:
    del sys.path[:2]


def crowd() -> Stream:
    """Half of the records within a hundredth of a cell of depth 8, the others anywhere."""
    draw = np.random.default_rng(1)
    near = np.full((6_000, 2), 0.3) + draw.uniform(0, 4e-5, (6_000, 2))
    return intervals.mixed(np.concatenate([near, draw.random((6_000, 2))]))


def test_fine_boxes_hold_records_and_are_smaller_than_a_cell() -> None:
    low, high = depths.fine(crowd())
    assert (high - low).max() < 1 / 256 and (high - low).min() > 0
    near = ((low <= 0.3) & (high >= 0.3)).all(axis=1)
    assert 0.4 < near.mean() < 0.6


def test_a_deeper_tree_has_less_error_where_records_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depths, "HALVES", {"tuned": {"crowd": crowd}})
    monkeypatch.setattr(depths, "EPSILONS", ("2",))
    found = {row["depth"]: row for row in depths.compared("tuned", quick=True)}
    assert found[6]["fine"] > 1.2 > found[8]["fine"] == 1 > 0.8 > found[10]["fine"]
    assert found[6]["nodes"] < 1 < found[10]["nodes"]
