"""ToPS: sums of a stream of values, by clipping threshold, consistent hierarchy and smoother.

Wang, Chen, Zhang, Su, Cheng, Li, Li, Jha, *Continuous Release of Data Streams under both
Centralized and Local Differential Privacy*, CCS 2021, for event-time slots. The first triggers of a
window, the warm-up, choose a threshold θ by a noisy maximum; from then on every trigger releases
its slots: their sums and the prefix sum, of values clipped to [0, θ].

*Guarantee.* Add/remove of one record: ε-DP. A record lies in one slot, fixed by its own time and
micro-batch. In the warm-up it pays ε to the threshold (with ``publish`` a share of ε to the
threshold and the rest to the warm-up's own hierarchy); later ε to the hierarchy (with ``watch`` a
share of ε to the number of records above θ that its trigger releases with DLap(1/share), with
``relearn`` a share to the threshold of the next stretch, see `slots.relearning`, and the rest to
the hierarchy). So the parts of the window compose in parallel. A unit contributes at most k records
in any windows and slots: kε. Replacing one value within a slot costs no more than adding one: the
scores of the threshold stay monotone, a node moves by at most θ, the number above θ by at most 1.
Smoothing, consistency and rounding are post-processing of noise that is drawn with or without data.

*No draw covers two contents.* The noise of the threshold and the warm-up's hierarchy is drawn once,
at the warm-up's trigger, when its slots are closed; for other blocks see `trees.hierarchy`.

The paper defines neighbours by position, where a record added at the front would shift every later
value. So slots replace positions here.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from ...errors import ParameterError
from ..columns import F64, I64, Closed, Releases, Rows, no_releases
from ..contract import INSERTING, Cost, Guarantee, Noise, Output
from ..parts.thresholds.clip import exceedance_scores, noisy_max
from ..parts.trees.hierarchy import Chunks, InfiniteTree, WideTree
from ..parts.trees.smoothing import Smoother
from ..parts.trees.stretches import Stretches
from ..ranges import Draws, laplace
from ..slots.relearning import Learnt, Relearning
from ..slots.slots import Entries, with_state
from ..slots.steps import InSteps
from ..slots.stream import SlotStream
from ..sums import held, plus
from ..validate import positive
from .blocks import BlockMemory, Blocks, pack, unpack


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
        expected: records expected per slot; it affects only the first prediction.
        sampling: δ due to the distance between drawn and exact noise.
        watch: ε of one record after the warm-up for the number of records above θ, or None.
        relearning: rule for later thresholds, or None; a stretch has whole blocks.
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

    def __post_init__(self) -> None:
        positive("threshold_epsilon", self.threshold_epsilon)
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
        """Choose θ from the warm-up; publish the warm-up if configured."""
        scores = exceedance_scores(self.slots.histogram(entries), np.array(self.penalty))
        t = self.slots.warmup
        chosen = noisy_max(scores, 1 / self.threshold_epsilon, noise, t)
        theta = self.slots.thresholds[chosen]
        public = {"threshold": np.array([theta], np.int64)}
        if self.warmup is None:
            return self._store(rows, theta, 0, BlockMemory()), no_releases(2, public)
        sums = self.slots.per_slot(entries, theta, t)
        timed = InSteps(noise, t - 1, self.slots.warmup_slots, self.warmup.width)
        memory, out = self._warm_blocks(self.warmup).run(timed, theta, BlockMemory(), 0, sums)
        released = self._released(t, 0, out.value, out.variance, public)
        return self._store(rows, theta, memory.total, BlockMemory()), released

    def _go_on(
        self, closed: Closed, rows: Rows, entries: Entries, state: I64, noise: Noise
    ) -> tuple[Rows, Releases]:
        """The sums of a trigger's slots, clipped at θ."""
        theta, base, t = int(state[0]), int(state[1]), closed.t
        learnt = self._learnt(self.relearning, state[self._packed :], t)
        if learnt:
            theta = learnt.thresholds[-1]
        first = self.slots.range_of(t)[0]
        sums = self.slots.per_slot(entries, theta, t)
        at = first - self.slots.warmup_slots
        thetas = learnt.thresholds if learnt else ()
        blocks = self._blocks(self.slots.begins(closed.renewals, self.width), thetas)
        timed = self._timed(noise, self.width)
        memory, out = blocks.run(timed, theta, unpack(state[2:]), at, sums)
        out.value[:, 1] = held(plus(out.value[:, 1], np.int64(base)))
        out.variance[:, 1] += self._base_variance(theta)
        public = self._watched(self.watch, entries, theta, t, noise)
        learnt, more = self._learnt_at(self.relearning, learnt, entries, t, noise)
        released = self._released(t, first, out.value, out.variance, public | more)
        return self._store(rows, theta, base, memory, learnt), released

    def _blocks(self, origins: tuple[int, ...] = (0,), thetas: tuple[int, ...] = ()) -> Blocks:
        tree: WideTree = self.tree.restarted(origins)
        if self.relearning:
            length = self.relearning.every * self.slots.per_trigger // self.width
            assert isinstance(self.tree, Chunks)
            tree = Stretches(self.tree, length, thetas, origins)
        return Blocks(tree, self.width, self.steps, self.smoother, self.expected)

    def worst_blocks(self) -> Blocks:
        """The stream with B as every threshold."""
        stretches = self.relearning.stretches if self.relearning else 0
        return self._blocks(thetas=(self.slots.top,) * stretches)

    def _warm_blocks(self, warmup: Warmup) -> Blocks:
        return Blocks(warmup.chunks, warmup.width, self.steps, self.smoother, self.expected)

    @property
    def _packed(self) -> int:
        """Integers of the state before those of relearnt thresholds."""
        return 2 + len(pack(BlockMemory(), self.smoother.memory))

    def _store(
        self, rows: Rows, theta: int, base: int, memory: BlockMemory, learnt: Learnt | None = None
    ) -> Rows:
        packed = [theta, base, *pack(memory, self.smoother.memory)]
        more = self._kept(self.relearning, theta, learnt)
        return with_state(rows, np.concatenate([np.array(packed, np.int64), more]))

    def _base_variance(self, theta: int) -> float:
        if self.warmup is None:
            return 0.0
        blocks = self.slots.warmup_slots // self.warmup.width
        return self.warmup.chunks.variance(theta, 0, blocks) * float(self.steps) ** 2

    def cost(self) -> Cost:
        """ε of k records, wherever they lie; δ is only that of the sampler (below 2^-90)."""
        warm = self.threshold_epsilon + (self.warmup.chunks.epsilon if self.warmup else 0)
        late = self.tree.epsilon + (self.watch or 0)
        late += self.relearning.chooser.epsilon if self.relearning else 0
        return Cost(epsilon=self.slots.bound * max(warm, late), delta=self.sampling)

    def draws(self) -> tuple[Draws, ...]:
        """Draws of tree, warm-up and choice, each at the largest threshold."""
        top, late = self.slots.top, self.slots.slots - self.slots.warmup_slots
        made = [laplace("value", 1 / self.threshold_epsilon)]
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
