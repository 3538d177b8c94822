"""The error of a child's share of what its ancestors counted before it existed.

Which child those records lie in is not known. Their parts follow a Dirichlet law: the mean of a
child's part D is stated, and the law's concentration says how crowded records are, as released
counts show (`concentration`).

Errors are stated as *records* meet them. A leaf holds many records because its part is large, so
its count is more often too small than too large, and at each level anew: errors add up with one
sign. Seen by records, who are in a child as often as its part is large, D has the density
d·p(d)/E[D] instead of p(d). A variance over leaves would hold for most leaves and fail for most
records.

This reads released numbers only, so it is post-processing and costs nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..columns import F64, I64

CLEAR = 3
"""Standard deviations by which a node's count must exceed 0 to tell how its records lie."""

BEFORE = 50
"""Records taken to be as crowded as is assumed at least."""


class Error(NamedTuple):
    """Exact counts less estimates of them, as records meet it."""

    mean: F64  # (m,) records
    square: F64  # (m,) mean square, squared records


def unlike(before: F64, earlier: F64, after: F64, later: F64) -> F64:
    """(s,) doubt whether later records of a node lie as its earlier ones do, from 0 to 1.

    It is sqrt(1 - r) for r the smaller of two rates over the larger: of the records before a node
    split and of those since. If records come to a place at a steady rate, they probably lie there
    as before. If a place was busy and then quiet, as where records come sorted, the later ones do
    not tell where the earlier ones lie. The square root was chosen on the first group of data sets
    of ``benchmarks/intervals.py``.

    Args:
        before: (s,) records before the split.
        earlier: (s,) triggers in which they came; at least one is assumed.
        after: (s,) records since.
        later: (s,) triggers since.
    """
    rates = np.sort([before * later, after * np.maximum(earlier, 1)], axis=0)
    ratio = np.divide(rates[0], rates[1], out=np.ones(len(before)), where=rates[1] > 0)
    doubt: F64 = np.sqrt(1 - ratio)
    return doubt


def concentration(own: I64, variance: F64, first: NDArray[np.intp], fanout: int) -> float:
    """Concentration of a node's parts, per child, at one level: 0 if all records are in one child.

    Let q be the chance that two records of a node lie in the same child. Over the nodes whose
    count N is clear, it is the sum of (Σn² - V - N)/N over that of N - 1, for counts n of children
    whose noise has the variance V in sum. A symmetric Dirichlet law with α for each of β children
    has q = (α + 1)/(βα + 1). Records are taken to be at least as crowded as on a curve in the
    plane, so q is at least 1/√β: it is learned from nodes that hold many records and used where
    there are few. `BEFORE` records count as that crowded, beside the released ones.

    Args:
        own: (c,) released counts of all children of a level, records.
        variance: (c,) their noise variances.
        first: (s,) where each parent's children begin.
        fanout: β, children of a node inside the region.
    """
    count = own.astype(np.float64)
    total, noise, squares = (np.add.reduceat(one, first) for one in (count, variance, count**2))
    clear = (total > 1) & (total > CLEAR * np.sqrt(noise))
    total, noise, squares = total[clear], noise[clear], squares[clear]
    least: float = fanout**-0.5
    same = BEFORE * least + ((squares - noise - total) / total).sum()
    pairs = BEFORE + (total - 1).sum()
    q = min(max(float(same / pairs), least), 1.0)
    return (1 - q) / (fanout * q - 1)


def share_error(
    inherited: F64, above: Error, part: F64, families: I64, doubt: F64, alpha: float
) -> Error:
    """(c,) error of each child's share of its ancestors' counts.

    A child's share is w·A for the A records that its ancestors are estimated to have counted; it
    should be D·(A + e), with e their own error. So it is off by D·e + A·(D - w), where D is taken
    as independent of e. D is of a Dirichlet law with the sum s = β·``alpha``: for a record, its
    mean is w with probability 1 - ``doubt``, otherwise 1/β. Seen by records, a part with the mean m
    follows Beta(ms + 1, s - ms).

    Args:
        inherited: (s,) A of the split nodes, records, not negative.
        above: (s,) error of it.
        part: (c,) w of their children, which add up to 1 for each node.
        families: (s,) number β of children of each node.
        doubt: (s,) see `unlike`.
        alpha: see `concentration`.
    """
    split = np.repeat(np.arange(len(families)), families)
    doubt, records, many = doubt[split], inherited[split], families[split].astype(np.float64)
    seen, alike = (_moments(one, alpha * many) for one in (part, 1 / many))
    mean, square = ((1 - doubt) * a + doubt * b for a, b in zip(seen, alike, strict=True))
    low, wide = above.mean[split], above.square[split]
    return Error(
        mean * low + records * (mean - part),
        square * wide
        + 2 * records * low * (square - part * mean)
        + records**2 * (square - 2 * part * mean + part**2),
    )


def _moments(part: F64, total: F64) -> tuple[F64, F64]:
    """E[D] and E[D²] as records see them, for a mean ``part`` and the sum ``total``."""
    a = part * total
    return (a + 1) / (total + 1), (a + 1) * (a + 2) / ((total + 1) * (total + 2))
