"""Cost of one trigger: even with a million keys seen, it must depend on the keys that it touches.

A window of 1,000 triggers of the default histogram with adaptive weights. Of a million keys seen,
1 % have new records and 50,000 are public; the time is that of the slowest of the triggers 2, 500
and 1,000, from the closed micro-batch to rows, predictions and released values, on one core, with
exact keyed noise and an in-memory row store with the contract's due index. ``growth`` compares a
million keys seen with 10,000 at equal change (5,000 changed, 2,000 public).

    python benchmarks/trigger.py [--quick] [--json] [--out DIR] [--seen 1000000,100000000]

``--seen`` instead measures only trigger 500 at these numbers of keys seen, with equal change
(10,000 changed, 50,000 public): CPU seconds, and the memory of rows and due triggers. 100 million
keys need 5 GB.

The last line under ``--json``: ``seconds, growth`` and the time at each trigger.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from hushstream.mechanisms.columns import Closed, Part, Rows
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from hushstream.mechanisms.tables import RowTable
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

mpl.use("Agg")
import matplotlib.pyplot as plt

T = 1_000
TRIGGERS = (2, 500, 1_000)
PORTION = 1_000_000  # rows stored at a time


class Load(NamedTuple):
    """Numbers of keys that were seen, have new records, and are public."""

    seen: int
    changed: int
    public: int


def store(mechanism: Histogram, load: Load, t: int) -> RowTable:
    """A store before trigger t: small hidden counts, larger public ones."""
    rng = np.random.default_rng(3)
    table = RowTable(mechanism.traits)
    public = np.sort(rng.choice(load.seen, load.public, replace=False))
    for begin in range(0, load.seen, PORTION):  # by portions: keys take more memory than rows
        codes = np.arange(begin, min(begin + PORTION, load.seen))
        keys = Keys.of_codes(codes.astype(np.uint64))
        cell = mechanism.traits.rows(keys).state
        cell["sums"][:, 0, 0] = rng.integers(1, 20, len(codes))
        mine = public[(public >= begin) & (public < begin + PORTION)] - begin
        cell["sums"][mine, :, 0] += rng.integers(50, 500, (len(mine), mechanism.traits.lanes))
        cell["first"][mine] = rng.integers(1, t, len(mine))
        due = np.zeros(len(codes), np.int32)
        due[mine] = -1
        table.store(Rows(keys, cell, due))
    return table


def seconds(
    mechanism: Histogram, load: Load, t: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Time of one trigger by a clock, from the closed micro-batch to the stored rows."""
    rng = np.random.default_rng(4)
    table = store(mechanism, load, t)
    codes = np.sort(rng.choice(load.seen, load.changed, replace=False)).astype(np.uint64)
    sums = rng.integers(1, 3, (load.changed, 1))
    lane = np.zeros(load.changed, np.uint8)
    part = Part(Keys.of_codes(codes), lane, sums, np.zeros(mechanism.traits.totals, np.int64))
    noise = KeyedNoise(
        bytes(32),
        charge=bytes(32),
        mechanism="histogram",
        config=b"",
        pipeline="p",
        window="w",
        nonces=STEADY,
    )
    began = clock()
    rows, _ = mechanism.release(Closed(table.load(part, t), part, t), noise)
    table.store(rows)
    return clock() - began


def picture(times: dict[int, float], out: str) -> Path:
    figure, axis = plt.subplots(figsize=(5, 3.5), constrained_layout=True)
    axis.bar([str(t) for t in times], list(times.values()), color="#0b6e4f")
    axis.axhline(10, color="#b23a48", linestyle="--")
    axis.set_xlabel("trigger of 1,000")
    axis.set_ylabel("seconds, one core")
    path = Path(out) / "trigger.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def growth(mechanism: Histogram, seen: int) -> dict[str, float]:
    """Trigger 500 at a number of keys seen: median of three runs, each with its own store."""
    load = Load(seen, 10_000, 50_000)
    took = [seconds(mechanism, load, 500, time.process_time) for _ in range(3)]
    row = mechanism.traits.row_dtype.itemsize + 4
    return {
        "seen": seen,
        "seconds": float(np.median(took)),
        "row_bytes": row,
        "GB": seen * row / 1e9,
    }


def show_growth(rows: list[dict[str, float]], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"seen": rows}))
        return
    table = Table(title="Trigger 500: 10,000 keys changed, 50,000 public")
    for name in rows[0]:
        table.add_column(name, justify="right")
    for one in rows:
        table.add_row(
            *(f"{value:,.3g}" if value < 1e3 else f"{value:,.0f}" for value in one.values())
        )
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="the slowest trigger alone")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", default="out")
    parser.add_argument("--seen", help="numbers of keys seen, with commas")
    options = parser.parse_args()
    console = Console(stderr=True)
    setting = Setting(Fraction(6), Fraction(1, 10**9), T)
    mechanism = build(HistogramParameters(factorization="terminal"), setting)
    assert isinstance(mechanism, Histogram)
    if options.seen:
        seen = [int(number) for number in options.seen.split(",")]
        show_growth([growth(mechanism, number) for number in seen], options.json)
        return
    times: dict[int, float] = {}
    ratio: list[float] = []
    with Progress(console=console, disable=not console.is_terminal) as progress:
        for t in progress.track(
            TRIGGERS[-1:] if options.quick else TRIGGERS, description="trigger"
        ):
            times[t] = seconds(mechanism, Load(1_000_000, 10_000, 50_000), t)
        for _ in progress.track(range(3), description="growth"):
            small = seconds(mechanism, Load(10_000, 5_000, 2_000), 500)
            ratio.append(seconds(mechanism, Load(1_000_000, 5_000, 2_000), 500) / small)
    path = picture(times, options.out)
    row = {"seconds": max(times.values()), "growth": float(np.median(ratio))}
    if options.json:
        print(json.dumps(row | {f"trigger_{t}": took for t, took in times.items()}))
        return
    table = Table(title="One trigger: 1 M keys seen, 10,000 changed, 50,000 public")
    for column in ("trigger", "seconds"):
        table.add_column(column, justify="right")
    for t, took in times.items():
        table.add_row(str(t), f"{took:.2f}")
    Console().print(table)
    Console().print(f"growth from 10,000 to 1 M keys seen: {row['growth']:.2f}\npicture: {path}")


if __name__ == "__main__":
    main()
