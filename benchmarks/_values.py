"""Streams of values and the estimators that the benchmarks of PAK and ToPS compare."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from hushstream.errors import ParameterError
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from hushstream.mechanisms.pak.counter import TreePrefix
from hushstream.mechanisms.pak.mechanism import RankQuantile
from hushstream.mechanisms.pak.optimise import Choice, ThresholdProblem, optimise
from hushstream.mechanisms.parts.thresholds.clip import (
    exceedance_scores,
    geometric_thresholds,
    noisy_max,
    scale_free_penalty,
)
from hushstream.mechanisms.parts.thresholds.smooth_quantile import SmoothQuantile
from hushstream.mechanisms.parts.trees.hierarchy import Chunks
from hushstream.mechanisms.parts.trees.shape import choose_shape, mean_variance
from hushstream.mechanisms.slots.settings import SlotParameters
from hushstream.mechanisms.tops.settings import TopsParameters
from numpy.typing import NDArray

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
DATA = Path(__file__).resolve().parent.parent / "examples" / "data"
DELTA = Fraction(1, 1 << 20)
BETA = Fraction(1, 10)
HISTORY = TopsParameters.history  # blocks whose mean predicts the next one


class Stream(NamedTuple):
    """Values in order on an integer grid, one record per slot, and the public largest value."""

    name: str
    values: I64
    top: int


def keyed(run: int, what: str) -> KeyedNoise:
    """Noise of one run of one method, independent between methods."""
    return KeyedNoise(
        b"benchmark of values" + bytes(13), charge=bytes(32), mechanism="benchmark",
        config=what.encode(), pipeline="values", window=str(run), nonces=STEADY,
    )  # fmt: skip


def synthetic(name: str, top: int, draw: Callable[[np.random.Generator], F64]) -> Stream:
    """A stream from a documented law, rounded to whole units."""
    values = np.rint(draw(np.random.default_rng(2019)))
    return Stream(name, np.clip(values, 0, top).astype(np.int64), top)


def real(shuffled: bool = True) -> list[Stream]:
    """Flights, and taxi fares drawn with replacement up to 131,072 trips.

    The file orders all flights by hour of the day; shuffled, they come as in a sequence of days. In
    file order the warm-up would hold only the small hours.
    """
    table = pa.ipc.open_file(DATA / "flights-200k.arrow").read_all()
    generator = np.random.default_rng(2019)
    order = generator.permutation(table.num_rows) if shuffled else np.arange(table.num_rows)
    delay = table["delay"].to_numpy().astype(np.int64)[order]
    distance = table["distance"].to_numpy().astype(np.int64)[order]
    with (DATA / "taxis.csv").open() as file:
        fares = np.array([float(row["fare"]) for row in csv.DictReader(file)])
    drawn = generator.choice(fares, 1 << 17)
    return [
        Stream("flight delays", np.clip(delay, 0, 1500), 1500),
        Stream("flight distances", np.clip(distance, 0, 5000), 5000),
        Stream("taxi fares", np.clip(np.rint(drawn * 2), 0, 1000).astype(np.int64), 1000),
    ]


def bursts() -> list[Stream]:
    """Calm with bursts, and a heavy tail."""

    def bursty(g: np.random.Generator) -> F64:
        calm, loud = g.exponential(10, 1 << 17), g.exponential(120, 1 << 17)
        on = np.repeat(g.random((1 << 17) // 512) < 0.05, 512)
        return np.where(on, loud, calm)

    return [
        synthetic("bursts", 3000, bursty),
        synthetic("heavy tail", 10_000, lambda g: 20 * (g.pareto(2.5, 1 << 17) + 1)),
    ]


def spikes() -> Stream:
    """Small values, and one in 500 far larger: the kind of Figure 1 of Wang et al."""

    def law(g: np.random.Generator) -> F64:
        rare = g.random(1 << 17) < 1 / 500
        return np.where(rare, g.uniform(2_000, 8_000, 1 << 17), g.gamma(2, 20, 1 << 17))

    return synthetic("rare spikes", 8_000, law)


@dataclass(frozen=True)
class Warm:
    """The warm-up of a stream as the mechanisms see it: records per bucket of the thresholds."""

    thresholds: tuple[int, ...]
    histogram: I64

    @classmethod
    def of(cls, stream: Stream, records: int, resolution: int = SlotParameters.resolution) -> Warm:
        thresholds = geometric_thresholds(stream.top, resolution)
        bucket = np.searchsorted(np.array(thresholds), stream.values[:records])
        return cls(thresholds, np.bincount(bucket, minlength=len(thresholds)))


def pak_choice(stream: Stream, records: int, epsilon: Fraction, smooth: bool) -> Choice | None:
    """The optimiser's proposal, or None if no smooth threshold is possible."""
    scale = Fraction(stream.top, 24)
    problem = ThresholdProblem(
        len(stream.values), stream.top, epsilon, DELTA, scale, smooth, beta=BETA
    )
    try:
        return optimise(problem, [records])
    except ParameterError:
        return None


def pak_threshold(
    warm: Warm, choice: Choice | None, epsilon: Fraction, smooth: bool, noise: KeyedNoise
) -> int:
    """τ by the product's code; B if the optimiser finds no threshold."""
    if choice is None:
        return warm.thresholds[-1]
    share = epsilon * choice.split
    if smooth:
        rule: SmoothQuantile | RankQuantile = SmoothQuantile(
            share, DELTA, choice.rank, warm.thresholds, choice.factor, BETA
        )
    else:
        rule = RankQuantile(share, choice.rank, choice.factor, warm.thresholds)
    return warm.thresholds[rule.choose(warm.histogram, noise, 1)]


def histogram_threshold(
    warm: Warm, choice: Choice | None, epsilon: Fraction, noise: KeyedNoise
) -> int:
    """τ from a noisy histogram of the warm-up, cut at the quantile of `pak_threshold`.

    A record lies in one bucket, so Laplace noise of scale 1/ε1 in every bucket is ε1-DP (add or
    remove). τ is the least threshold with fewer than K noisy records above, raised by the factor.
    """
    if choice is None:
        return warm.thresholds[-1]
    index = np.arange(len(warm.thresholds))
    scale, first = 1 / (epsilon * choice.split), np.ones(len(index), np.int64)
    drawn = noise.laplace("histogram", Keys.of([b"threshold"]), index, scale, first)[0]
    above = np.cumsum((warm.histogram + drawn)[::-1])[::-1] - (warm.histogram + drawn)
    found = int(np.flatnonzero(above < choice.rank)[0])  # nothing lies above the last one
    target = choice.factor * warm.thresholds[found]
    return min((theta for theta in warm.thresholds if theta >= target), default=warm.thresholds[-1])


def warm_sum_noise(tau: int, choice: Choice | None, epsilon: Fraction, noise: KeyedNoise) -> int:
    """Noise of the warm-up's clipped sum."""
    share = epsilon * (1 - choice.split) if choice else epsilon
    index = np.zeros(1, np.int64)
    first = np.ones(len(index), np.int64)
    return int(noise.laplace("sum", Keys.of([b"warmup"]), index, tau / share, first)[0, 0])


@dataclass(frozen=True)
class Wide:
    """ToPS's hierarchy, with its choice of levels, over the slots after a warm-up."""

    chunks: Chunks
    slots: int
    width: int

    @classmethod
    def of(cls, slots: int, epsilon: Fraction) -> Wide:
        shape = choose_shape(slots, epsilon, history=HISTORY)
        return cls(Chunks(shape.fanout, shape.levels, epsilon), slots, shape.width)

    def threshold(self, warm: Warm, records: int, top: int, noise: KeyedNoise) -> int:
        """θ by noisy maximum."""
        epsilon = self.chunks.epsilon
        variance = Fraction(mean_variance(self.chunks, self.width, self.slots, HISTORY))
        penalty = scale_free_penalty(warm.thresholds, records, self.slots, variance)
        scores = exceedance_scores(warm.histogram, penalty)
        return warm.thresholds[noisy_max(scores, 1 / epsilon, noise, 1)]

    def prefixes(self, clipped: I64, theta: int, ends: I64, noise: KeyedNoise) -> F64:
        """Estimated sums of the first ``ends`` values: whole blocks, then a prediction."""
        exact = np.concatenate([[0], np.cumsum(clipped)])
        last = ends // self.width
        blocks = np.unique(np.concatenate([last, last - np.minimum(last, HISTORY)]))
        drawn = {b: self._noise(noise, theta, b) for b in blocks.tolist()}
        at = {b: exact[b * self.width] + drawn[b] for b in drawn}
        out = []
        for end in ends.tolist():
            block, rest = divmod(end, self.width)
            known = min(block, HISTORY)
            guess = self.width * theta / 4
            if known:
                guess = (at[block] - at[block - known]) / known
            out.append(at[block] + rest * guess / self.width)
        return np.array(out)

    def _noise(self, noise: KeyedNoise, theta: int, end: int) -> float:
        """Noise of the first blocks, chunk by chunk."""
        size = self.chunks.blocks
        ends = [*range(size, end, size), end] if end else []
        return sum(float(self.chunks.prefix(noise, theta, one)[1]) for one in ends)


def tree_prefixes(clipped: I64, theta: int, ends: I64, epsilon: Fraction, noise: KeyedNoise) -> F64:
    """Estimated sums of the first ``ends`` values by the binary tree."""
    exact = np.concatenate([[0], np.cumsum(clipped)])
    counter = TreePrefix(len(clipped), epsilon)
    inner = ends[ends > 0]
    drawn = np.zeros(len(ends))
    drawn[ends > 0] = counter.noise(noise, theta, inner)
    return exact[ends] + drawn
