"""Relearning a threshold, against keeping the first one: what it saves under drift, and costs.

One record per slot, the first eighth of a stream is the warm-up, as in `_heldout_values`. The rest
is cut into four stretches (``relearn``, at its default share of ε). Errors are expectations over
the noise of sums, by its exact variances; only choices of thresholds are drawn.

* ``tops``: mean squared error of random ranges.
* ``pak``: mean squared error of running totals after the warm-up, pure counter (``hierarchy``).

Names distinguish streams whose law drifts or steps from steady ones.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from _heldout_streams import streams
from _heldout_values import DELTA, EPSILONS, WARMUP, Ranges, guessed
from _values import F64, I64, Stream, keyed
from hushstream.mechanisms.catalogue import find
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.pak.succession import Succession
from hushstream.mechanisms.parts.trees.shape import Covariance, TreeShape, span_terms
from hushstream.mechanisms.slots.relearning import Exceedance

STRETCHES, WHOLE, ENDS, UNIT = 4, 256, 64, 1 << 10
GIVEN: dict[str, dict[str, Any]] = {"tops": {}, "pak": {"counter": "hierarchy"}}
Row = dict[str, Any]


def changes(name: str) -> bool:
    """Whether a stream's law drifts or steps."""
    return name.startswith(("drift", "step to"))


def built(kind: str, stream: Stream, epsilon: Fraction, relearn: int) -> Any:
    """The mechanism with its defaults and this period of relearning."""
    entry, n = find(kind), len(stream.values)
    setting = Setting(epsilon, DELTA, n, columns=(("value", 0, stream.top),))
    given = entry.parameters(warmup=n // WARMUP, relearn=relearn, **GIVEN[kind])
    return entry.build(given, setting)


def thresholds(made: Any, stream: Stream, run: int) -> list[int]:
    """A drawn threshold for every stretch."""
    slots, n = made.slots, len(stream.values) // WARMUP
    bucket = np.searchsorted(slots.thresholds, stream.values)

    def counted(first: int, end: int) -> I64:
        return np.bincount(bucket[first:end], minlength=len(slots.thresholds))

    noise = keyed(run, "drift")
    first = getattr(made, "chooser", None) or Exceedance(made.threshold_epsilon, made.penalty)
    out = [slots.thresholds[first.choose(counted(0, n), noise, 1)]]
    again = made.relearning
    for k in range(1, again.stretches if again else 1):
        closed = counted(n + (k - 1) * again.every, n + k * again.every)
        chosen = again.chooser.choose(closed, noise, 1, f"threshold.{k}")
        out.append(slots.thresholds[chosen])
    return out


def in_force(made: Any, thetas: list[int], slots: int) -> I64:
    """(slots,) the threshold of each slot after the warm-up."""
    every = made.relearning.every if made.relearning else slots
    return np.repeat(np.array(thetas), every)[:slots]


def tops_noise(made: Any, ranges: Ranges) -> F64:
    """(stretches,) mean noise variance that each stretch adds to a range, for θ = 1."""
    shape = TreeShape(made.tree.fanout, made.tree.levels, 0)
    covariance, width = Covariance(shape.fanout, shape.levels), made.width
    again, blocks = made.relearning, -(-len(ranges.rest) // width)
    length = again.every // width if again else blocks
    total = np.zeros(again.stretches if again else 1)
    for first, end in zip(ranges.first.tolist(), ranges.end.tolist(), strict=True):
        terms = span_terms(first, end, width, made.smoother.memory)
        for k in range(len(total)):
            local: dict[int, float] = {}
            for place, weight in terms.items():
                inside = min(max(place - k * length, 0), length)
                local[inside] = local.get(inside, 0.0) + weight
            total[k] += covariance.of({i: w for i, w in local.items() if i and w})
    scale = 2 * (shape.levels / float(made.tree.epsilon)) ** 2
    return np.asarray(total * scale / len(ranges.first))


def tops_error(made: Any, ranges: Ranges, noise: F64, thetas: list[int], warm: I64) -> float:
    """Mean squared error of ranges with these thresholds; the warm-up's sum has no noise."""
    guess = guessed(made, warm, thetas[0]) * thetas[0]
    force, width, past = in_force(made, thetas, len(ranges.rest)), made.width, made.smoother.memory
    true = np.concatenate([[0], np.cumsum(ranges.rest)])
    cut = np.concatenate([[0], np.cumsum(np.minimum(ranges.rest, force))])

    def shown(at: I64) -> F64:
        block, into = np.divmod(at, width)
        known = np.minimum(block, past)
        last = cut[block * width] - cut[(block - known) * width]
        last = np.where(block > 0, last / np.maximum(known, 1), guess * width)
        guessed: F64 = cut[block * width] + into / width * last - true[at]
        return guessed

    missed = np.mean((shown(ranges.end) - shown(ranges.first)) ** 2)
    return float(noise @ np.square(thetas) + missed)


def pak_noise(made: Any, slots: int) -> F64:
    """(stretches,) mean noise variance that each stretch adds to a running total, for θ = 1."""
    again, ends = made.relearning, -(-slots * np.arange(1, ENDS + 1) // ENDS)
    length = again.every if again else slots
    pieces, total = Succession((made.counter,), (UNIT,), length), np.zeros(-(-slots // length))
    for end in ends.tolist():
        for k in range(len(total)):
            inside = min(max(end - k * length, 0), length)
            total[k] += pieces.variance(0, inside)
    return np.asarray(total / ENDS / UNIT**2)


def pak_error(made: Any, ranges: Ranges, noise: F64, thetas: list[int], warm: I64) -> float:
    """Mean squared error of running totals with these thresholds."""
    rest = ranges.rest
    lost = np.cumsum(rest - np.minimum(rest, in_force(made, thetas, len(rest))))
    ends = -(-len(rest) * np.arange(1, ENDS + 1) // ENDS)
    return float(noise @ np.square(thetas) + np.mean(lost[ends - 1].astype(float) ** 2))


def row_of(kind: str, stream: Stream, epsilon: Fraction, runs: int) -> Row:
    """Errors with one threshold, and with four."""
    ranges = Ranges.of(stream)
    late = len(ranges.rest)
    every = max(WHOLE, round(late / STRETCHES / WHOLE) * WHOLE)
    row: Row = {"mechanism": kind, "stream": stream.name, "epsilon": float(epsilon)}
    for name, relearn in (("first", 0), ("anew", every)):
        made = built(kind, stream, epsilon, relearn)
        noise = tops_noise(made, ranges) if kind == "tops" else pak_noise(made, late)
        error = tops_error if kind == "tops" else pak_error
        drawn = [thresholds(made, stream, run) for run in range(runs)]
        warm = stream.values[: len(stream.values) // WARMUP]
        row[name] = float(np.mean([error(made, ranges, noise, one, warm) for one in drawn]))
    return row


def measure(half: str, quick: bool, tick: Callable[[Row], object]) -> list[Row]:
    """Rows of a half; ``tick`` is called with each."""
    rows = []
    for stream in streams(half)[:: 2 if quick else 1]:
        for epsilon in EPSILONS[::4] if quick else EPSILONS:
            for kind in GIVEN:
                rows.append(row_of(kind, stream, epsilon, 3 if quick else 10))
                tick(rows[-1])
    return rows


def totals(rows: list[Row]) -> Row:
    """Median ratios of the mean squared error with relearning to that with the first threshold."""
    out: Row = {}
    for kind in GIVEN:
        for name, moving in (("steady", False), ("drift", True)):
            ratio = [
                row["anew"] / row["first"]
                for row in rows
                if row["mechanism"] == kind and changes(row["stream"]) == moving
            ]
            out[f"{kind}_anew_over_first_{name}"] = float(np.median(ratio))
    return out
