"""The held-out benchmark of drift: errors agree with the mechanisms' statements; moving streams."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]

sys.path[:0] = [str(ROOT / name) for name in ("research", "benchmarks")]
try:
    import _heldout_drift as drift
    from _heldout_streams import streams
    from _heldout_values import Ranges
    from _values import Stream
finally:
    del sys.path[:2]


def test_streams_that_move_are_told_apart() -> None:
    moving = [one.name for one in streams("held") if drift.changes(one.name)]
    assert len(moving) == 6 and "steps between post offices" not in moving


def stepped() -> Stream:
    draw = np.random.default_rng(4)
    values = draw.exponential(np.repeat([5.0, 100.0], 1024))
    return Stream("step to 20", np.rint(np.minimum(values, 2000)).astype(np.int64), 2000)


@pytest.mark.parametrize("kind", ["tops", "pak"])
def test_a_threshold_learnt_anew_follows_a_step(kind: str) -> None:
    row = drift.row_of(kind, stepped(), Fraction(2), 3)
    assert row["anew"] < row["first"] / 2


def test_noise_is_that_of_the_mechanisms() -> None:
    """Compared with the variances that the mechanisms state for totals, with equal thresholds."""
    stream = stepped()
    ranges = Ranges.of(stream)
    whole = ranges.__class__(ranges.rest, np.zeros(1, np.int64), np.array([len(ranges.rest)]))
    theta, slots = 1 << 12, len(ranges.rest)
    tops = drift.built("tops", stream, Fraction(1), 256)
    stretches = tops.relearning.stretches
    tree = tops._blocks(tops._first(theta), thetas=(theta,) * stretches).tree
    stated = tree.variance(theta, 0, slots // tops.width)
    assert drift.tops_noise(tops, whole).sum() * theta**2 == pytest.approx(stated, rel=1e-4)
    pak = drift.built("pak", stream, Fraction(1), 256)
    pieces = pak._pieces((theta,) * stretches, (0,))
    ends = -(-slots * np.arange(1, drift.ENDS + 1) // drift.ENDS)
    mean = np.mean([pieces.variance(0, end) for end in ends.tolist()])
    assert drift.pak_noise(pak, slots).sum() * theta**2 == pytest.approx(mean, rel=1e-4)
