"""Binary trees as factorisations: every complete dyadic node of the horizon is one noise draw.

Node (i, j) covers steps j·2^i+1 … (j+1)·2^i. Nodes beyond the horizon are never released and do not
exist, so a step lies in at most H(T) = T.bit_length() nodes, and the first step in exactly H(T)
(Dwork, Naor, Pitassi & Rothblum 2010; Chan, Shi & Song 2011). Noise coordinates are sorted by the
step at which their node is complete, then by height, so the coordinates that trigger t needs are a
prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import lcm

import numpy as np

from ..columns import I64
from ..validate import at_least

Row = tuple[dict[int, int], int]
"""A row of B: numerators by noise coordinate, and their common denominator."""


def nodes(horizon: int) -> list[tuple[int, int]]:
    """(height, position) of every complete node, sorted by completion.

    >>> nodes(4)
    [(0, 0), (0, 1), (1, 0), (0, 2), (0, 3), (1, 1), (2, 0)]
    """
    steps = range(1, at_least("horizon", horizon, 1) + 1)
    return [(i, (t >> i) - 1) for t in steps for i in range((t & -t).bit_length())]


def place(height: int, position: int) -> int:
    """The noise coordinate of a node.

    >>> [place(i, j) for i, j in nodes(6)]
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    before = ((position + 1) << height) - 1
    # Steps 1…n complete 2n - popcount(n) nodes: ⌊n/2^i⌋ at each height i.
    return 2 * before - before.bit_count() + height


def spans(step: int) -> Iterator[tuple[int, int]]:
    """The nodes that partition 1…step, tallest first: one per set bit.

    >>> list(spans(6))
    [(2, 0), (1, 2)]
    """
    for i in range(step.bit_length() - 1, -1, -1):
        if step >> i & 1:
            yield i, (step >> i) - 1


def encoder(horizon: int, bits: int) -> I64:
    """C (nodes, T): 2^bits where the node covers the step."""
    listed = nodes(horizon)
    C = np.zeros((len(listed), horizon), np.int64)
    for row, (i, j) in enumerate(listed):
        C[row, j << i : (j + 1) << i] = 1 << bits
    return C


def popcount_row(step: int) -> Row:
    """The plain estimator: the noise of the nodes that partition 1…step."""
    return {place(i, j): 1 for i, j in spans(step)}, 1


def honaker_row(step: int) -> Row:
    """The bottom-up estimator of Honaker (2015): each node refined by all of its descendants.

    For a node of height h, the sums of its levels k = 0 (itself) … h are averaged with weights
    c_k = 2^-k/Σ 2^-k; the variance is σ²/(2(1 - 2^-(h+1))).
    """
    parts = list(spans(step))
    common = lcm(*((2 << i) - 1 for i, _ in parts))
    row: dict[int, int] = {}
    for i, j in parts:
        unit = common // ((2 << i) - 1)
        for k in range(i + 1):
            below = range(j << k, (j + 1) << k)
            row.update((place(i - k, node), unit << (i - k)) for node in below)
    return row, common


def norm2(row: Row) -> Fraction:
    """Σ b² of a row, exactly."""
    numerators, denominator = row
    return Fraction(sum(b * b for b in numerators.values()), denominator**2)
