"""Gain of a learnt clipping threshold: PAK's own experiment, and range sums with ToPS.

(a) Error of the last prefix sum over n values, one per step, ε = 1, δ = 2^-20, with the first
50,000 as warm-up, averaged over every tenth of the last 1,000 prefixes: the binary tree with the
largest value B against PAK, whose optimiser knows only n, B, ε and δ. PAK's default chooses the
threshold by a noisy maximum; ``smooth`` is the paper's smooth sensitivity with sound constants.
Both also pay for the warm-up's sum. ``histogram`` is the simpler rule: a noisy histogram of the
warm-up, cut at the quantile of the noisy maximum, at the same cost. For comparison, the gain of
other counters at the same threshold: a consistent 16-ary hierarchy, and square-root Toeplitz
factors with Gaussian noise (exact formulas).

(b) Mean squared error of 200 random range sums after a warm-up of an eighth: PAK (smooth threshold
or noisy maximum, binary tree), ToPS, B with either hierarchy, and each one's threshold with the
other's hierarchy. Flights in file order and rare spikes are shown apart.

(c), with ``--sweep`` alone: (a) for purchases, with one of ε, B, the warm-up and n changed.

    python benchmarks/threshold.py [--quick] [--json] [--sweep] [--out DIR]

The last line under ``--json``: ``pak_gain_trips``, ``pak_gain_purchases`` (ratios of mean absolute
errors), the same for ``smooth``, and ``tops_over_pak``, ``tops_over_fixed`` (largest ratios of mean
squared errors over all streams and ε; ``tops_over_pak_max`` against PAK with the noisy maximum,
``tops_over_fixed_wide`` against B in ToPS's own hierarchy), and every row.
"""

from __future__ import annotations

import argparse
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from _values import (
    BETA,
    DELTA,
    I64,
    Stream,
    Warm,
    Wide,
    bursts,
    histogram_threshold,
    keyed,
    pak_choice,
    pak_threshold,
    real,
    spikes,
    synthetic,
    tree_prefixes,
    warm_sum_noise,
)
from hushstream.mechanisms.accounting import gdp_mu
from hushstream.mechanisms.pak.counter import TreePrefix
from hushstream.mechanisms.parts.trees.consistency import span_variance
from hushstream.mechanisms.parts.trees.hierarchy import laplace_variance
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

mpl.use("Agg")
import matplotlib.pyplot as plt

WARMUP, LAST, EVERY, EPSILON = 50_000, 1000, 10, Fraction(1)
METHODS = {
    "pak": "PAK (smooth, tree)",
    "pak_max": "PAK (noisy maximum, tree)",
    "tops": "ToPS",
    "fixed": "B, tree",
    "fixed_wide": "B, wide hierarchy",
    "pak_wide": "PAK's threshold, wide hierarchy",
    "tops_tree": "ToPS's threshold, tree",
}
RULES = ("pak", "smooth", "histogram")
Row = dict[str, Any]


def laws() -> list[tuple[str, int, Any]]:
    """Name, B and law of the streams of (a); n is 25 million for the trips, else 150,000."""
    return [
        ("trips", 1440, lambda g: g.gamma(3, 12, 25_000_000)),
        ("purchases", 3000, lambda g: g.exponential(40, 150_000)),
        ("Exp(80)", 3000, lambda g: g.exponential(80, 150_000)),
        ("lognormal(3, 0.8)", 3000, lambda g: g.lognormal(3, 0.8, 150_000)),
    ]


def prefix_errors(
    stream: Stream, runs: int, epsilon: Fraction = EPSILON, warmup: int = WARMUP
) -> Row:
    """Part (a) for one stream."""
    n = len(stream.values)
    ends = np.arange(n - LAST + EVERY, n + 1, EVERY)
    early = np.bincount(stream.values[:-LAST], minlength=stream.top + 1)
    warm = Warm.of(stream, warmup)
    whole = TreePrefix(n, epsilon)
    fixed = [mean_abs(whole.noise(keyed(i, "B"), stream.top, ends)) for i in range(runs)]
    row: Row = {"stream": stream.name, "n": n, "top": stream.top, "fixed": float(np.mean(fixed))}
    for name in RULES:
        choice = pak_choice(stream, warmup, epsilon, name == "smooth")
        errors, taus = [], []
        for i in range(runs):
            noise = keyed(i, name)
            if name == "histogram":
                tau = histogram_threshold(warm, choice, epsilon, noise)
            else:
                tau = pak_threshold(warm, choice, epsilon, name == "smooth", noise)
            rest = TreePrefix(n - warmup, epsilon).noise(noise, tau, ends - warmup)
            drawn = np.array(rest, float) + warm_sum_noise(tau, choice, epsilon, noise)
            errors.append(mean_abs(drawn - cut_off(stream, early, tau)))
            taus.append(tau)
        row |= {name: float(np.mean(errors)), f"{name}_threshold": float(np.mean(taus))}
        row[f"{name}_gain"] = row["fixed"] / row[name]
        if choice:
            row[f"{name}_choice"] = [choice.rank, float(choice.factor), float(choice.split)]
    return row | counters(n - warmup, ends - warmup, epsilon)


def mean_abs(values: Any) -> float:
    return float(np.mean(np.abs(np.asarray(values, float))))


def cut_off(stream: Stream, early: I64, tau: int) -> I64:
    """The amount that clipping takes from each of the last prefix sums."""
    excess = np.maximum(np.arange(stream.top + 1) - tau, 0)
    return (
        int((excess * early).sum()) + np.cumsum(excess[stream.values[-LAST:]])[EVERY - 1 :: EVERY]
    )


def counters(n: int, ends: I64, epsilon: Fraction) -> Row:
    """Noise of late prefix sums for threshold 1, to compare counters."""
    nodes = np.mean([len(TreePrefix.nodes(int(end))) for end in ends])
    tree = math.sqrt(nodes * laplace_variance(n.bit_length() / epsilon))
    levels = next(level for level in range(1, 12) if 16**level >= n)
    spans = [span_variance(16, levels, 0, int(end)) for end in ends]
    wide = math.sqrt(np.mean(spans) * laplace_variance(levels / epsilon))
    # Column and row norms of the square root of the all-ones triangle: Σ (C(2k,k)/4^k)².
    norm2 = (math.log(n) + np.euler_gamma + 4 * math.log(2)) / math.pi
    matrix = norm2 / float(gdp_mu(epsilon, DELTA))
    return {"hierarchy_gain": tree / wide, "matrix_gain": tree / matrix}


def range_errors(stream: Stream, epsilon: Fraction, runs: int) -> Row:
    """Part (b) for one stream and ε: mean squared errors."""
    records = len(stream.values) // 8
    rest = stream.values[records:]
    spans = np.sort(np.random.default_rng(7).integers(0, len(rest) + 1, (200, 2)), axis=1)
    ends = np.unique(spans)
    place = np.searchsorted(ends, spans)
    truth = np.concatenate([[0], np.cumsum(rest)])[spans]
    warm, wide = Warm.of(stream, records), Wide.of(len(rest), epsilon)
    choices = {smooth: pak_choice(stream, records, epsilon, smooth) for smooth in (True, False)}
    row: Row = {"stream": stream.name, "epsilon": float(epsilon)}
    for name in METHODS:
        squares, thetas = [], []
        for i in range(runs):
            noise = keyed(i, name)
            if name.startswith("fixed"):
                theta = stream.top
            elif name.startswith("pak"):
                smooth = name != "pak_max"
                theta = pak_threshold(warm, choices[smooth], epsilon, smooth, noise)
            else:
                theta = wide.threshold(warm, records, stream.top, noise)
            clipped = np.minimum(rest, theta)
            if name in ("tops", "fixed_wide", "pak_wide"):
                at = wide.prefixes(clipped, theta, ends, noise)[place]
            else:
                at = tree_prefixes(clipped, theta, ends, epsilon, noise)[place]
            squares.append(np.mean((at[:, 1] - at[:, 0] - truth[:, 1] + truth[:, 0]) ** 2))
            thetas.append(theta)
        row |= {name: float(np.mean(squares)), f"{name}_threshold": float(np.mean(thetas))}
    return row


def measure(quick: bool, console: Console) -> tuple[list[Row], list[Row], list[Row]]:
    """Rows of (a), of (b), and of (b) for flights in file order and rare spikes."""
    steps = (Fraction(1, 20), Fraction(1, 5), Fraction(1))
    if not quick:
        steps = tuple(Fraction(x, 20) for x in (1, 2, 4, 8, 12, 20))
    streams = [*real(), *bursts()]
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("streams", total=4 + len(steps) * (len(streams) + 3))
        first = []
        for name, top, law in laws():
            first.append(prefix_errors(synthetic(name, top, law), 200 if quick else 1000))
            progress.advance(task)
        second = _ranges(streams, steps, 5 if quick else 20, progress, task)
        apart = [s._replace(name=f"{s.name}, file order") for s in real(shuffled=False)[:2]]
        third = _ranges([*apart, spikes()], steps, 5 if quick else 20, progress, task)
    return first, second, third


def _ranges(
    streams: list[Stream], steps: tuple[Fraction, ...], runs: int, progress: Progress, task: TaskID
) -> list[Row]:
    rows = []
    for stream in streams:
        for epsilon in steps:
            rows.append(range_errors(stream, epsilon, runs))
            progress.advance(task)
    return rows


def sweep(quick: bool, console: Console) -> list[Row]:
    """Rows of (a) for purchases with one number changed; the stream's name says which."""

    def purchases(n: int = 150_000, top: int = 3000, name: str = "") -> Stream:
        return synthetic(name, top, lambda g: g.exponential(40, n))

    jobs: list[tuple[Stream, dict[str, Any]]] = [
        *(
            (purchases(name=f"ε = {epsilon}"), {"epsilon": Fraction(epsilon)})
            for epsilon in ("0.1", "0.25", "0.5", "1", "2")
        ),
        *((purchases(top=top, name=f"B = {top:,}"), {}) for top in (300, 1000, 10_000, 30_000)),
        *(
            (purchases(name=f"m = {warmup:,}"), {"warmup": warmup})
            for warmup in (5_000, 12_500, 25_000, 100_000)
        ),
        *((purchases(n, name=f"n = {n:,}"), {}) for n in (75_000, 600_000, 2_400_000)),
    ]
    runs = 100 if quick else 1000
    with Progress(console=console, disable=not console.is_terminal) as progress:
        tracked = progress.track(jobs, description="sweeping")
        return [prefix_errors(stream, runs, **given) for stream, given in tracked]


def totals_of(first: list[Row], second: list[Row]) -> Row:
    by_name = {row["stream"]: row for row in first}
    out: Row = {}
    for name in ("trips", "purchases"):
        out[f"pak_gain_{name}"] = by_name[name]["pak_gain"]
        out[f"smooth_gain_{name}"] = by_name[name]["smooth_gain"]
        out[f"histogram_gain_{name}"] = by_name[name]["histogram_gain"]
    for other in ("pak", "pak_max", "fixed", "fixed_wide"):
        out[f"tops_over_{other}"] = max(row["tops"] / row[other] for row in second)
    out["hierarchy_gain"] = min(row["hierarchy_gain"] for row in first)
    out["matrix_gain"] = min(row["matrix_gain"] for row in first)
    return out


def show_prefixes(first: list[Row], console: Console) -> None:
    table = Table(title="error of the last prefix sum, ε = 1 unless stated, δ = 2^-20")
    gains = ("PAK", "gain", "smooth", "gain", "histogram", "gain")
    for column in ("stream", "B, tree", *gains, "+ hierarchy", "+ matrix"):
        table.add_column(column, justify="left" if column == "stream" else "right")
    for row in first:
        rules = [(f"{row[name]:,.0f}", f"{row[f'{name}_gain']:.2f}") for name in RULES]
        table.add_row(
            row["stream"], f"{row['fixed']:,.0f}", *(one for pair in rules for one in pair),
            f"×{row['hierarchy_gain']:.2f}", f"×{row['matrix_gain']:.2f}",
        )  # fmt: skip
    console.print(table)


def show_ranges(second: list[Row], third: list[Row], console: Console) -> None:
    table = Table(title="(b) mean squared error of range sums")
    for column in ("stream", "ε", *METHODS):
        table.add_column(column, justify="left" if column == "stream" else "right")
    for row in [*second, *third]:
        table.add_row(
            row["stream"], f"{row['epsilon']:g}", *(f"{row[name]:.2e}" for name in METHODS)
        )
    console.print(table)


def picture(first: list[Row], second: list[Row], path: Path) -> None:
    streams = list(dict.fromkeys(row["stream"] for row in second))
    figure, axes = plt.subplots(2, 3, figsize=(13, 7), layout="constrained")
    place = np.arange(len(first))
    for shift, name, label in ((-0.2, "pak", "noisy maximum"), (0.2, "smooth", "smooth")):
        axes.flat[0].bar(place + shift, [row[f"{name}_gain"] for row in first], 0.4, label=label)
    axes.flat[0].set_xticks(place, [row["stream"] for row in first], fontsize=7)
    axes.flat[0].set_title("(a) error with B / error with PAK's threshold", fontsize=9)
    axes.flat[0].legend(fontsize=7)
    for axis, stream in zip(axes.flat[1:], streams, strict=False):
        mine = [row for row in second if row["stream"] == stream]
        for name, label in METHODS.items():
            x = [row["epsilon"] for row in mine]
            axis.loglog(x, [row[name] for row in mine], marker="o", ms=3, label=label)
        axis.set_title(f"(b) {stream}: mean squared error of ranges", fontsize=9)
        axis.set_xlabel("ε")
    axes.flat[1].legend(fontsize=6)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs and fewer ε")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--sweep", action="store_true", help="(c) alone")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the picture goes")
    options = parser.parse_args()
    console = Console(stderr=True, width=130)
    shown = console if options.json else Console(width=130)
    if options.sweep:
        rows = sweep(options.quick, console)
        show_prefixes(rows, shown)
        if options.json:
            print(json.dumps(rows))
        return
    first, second, third = measure(options.quick, console)
    totals = totals_of(first, second)
    show_prefixes(first, shown)
    show_ranges(second, third, shown)
    picture(first, second, options.out / "threshold.png")
    if options.json:
        tables = {"prefix": first, "ranges": second, "apart": third}
        print(json.dumps({**totals, "beta": float(BETA), **tables}))


if __name__ == "__main__":
    main()
