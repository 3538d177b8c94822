"""PAK's warm-up by a tree, as in the paper, against the one total that PAK releases.

The warm-up's ε2 can buy three things: its total, from which a straight line estimates every running
total of the warm-up (``line``); a counter over its slots, released at its end with the same τ
(``after``); or a counter that runs from the first slot on, when only B is known (``live``). The
counter is a consistent hierarchy of 16 children, the better kind. Streams, ε and thresholds are
those of `_heldout_drift`; errors are mean squared errors of running totals, by exact variances.

* ``line``, ``after``, ``live``: errors of the warm-up's slots.
* ``later_line``, ``later_after``: errors of later slots, which start from the warm-up's total.
* ``both``, ``later_both``: half of ε2 buys the total, the other half the counter.

    python research/_heldout_warmup.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import _benchmarks  # noqa: F401
import numpy as np
from _heldout_drift import ENDS, UNIT, built, pak_noise, thresholds
from _heldout_streams import streams
from _heldout_values import EPSILONS, WARMUP, Ranges
from _values import F64, Stream
from hushstream.mechanisms.pak.counter import HierarchyPrefix, PrefixCounter
from hushstream.mechanisms.parts.trees.hierarchy import Chunks, choose_height, laplace_variance
from rich.console import Console

FANOUT = 16
Row = dict[str, Any]


def hierarchy(slots: int, epsilon: Fraction) -> HierarchyPrefix:
    """The counter of a warm-up."""
    return HierarchyPrefix(Chunks(FANOUT, choose_height(FANOUT, slots), epsilon))


def total(epsilon: Fraction) -> float:
    """Variance of one total, for θ = 1."""
    return laplace_variance(UNIT / epsilon) / UNIT**2


def prefixes(counter: PrefixCounter, ends: list[int]) -> F64:
    """(ends,) noise variances of running totals, for θ = 1."""
    return np.array([counter.variance(UNIT, 0, end) for end in ends]) / UNIT**2


def of_threshold(stream: Stream, tau: int, epsilon: Fraction, later: float) -> dict[str, float]:
    """Errors with a threshold; ``later`` is the mean variance of the main counter for θ = 1."""
    rest, slots = Ranges.of(stream).rest, len(stream.values) // WARMUP
    warm = stream.values[:slots]
    ends = (-(-slots * np.arange(1, ENDS + 1) // ENDS)).tolist()
    true, cut = (np.cumsum(x)[np.array(ends) - 1] for x in (warm, np.minimum(warm, tau)))
    share = np.array(ends) / slots
    lost = np.cumsum(rest - np.minimum(rest, tau)).astype(float) + float(true[-1] - cut[-1])
    missed = float(np.mean(lost[-(-len(rest) * np.arange(1, ENDS + 1) // ENDS) - 1] ** 2))
    line = float(np.mean((share * cut[-1] - true) ** 2))
    clipped = float(np.mean((cut - true).astype(float) ** 2))
    out = {"line": line + tau**2 * float(np.mean(share**2)) * total(epsilon)}
    out["later_line"] = missed + tau**2 * (later + total(epsilon))
    for name, part, own in (
        ("after", epsilon, None),
        ("both", epsilon / 2, total(epsilon / 2)),
    ):
        counter = hierarchy(slots, part)
        out[name] = clipped + tau**2 * float(prefixes(counter, ends).mean())
        last = prefixes(counter, [slots])[0] if own is None else own
        out[f"later_{name}"] = missed + tau**2 * (later + float(last))
    out["live"] = stream.top**2 * float(prefixes(hierarchy(slots, epsilon), ends).mean())
    return out


def row_of(stream: Stream, epsilon: Fraction, runs: int) -> Row:
    """Mean squared errors of one stream and ε."""
    made = built("pak", stream, epsilon, 0)
    late = len(Ranges.of(stream).rest)
    later = float(pak_noise(made, late)[0])
    drawn = [thresholds(made, stream, run)[0] for run in range(runs)]
    known = {tau: of_threshold(stream, tau, made.sum_epsilon, later) for tau in set(drawn)}
    names = known[drawn[0]]
    means = {name: float(np.mean([known[tau][name] for tau in drawn])) for name in names}
    return {"stream": stream.name, "epsilon": float(epsilon), **means}


def measure(half: str, quick: bool, tick: Callable[[Row], object]) -> list[Row]:
    """Rows of a half; ``tick`` is called with each."""
    rows = []
    for stream in streams(half)[:: 2 if quick else 1]:
        for epsilon in EPSILONS[::4] if quick else EPSILONS:
            rows.append(row_of(stream, epsilon, 3 if quick else 10))
            tick(rows[-1])
    return rows


def totals(rows: list[Row]) -> Row:
    """Median ratios to the total alone, and the number of cases with less error in the warm-up."""
    out: Row = {"cases": len(rows)}
    for name in ("after", "both", "live"):
        ratio = np.array([row[name] / row["line"] for row in rows])
        out[f"{name}_over_line"] = float(np.median(ratio))
        out[f"{name}_better"] = int((ratio < 1).sum())
    for name in ("after", "both"):
        later = [row[f"later_{name}"] / row["later_line"] for row in rows]
        out[f"later_{name}_over_line"] = float(np.median(later))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer streams, ε and thresholds")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    with Console(stderr=True).status("warm-up") as status:
        rows = measure("held", options.quick, lambda row: status.update(row["stream"]))
    if options.json:
        print(json.dumps({**totals(rows), "rows": rows}))
    else:
        Console(width=110).print(totals(rows))


if __name__ == "__main__":
    main()
