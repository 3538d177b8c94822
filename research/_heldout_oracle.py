"""How near to the best any rule can come that chooses ToPS's threshold at the end of the warm-up.

Streams, warm-ups, ranges, exact variances and the ε of the sums are those of `_heldout_values`; the
warm-up's sum, which predicts the first block, has no noise. Errors are relative to ``best``, the
least error of any threshold and shape for the whole stream:

* ``tops``: the product's rule.
* ``told``: ToPS's noise and shape, but with the penalty, its own or one of `PENALTIES` (weights
  and exponents of θ), that is best for this stream and ε. No choice among these has less error.
* ``quiet``: the rule without its noise. **Not private**, as are the next three.
* ``warm_threshold``: ToPS's shape, with the threshold of least error on the warm-up, which is
  repeated until it is as long as the stream.
* ``warm``: the shape and threshold of least error on that repeated warm-up.
* ``threshold``: ToPS's shape, with the best threshold for the stream.

So ``tops`` over ``quiet`` is the cost of the choice's noise, ``warm`` the cost of knowing only the
warm-up, and ``threshold`` the cost of the shape.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from _heldout_drift import changes
from _heldout_streams import streams
from _heldout_values import (
    EPSILONS,
    WARMUP,
    Method,
    Ranges,
    best,
    defaults,
    guessed,
    method_of,
    rank,
)
from _values import F64, I64, Stream, keyed
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.thresholds.clip import exceedance_scores, exceeding
from hushstream.mechanisms.parts.trees.shape import TreeShape

WEIGHTS, EXPONENTS = (9, 18, 27, 36, 54, 72, 108), (0.125, 0.25, 0.5, 0.75, 1.0)
PENALTIES = tuple(itertools.product(WEIGHTS, EXPONENTS))
RULES = ("tops", "told", "quiet", "warm_threshold", "warm", "threshold")
Row = dict[str, Any]


@lru_cache(maxsize=64)
def noises(runs: int, candidates: int, epsilon: Fraction) -> I64:
    """(runs, candidates) noise of the noisy maximum."""
    index, first = np.arange(candidates), np.ones(candidates, np.int64)
    label = Keys.of([b"threshold"])
    drawn = [
        keyed(run, "tops").laplace("threshold", label, index, 1 / epsilon, first)[0]
        for run in range(runs)
    ]
    return np.array(drawn)


def errors(ranges: Ranges, thresholds: I64, method: Method, epsilon: Fraction, guesses: F64) -> F64:
    """(c,) mean squared error of ranges with each threshold.

    Args:
        ranges: random ranges of a stream.
        thresholds: (c,) thresholds.
        method: the tree, and what predicts its blocks.
        epsilon: ε of the sums.
        guesses: (c,) predictions for slots of the first block, as shares of a threshold.
    """
    pairs = zip(thresholds.tolist(), guesses.tolist(), strict=True)
    missed = [ranges.missed(theta, method._replace(guess=guess)) for theta, guess in pairs]
    noise = ranges.noise(method.shape, method.history) / float(epsilon) ** 2
    return noise * np.square(thresholds.astype(float)) + np.array(missed)


def told(above: I64, penalty: I64, unit: float, thresholds: I64, noise: I64, error: F64) -> float:
    """The least mean error of the rule's own ``penalty`` and of all others; ``unit`` is `rank`."""
    share = thresholds / thresholds[-1]
    means = [error[np.argmax(-above - penalty + noise, axis=1)].mean()]
    for weight, exponent in PENALTIES:
        scores = -above - weight * unit * share**exponent
        means.append(error[np.argmax(scores + noise, axis=1)].mean())
    return float(min(means))


def row_of(stream: Stream, epsilon: Fraction, runs: int) -> Row:
    """Mean squared errors of one stream and ε."""
    ranges, warm = Ranges.of(stream), stream.values[: len(stream.values) // WARMUP]
    repeated = Ranges(np.resize(warm, len(ranges.rest)), ranges.first, ranges.end)
    made = defaults(stream, epsilon)
    thresholds, method = np.array(made.slots.thresholds), method_of(made)
    guesses = np.array([guessed(made, warm, theta) for theta in thresholds.tolist()])
    error, before = (
        errors(one, thresholds, method, epsilon, guesses) for one in (ranges, repeated)
    )
    histogram = np.bincount(np.searchsorted(thresholds, warm), minlength=len(thresholds))
    penalty = np.array(made.penalty)
    scores = exceedance_scores(histogram, penalty)
    noise = noises(runs, len(thresholds), made.threshold_epsilon)
    row: Row = {"stream": stream.name, "epsilon": float(epsilon)}
    row["tops"] = float(error[np.argmax(scores + noise, axis=1)].mean())
    row["told"] = told(exceeding(histogram), penalty, rank(made), thresholds, noise, error)
    row["quiet"] = float(error[np.argmax(scores)])
    row["warm_threshold"] = float(error[np.argmin(before)])
    known = best(stream, repeated, epsilon)
    fanout, levels, width = known["best_shape"]
    other = TreeShape(fanout, levels, round(math.log(width, fanout)))
    theta = known["best_threshold"]
    guess = np.array([guessed(made, warm, theta)])
    row["warm"] = float(errors(ranges, np.array([theta]), Method(other), epsilon, guess)[0])
    row["threshold"] = float(error.min())
    return row | best(stream, ranges, epsilon)


def measure(half: str, quick: bool, tick: Callable[[Row], object]) -> list[Row]:
    """Rows of a half; ``tick`` is called with each."""
    rows = []
    for stream in streams(half)[:: 2 if quick else 1]:
        for epsilon in EPSILONS[::2] if quick else EPSILONS:
            rows.append(row_of(stream, epsilon, 20 if quick else 100))
            tick(rows[-1])
    return rows


def totals(rows: list[Row]) -> Row:
    """Median ratio to the best for each rule: over all rows, steady streams, and other streams."""
    out: Row = {}
    for name, kinds in (("all", (False, True)), ("steady", (False,)), ("drift", (True,))):
        mine = [row for row in rows if changes(row["stream"]) in kinds]
        for rule in RULES if mine else ():
            ratios = [row[rule] / row["best"] for row in mine]
            out[f"oracle_{rule}_over_best_{name}"] = float(np.median(ratios))
    return out
