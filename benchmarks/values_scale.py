"""Speed of absorbing values, cost of a release as chunks grow, and size of the state.

Values: columns of times and values (16-bit worth of units, 1,440 slots, fares up to 1,000) go
through `encode`, `absorb` and `merge`, as bound and aggregate shards run them, per second of one
core's time.
Releases: ToPS over chunks of 16^3 to 16^5 slots, one block per slot, the chunk's noise drawn once
beforehand; then the time of a release of one slot. Memory: stored rows of an open chunk, against
the b·h nodes of one path; keyed noise is a function of labels and needs no state, and its cache is
reported separately.

    python benchmarks/values_scale.py [--quick] [--json] [--out DIR]

The last line under ``--json``: ``values_per_second``, ``release_growth`` (time of a release at the
largest chunk over that at the smallest; levels grow by 5/3), ``chunk_bytes`` (stored state of the
largest chunk), and every row.
"""

from __future__ import annotations

import argparse
import json
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from _values import keyed
from hushstream.mechanisms.columns import Batch, Closed, Part, empty_part, merge
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.slots.slots import split
from hushstream.mechanisms.tables import RowTable
from hushstream.mechanisms.tops.mechanism import Tops
from hushstream.mechanisms.tops.settings import TopsParameters, build
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

mpl.use("Agg")
import matplotlib.pyplot as plt

UNITS, PIECE = 1 << 16, 1 << 18
Row = dict[str, Any]


def configured(slots: int, **more: Any) -> Tops:
    """ToPS over ``slots`` slots after a warm-up of one."""
    setting = Setting(
        Fraction(1), Fraction(1, 10**9), slots + 1, columns=(("fare", 0, 1000),),
        grids=(Fraction(1),),
    )  # fmt: skip
    return build(TopsParameters(**more), setting)


def speed(values: int) -> float:
    """Values per second from columns to a merged partial sum."""
    mechanism = configured(1440, bound=64, slot=60)
    generator = np.random.default_rng(5)
    time_ = generator.integers(0, 1440 * 60, PIECE)
    value = np.minimum(generator.gamma(3, 40, PIECE), 2000.0)
    unit = generator.integers(0, UNITS, PIECE)
    sign = np.ones(PIECE, np.int8)
    units, parts = mechanism.traits.units(UNITS), [empty_part(1)]
    started, done = time.process_time(), 0
    while done < values:
        coded = mechanism.encode({"time": time_, "value": value})
        status = np.zeros(len(coded.keys), np.int32)
        batch = Batch(coded.keys, coded.key, unit, coded.value, sign, status)
        units, part = mechanism.absorb(units, batch)
        parts.append(part)
        done += PIECE
    total = merge(parts)
    took = time.process_time() - started
    assert int(total.sums[:, 0].sum()) == UNITS * 64 - int(units.left.sum())
    return done / took


def one_record(mechanism: Tops, slot: int, value: float) -> Part:
    """The partial sum of one record in a slot."""
    coded = mechanism.encode({"time": np.array([slot]), "value": np.array([value])})
    sums = np.concatenate([np.ones((1, 1), np.int64), coded.value], axis=1)
    return Part(coded.keys, np.zeros(1, np.uint8), sums, np.zeros(0, np.int64))


def release(height: int, releases: int) -> Row:
    """Time and state of releases in a chunk of 16^height slots, from the middle of it on."""
    slots = 16**height
    mechanism = configured(slots, height=height, skip=0)
    table, noise = RowTable(mechanism.traits), keyed(0, f"scale {height}")
    closed = table.load(one_record(mechanism, 0, 30.0), 1, False)
    rows, _ = mechanism.release(Closed(closed, one_record(mechanism, 0, 30.0), 1), noise)
    table.store(rows)
    took, first = [], 0.0
    for t in range(2, releases + 3):
        part = one_record(mechanism, t - 1, 30.0)
        loaded = table.load(part, t, False)
        started = time.perf_counter()
        rows, released = mechanism.release(Closed(loaded, part, t), noise)
        spent = time.perf_counter() - started
        assert len(released.key) == 1
        took, first = ([], spent) if t == 2 else ([*took, spent], first)
        table.store(rows)
    stored = table.rows
    live = stored.key[stored.due != 0]
    assert len(split(live)[0]) == len(live)
    size = len(live) * (8 + 4 + mechanism.traits.row_dtype.itemsize)
    return {
        "slots": slots, "levels": height, "release_us": float(np.median(took)) * 1e6,
        "first_ms": first * 1e3, "state_bytes": size, "path_nodes": 16 * height,
        "noise_bytes": 8 * 2 * sum(16**level for level in range(1, height + 1)),
    }  # fmt: skip


def show(totals: Row, rows: list[Row], console: Console) -> None:
    console.print(f"{totals['values_per_second']:,.0f} values/s on one core")
    table = Table(title="releases of one slot")
    names = ("slots", "levels", "µs", "first of a chunk, ms", "state, bytes", "noise cache, bytes")
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            f"{row['slots']:,}", str(row["levels"]), f"{row['release_us']:.0f}",
            f"{row['first_ms']:.1f}", str(row["state_bytes"]), f"{row['noise_bytes']:,}",
        )  # fmt: skip
    console.print(table)


def picture(rows: list[Row], path: Path) -> None:
    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    axis.semilogx([row["slots"] for row in rows], [row["release_us"] for row in rows], marker="o")
    axis.set_xlabel("slots of a chunk")
    axis.set_ylabel("µs per release of one slot")
    axis.set_ylim(bottom=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer values and releases")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the picture goes")
    options = parser.parse_args()
    console = Console(stderr=True, width=100)
    rows = []
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("chunks", total=4)
        best = max(speed(1 << (22 if options.quick else 24)) for _ in range(3))
        progress.advance(task)
        for height in (3, 4, 5):
            rows.append(release(height, 300 if options.quick else 2000))
            progress.advance(task)
    totals: Row = {
        "values_per_second": best,
        "release_growth": rows[-1]["release_us"] / rows[0]["release_us"],
        "chunk_bytes": rows[-1]["state_bytes"],
    }
    show(totals, rows, console if options.json else Console(width=100))
    picture(rows, options.out / "values_scale.png")
    if options.json:
        print(json.dumps({**totals, "rows": rows}))


if __name__ == "__main__":
    main()
