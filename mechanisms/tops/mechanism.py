"""ToPS: sums of a stream of values, by clipping threshold, consistent hierarchy and smoother.

Wang, Chen, Zhang, Su, Cheng, Li, Li, Jha, *Continuous Release of Data Streams under both
Centralized and Local Differential Privacy*, CCS 2021, for event-time slots. The first triggers of a
window, the warm-up, choose a threshold θ by a noisy maximum; from then on every trigger releases
its slots: their sums and the prefix sum, of values clipped to [0, θ].

*Guarantee.* Add/remove of one record: ε-DP. A record lies in one slot, fixed by its own time and
micro-batch. In the warm-up it pays 9ε/10 to the threshold and then ε/10 to the warm-up's sum of
values clipped at the θ that was released, which has DLap(10θ/ε) (with ``publish_warmup`` a share
of ε to the threshold and the rest to the warm-up's own hierarchy); later ε to the hierarchy (with
``watch`` a share of ε to the number of records above θ that its trigger releases with
DLap(1/share), with ``relearn`` a share to the threshold of the next stretch, see
`slots.relearning`, and the rest to the hierarchy); so the parts of the window compose in parallel.
A unit contributes at most k records, whatever windows and slots they are in: kε. Replacing one
value within a slot costs no more than adding one: the scores of the threshold stay monotone, the
warm-up's sum and a node move by at most θ, the number above θ by at most 1. Predictions, smoothing,
consistency and rounding are post-processing of noise that is drawn whether there are data or not.

*The first block.* There is no earlier one to predict its slots from, so the warm-up does. Of its m
slots the released sum is S, with noise of variance σ²m²: each slot is predicted as
``max(0, w·S/m + (1-w)·a)`` with a = θ/4 times the expected records per slot, and
w = a²/(a² + σ²), the weight of least error if the true mean lies about a from a.

*No draw covers two contents.* The threshold, the warm-up's sum and its hierarchy are drawn once, at
the warm-up's trigger, when its slots are closed; for the other blocks see `trees.hierarchy`.

The paper defines neighbours by position, where a record added at the front would shift every later
value. So slots replace positions here.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from ...errors import ContractError, ParameterError
from ..columns import F64, I64, Closed, Releases, Rows, no_releases
from ..contract import INSERTING, Cost, Guarantee, Noise, Output
from ..parts.thresholds.clip import exceedance_scores, noisy_max
from ..parts.trees.hierarchy import Chunks, InfiniteTree, WideTree, laplace_variance
from ..parts.trees.smoothing import Smoother
from ..parts.trees.stretches import Stretches
from ..ranges import Draws, laplace
from ..slots.relearning import Learnt, Relearning
from ..slots.slots import Entries, with_state
from ..slots.steps import InSteps
from ..slots.stream import SlotStream
from ..sums import held, hold, plus
from ..validate import positive
from .blocks import BlockMemory, Blocks, First, pack, unpack

_FINE = 1 << 10  # θ in which a variance is computed: for small scales noise on a grid has less


@dataclass(frozen=True)
class Warmup:
    """Noise of a published warm-up."""

    chunks: Chunks  # hierarchy over its blocks
    width: int  # slots per block; divides the number of slots of the warm-up


@dataclass(frozen=True)
class Tops(SlotStream):
    """A configured stream.

    Attributes:
        slots: time, values, thresholds, contribution bound (`SlotStream`).
        threshold_epsilon: ε of one warm-up record, for the threshold.
        tree: noise of block totals after the warm-up; its ``epsilon`` is per record.
        width: slots per block.
        penalty: (thresholds,) public part of the score of each threshold.
        smoother: estimates inside blocks.
        steps: output steps per grid step; a multiple of every block width.
        warmup: noise for publishing the warm-up as well, or None.
        expected: records expected per slot; it affects only the first predictions.
        sampling: δ due to the distance between drawn and exact noise.
        watch: ε of one record after the warm-up for the number of records above θ, or None.
        relearning: rule for later thresholds, or None; a stretch has whole blocks.
        sum_epsilon: ε of one warm-up record, for the sum that predicts the first block; None where
            the warm-up is published, whose hierarchy tells that sum.
    """

    guarantee: ClassVar[Guarantee] = Guarantee("discrete_laplace")

    threshold_epsilon: Fraction
    tree: Chunks | InfiniteTree
    width: int
    penalty: tuple[int, ...]
    smoother: Smoother
    steps: int
    warmup: Warmup | None = None
    expected: int = 1
    sampling: Fraction = Fraction(0)
    watch: Fraction | None = None
    relearning: Relearning | None = None
    sum_epsilon: Fraction | None = None

    def __post_init__(self) -> None:
        positive("threshold_epsilon", self.threshold_epsilon)
        if (self.sum_epsilon is None) == (self.warmup is None):
            raise ParameterError(
                "sum_epsilon", self.sum_epsilon, "or a published warm-up, not both"
            )
        if self.sum_epsilon is not None:
            positive("sum_epsilon", self.sum_epsilon)
        if self.watch is not None:
            positive("watch", self.watch)
        if len(self.penalty) != len(self.slots.thresholds):
            raise ParameterError("penalty", len(self.penalty), "one per threshold")
        widths = [self.width, *([self.warmup.width] if self.warmup else [])]
        if any(width < 1 or self.steps % width for width in widths):
            raise ParameterError("steps", self.steps, "must be a multiple of the block width")
        if self.warmup and self.slots.warmup_slots % self.warmup.width:
            raise ParameterError("warmup", self.slots.warmup_slots, "must consist of whole blocks")
        if self.relearning and self.relearning.every * self.slots.per_trigger % self.width:
            raise ParameterError("relearn", self.relearning.every, "must consist of whole blocks")
        if self.slots.top * self.steps >= 1 << 40:
            raise ParameterError("value", self.slots.top, "the value grid is too fine")

    @property
    def _outputs(self) -> tuple[Output, ...]:
        """Sum of the slot; sum of the window up to the end of the slot."""
        step = self.slots.grid / self.steps
        return Output("sum", step, INSERTING), Output("prefix", step, INSERTING)

    def digests(self) -> tuple[str, ...]:
        """None: every number is an exact rational or an integer."""
        return ()

    def _open(self, rows: Rows, entries: Entries, noise: Noise) -> tuple[Rows, Releases]:
        """Choose θ from the warm-up, and tell its sum; publish all of it if configured."""
        scores = exceedance_scores(self.slots.histogram(entries), np.array(self.penalty))
        t = self.slots.warmup
        chosen = noisy_max(scores, 1 / self.threshold_epsilon, noise, t)
        theta = self.slots.thresholds[chosen]
        public = {"threshold": np.array([theta], np.int64)}
        if self.sum_epsilon is not None:
            told = hold(self._warm_sum(entries, theta, self.sum_epsilon, noise))
            public["warmup_sum"] = np.array([told], np.int64)
            each = self.predicted(theta, told * self.steps)
            return self._store(rows, theta, 0, each, BlockMemory()), no_releases(2, public)
        assert self.warmup is not None
        sums = self.slots.per_slot(entries, theta, t)
        timed = InSteps(noise, t - 1, self.slots.warmup_slots, self.warmup.width)
        blocks = self._warm_blocks(self.warmup, theta)
        memory, out = blocks.run(timed, theta, BlockMemory(), 0, sums)
        released = self._released(t, 0, out.value, out.variance, public)
        each = self.predicted(theta, memory.total)
        return self._store(rows, theta, memory.total, each, BlockMemory()), released

    def _go_on(
        self, closed: Closed, rows: Rows, entries: Entries, state: I64, noise: Noise
    ) -> tuple[Rows, Releases]:
        """The sums of a trigger's slots, clipped at θ."""
        opened, base, t = int(state[0]), int(state[1]), closed.t
        first_block = self._first(opened, self._each(state))
        learnt = self._learnt(self.relearning, state[self._packed :], t)
        theta = learnt.thresholds[-1] if learnt else opened
        first = self.slots.range_of(t)[0]
        sums = self.slots.per_slot(entries, theta, t)
        at = first - self.slots.warmup_slots
        thetas = learnt.thresholds if learnt else ()
        begins = self.slots.begins(closed.renewals, self.width)
        blocks = self._blocks(first_block, begins, thetas)
        timed = self._timed(noise, self.width)
        memory, out = blocks.run(timed, theta, unpack(state[2:]), at, sums)
        out.value[:, 1] = held(plus(out.value[:, 1], np.int64(base)))
        out.variance[:, 1] += self._base_variance(opened)
        public = self._watched(self.watch, entries, theta, t, noise)
        learnt, more = self._learnt_at(self.relearning, learnt, entries, t, noise)
        released = self._released(t, first, out.value, out.variance, public | more)
        return self._store(rows, opened, base, first_block.each, memory, learnt), released

    @cached_property
    def _weight(self) -> Fraction:
        """w, the weight of the warm-up's mean in a prediction; θ cancels in it."""
        if self.warmup is None:
            assert self.sum_epsilon is not None
            noise = 2 / self.sum_epsilon**2
        else:
            noise = Fraction(self._told_variance(_FINE) / _FINE**2).limit_denominator(1 << 20)
        usual = Fraction(self.expected, 4) ** 2
        return usual / (usual + noise / self.slots.warmup_slots**2)

    def predicted(self, theta: int, told: int) -> int:
        """The prediction for every slot of the first block, in output steps.

        Args:
            theta: the first threshold.
            told: the released sum of the warm-up, clipped at it, in output steps.
        """
        mean = self._weight * told / self.slots.warmup_slots
        usual = (1 - self._weight) * self.steps * self.expected * theta / 4
        return hold(max(0, (mean + usual).__floor__()))

    def _told_variance(self, theta: int) -> float:
        """Noise variance of the released sum of the warm-up, in grid steps."""
        if self.warmup is None:
            assert self.sum_epsilon is not None
            return laplace_variance(theta / self.sum_epsilon)
        blocks = self.slots.warmup_slots // self.warmup.width
        return self.warmup.chunks.variance(theta, 0, blocks)

    def _first(self, theta: int, each: int = 0) -> First:
        """The prediction of the first block, whose noise is that of the warm-up's sum.

        Running totals go on from a published warm-up, and its sum is in both.
        """
        share, noise = float(self._weight) / self.slots.warmup_slots, self._told_variance(theta)
        return First(each, share**2 * noise, share * noise if self.warmup else 0.0)

    def _blocks(
        self, opening: First, origins: tuple[int, ...] = (0,), thetas: tuple[int, ...] = ()
    ) -> Blocks:
        tree: WideTree = self.tree.restarted(origins)
        if self.relearning:
            length = self.relearning.every * self.slots.per_trigger // self.width
            assert isinstance(self.tree, Chunks)
            tree = Stretches(self.tree, length, thetas, origins)
        return Blocks(tree, self.width, self.steps, self.smoother, opening)

    def worst_blocks(self) -> Blocks:
        """The stream with B as every threshold."""
        stretches = self.relearning.stretches if self.relearning else 0
        opening = self._first(self.slots.top)
        return self._blocks(opening, thetas=(self.slots.top,) * stretches)

    def _warm_blocks(self, warmup: Warmup, theta: int) -> Blocks:
        opening = First(self.steps * self.expected * theta // 4)
        return Blocks(warmup.chunks, warmup.width, self.steps, self.smoother, opening)

    @property
    def _packed(self) -> int:
        """Integers of the state before those of relearnt thresholds."""
        return 2 + len(pack(BlockMemory(), self.smoother.memory))

    def _each(self, state: I64) -> int:
        """The prediction of the first block in a stored state.

        It comes last, where an earlier version has nothing, or zero to fill a row: no number of
        either version is read as another one.

        Raises:
            ContractError: it is missing.
        """
        again = self.relearning
        place = self._packed + (again.stretches + len(self.slots.thresholds) if again else 0)
        if len(state) <= place:
            raise ContractError("the state of the stream is that of an earlier version")
        return int(state[place])

    def _store(
        self, rows: Rows, theta: int, base: int, each: int, memory: BlockMemory,
        learnt: Learnt | None = None,
    ) -> Rows:  # fmt: skip
        """The state: first θ, total before the blocks, blocks, what is learnt, `_each`."""
        packed = [theta, base, *pack(memory, self.smoother.memory)]
        more = self._kept(self.relearning, theta, learnt)
        parts = [np.array(packed, np.int64), more, np.array([each], np.int64)]
        return with_state(rows, np.concatenate(parts))

    def _base_variance(self, theta: int) -> float:
        if self.warmup is None:
            return 0.0
        return self._told_variance(theta) * float(self.steps) ** 2

    def cost(self) -> Cost:
        """ε of k records, wherever they lie; δ is only that of the sampler (below 2^-90)."""
        warm = self.threshold_epsilon + (self.sum_epsilon or 0)
        warm += self.warmup.chunks.epsilon if self.warmup else 0
        late = self.tree.epsilon + (self.watch or 0)
        late += self.relearning.chooser.epsilon if self.relearning else 0
        return Cost(epsilon=self.slots.bound * max(warm, late), delta=self.sampling)

    def draws(self) -> tuple[Draws, ...]:
        """Draws of choice, warm-up and tree, each at the largest threshold."""
        top, late = self.slots.top, self.slots.slots - self.slots.warmup_slots
        made = [laplace("value", 1 / self.threshold_epsilon)]
        if self.sum_epsilon is not None:
            made.append(laplace("value", top / self.sum_epsilon))
        made.append(self.tree.draws("value", top, -(-late // self.width)))
        if self.warmup:
            made.append(self.warmup.chunks.draws("value", top, self.slots.warmup_slots))
        return (*made, *self._further_draws(self.watch, self.relearning))

    def error(self, t: int) -> F64:
        """(2,) noise of slot and prefix sum at the last slot of trigger t for the worst case θ = B.

        In output steps. Triggers without a release count as the first one that has one.
        """
        last = max(t, self.slots.warmup + 1) * self.slots.per_trigger
        block, low = divmod(last - 1 - self.slots.warmup_slots, self.width)
        blocks = self.worst_blocks()
        variance = blocks.variance(self.slots.top, block, low, low + 1)[0]
        variance[variance == 0] = self.tree.variance(self.slots.top, 0, 1)
        variance *= float(self.steps) ** 2
        variance[1] += self._base_variance(self.slots.top)
        deviation: F64 = np.sqrt(variance)
        return deviation
