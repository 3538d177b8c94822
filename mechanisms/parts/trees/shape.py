"""The shape of a wide tree of least expected error: children per node, levels, slots per block.

A shape is public: it follows from the number of slots, ε and the records expected per slot. For
θ = 1 the mean squared error of a random range has three parts:

* *noise*, exactly as in `consistency`, averaged over spans whose ends may lie inside blocks: there
  a prefix sum is the released total of the ended blocks plus a share of the last one (`smoothing`),
  so its noise is a weighted sum of two totals;
* *chance*: values in [0, 1] that scatter evenly within a block leave a prefix sum
  √(load·width·5/72) away from its prediction, as 1/12 is the variance of a value between 0 and 1,
  and 5/6 the mean over the places in a block; a range has two ends;
* *trend*: blocks differ by more than chance, assumed to be `_TREND` of the largest sum of a block,
  tuned on streams that no documented figure uses (`research/heldout.py`).

The published objective, with a linear error of 1/6 of the largest sum of a block, chooses blocks
that are far too narrow, and pays for levels that hardly any range needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from ....errors import ParameterError
from ...validate import at_least, positive
from .hierarchy import InfiniteTree, WideTree

FANOUTS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32)
_TREND = 0.03
_SPANS = 48
_STEPS = (0.7548776662466927, 0.5698402909980532)  # a sequence that fills the square evenly
_FEWEST = 8  # blocks in a stream
_NODES = 1 << 21  # a chunk's noise is drawn at once
_DEEPEST = 20
_FINE = 1 << 10  # θ for computing variances: at small scales, noise on the grid has less variance


@dataclass(frozen=True)
class TreeShape:
    """A wide tree: chunks of ``fanout ** levels`` blocks of ``width = fanout ** skip`` slots."""

    fanout: int
    levels: int
    skip: int

    @property
    def width(self) -> int:
        """Slots per block."""
        return int(self.fanout**self.skip)


class Covariance:
    """Covariances of the noise of block totals, per unit of node variance.

    Args:
        fanout, levels: shape of the chunks in an endless sequence.
    """

    def __init__(self, fanout: int, levels: int) -> None:
        self._parts: list[tuple[int, float]] = []
        size, last = 1, 0
        for level in range(levels):
            here = last * fanout + 1  # 1 + b + … + b^level
            self._parts.append((size, -1.0 / (here * last) if level else 1.0))
            size, last = size * fanout, here

    def __call__(self, i: int, j: int) -> float:
        """Cov(T_i, T_j), T_i the noise of the total of the first i blocks."""
        low, high = (i, j) if i < j else (j, i)
        total = 0.0
        for size, weight in self._parts:
            whole, rest = divmod(low, size)
            shared = min(size, high - whole * size)
            total += weight * (whole * float(size) ** 2 + float(rest) * shared)
        return total

    def of(self, terms: dict[int, float]) -> float:
        """Variance of Σ weight·T_i."""
        pairs = list(terms.items())
        total = 0.0
        for place, (i, a) in enumerate(pairs):
            total += a * a * self(i, i)
            for j, b in pairs[:place]:
                total += 2 * a * b * self(i, j)
        return total


def spans(slots: int) -> Iterator[tuple[int, int]]:
    """First slot and end of ranges that lie evenly among all ranges of ``slots`` slots."""
    for i in range(1, _SPANS + 1):
        one, other = (int(i * step % 1 * (slots + 1)) for step in _STEPS)
        yield min(one, other), max(one, other)


def span_terms(first: int, end: int, width: int) -> dict[int, float]:
    """Weights on block totals of the estimate of the slots first..end-1.

    >>> span_terms(4, 10, 4)
    {2: 1.5, 1: -1.5}
    """
    terms: dict[int, float] = {}
    for place, sign in ((end, 1.0), (first, -1.0)):
        block, rest = divmod(place, width)
        share = rest / width if block else 0.0
        for total, weight in ((block, 1 + share), (block - 1, -share)):
            if total > 0:
                terms[total] = terms.get(total, 0.0) + sign * weight
    return {total: weight for total, weight in terms.items() if weight}


def unit_noise(shape: TreeShape, slots: int) -> float:
    """Mean noise variance of a range for θ = ε = 1."""
    covariance = Covariance(shape.fanout, shape.levels)
    total = sum(covariance.of(span_terms(a, z, shape.width)) for a, z in spans(slots))
    return 2.0 * shape.levels**2 * total / _SPANS


def inside_error(width: int, load: int) -> float:
    """Mean squared error of a range for θ = 1 due to predictions inside blocks."""
    return 5 * load * width / 36 + (_TREND * load * width) ** 2 if width > 1 else 0.0


def shape_error(shape: TreeShape, slots: int, epsilon: Fraction, load: int) -> float:
    """Mean squared error of a random range for θ = 1, which `choose_shape` minimises."""
    return unit_noise(shape, slots) / float(epsilon) ** 2 + inside_error(shape.width, load)


def candidates(slots: int, fanout: int = 0, height: int = 0, skip: int = -1) -> Iterator[TreeShape]:
    """Shapes for ``slots`` slots; given parameters stay fixed.

    Levels above the one whose nodes are as long as the stream are never used; with a single level,
    only the width matters.
    """
    for b in (fanout,) if fanout else FANOUTS:
        for s in (skip,) if skip >= 0 else range(_DEEPEST):
            if s and s != skip and b**s * _FEWEST > slots:
                break
            for levels in range(1, _DEEPEST) if not height else (height - s,):
                top = b ** (levels - 1)
                if levels > 1 and not height and (top * b**s >= slots or top * b > _NODES):
                    break
                if levels >= 1:
                    yield TreeShape(b, levels, s)


@lru_cache(maxsize=256)
def choose_shape(
    slots: int,
    epsilon: Fraction,
    load: int = 1,
    fanout: int = 0,
    height: int = 0,
    skip: int = -1,
    whole: int = 0,
) -> TreeShape:
    """The shape of least expected error; ties go to the least fanout and levels.

    Args:
        load: records expected per slot.
        fanout, height, skip: children per node, levels in all, levels without their own noise;
            0, 0 and -1 leave the choice to this function.
        whole: a number of slots that must consist of whole blocks; 0: no such constraint.

    Raises:
        ParameterError: a parameter is out of range, or no shape is possible.
    """
    at_least("slots", slots, 1)
    at_least("load", load, 1)
    positive("epsilon", epsilon)
    if fanout:
        at_least("fanout", fanout, 2)
    if height and skip >= height:
        raise ParameterError("skip", skip, f"must be below the height {height}")
    shapes = candidates(slots, fanout, height, skip)
    return _best((one for one in shapes if whole % one.width == 0), slots, epsilon, load)


def _best(shapes: Iterable[TreeShape], slots: int, epsilon: Fraction, load: int) -> TreeShape:
    best, least, seen = None, float("inf"), set()
    for shape in shapes:
        alike = (shape.levels, shape.width, shape.fanout if shape.levels > 1 else 0)
        if alike in seen or inside_error(shape.width, load) >= least:
            continue
        seen.add(alike)
        error = shape_error(shape, slots, epsilon, load)
        if error < least * (1 - 1e-9):
            best, least = shape, error
    if best is None:
        raise ParameterError("skip", 0, "leaves no level")
    return best


def mean_variance(tree: WideTree, width: int, slots: int) -> float:
    """Mean noise variance of a range for θ = 1, where blocks have ``width`` slots."""
    total = 0.0
    for first, end in spans(slots):
        low, share_low = divmod(first, width)
        high, share_high = divmod(end, width)
        extra: dict[int, float] = {}
        for block, rest, sign in ((high, share_high, 1.0), (low, share_low, -1.0)):
            if block and rest:
                extra[block - 1] = extra.get(block - 1, 0.0) + sign * rest / width
        total += tree.variance(_FINE, low, high, extra)
    return total / _SPANS / _FINE**2


@lru_cache(maxsize=256)
def endless(
    slots: int, epsilon: Fraction, load: int, fanout: int, skip: int = -1
) -> tuple[InfiniteTree, int]:
    """The infinite tree over ``slots`` slots and the slots per block of least expected error."""
    best, least = None, float("inf")
    for s in range(_DEEPEST) if skip < 0 else (skip,):
        width = fanout**s
        if best is not None and width * _FEWEST > slots:
            break
        tree = InfiniteTree(fanout, epsilon, blocks=-(-slots // width))
        error = mean_variance(tree, width, slots) + inside_error(width, load)
        if best is None or error < least:
            best, least = (tree, width), error
    assert best is not None
    return best
