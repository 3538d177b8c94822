"""The likelihood ratio of a whole released vector as the statistic of an audit.

A release is base + Bz, or base + d + Bz for the neighbour; B and d are measured (`loss`). For
Gaussian draws ln(ratio) is linear in the released numbers, for Laplace draws it is a sum over the
draws that the released numbers determine. Where a part of d is not covered by any draw, the
statistic is that part: it tells the worlds apart for certain.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from scipy.stats import beta

from .loss import Linear

ALARM = 1e-4  # of one audit
GRADES = np.linspace(0.005, 0.995, 60)


def keyed(name: str) -> KeyedNoise:
    """Noise of a secret of its own."""
    return KeyedNoise(
        hashlib.sha256(name.encode()).digest(), charge=bytes(32), mechanism="audit", config=b"",
        pipeline="p", window="w", nonces=STEADY,
    )  # fmt: skip


def statistic(linear: Linear, shift: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """(runs,) ln of the likelihood ratio, or what grows with it, of (runs, numbers) less base."""
    kinds = np.array([one.kind == "gauss" for one in linear.labels])
    size = np.array([float(one.parameter) for one in linear.labels])
    scale = np.where(kinds, np.sqrt(size), size)
    scaled = linear.B * scale
    back = np.linalg.pinv(scaled, rcond=1e-7)
    x = back @ shift
    bare = shift - scaled @ x
    if np.abs(bare).max() > linear.rounding + 1e-5 * np.abs(shift).max():
        return np.asarray(seen @ bare / (bare @ bare))
    z = seen @ back.T
    each = np.where(kinds, z * x, np.abs(z) - np.abs(z - x))
    return np.asarray(each.sum(axis=1))


def proven(present: np.ndarray, absent: np.ndarray, delta: float) -> float:
    """A lower bound of ε at δ from a statistic in both worlds, in both directions.

    Half of the runs choose direction and cut, the other half proves the bound at confidence
    1 - `ALARM` (Clopper & Pearson 1934).
    """
    half = len(present) // 2
    cuts = np.unique(np.quantile(np.concatenate([present[:half], absent[:half]]), GRADES))
    worlds = [(present, absent, 1), (-absent, -present, -1)]
    tries = [(one, other, sign * cut) for one, other, sign in worlds for cut in cuts]

    def bound(choice: tuple[np.ndarray, np.ndarray, float], rows: slice) -> float:
        one, other, cut = choice
        return least(one[rows] >= cut, other[rows] >= cut, delta)

    best = max(tries, key=lambda choice: bound(choice, slice(half)))
    return bound(best, slice(half, None))


def strongest(runs: int, delta: float = 0.0) -> float:
    """The largest ε that `proven` can prove with so many runs: worlds that are told apart always.

    An audit of a larger ε could not fail.
    """
    half = runs - runs // 2
    return least(np.ones(half, bool), np.zeros(half, bool), delta)


def least(often: np.ndarray, seldom: np.ndarray, delta: float) -> float:
    """ε that an event proves which happened ``often`` in one world and ``seldom`` in the other."""
    hits, misses = int(often.sum()), int(seldom.sum())
    low = at_least(hits, len(often))
    full = misses == len(seldom)
    high = 1.0 if full else float(beta.ppf(1 - ALARM / 2, misses + 1, len(seldom) - misses))
    return math.log((low - delta) / high) if low > delta else -math.inf


def at_least(hits: int, runs: int) -> float:
    """A lower bound of the probability of what happened in so many runs."""
    return float(beta.ppf(ALARM / 2, hits, runs - hits + 1)) if hits else 0.0
