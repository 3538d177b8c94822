"""Cost of a draw of keyed exact noise, against OpenDP's exact sampler and NumPy's inexact one.

Every figure includes all costs of a mechanism: labels, AES, sampler, the copy into the result.
OpenDP's vector mechanism also draws exact discrete Gaussians, from the system's randomness. NumPy's
normal is only a yardstick of speed: doubles from a generator that is not secret.

    python benchmarks/noise.py [--quick] [--json] [--out DIR]

The last line under ``--json``: ``ns``, ``opendp_ns``, ``numpy_ns`` (nanoseconds per draw at the
standard deviation in 1 … 10⁴ where ``ratio`` = opendp_ns / ns is least), and every row.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import matplotlib as mpl
import numpy as np
import opendp.prelude as dp
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

mpl.use("Agg")
import matplotlib.pyplot as plt

SIGMAS = [1, 10, 100, 1000, 10**4, 10**6, 10**9]
USUAL = 10**4  # the ratio is judged up to this standard deviation
Row = dict[str, float]
COLUMNS = {"ns": "keyed, exact", "opendp_ns": "OpenDP, exact", "numpy_ns": "NumPy, inexact"}
LOOKS = [("#0b6e4f", -18), ("#b23a48", 8), ("#8d99ae", 8)]  # colour, height of the caption


def best_of(repeats: int, draws: int, call: Callable[[], object]) -> float:
    """Nanoseconds per draw: the least of several runs, that is, the least disturbed one."""
    call()
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best / draws * 1e9


def keyed(sigma: int, rows: int, columns: int, repeats: int) -> float:
    noise = KeyedNoise(
        b"\x01" * 32,
        charge=bytes(32),
        mechanism="benchmark",
        config=b"",
        pipeline="p",
        window="w",
        nonces=STEADY,
    )
    keys, index = Keys.of_codes(np.arange(rows, dtype=np.uint64)), np.arange(columns)
    variance, first = Fraction(sigma) ** 2, np.ones(columns, np.int64)
    return best_of(
        repeats, rows * columns, lambda: noise.gauss("draw", keys, index, variance, first)
    )


def opendp(sigma: int, draws: int, repeats: int) -> float:
    space = dp.vector_domain(dp.atom_domain(T=int))
    mechanism = dp.m.make_gaussian(space, dp.l2_distance(T=float), scale=float(sigma))
    zeros = [0] * draws
    return best_of(repeats, draws, lambda: mechanism(zeros))


def inexact(sigma: int, draws: int, repeats: int) -> float:
    generator = np.random.default_rng(1)
    return best_of(repeats, draws, lambda: generator.normal(0, sigma, draws))


def measure(quick: bool, console: Console) -> list[Row]:
    rows, peer, repeats = (2_000, 5_000, 3) if quick else (10_000, 40_000, 7)
    result = []
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for sigma in progress.track(SIGMAS, description="drawing"):
            row = {"sigma": sigma, "ns": keyed(sigma, rows, 1000, repeats)}
            row["opendp_ns"] = opendp(sigma, peer, 2)
            row["numpy_ns"] = inexact(sigma, rows * 1000, repeats)
            result.append(row | {"ratio": row["opendp_ns"] / row["ns"]})
    return result


def show(rows: list[Row], console: Console) -> None:
    table = Table(title="nanoseconds per discrete Gaussian draw, one core")
    for heading in ("standard deviation", *COLUMNS.values(), "OpenDP / keyed"):
        table.add_column(heading, justify="right")
    for row in rows:
        cells = [f"{row['ns']:.1f}", f"{row['opendp_ns']:,.0f}", f"{row['numpy_ns']:.1f}"]
        table.add_row(f"{row['sigma']:,.0f}", *cells, f"{row['ratio']:,.0f}×")
    console.print(table)


def draw(rows: list[Row], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    sigmas = [row["sigma"] for row in rows]
    for (column, name), (colour, lift) in zip(COLUMNS.items(), LOOKS, strict=True):
        values = [row[column] for row in rows]
        axes.plot(sigmas, values, "o-", color=colour, linewidth=2, markersize=5)
        at = (sigmas[0], values[0])
        axes.annotate(name, at, (0, lift), textcoords="offset points", color=colour)
    axes.set(xscale="log", yscale="log", ylim=(1, 1e5), xlabel="standard deviation")
    axes.set_title("Nanoseconds per Gaussian draw, one core", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer draws")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the picture goes")
    options = parser.parse_args()
    dp.enable_features("contrib")
    console = Console(stderr=True)
    rows = measure(options.quick, console)
    show(rows, console if options.json else Console())
    draw(rows, options.out / "noise.png")
    if options.json:
        least = min((r for r in rows if r["sigma"] <= USUAL), key=lambda r: r["ratio"])
        print(json.dumps({**least, "rows": rows}), file=sys.stdout)


if __name__ == "__main__":
    main()
