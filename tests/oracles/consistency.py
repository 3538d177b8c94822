"""Consistent estimates of a b-ary forest of noisy sums, by two sweeps (Hay et al. 2010)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

from hushstream.errors import ContractError


def offline(levels: Sequence[Sequence[int | Fraction]], fanout: int) -> list[list[Fraction]]:
    """Consistent estimates of all nodes from noisy ones, by an upward and a downward sweep.

    Args:
        levels: noisy values, blocks first, each next level ``fanout`` times shorter.
        fanout: b ≥ 2.

    Raises:
        ContractError: the lengths do not fit.
    """
    for low, high in itertools.pairwise(levels):
        if len(low) != fanout * len(high):
            raise ContractError("levels do not form a tree")
    up = [[Fraction(x) for x in levels[0]]]
    for level, noisy in enumerate(levels[1:], start=2):
        whole, part = fanout**level - 1, fanout ** (level - 1) - 1
        below = _sums(up[-1], fanout)
        up.append([
            (Fraction(whole - part, whole) * x + Fraction(part, whole) * s)
            for x, s in zip(noisy, below, strict=True)
        ])  # fmt: skip
    for level in range(len(up) - 1, 0, -1):
        gap = [
            (x - s) / fanout for x, s in zip(up[level], _sums(up[level - 1], fanout), strict=True)
        ]
        up[level - 1] = [x + gap[i // fanout] for i, x in enumerate(up[level - 1])]
    return up


def _sums(values: Sequence[Fraction], fanout: int) -> list[Fraction]:
    return [sum(values[i : i + fanout], Fraction(0)) for i in range(0, len(values), fanout)]
