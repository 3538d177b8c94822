"""PAK: prefix sums of a stream of values, clipped at a threshold learnt from its beginning.

Perrier, Asghar, Kaafar, *Private Continual Release of Real-Valued Data Streams*, NDSS 2019, for
event-time slots. The warm-up chooses τ. At its end τ is released and, if configured, the warm-up's
clipped sum; from then on, every slot's prefix sum. Values are clipped to the same τ that scales the
noise, also in the warm-up's sum. Ranges, moving averages, sliding and decayed sums are linear in
the prefix sums: post-processing, see `running`.

*Guarantee.* Add/remove of one record (or replacement of its value within its slot). A record lies
in one slot, fixed by its own time and micro-batch, so it pays either in the warm-up, ε1 for the
threshold and ε2 for the sum with ε1 + ε2 = ε, or ε to the counter, of which ``watch`` takes a share
for the number of records above τ that each trigger then releases with DLap(1/share), and
``relearn`` another share for the threshold of the next stretch, see `slots.relearning`. With either
noisy maximum and a tree or hierarchy the whole is ε-DP; the smooth rule and the matrix counter add
δ. A unit's k records may lie in both parts: `settings` checks every division of them before it
accepts a configuration.

*No draw covers two contents.* The noise of threshold and warm-up sum is drawn once, at the
warm-up's trigger, when its slots are closed; for other draws see `pak.counter`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np

from ..columns import F64, I64, Closed, Releases, Rows, no_releases
from ..contract import INSERTING, Cost, Guarantee, Noise, Output
from ..parts.thresholds.clip import noisy_max, rank_scores
from ..parts.thresholds.smooth_quantile import SmoothQuantile
from ..parts.trees.hierarchy import laplace_variance
from ..ranges import Draws, laplace
from ..slots.relearning import Chooser, Learnt, Relearning
from ..slots.slots import Entries, with_state
from ..slots.stream import SlotStream
from ..sums import LARGEST, hold, totals
from ..validate import at_least, positive
from .counter import PrefixCounter
from .running import NO_VIEWS, Past, Running, blank
from .succession import Succession

_STORED = 3


@dataclass(frozen=True)
class RankQuantile(Chooser):
    """The K-th largest warm-up value by a noisy maximum, raised by a factor."""

    rank: int  # K, public
    factor: Fraction  # r ≥ 1
    thresholds: tuple[int, ...]  # public candidates, increasing

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("rank", self.rank, 1)
        positive("factor", self.factor)

    @property
    def scale(self) -> Fraction:
        """2/ε: scores may move in different directions."""
        return 2 / self.epsilon

    def choose(self, histogram: I64, noise: Noise, t: int, purpose: str = "threshold") -> int:
        """Index of the least threshold ≥ r times the chosen quantile, or of the last one."""
        found = noisy_max(rank_scores(histogram, self.rank), self.scale, noise, t, purpose)
        target = self.factor * self.thresholds[found]
        above = [i for i, theta in enumerate(self.thresholds) if theta >= target]
        return above[0] if above else len(self.thresholds) - 1


@dataclass(frozen=True)
class Pak(SlotStream):
    """A configured stream.

    Attributes:
        slots: time, values, thresholds, contribution bound (`SlotStream`).
        chooser: chooses τ; None means τ = B, which costs nothing.
        counter: noise of the prefix sums after the warm-up.
        sum_epsilon: ε2 of one record for the warm-up's sum; None withholds that sum.
        loss: the result of `cost`.
        watch: ε of one record after the warm-up for the number of records above τ, or None.
        relearning: rule for later thresholds, or None; with it, the counter covers a stretch.
        running: further released columns.
    """

    chooser: SmoothQuantile | Chooser | None
    counter: PrefixCounter
    sum_epsilon: Fraction | None
    loss: Cost
    watch: Fraction | None = None
    relearning: Relearning | None = None
    running: Running = NO_VIEWS

    @property
    def _outputs(self) -> tuple[Output, ...]:
        """Sum of the slot (at the warm-up's end, of the warm-up), prefix sum, further columns."""
        step = self.slots.grid / self.counter.steps
        both = Output("sum", step, INSERTING), Output("prefix", step, INSERTING)
        return *both, *self.running.outputs(step)

    @property
    def guarantee(self) -> Guarantee:
        """Name the distribution of the counter; the choice of the threshold has its own noise."""
        return Guarantee(self.counter.distribution)

    def digests(self) -> tuple[str, ...]:
        return self.counter.digests()

    def _opens_with_warmup(self, first: int) -> bool:
        return first == self.slots.warmup_slots - 1

    def _open(self, rows: Rows, entries: Entries, noise: Noise) -> tuple[Rows, Releases]:
        """Choose τ; release it, and the warm-up's sum with clipping and noise for this τ."""
        tau, base = self._begin(entries, noise)
        public = {"threshold": np.array([tau], np.int64)}
        if self.sum_epsilon is None:
            return self._store(rows, tau, base, 0), self._nothing(public)
        further = blank(len(self.traits.outputs) - 2)
        value = np.concatenate([np.full((1, 2), base, np.int64), further[0]], axis=1)
        known = np.full((1, 2), self._base_variance(tau))
        variance = np.concatenate([known, further[1]], axis=1)
        last_slot = self.slots.warmup_slots - 1
        out = self._released(self.slots.warmup, last_slot, value, variance, public)
        return self._store(rows, tau, base, 0), out

    def _begin(self, entries: Entries, noise: Noise) -> tuple[int, int]:
        """τ, and the warm-up's noisy sum in output steps, 0 if it is withheld."""
        last = len(self.slots.thresholds) - 1
        histogram = self.slots.histogram(entries)
        chosen = last
        if self.chooser:
            chosen = self.chooser.choose(histogram, noise, self.slots.warmup)
        tau = self.slots.thresholds[chosen]
        if self.sum_epsilon is None:
            return tau, 0
        found = self._warm_sum(entries, tau, self.sum_epsilon, noise)
        return tau, hold(found * self.counter.steps)

    def prefixes(self, entries: Entries, ends: I64, noise: Noise) -> tuple[int, I64] | None:
        """See `SlotStream.prefixes`; relearnt thresholds depend on each other."""
        if self.relearning:
            return None
        first = self.slots.warmup_slots
        early = entries.slot < first
        tau, base = self._begin(entries.where(early), noise)
        late = entries.where(~early)
        row = np.searchsorted(ends, late.slot, side="right")
        sums = totals(row, self.slots.clipped(late, tau), len(ends) + 1)
        exact = running(0, sums)[1:-1]
        steps = ends - first
        drawn = self.counter.noise(self._timed(noise), tau, steps[steps > 0])
        drawn = [0] * (len(ends) - len(drawn)) + drawn
        found = [hold(base + x * self.counter.steps + z) for x, z in zip(exact, drawn, strict=True)]
        return tau, np.array(found, np.int64)

    def _go_on(
        self, closed: Closed, rows: Rows, entries: Entries, state: I64, noise: Noise
    ) -> tuple[Rows, Releases]:
        """The sums of a trigger's slots, clipped at τ."""
        base, before, t = int(state[1]), int(state[2]), closed.t
        past = self.running.unpack(state[_STORED:])
        learnt = self._learnt(self.relearning, state[_STORED + self.running.stored :], t)
        thetas = learnt.thresholds if learnt else (int(state[0]),)
        pieces = self._pieces(thetas, self.slots.begins(closed.renewals, 1))
        tau, first = thetas[-1], self.slots.range_of(t)[0]
        at, begin = first - self.slots.warmup_slots, (len(thetas) - 1) * pieces.length
        exact = running(before, self.slots.per_slot(entries, tau, t))
        timed = self._timed(noise).after(begin)
        prefix = self._prefixes(timed, pieces, base, at - begin, exact)
        past, further = self.running.after(past, prefix, at)
        each = [hold(end - begin) for begin, end in pairwise(prefix)]
        value = np.concatenate([np.stack([each, prefix[1:]], axis=1), further], axis=1)
        variance = self._variances(pieces, at, len(prefix) - 1)
        public = self._watched(self.watch, entries, tau, t, noise)
        learnt, more = self._learnt_at(self.relearning, learnt, entries, t, noise)
        base, so_far = (prefix[-1], 0) if more else (base, exact[-1])
        stored = self._store(rows, thetas[0], base, so_far, past, learnt)
        return stored, self._released(t, first, value, variance, public | more)

    def _pieces(self, thetas: tuple[int, ...], origins: tuple[int, ...]) -> Succession:
        """The counters of the stretches so far; ``origins`` are steps where a nonce changed."""
        length = self.slots.slots - self.slots.warmup_slots
        if self.relearning:
            length = self.relearning.every * self.slots.per_trigger
        made = []
        for number in range(len(thetas)):
            begin = number * length
            mine = {0, *(step - begin for step in origins if 0 < step - begin < length)}
            made.append(self.counter.stretch(number).restarted(tuple(sorted(mine))))
        return Succession(tuple(made), thetas, length)

    def _prefixes(
        self, noise: Noise, pieces: Succession, base: int, begin: int, exact: list[int]
    ) -> list[int]:
        """The last released prefix sum, then the ones to release.

        Args:
            noise: noise of the open stretch, in its steps.
            base: prefix sum released before the stretch.
            exact: sums of the stretch, up to ``begin`` and to the steps after it.
        """
        counter, tau = pieces.counters[-1], pieces.thetas[-1]
        ends = np.arange(begin, begin + len(exact))
        known = ends[ends > 0]
        drawn = [0] * (len(ends) - len(known)) + counter.noise(noise, tau, known)
        return [hold(base + x * counter.steps + z) for x, z in zip(exact, drawn, strict=True)]

    def _variances(self, pieces: Succession, at: int, slots: int) -> F64:
        """(slots, columns) noise variances of slots after the warm-up, in output steps."""
        rows = [
            [
                pieces.variance(end - 1, end),
                pieces.variance(0, end),
                *self.running.variances(pieces, end),
            ]
            for end in range(at + 1, at + slots + 1)
        ]
        variance = np.array(rows) * float(self.counter.steps) ** 2
        variance[:, 1] += self._base_variance(pieces.thetas[0])
        return variance

    def _nothing(self, public: dict[str, I64]) -> Releases:
        return no_releases(len(self.traits.outputs), public)

    def _base_variance(self, tau: int) -> float:
        if self.sum_epsilon is None:
            return 0.0
        return laplace_variance(tau / self.sum_epsilon) * float(self.counter.steps) ** 2

    def _store(
        self, rows: Rows, tau: int, base: int, total: int,
        past: Past | None = None, learnt: Learnt | None = None,
    ) -> Rows:  # fmt: skip
        """The state: first τ, the prefix sum before the stretch, its exact sum; then the rest."""
        past = past or self.running.begin(base)
        more = self._kept(self.relearning, tau, learnt)
        mine = [tau, base, total, *self.running.pack(past)]
        return with_state(rows, np.concatenate([np.array(mine, np.int64), more]))

    def cost(self) -> Cost:
        """Loss of a unit's k records, however they divide between warm-up and the rest."""
        return self.loss

    def draws(self) -> tuple[Draws, ...]:
        """Draws of the counter at the largest threshold, of the warm-up, and of the choice."""
        made = [self.counter.draws("value", self.slots.top)]
        if self.sum_epsilon is not None:
            steps = self.counter.steps
            made.append(laplace("value", self.slots.top / self.sum_epsilon, steps))
        if self.chooser and not isinstance(self.chooser, SmoothQuantile):
            made.append(laplace("value", self.chooser.scale))
        return (*made, *self._further_draws(self.watch, self.relearning))

    def error(self, t: int) -> F64:
        """(c,) noise of every column at the last slot of trigger t for the worst case τ = B.

        In output steps. Triggers without a release count as the first one that has one.
        """
        end = (max(t, self.slots.warmup + 1) - self.slots.warmup) * self.slots.per_trigger
        stretches = self.relearning.stretches if self.relearning else 1
        pieces = self._pieces((self.slots.top,) * stretches, (0,))
        deviation: F64 = np.sqrt(self._variances(pieces, end - 1, 1)[0])
        return deviation


def running(before: int, sums: I64) -> list[int]:
    """``before`` and the running totals of non-negative sums, each at most `LARGEST`.

    The limit never shows: `hold` clamps what is released (`hushstream.mechanisms.sums`).
    """
    return list(accumulate(sums.tolist(), lambda so_far, more: min(so_far + more, LARGEST),
                           initial=before))  # fmt: skip
