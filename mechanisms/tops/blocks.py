"""Released slot values from exact slot sums: blocks, their noise, and smoothing inside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ..columns import F64, I64
from ..contract import Noise
from ..parts.trees.hierarchy import WideTree
from ..parts.trees.smoothing import Smoother
from ..sums import HELD, LARGEST, hold, nearest, total


class BlockMemory(NamedTuple):
    """State that a stream of blocks carries from one trigger to the next."""

    partial: int = 0  # exact clipped sum of the open block (private)
    total: int = 0  # sum of the released totals of all ended blocks, in output steps
    # newest released totals of ended blocks, newest first, in output steps
    past: tuple[int, ...] = ()


class First(NamedTuple):
    """Prediction for every slot of the first block, and the noise in it."""

    each: int = 0  # output steps
    variance: float = 0.0  # of its noise, in squared grid steps
    # covariance with the total that was released of earlier slots, in squared grid steps
    joint: float = 0.0


class Slice(NamedTuple):
    """Outputs for consecutive slots."""

    value: I64  # (q, 2) slot sum and prefix sum, in output steps
    variance: F64  # (q, 2) of the noise, in squared output steps


@dataclass(frozen=True)
class Blocks:
    """A stream of slots in blocks of ``width``; ``tree`` gives the noise of block totals."""

    tree: WideTree  # noise of block totals
    width: int  # slots per block
    steps: int  # output steps per grid step, a multiple of ``width``
    smoother: Smoother  # predicts the open block
    first: First  # predicts the first block

    def run(
        self, noise: Noise, theta: int, memory: BlockMemory, first: int, sums: I64
    ) -> tuple[BlockMemory, Slice]:
        """Outputs of the slots first, first+1, …, whose exact clipped sums are ``sums``."""
        value, variance = np.zeros((len(sums), 2), np.int64), np.zeros((len(sums), 2))
        for block, low, high, row in self._spans(first, len(sums)):
            rows = slice(row, row + high - low)
            each = self.per_slot(memory, block)
            ends = high == self.width
            partial = min(memory.partial + total(sums[rows]), LARGEST)
            out = np.full(high - low, hold(each), np.int64)
            running = _upto(memory.total, hold(each), low, high)
            if ends:
                shown = hold(partial * self.steps + self._noise(noise, theta, block))
                out[-1] = hold(shown - each * (self.width - 1))
                memory = self._remember(memory, shown)
                running[-1] = memory.total
            memory = memory._replace(partial=0 if ends else partial)
            value[rows] = np.stack([out, running], axis=1)
            variance[rows] = self.variance(theta, block, low, high) * float(self.steps) ** 2
        return memory, Slice(value, variance)

    def _spans(self, first: int, count: int) -> Iterator[tuple[int, int, int, int]]:
        at = first
        while at < first + count:
            block, low = divmod(at, self.width)
            high = min(self.width, low + first + count - at)
            yield block, low, high, at - first
            at += high - low

    def _remember(self, memory: BlockMemory, shown: int) -> BlockMemory:
        past = (shown, *memory.past)[: self.smoother.memory]
        return BlockMemory(0, hold(memory.total + shown), past)

    def per_slot(self, memory: BlockMemory, block: int) -> int:
        """The prediction for every slot of an open block, in output steps."""
        if block == 0:
            return self.first.each
        predicted = self.smoother.predict(memory.past, memory.total, block)
        return (predicted / self.width).__floor__()

    def _noise(self, noise: Noise, theta: int, block: int) -> int:
        """Noise of one block's total in output steps: the exact rational, rounded to 1/width."""
        fine = self.steps // self.width
        start, after = self.tree.prefix(noise, theta, block + 1)
        before = self.tree.prefix(noise, theta, block)[1] if block > start else Fraction(0)
        return (nearest(after * fine) - nearest(before * fine)) * self.width

    def variance(self, theta: int, block: int, low: int, high: int) -> F64:
        """(high - low, 2) noise variances of slots low..high-1 of a block, in grid steps."""
        whole = self.tree.variance(theta, 0, block)
        guess, joint = self._predicted(theta, block)
        lag = np.arange(low + 1, high + 1, dtype=np.float64)
        cross = joint - whole - guess
        out = np.stack([np.full(len(lag), guess), whole + lag * cross + lag**2 * guess], axis=1)
        if high == self.width:
            out[-1] = self._last(theta, block), self.tree.variance(theta, 0, block + 1)
        positive: F64 = np.maximum(out, 0.0)
        return positive

    def _predicted(self, theta: int, block: int) -> tuple[float, float]:
        """Variances of a predicted slot, and of the total of all ended slots plus that slot.

        The total before the first block has noise of its own, which callers add.
        """
        if block == 0:
            return self.first.variance, self.first.variance + 2 * self.first.joint
        if self.smoother.kind == "mean":
            share = 1 / (block * self.width)
            whole = self.tree.variance(theta, 0, block)
            return share**2 * whole, (1 + share) ** 2 * whole
        extra = self._extra(block, 1 / self.width)
        return self.tree.variance(theta, 0, 0, extra), self.tree.variance(theta, 0, block, extra)

    def _extra(self, block: int, factor: float) -> dict[int, float]:
        weights = self.smoother.weights(block)
        return {block - 1 - age: factor * float(weight) for age, weight in enumerate(weights)}

    def _last(self, theta: int, block: int) -> float:
        """Variance of the last slot of a block: its total less the estimates of the others."""
        given = -(self.width - 1) / self.width
        if block == 0:  # the prediction's noise is none of the tree's
            own = self.tree.variance(theta, 0, 1)
            return own + (self.width - 1) ** 2 * self.first.variance
        if self.width == 1:
            return self.tree.variance(theta, block, block + 1)
        if self.smoother.kind != "mean":
            return self.tree.variance(theta, block, block + 1, self._extra(block, given))
        whole, own = (
            self.tree.variance(theta, 0, block),
            self.tree.variance(theta, block, block + 1),
        )
        cross = self.tree.variance(theta, 0, block + 1) - whole - own
        return own + given / block * cross + (given / block) ** 2 * whole


def pack(memory: BlockMemory, kept: int) -> list[int]:
    """``3 + kept`` integers for storage: partial, total, number of past totals, past totals."""
    past = memory.past
    return [memory.partial, memory.total, len(past), *past, *[0] * (kept - len(past))]


def unpack(stored: I64) -> BlockMemory:
    """The inverse of `pack`."""
    values = [int(x) for x in stored]
    return BlockMemory(values[0], values[1], tuple(values[3 : 3 + values[2]]))


def _upto(before: int, each: int, low: int, high: int) -> I64:
    """Prefix sums at slots low..high-1 of a block whose slots are predicted as ``each``."""
    if abs(before) + abs(each) * high <= HELD:
        return before + each * np.arange(low + 1, high + 1)
    return np.array([hold(before + each * slots) for slots in range(low + 1, high + 1)], np.int64)
