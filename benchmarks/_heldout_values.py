"""Range sums by ToPS's defaults against the authors' rules and the best possible choice.

One record per slot; the first eighth of a stream is the warm-up, and figures are for the rest.
Errors are expectations over the hierarchy's noise, computed from its exact covariances; only the
choice of the threshold and the noise of ToPS's warm-up sum are drawn. So the mean squared error of
a set of ranges is the variance of their noise plus the mean square of the errors from clipping and
from predictions inside blocks.

* ``tops``: the mechanism of `TopsParameters()`, with the noise of its threshold and of the
  warm-up's sum, which predicts the first block.
* ``authors``: our own implementation of the choices of Wang et al. (CCS 2021): 16 children, the
  least height that holds the stream, the number of levels without noise that minimises
  2(b-1)(h-s)³/ε² + b^2s/36, the threshold by the noisy maximum of Equation 6 with c = 60 and
  DLap(1/ε), and a first block that is assumed to hold half of the threshold in every slot.
* ``best``: the least error of any threshold and any shape, found on the data itself at no cost in
  ε; still one threshold and one shape for the whole stream, blocks predicted by the last one, and
  a first block that is assumed to hold a quarter of the threshold or the warm-up's exact mean in
  every slot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from _heldout_streams import streams
from _values import F64, I64, Stream, keyed
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.thresholds.clip import (
    exceedance_scores,
    geometric_thresholds,
    noise_penalty,
    noisy_max,
)
from hushstream.mechanisms.parts.trees.hierarchy import Chunks, choose_height
from hushstream.mechanisms.parts.trees.shape import (
    Covariance,
    TreeShape,
    candidates,
    mean_variance,
)
from hushstream.mechanisms.tops.settings import TopsParameters, build

EPSILONS = tuple(Fraction(x, 100) for x in (5, 10, 20, 50, 100))
WARMUP, RANGES, EXCESS, AUTHORS_FANOUT = 8, 300, Fraction(60), 16
DELTA = Fraction(1, 10**6)
Row = dict[str, Any]


class Method(NamedTuple):
    """A shape and what it predicts inside blocks."""

    shape: TreeShape
    guess: float = 0.25  # value of every slot of the first block, as a share of θ
    history: int = 1  # blocks whose mean predicts the next one


@dataclass(frozen=True)
class Ranges:
    """Random ranges of a stream after its warm-up."""

    rest: I64
    first: I64
    end: I64

    @classmethod
    def of(cls, stream: Stream) -> Ranges:
        rest = stream.values[len(stream.values) // WARMUP :]
        drawn = np.random.default_rng(9).integers(0, len(rest) + 1, (RANGES, 2))
        ends = np.sort(drawn, axis=1)
        return cls(rest, ends[:, 0], ends[:, 1])

    def missed(self, theta: int, method: Method) -> float:
        """Mean square of the error without noise."""
        true, cut = _sums(self.rest), _sums(np.minimum(self.rest, theta))
        width = method.shape.width

        def shown(at: I64) -> F64:
            block, into = np.divmod(at, width)
            known = np.minimum(block, method.history)
            last = cut[block * width] - cut[(block - known) * width]
            last = np.where(block > 0, last / np.maximum(known, 1), method.guess * theta * width)
            guessed: F64 = cut[block * width] + into / width * last - true[at]
            return guessed

        return float(np.mean((shown(self.end) - shown(self.first)) ** 2))

    def noise(self, shape: TreeShape, history: int = 1) -> float:
        """Mean variance of the noise for θ = ε = 1."""
        return _noise(shape, history, tuple(self.first.tolist()), tuple(self.end.tolist()))


def _sums(values: I64) -> I64:
    return np.concatenate([[0], np.cumsum(values)])


@lru_cache(maxsize=512)
def _noise(shape: TreeShape, history: int, firsts: tuple[int, ...], ends: tuple[int, ...]) -> float:
    from hushstream.mechanisms.parts.trees.shape import span_terms

    covariance = Covariance(shape.fanout, shape.levels)
    pairs = zip(firsts, ends, strict=True)
    each = [covariance.of(span_terms(a, z, shape.width, history)) for a, z in pairs]
    return 2 * shape.levels**2 * float(np.mean(each))


def authors_skip(height: int, epsilon: Fraction, fanout: int = AUTHORS_FANOUT) -> int:
    """The s that minimises 2(b-1)(h-s)³/ε² + b^2s/36.

    >>> [authors_skip(5, Fraction(1, n)) for n in (20, 10, 1)]
    [2, 2, 1]
    """

    def error(s: int) -> Fraction:
        noise = 2 * (fanout - 1) * (height - s) ** 3 / epsilon**2
        return noise + Fraction(fanout ** (2 * s), 36)

    return min(range(height), key=error)


def authors(slots: int, epsilon: Fraction) -> tuple[Method, int]:
    """Their shape for a number of slots, and its height."""
    height = choose_height(AUTHORS_FANOUT, slots)
    skip = authors_skip(height, epsilon)
    return Method(TreeShape(AUTHORS_FANOUT, height - skip, skip), 0.5), height


def defaults(stream: Stream, epsilon: Fraction) -> Any:
    """The mechanism of a configuration with only the required settings."""
    setting = Setting(epsilon, DELTA, len(stream.values), columns=(("value", 0, stream.top),))
    return build(TopsParameters(warmup=len(stream.values) // WARMUP), setting)


def method_of(made: Any) -> Method:
    """The shape and the predictions of a mechanism in chunks; the first block's are `guessed`."""
    assert isinstance(made.tree, Chunks)
    skip = round(math.log(made.width, made.tree.fanout))
    assert made.smoother.kind in ("recent", "moving")
    shape = TreeShape(made.tree.fanout, made.tree.levels, skip)
    return Method(shape, history=made.smoother.memory)


def rank(made: Any) -> float:
    """K, in which penalties of ToPS's thresholds are measured (`clip.scale_free_penalty`)."""
    late = made.slots.slots - made.slots.warmup_slots
    noise = mean_variance(made.tree, made.width, late, made.smoother.memory)
    return math.sqrt(6 * noise) * made.slots.warmup_slots / late


def guessed(made: Any, warm: I64, theta: int, run: int | None = None) -> float:
    """What ToPS expects of a slot of the first block, as a share of θ.

    Args:
        made: the mechanism.
        warm: values of the warm-up.
        theta: the threshold.
        run: number of the noise in the warm-up's sum; None leaves it out.
    """
    told = int(np.minimum(warm, theta).sum())
    if run is not None:
        index, first = np.zeros(1, np.int64), np.full(1, made.slots.warmup, np.int64)
        label, scale = Keys.of([b"warmup"]), theta / made.sum_epsilon
        told += int(keyed(run, "tops").laplace("sum", label, index, scale, first)[0, 0])
    return float(made.predicted(theta, told * made.steps) / made.steps / theta)


def row_of(stream: Stream, epsilon: Fraction, runs: int, oracle: bool = True) -> Row:
    """Mean squared errors for one stream and ε; with ``oracle`` also the best possible."""
    ranges, warm = Ranges.of(stream), stream.values[: len(stream.values) // WARMUP]
    made = defaults(stream, epsilon)
    thresholds = made.slots.thresholds
    histogram = np.bincount(np.searchsorted(thresholds, warm), minlength=len(thresholds))
    theirs, height = authors(len(ranges.rest), epsilon)
    theirs_penalty = noise_penalty(thresholds, len(warm), AUTHORS_FANOUT, height, epsilon, EXCESS)
    row: Row = {"stream": stream.name, "epsilon": float(epsilon)}
    for name, method, penalty, share in (
        ("tops", method_of(made), np.array(made.penalty), made.threshold_epsilon),
        ("authors", theirs, theirs_penalty, epsilon),
    ):
        scores = exceedance_scores(histogram, penalty)
        chosen = [noisy_max(scores, 1 / share, keyed(i, name), 1) for i in range(runs)]
        thetas = [thresholds[place] for place in chosen]
        noise = ranges.noise(method.shape, method.history) / float(epsilon) ** 2
        errors = []
        for run, theta in enumerate(thetas):
            if name == "tops":
                method = method._replace(guess=guessed(made, warm, theta, run))
            errors.append(noise * theta**2 + ranges.missed(theta, method))
        row[name] = float(np.mean(errors))
        row[f"{name}_threshold"] = float(np.median(thetas))
        row[f"{name}_shape"] = [method.shape.fanout, method.shape.levels, method.shape.width]
    return row | (best(stream, ranges, epsilon) if oracle else {})


def best(stream: Stream, ranges: Ranges, epsilon: Fraction) -> Row:
    """The least error of any threshold and shape; among shapes of one width, the least noisy."""
    warm = stream.values[: len(stream.values) // WARMUP]
    narrow: dict[int, tuple[float, TreeShape]] = {}
    for shape in candidates(len(ranges.rest)):
        noise = ranges.noise(shape)
        if noise < narrow.get(shape.width, (math.inf, shape))[0]:
            narrow[shape.width] = noise, shape
    noises = sorted(noise for noise, _ in narrow.values())
    least, found = math.inf, (0, TreeShape(2, 1, 0))
    for theta in geometric_thresholds(stream.top, 8):
        if noises[0] * theta**2 / float(epsilon) ** 2 >= least:
            break
        for noise, shape in narrow.values():
            blur = noise * theta**2 / float(epsilon) ** 2
            if blur < least:
                mean = float(np.minimum(warm, theta).mean()) / theta
                missed = min(ranges.missed(theta, Method(shape, one)) for one in (0.25, mean))
                if blur + missed < least:
                    least, found = blur + missed, (theta, shape)
    theta, shape = found
    best_shape = [shape.fanout, shape.levels, shape.width]
    return {"best": least, "best_threshold": theta, "best_shape": best_shape}


def measure(half: str, quick: bool, tick: Any, oracle: bool = True) -> list[Row]:
    """Rows of a half; ``tick`` is called with each."""
    rows = []
    for stream in streams(half):
        for epsilon in EPSILONS[::2] if quick else EPSILONS:
            rows.append(row_of(stream, epsilon, 5 if quick else 20, oracle))
            tick(rows[-1])
    return rows


def totals(rows: list[Row]) -> Row:
    """Ratios of mean squared errors; each set counts once for each ε."""
    authors_ratio = np.array([row["tops"] / row["authors"] for row in rows])
    best = np.array([row["tops"] / row["best"] for row in rows if "best" in row])
    names = [row["stream"] for row in rows]
    each = [float(np.median(authors_ratio[np.array(names) == name])) for name in set(names)]
    found = {
        "tops_over_authors_median": float(np.median(authors_ratio)),
        "tops_over_authors_worst": float(authors_ratio.max()),
        "tops_over_authors_worst_set": max(each),
        "cells_worse_than_authors": int((authors_ratio > 1).sum()),
        "cells": len(rows),
    }
    if len(best):
        found["tops_over_best"] = float(np.median(best))
        found["tops_over_best_worst"] = float(best.max())
    return found
