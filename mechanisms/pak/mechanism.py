"""PAK: prefix sums of a stream of values, clipped at a threshold learnt from its beginning.

Perrier, Asghar, Kaafar, *Private Continual Release of Real-Valued Data Streams*, NDSS 2019, for
event-time slots. The warm-up chooses τ; at its end τ is released and, if wanted, the warm-up's
clipped sum; from then on every slot's prefix sum. Values are clipped to the same τ that scales the
noise, in the warm-up's sum too. Ranges, moving averages, sliding and decayed sums are linear in
the prefix sums: post-processing, see `views`.

*Guarantee.* Add/remove of one record (or replacement of its value within its slot). A record lies
in one slot, fixed by its own time and micro-batch, so it pays either in the warm-up, ε1 for the
threshold and ε2 for the sum with ε1 + ε2 = ε, or ε to the counter, of which ``watch`` takes a share
for the number of records above τ that each trigger then releases with DLap(1/share). With the rank
rule and a tree or hierarchy the whole is ε-DP; the smooth rule and the matrix counter add δ. A
unit's k records may lie in both parts: `settings` checks every division of them before it accepts a
configuration.

*No draw covers two contents.* Threshold and warm-up sum are drawn once, at the warm-up's trigger,
when its slots are closed; for the others see `pak.counter`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from ..columns import F64, I64, Closed, Releases, Rows, no_releases
from ..contract import INSERTING, Cost, Noise, Output
from ..keys import Keys
from ..parts.clip_threshold import noisy_max, rank_scores
from ..parts.hierarchy import laplace_variance
from ..parts.smooth_quantile import SmoothQuantile
from ..ranges import Draws, laplace
from ..slots.slots import Entries, with_state
from ..slots.stream import SlotStream
from ..validate import at_least, positive
from .counter import PrefixCounter

_HELD = 1 << 62


@dataclass(frozen=True)
class RankQuantile:
    """The K-th largest warm-up value by a noisy maximum, raised by a factor; pure ε-DP.

    Attributes:
        epsilon: of one record.
        rank: K, public.
        factor: r ≥ 1.
        thresholds: public candidates, increasing.
    """

    epsilon: Fraction
    rank: int
    factor: Fraction
    thresholds: tuple[int, ...]

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        at_least("rank", self.rank, 1)
        positive("factor", self.factor)

    def choose(self, histogram: I64, noise: Noise, t: int) -> int:
        """Index of the least threshold ≥ r times the chosen quantile, or of the last one."""
        found = noisy_max(rank_scores(histogram, self.rank), 2 / self.epsilon, noise, t)
        target = self.factor * self.thresholds[found]
        above = [i for i, theta in enumerate(self.thresholds) if theta >= target]
        return above[0] if above else len(self.thresholds) - 1


@dataclass(frozen=True)
class Pak(SlotStream):
    """A configured stream.

    Attributes:
        slots: time, values, thresholds, contribution bound (`SlotStream`).
        chooser: how τ is chosen; None takes B, which costs nothing.
        counter: noise of the prefix sums after the warm-up.
        sum_epsilon: ε2 of one record for the warm-up's sum; None keeps that sum back.
        loss: the result of `cost`.
        watch: ε of one record after the warm-up for the number of records above τ, or None.
    """

    chooser: SmoothQuantile | RankQuantile | None
    counter: PrefixCounter
    sum_epsilon: Fraction | None
    loss: Cost
    watch: Fraction | None = None

    @property
    def outputs(self) -> tuple[Output, ...]:
        """Sum of the slot (of the whole warm-up at its end), and sum up to the end of the slot."""
        step = self.slots.grid / self.counter.steps
        return Output("sum", step, INSERTING), Output("prefix", step, INSERTING)

    @property
    def distribution(self) -> Literal["discrete_gaussian", "discrete_laplace"]:
        """Name the distribution of the counter; the threshold is chosen by noise of its own."""
        return self.counter.distribution

    def digests(self) -> tuple[str, ...]:
        """Digest the counter's factorisation."""
        return self.counter.digests()

    def _open(self, rows: Rows, entries: Entries, noise: Noise) -> tuple[Rows, Releases]:
        """Choose τ; release it, and the warm-up's sum clipped and noised at this very τ."""
        last = len(self.slots.thresholds) - 1
        histogram = self.slots.histogram(entries)
        t = self.slots.warmup
        chosen = self.chooser.choose(histogram, noise, t) if self.chooser else last
        tau = self.slots.thresholds[chosen]
        public = {"threshold": np.array([tau], np.int64)}
        if self.sum_epsilon is None:
            return self._store(rows, tau, 0, 0), no_releases(2, public)
        total = int(self.slots.clipped(entries, tau).sum())
        if tau:
            index, label, scale = (
                np.zeros(1, np.int64),
                Keys.of([b"warmup"]),
                tau / self.sum_epsilon,
            )
            total += int(noise.laplace("sum", label, index, scale, np.full(1, t, np.int64))[0, 0])
        base = _held(total * self.counter.steps)
        value = np.full((1, 2), base, np.int64)
        variance = np.full((1, 2), self._base_variance(tau))
        last_slot = self.slots.warmup_slots - 1
        out = self._released(self.slots.warmup, last_slot, value, variance, public)
        return self._store(rows, tau, base, 0), out

    def _go_on(
        self, closed: Closed, rows: Rows, entries: Entries, state: I64, noise: Noise
    ) -> tuple[Rows, Releases]:
        """The sums of a trigger's slots, clipped at τ."""
        tau, base, total = (int(x) for x in state[:3])
        t, counter = closed.t, self.counter.restarted(self.slots.begins(closed.renewals, 1))
        first = self.slots.range_of(t)[0]
        exact = total + np.cumsum(self.slots.per_slot(entries, tau, t))
        restarted = replace(self, counter=counter)
        value, variance = restarted._values(self._timed(noise), tau, base, first, total, exact)
        public = self._watched(self.watch, entries, tau, t, noise)
        return self._store(rows, tau, base, int(exact[-1])), self._released(
            t, first, value, variance, public
        )

    def _values(
        self, noise: Noise, tau: int, base: int, first: int, before: int, exact: I64
    ) -> tuple[I64, F64]:
        """(slots, 2) sums and prefix sums of consecutive slots, and their noise variances."""
        begin, steps = first - self.slots.warmup_slots, self.counter.steps
        ends = np.arange(begin, begin + len(exact) + 1)
        known = ends[ends > 0]
        drawn = [0] * (len(ends) - len(known)) + self.counter.noise(noise, tau, known)
        totals = [before, *exact.tolist()]
        prefix = [_held(base + x * steps + z) for x, z in zip(totals, drawn, strict=True)]
        value = np.stack([np.diff(prefix), np.array(prefix[1:])], axis=1)
        squares = [
            (self.counter.variance(tau, e - 1, e), self.counter.variance(tau, 0, e))
            for e in ends[1:].tolist()
        ]
        variance = np.array(squares) * float(steps) ** 2
        variance[:, 1] += self._base_variance(tau)
        return value, variance

    def _base_variance(self, tau: int) -> float:
        if self.sum_epsilon is None:
            return 0.0
        return laplace_variance(tau / self.sum_epsilon) * float(self.counter.steps) ** 2

    def _store(self, rows: Rows, tau: int, base: int, total: int) -> Rows:
        return with_state(rows, np.array([tau, base, total], np.int64))

    def cost(self) -> Cost:
        """Loss of a unit's k records, however they divide between warm-up and the rest."""
        return self.loss

    def draws(self) -> tuple[Draws, ...]:
        """List the draws of the counter at the largest threshold, of warm-up, and of the choice."""
        made = [self.counter.draws("value", self.slots.top)]
        if self.sum_epsilon is not None:
            steps = self.counter.steps
            made.append(laplace("value", self.slots.top / self.sum_epsilon, steps))
        if isinstance(self.chooser, RankQuantile):
            made.append(laplace("value", 2 / self.chooser.epsilon))
        if self.watch:
            made.append(laplace("value", 1 / self.watch))
        return tuple(made)

    def error(self, t: int) -> F64:
        """(2,) noise of slot and prefix sum at the last slot of trigger t for the worst case τ = B.

        In output steps. Triggers without a release count as the first one that has one.
        """
        end = (max(t, self.slots.warmup + 1) - self.slots.warmup) * self.slots.per_trigger
        squares = [
            self.counter.variance(self.slots.top, end - 1, end),
            self.counter.variance(self.slots.top, 0, end),
        ]
        variance = np.array(squares) * float(self.counter.steps) ** 2
        variance[1] += self._base_variance(self.slots.top)
        deviation: F64 = np.sqrt(variance)
        return deviation


def _held(value: int) -> int:
    """``value`` within 63 bits. It is noisy already, so to cut it costs nothing.

    `check_sums` leaves room for many times as many records as are expected.
    """
    return max(-_HELD, min(_HELD, value))
