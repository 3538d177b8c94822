"""Exact probabilities of private splitting."""

from __future__ import annotations

import numpy as np
from hushstream.mechanisms.spatial.privtree import Selection
from numpy.typing import NDArray


def probability(selection: Selection, score: NDArray[np.int64], level: int) -> NDArray[np.float64]:
    """(m,) probability that each node splits, to a relative 1e-12."""
    if level < selection.floor or level >= selection.depth:
        return np.full(len(score), float(level < selection.floor))
    margin = selection.margin(score, level).astype(float)
    scale = float(selection.scale)
    below = np.exp(-1 / scale)
    tail = np.exp(-np.abs(np.where(margin > 0, margin, margin - 1)) / scale) / (1 + below)
    # P(Z > -m) is 1 - P(Z ≥ m) for m > 0 and P(Z ≥ 1 - m) otherwise.
    chance: NDArray[np.float64] = np.where(margin > 0, 1 - tail, tail)
    return chance
