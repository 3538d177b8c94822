"""Cost of a tick of the spatial mechanisms as points, depth, leaves and ticks grow.

One quantity grows at a time; the others are fixed. The cost of a tick of PHDStream depends on what
it touches: the cells of its events and the nodes of the live tree; that of PrivHP on its events and
its sums, whose number is public. Rows are counted as stored: key, cell and due trigger.

    python benchmarks/spatial_scale.py [--quick] [--json] [--out DIR]

The last line under ``--json``: ``growth`` (exponent of a tick's time in each quantity, 0 is
constant and 1 linear; per leaf where ticks grow), ``bytes_per_node`` (stored bytes of PHDStream per
live node, leaves and their ancestors, at the end of the longest stream) and all points.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from _spatial import Store, Stream, absorbed, keyed, part_of
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.phdstream.mechanism import PHDStream
from hushstream.mechanisms.phdstream.settings import PHDStreamParameters as Parameters
from hushstream.mechanisms.phdstream.settings import build
from hushstream.mechanisms.privhp.settings import PrivHPParameters
from hushstream.mechanisms.privhp.settings import build as build_privhp
from hushstream.mechanisms.spatial.domain import Domain
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

mpl.use("Agg")
import matplotlib.pyplot as plt


class Point(NamedTuple):
    """One measured tick."""

    quantity: str
    size: float
    seconds: float
    leaves: int
    nodes: int  # rows stored


def mechanism(depth: int, resolution: float, horizon: int, floor: int = 0) -> PHDStream:
    domain = Domain.unit(2, depth, "all")
    parameters = Parameters(domain=domain, resolution=resolution, floor=floor)
    return build(parameters, Setting(Fraction(1), Fraction(0), horizon))


def events(t: int, n: int, seed: int = 5) -> Stream:
    """Points around three fixed places."""
    rng = np.random.default_rng([seed, t])
    centre = np.array([[0.2, 0.3], [0.7, 0.6], [0.4, 0.8]])[rng.integers(0, 3, n)]
    points = np.clip(centre + rng.normal(0, 0.08, (n, 2)), 0, 1)
    return Stream(np.full(n, t), points, np.ones(n, int))


def ticks(made: PHDStream, n: int) -> Iterator[tuple[int, float, int, int]]:
    """Trigger, CPU seconds, leaves and stored nodes of tick after tick with n events each."""
    store, noise = Store(made.traits), keyed("scale")
    for t in range(1, made.horizon + 1):
        new = events(t, n)
        start = time.thread_time()
        closed = store.closed(part_of(made, new), t)
        rows, release = made.release(closed, noise)
        store.store(rows)
        yield t, time.thread_time() - start, len(release.key), store.nodes


def settled(made: PHDStream, n: int, quantity: str, size: float) -> Point:
    """Median of the second half of the ticks, when the tree has its final shape."""
    seen = list(ticks(made, n))[made.horizon // 2 :]
    return Point(
        quantity, size, float(np.median([s for _, s, _, _ in seen])), seen[-1][2], seen[-1][3]
    )


def by_points(quick: bool) -> Iterator[Point]:
    """More events a tick in a tree of a fixed 256 leaves."""
    for n in (1_000, 4_000, 16_000, 64_000, 256_000)[: 4 if quick else 5]:
        yield settled(mechanism(4, 3, 8, floor=4), n, "points", n)


def by_depth(quick: bool) -> Iterator[Point]:
    """A deeper limit, that is, a domain of up to 4^28 cells, for the same data."""
    for depth in (8, 12, 16, 20, 28):
        yield settled(mechanism(depth, 8, 12), 5_000, "depth", depth)


def by_leaves(quick: bool) -> Iterator[Point]:
    """Full trees of 4^3 to 4^8 leaves."""
    for depth in range(3, 7 if quick else 9):
        yield settled(mechanism(depth, 3, 6, floor=depth), 2_000, "leaves", 4**depth)


def by_ticks(quick: bool) -> Iterator[Point]:
    """Tick after tick of one stream, in windows of a tenth."""
    horizon = 200 if quick else 600
    seen = list(ticks(mechanism(10, 3, horizon), 1_000))
    for begin in range(0, horizon, horizon // 10):
        window = seen[begin : begin + horizon // 10]
        seconds = float(np.median([s for _, s, _, _ in window]))
        yield Point("ticks", window[-1][0], seconds, window[-1][2], window[-1][3])


def sketched(k: int, depth: int, n: int, quantity: str, size: float) -> Point:
    """The quicker of two ticks of PrivHP, from encoded events to stored rows."""
    setting = Setting(Fraction(1), Fraction(0), 2)
    made = build_privhp(PrivHPParameters(domain=Domain.unit(2, depth), k=k), setting)
    store, noise, best, leaves = Store(made.traits), keyed("scale"), float("inf"), 0
    for t in (1, 2):
        new = events(t, n)
        start = time.thread_time()
        rows, release = made.release(store.closed(absorbed(made, new), t), noise)
        store.store(rows)
        best, leaves = min(best, time.thread_time() - start), len(release.key)
    return Point(quantity, size, best, leaves, made.shape.sums)


def by_points_sketched(quick: bool) -> Iterator[Point]:
    """More events a tick, the same sums."""
    for n in (10_000, 40_000, 160_000, 640_000)[: 3 if quick else 4]:
        yield sketched(256, 16, n, "privhp points", n)


def by_depth_sketched(quick: bool) -> Iterator[Point]:
    """A deeper domain: more levels, one sketch each."""
    for depth in (12, 16, 20, 24, 28):
        yield sketched(256, depth, 20_000, "privhp depth", depth)


def by_k_sketched(quick: bool) -> Iterator[Point]:
    """More nodes refined per level, that is, larger sketches."""
    for k in (64, 256, 1024, 4096)[: 3 if quick else 4]:
        yield sketched(k, 20, 20_000, "privhp k", k)


SERIES: dict[str, Callable[[bool], Iterator[Point]]] = {
    "points": by_points,
    "depth": by_depth,
    "leaves": by_leaves,
    "ticks": by_ticks,
    "privhp points": by_points_sketched,
    "privhp depth": by_depth_sketched,
    "privhp k": by_k_sketched,
}


def growth(points: list[Point]) -> float:
    """Exponent of the time in the size, from the upper half of the sizes."""
    half = points[len(points) // 2 - (len(points) < 4) :]
    sizes, seconds = (np.log([getattr(p, name) for p in half]) for name in ("size", "seconds"))
    return float(np.polyfit(sizes, seconds, 1)[0])


def per_leaf(points: list[Point]) -> float:
    """Exponent of the time per leaf, when the tree itself grows with the size."""
    half = points[len(points) // 2 :]
    sizes = np.log([p.size for p in half])
    return float(np.polyfit(sizes, np.log([p.seconds / p.leaves for p in half]), 1)[0])


def bytes_per_node(last: Point) -> float:
    """Stored bytes over live nodes: the leaves of a tree of fan-out 4 and all their ancestors."""
    live = last.leaves + (last.leaves - 1) // 3
    return Store(mechanism(4, 3, 2).traits).bytes_per_row * last.nodes / live


def run(quick: bool, console: Console) -> list[Point]:
    out = []
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for name, series in progress.track(list(SERIES.items()), description="growing"):
            del name
            out += list(series(quick))
    return out


def show(points: list[Point], console: Console) -> None:
    table = Table(title="one tick on one core")
    for heading in ("growing", "size", "ms", "leaves", "stored rows"):
        table.add_column(heading, justify="right")
    for p in points:
        cells = (f"{p.size:,.0f}", f"{1e3 * p.seconds:.2f}", f"{p.leaves:,}", f"{p.nodes:,}")
        table.add_row(p.quantity, *cells)
    console.print(table)


def draw(points: list[Point], path: Path) -> None:
    figure, axes = plt.subplots(1, len(SERIES), figsize=(18, 3.2), layout="constrained")
    for axis, name in zip(axes, SERIES, strict=True):
        mine = [p for p in points if p.quantity == name]
        sizes, times = [p.size for p in mine], [1e3 * p.seconds for p in mine]
        axis.plot(sizes, times, "o-", color="#0b6e4f", linewidth=2, markersize=4)
        scale = "linear" if name in ("depth", "ticks", "privhp depth") else "log"
        axis.set(xscale=scale, yscale="log", ylim=(0.3, 3e3), xlabel=name)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", alpha=0.3)
    axes[0].set_title("milliseconds per tick", loc="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def summary(points: list[Point]) -> dict[str, object]:
    series = {name: [p for p in points if p.quantity == name] for name in SERIES}
    rates = {name: growth(mine) for name, mine in series.items()}
    rates["ticks"] = per_leaf(series["ticks"])  # more data, more leaves: per leaf
    return {
        "growth": rates,
        "bytes_per_node": bytes_per_node(series["ticks"][-1]),
        "points": [p._asdict() for p in points],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the picture goes")
    options = parser.parse_args()
    console = Console(stderr=True)
    points = run(options.quick, console)
    show(points, console if options.json else Console())
    draw(points, options.out / "spatial_scale.png")
    if options.json:
        print(json.dumps(summary(points)), file=sys.stdout)


if __name__ == "__main__":
    main()
