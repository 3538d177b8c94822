"""Cost of state: bytes on disk per user, per (user, key) pair and per key; memory as it grows.

The state is written as by a worker: unit rows by `UnitCodec` under keyed digests, key rows with
their due index by `KeyRows`, in the shard's own RocksDB, in batches as a step writes them.

- ``user_bytes``: a unit that has contributed without leaving a pair (bound on records).
- ``pair_bytes``: what each further (unit, key) pair adds to its unit's row with adaptive weights.
- ``key_bytes``: a key that was seen, with its row and index entry (keys of 20 to 30 bytes).
  These three are measured after compaction, which RocksDB itself does for all but the newest tenth;
  ``user_bytes_written`` is measured before it, with the log and small fresh tables.
- ``rss_growth``: resident memory after 10 M keys over that after 1 M, one shard, one process.

    python benchmarks/memory.py [--quick] [--json] [--out DIR]

--quick writes a tenth of everything, with a tenth of the table's memory. The last line under
``--json``: the four figures above.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import matplotlib as mpl
import numpy as np
from hushstream.agents.stages.aggregate.key_rows import KeyRows
from hushstream.agents.stages.bound.codec import UnitCodec, distinct
from hushstream.agents.stages.step import Step
from hushstream.agents.state.layout import sortable, units_of
from hushstream.agents.state.rocks import RocksStore
from hushstream.agents.state.rows.columns import RowColumns
from hushstream.mechanisms.columns import Rows, Units
from hushstream.mechanisms.contract import Mechanism, Setting
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.keys import Keys
from hushstream.topics.records import Marker
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rocksdict import Cache

mpl.use("Agg")
import matplotlib.pyplot as plt

TARGETS = {"user_bytes": 24.0, "pair_bytes": 8.0, "key_bytes": 100.0, "rss_growth": 1.3}
STEP = 20_000  # rows of one batch, as in one step of a shard
Tick = Callable[[int], None]


def mechanism(**parameters: object) -> Mechanism:
    """A histogram of 24 triggers over unknown keys."""
    setting = Setting(Fraction(6), Fraction(1, 10**9), 24)
    return build(HistogramParameters(**parameters), setting)  # type: ignore[arg-type]


def store(folder: str, scale: int = 1) -> RocksStore:
    """A shard's table with a deployment's default settings, or with a part of the memory."""
    return RocksStore(Path(folder), Cache((64 << 20) // scale), (16 << 20) // scale)


def units(kind: Mechanism, users: int, pairs: int, tick: Tick) -> tuple[float, float]:
    """Bytes on disk per unit row with ``pairs`` pairs: as written, and compacted."""
    codec, rng = UnitCodec(kind.traits), np.random.default_rng(1)
    prefix = units_of(0) + sortable(0)
    with tempfile.TemporaryDirectory(prefix="hush-memory-") as folder:
        table = store(folder)
        for begun in range(0, users, STEP):
            n = min(STEP, users - begun)
            digests = rng.integers(0, 256, (n, 16), np.uint8)
            left = rng.integers(0, kind.traits.bound + 1, n)
            start = np.arange(n + 1, dtype=np.int64) * pairs
            pair = rng.integers(0, 1 << 32, n * pairs).astype(np.uint32)
            used = rng.integers(0, 4, (n * pairs, kind.traits.lanes)).astype(np.uint16)
            keys, _ = distinct(digests, prefix)
            table.write({}, RowColumns(keys, codec.encode(Units(left, start, pair, used))))
            tick(n)
        written, compacted = _size(table)
        return written / users, compacted / users


def keys(count: int, table: RocksStore, tick: Tick, first: int = 0) -> None:
    """Write rows of ``count`` keys that were seen once, some of them due.

    Each batch first loads as many existing keys, as a step does with recurring ones: the cache is
    as full as that of a worker that has run for a while.
    """
    kind, rng = mechanism(), np.random.default_rng(2 + first)
    rows_of = KeyRows(kind.traits)
    for begun in range(first, first + count, STEP):
        n = min(STEP, first + count - begun)
        # Numbers in scattered order, as keys are first seen.
        known = rng.integers(0, max(begun, 1), n).astype(np.uint64)
        rows_of.load(table, 0, Keys.of(names(np.unique(known))))
        listed = names(np.arange(begun, begun + n, dtype=np.uint64))
        cell = np.zeros(n, kind.traits.row_dtype)
        cell["sums"][:, 0, 0] = rng.geometric(0.5, n)
        due = np.where(rng.random(n) < 0.02, rng.integers(1, 25, n), 0).astype(np.int32)
        step = Step(Marker("benchmark", 0))
        rows_of.store(0, Rows(Keys.of(listed), cell, due), step)
        table.write({**step.rows, **step.local})
        tick(n)


def names(numbers: NDArray[np.uint64]) -> list[bytes]:
    """Canonical keys of numbered articles, in their order."""
    scattered = numbers * np.uint64(0x9E3779B97F4A7C15)
    return sorted(b'["article-%016x"]' % code for code in scattered.tolist())


def key_bytes(count: int, tick: Tick) -> float:
    """Bytes on disk per key."""
    with tempfile.TemporaryDirectory(prefix="hush-memory-") as folder:
        table = store(folder)
        keys(count, table, tick)
        return _size(table)[1] / count


def resident(small: int, scale: int, tick: Tick) -> Iterator[float]:
    """Resident megabytes after ``small`` keys, then after ten times as many."""
    with tempfile.TemporaryDirectory(prefix="hush-memory-") as folder:
        table = store(folder, scale)
        written = 0
        for count in (small, 10 * small):
            keys(count - written, table, tick, written)
            written = count
            gc.collect()
            yield _rss()
        table.close()


def _size(table: RocksStore) -> tuple[int, int]:
    written = table.size()
    table.compact()
    compacted = table.size()
    table.close()
    return written, compacted


def _rss() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def measure(scale: int, tick: Tick) -> dict[str, float]:
    """All figures; ``scale`` divides the number of users and keys."""
    users, seen = 1_000_000 // scale, 1_000_000 // scale
    memory = list(resident(seen, scale, tick))
    plain = units(mechanism(bound="records", budget=20), users, 0, tick)
    adaptive = mechanism()
    few, many = (units(adaptive, users // 4, pairs, tick) for pairs in (1, 9))
    return {
        "user_bytes": plain[1],
        "pair_bytes": (many[1] - few[1]) / 8,
        "key_bytes": key_bytes(seen, tick),
        "rss_growth": memory[1] / memory[0],
        "user_bytes_written": plain[0],
        "rss_small_mb": memory[0],
        "rss_large_mb": memory[1],
        "keys": float(10 * seen),
    }


def picture(row: dict[str, float], out: str) -> Path:
    figure, axis = plt.subplots(figsize=(5, 3.2), constrained_layout=True)
    names = list(TARGETS)
    axis.barh(names, [row[n] / TARGETS[n] for n in names], color="#0b6e4f")
    axis.axvline(1, color="#b23a48", linestyle="--")
    axis.set_xlabel("share of the target")
    axis.invert_yaxis()
    path = Path(out) / "memory.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", default="out")
    options = parser.parse_args()
    console = Console(stderr=True)
    scale = 10 if options.quick else 1
    total = 12_500_000 // scale
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("rows", total=total)
        row = measure(scale, lambda n: progress.advance(task, n))
    path = picture(row, options.out)
    if options.json:
        print(json.dumps(row))
        return
    table = Table(title=f"State of one shard, {int(row['keys']):,} keys at most")
    for column in ("measure", "value", "target"):
        table.add_column(column, justify="right" if column != "measure" else "left")
    for name, target in TARGETS.items():
        table.add_row(name, f"{row[name]:.2f}", f"≤ {target:g}")
    Console().print(table)
    Console().print(
        f"resident: {row['rss_small_mb']:.0f} MB, then {row['rss_large_mb']:.0f} MB\n"
        f"picture: {path}"
    )


if __name__ == "__main__":
    main()
