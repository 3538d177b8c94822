"""PAK's threshold against the best constant one, on streams that no constant was tuned on.

One record per slot; the first eighth of a stream is the warm-up, as in `_heldout_values`. The error
is the root mean square over running totals after it, which include the warm-up's sum. Errors are
expectations over the noise of sums; only the choice of the threshold is drawn. ``best`` is the
least error of any threshold of the same counter, found on the data itself at no cost in ε.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from _heldout_streams import streams
from _heldout_values import DELTA, EPSILONS, WARMUP
from _values import F64, I64, Stream, keyed
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.pak.settings import PakParameters, build

ENDS, UNIT = 64, 1 << 10
Row = dict[str, Any]


def defaults(stream: Stream, epsilon: Fraction) -> Any:
    """The mechanism of a configuration with only the required settings."""
    setting = Setting(epsilon, DELTA, len(stream.values), columns=(("value", 0, stream.top),))
    return build(PakParameters(warmup=len(stream.values) // WARMUP), setting)


def noise_of(made: Any, ends: I64) -> float:
    """Mean variance of these running totals' noise for a threshold of 1."""
    each = [made.counter.variance(UNIT, 0, end) for end in ends.tolist()]
    return float(np.mean(each)) / UNIT**2


def row_of(stream: Stream, epsilon: Fraction, runs: int) -> Row:
    """Errors for one stream and ε."""
    made, values, warm = defaults(stream, epsilon), stream.values, len(stream.values) // WARMUP
    thresholds = made.slots.thresholds
    late = len(values) - warm
    ends = np.unique(-(-late * np.arange(1, ENDS + 1) // ENDS))
    noise = noise_of(made, ends)

    def square(theta: int, epsilon: float) -> float:
        lost: F64 = np.cumsum(np.maximum(values - theta, 0))[warm + ends - 1].astype(np.float64)
        return float((noise + 2 / epsilon**2) * theta**2 + np.mean(lost**2))

    histogram = np.bincount(np.searchsorted(thresholds, values[:warm]), minlength=len(thresholds))
    drawn = [thresholds[made.chooser.choose(histogram, keyed(i, "pak"), 1)] for i in range(runs)]
    known = {theta: square(theta, float(made.sum_epsilon)) for theta in set(drawn)}
    best = min(square(theta, float(epsilon)) for theta in thresholds)
    pak = float(np.mean([known[theta] for theta in drawn]))
    return {
        "stream": stream.name, "epsilon": float(epsilon), "pak": pak**0.5, "best": best**0.5,
        "pak_threshold": float(np.median(drawn)),
    }  # fmt: skip


def measure(half: str, quick: bool, tick: Callable[[Row], object]) -> list[Row]:
    """Rows of a half; ``tick`` is called with each."""
    rows = []
    for stream in streams(half):
        for epsilon in EPSILONS[::2] if quick else EPSILONS:
            rows.append(row_of(stream, epsilon, 5 if quick else 20))
            tick(rows[-1])
    return rows


def totals(rows: list[Row]) -> Row:
    """Errors over the best; each set counts once for each ε."""
    ratio = np.array([row["pak"] / row["best"] for row in rows])
    return {"pak_median": float(np.median(ratio)), "pak_worst": float(ratio.max())}
