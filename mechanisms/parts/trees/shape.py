"""The shape of a wide tree of least expected error: children per node, levels, slots per block.

A shape is public: it follows from the number of slots, ε and the records expected per slot. For
θ = 1 the mean squared error of a random range has three parts:

* *noise*, exactly as in `consistency`, averaged over spans whose ends may lie inside blocks: there
  a prefix sum is the released total of the ended blocks plus a share of the mean of the last h
  (`smoothing`), so its noise is a weighted sum of two totals;
* *chance*: values in [0, 1] that scatter evenly leave a prefix sum √(load·width·(1/2 + 1/3h)/12)
  away from its prediction, as 1/12 is the variance of a value between 0 and 1, and 1/2 + 1/3h the
  mean over the places in a block; a range has two ends;
* *trend*: blocks differ by more than chance, by shares of the largest sum of a block: `_TREND`
  whatever their width, and the level's own movement, `_SLOPE` over the length of the stream but at
  most `_SWING`. A daily cycle moves a level steadily within a block, so wide blocks lose more than
  in proportion. The three were tuned on streams that no documented figure uses.

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
_TREND = 0.02
_SLOPE = 1.2
_SWING = 0.04
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


def span_terms(first: int, end: int, width: int, history: int = 1) -> dict[int, float]:
    """Weights on block totals of the estimate of the slots first..end-1.

    Args:
        first, end, width: slots of the range, and of a block.
        history: h, blocks whose mean predicts the next one.

    >>> span_terms(4, 10, 4)
    {2: 1.5, 1: -1.5}
    >>> span_terms(8, 14, 4, 2)
    {3: 1.25, 1: -0.25, 2: -1.0}
    """
    terms: dict[int, float] = {}
    for place, sign in ((end, 1.0), (first, -1.0)):
        block, rest = divmod(place, width)
        known = min(block, history)
        share = rest / width / known if block else 0.0
        for total, weight in ((block, 1 + share), (block - known, -share)):
            if total > 0:
                terms[total] = terms.get(total, 0.0) + sign * weight
    return {total: weight for total, weight in terms.items() if weight}


def unit_noise(shape: TreeShape, slots: int, history: int = 1) -> float:
    """Mean noise variance of a range for θ = ε = 1."""
    covariance = Covariance(shape.fanout, shape.levels)
    total = sum(covariance.of(span_terms(a, z, shape.width, history)) for a, z in spans(slots))
    return 2.0 * shape.levels**2 * total / _SPANS


def inside_error(width: int, slots: int, load: int, history: int = 1) -> float:
    """Mean squared error of a range for θ = 1 due to predictions inside blocks.

    Args:
        width, slots: slots of a block, and of the stream.
        load: records expected per slot.
        history: blocks whose mean predicts the next one.
    """
    if width == 1:
        return 0.0
    chance = (3 * history + 2) * load * width / (36 * history)
    moved = min(_SLOPE * width / slots, _SWING)
    return chance + (load * width) ** 2 * (_TREND**2 + moved**2)


def shape_error(
    shape: TreeShape, slots: int, epsilon: Fraction, load: int, history: int = 1
) -> float:
    """Mean squared error of a random range for θ = 1, which `choose_shape` minimises."""
    missed = inside_error(shape.width, slots, load, history)
    return unit_noise(shape, slots, history) / float(epsilon) ** 2 + missed


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
    history: int = 1,
) -> TreeShape:
    """The shape of least expected error; ties go to the least fanout and levels.

    Args:
        load: records expected per slot.
        fanout, height, skip: children per node, levels in all, levels without their own noise;
            0, 0 and -1 leave the choice to this function.
        whole: a number of slots that must consist of whole blocks; 0: no such constraint.
        history: blocks whose mean predicts the next one.

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
    fitting = (one for one in shapes if whole % one.width == 0)
    return _best(fitting, slots, epsilon, load, history)


def _best(
    shapes: Iterable[TreeShape], slots: int, epsilon: Fraction, load: int, history: int
) -> TreeShape:
    best, least, seen = None, float("inf"), set()
    for shape in shapes:
        alike = (shape.levels, shape.width, shape.fanout if shape.levels > 1 else 0)
        if alike in seen or inside_error(shape.width, slots, load, history) >= least:
            continue
        seen.add(alike)
        error = shape_error(shape, slots, epsilon, load, history)
        if error < least * (1 - 1e-9):
            best, least = shape, error
    if best is None:
        raise ParameterError("skip", 0, "leaves no level")
    return best


def mean_variance(tree: WideTree, width: int, slots: int, history: int = 1) -> float:
    """Mean noise variance of a range for θ = 1, where blocks have ``width`` slots."""
    total = 0.0
    for first, end in spans(slots):
        low, share_low = divmod(first, width)
        high, share_high = divmod(end, width)
        extra: dict[int, float] = {}
        for block, rest, sign in ((high, share_high, 1.0), (low, share_low, -1.0)):
            known = min(block, history)
            for last in range(block - known, block) if rest else ():
                extra[last] = extra.get(last, 0.0) + sign * rest / width / known
        total += tree.variance(_FINE, low, high, extra)
    return total / _SPANS / _FINE**2


@lru_cache(maxsize=256)
def endless(
    slots: int, epsilon: Fraction, load: int, fanout: int, skip: int = -1, history: int = 1
) -> tuple[InfiniteTree, int]:
    """The infinite tree over ``slots`` slots and the slots per block of least expected error."""
    best, least = None, float("inf")
    for s in range(_DEEPEST) if skip < 0 else (skip,):
        width = fanout**s
        if best is not None and width * _FEWEST > slots:
            break
        tree = InfiniteTree(fanout, epsilon, blocks=-(-slots // width))
        missed = inside_error(width, slots, load, history)
        error = mean_variance(tree, width, slots, history) + missed
        if best is None or error < least:
            best, least = (tree, width), error
    assert best is not None
    return best
