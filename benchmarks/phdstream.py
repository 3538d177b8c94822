"""Accuracy of box counts on a private tree of a moving stream, and the cost of a tick.

75,000 events on two noisy concentric circles that grow over 150 ticks of 500, with and without
deletions, ε = 0.5 per event. Error of a box: abs(estimate − truth) / max(truth, 0.1 % of the live
points), mean over 1,000 random boxes of a size and over every tenth tick. A tick's time includes
encoding, loading rows, release and storing rows, on one core. Held-back variants are judged from
their first trigger on. The authors' public code was measured on the same stream, boxes and error
(docs/mechanisms/phdstream.md says how).

    python benchmarks/phdstream.py [--quick] [--json] [--sweep] [--out DIR]

``--sweep``: the same errors of the defaults for other ε, numbers of held-back ticks (the paper's
t₀), events of a unit (its sensitivity), events of a tick (its batch) and depths, one at a time.
The last line under ``--json``: ``small, medium, large, seconds_per_tick, leaves`` of the best
sound variant, the same with ``_deletions``, ``speedup`` per leaf over the authors' code, and all
variants.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from _spatial import SIZES, Store, Stream, box_counts, boxes, circles, keyed, part_of
from hushstream.mechanisms.columns import Releases
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.phdstream.mechanism import PHDStream
from hushstream.mechanisms.phdstream.settings import PHDStreamParameters as Parameters
from hushstream.mechanisms.phdstream.settings import build
from hushstream.mechanisms.phdstream.tree import GRID, LiveTree, Nodes
from hushstream.mechanisms.spatial.domain import Domain
from hushstream.mechanisms.spatial.synthetic import range_counts, scatter
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

mpl.use("Agg")
import matplotlib.pyplot as plt

TICKS, EACH, EPSILON = 150, 500, Fraction(1, 2)
SQUARE = Domain.unit(2, 8, "all")
PLANE = Domain.unit(2, 20)
BEST = "released, simple"

AUTHORS = {
    False: {"small": 0.1228, "medium": 0.2327, "large": 0.5350, "seconds": 0.256, "leaves": 947},
    True: {"small": 0.1730, "medium": 0.3120, "large": 0.6514, "seconds": 0.425, "leaves": 580},
}
"""Recorded: mean of three seeds of their best counter; CPU seconds of its `fit`, one seed."""


class Frozen(PHDStream):
    """The paper's third baseline: a private tree at the first trigger, then counters at its leaves.

    The choice of nodes to split reads only stored nodes, so the guarantee is PHDStream's.
    """

    def descend(self, nodes: Nodes, walk: Any) -> LiveTree:
        def split_before(estimate: np.ndarray, level: int, codes: np.ndarray) -> np.ndarray:
            return np.isin(self.domain.children(codes)[:, 0], nodes.code)

        return super().descend(nodes, split_before if len(nodes.code) else walk)


class Variant(NamedTuple):
    """One method: parameters of the mechanism, or a baseline."""

    name: str
    parameters: Parameters
    kind: str = "stream"  # or "frozen", "each tick anew", "increments", "increments, exact total"
    note: str = ""
    epsilon: Fraction = EPSILON


def paper(**changes: object) -> Parameters:
    """Parameters of the paper, with a sound score."""
    fixed = {"domain": PLANE, "selection": "private", "share": Fraction(1, 2), "smoothing": 0}
    return Parameters(**{**fixed, **changes})  # type: ignore[arg-type]


VARIANTS = (
    Variant(BEST, Parameters(domain=SQUARE)),
    Variant("released, floor of 2", Parameters(domain=SQUARE, floor=2)),
    Variant("released, block of 4", Parameters(domain=SQUARE, counter="block", block=4)),
    Variant("released, tree", Parameters(domain=SQUARE, counter="tree")),
    Variant("released, matrix", Parameters(domain=SQUARE, counter="matrix"), note="δ = 1e-6"),
    Variant("released, equal shares", Parameters(domain=SQUARE, smoothing=0)),
    Variant("released, begun as later", Parameters(domain=SQUARE, start="as later")),
    Variant("released, held back to 10", Parameters(domain=SQUARE, first=10)),
    Variant("released, held back to 50", Parameters(domain=SQUARE, first=50)),
    Variant("tree of trigger 1, then counters", Parameters(domain=SQUARE), "frozen"),
    Variant("tree of 10 triggers, then counters", Parameters(domain=SQUARE, first=10), "frozen"),
    Variant("tree of 50 triggers, then counters", Parameters(domain=SQUARE, first=50), "frozen"),
    Variant("private, simple", Parameters(domain=SQUARE, selection="private")),
    Variant("private, block of 4", Parameters(domain=SQUARE, selection="private", counter="block",
                                              block=4)),
    Variant("paper's parameters, simple", paper()),
    Variant("paper's parameters, block of 8", paper(counter="block", block=8)),
    Variant("each tick anew, ε/150", paper(), "each tick anew"),
    Variant("each tick anew, all of ε", paper(), "each tick anew, all of ε", note="NOT PRIVATE"),
    Variant("increments, rescaled by released totals", paper(), "increments"),
    Variant("increments, rescaled by exact totals", paper(), "increments, exact total",
            note="NOT PRIVATE"),
)  # fmt: skip


class Snapshot(NamedTuple):
    """A variant's tree at a tick."""

    codes: np.ndarray
    counts: np.ndarray
    seconds: float
    nodes: int


def made(parameters: Parameters, epsilon: Fraction, horizon: int, deletions: bool) -> PHDStream:
    changed = Parameters(**{**vars(parameters), "deletions": deletions})
    return build(changed, Setting(epsilon, Fraction(1, 10**6), horizon))


def leaves_of(release: Releases) -> tuple[np.ndarray, np.ndarray]:
    return release.key.codes(), release.value[:, 0] / GRID


def streamed(variant: Variant, stream: Stream, deletions: bool, seed: str) -> Iterator[Snapshot]:
    """The mechanism itself, tick by tick."""
    ticks = int(stream.tick[-1])
    mechanism = made(variant.parameters, variant.epsilon, ticks, deletions)
    if variant.kind == "frozen":
        mechanism = Frozen(**vars(mechanism))
    store, noise = Store(mechanism.traits), keyed(seed)
    first = mechanism.first
    for _ in range(first - 1):
        yield Snapshot(np.empty(0, np.uint64), np.empty(0), 0.0, 0)
    for t in range(first, ticks + 1):
        events = stream.upto(t) if t == first else stream.at(t)  # all held-back events together
        start = time.thread_time()
        closed = store.closed(part_of(mechanism, events), t)
        rows, release = mechanism.release(closed, noise)
        store.store(rows)
        seconds = time.thread_time() - start
        yield Snapshot(*leaves_of(release), seconds, store.nodes)


def at_once(parameters: Parameters, events: Stream, epsilon: Fraction, name: str) -> Snapshot:
    """One tree of some insertions, as a stream of a single tick."""
    mechanism = made(parameters, epsilon, 1, False)
    start = time.thread_time()
    closed = Store(mechanism.traits).closed(part_of(mechanism, events), 1)
    rows, release = mechanism.release(closed, keyed(name))
    return Snapshot(*leaves_of(release), time.thread_time() - start, len(rows.key))


def anew(variant: Variant, stream: Stream, deletions: bool, seed: str) -> Iterator[Snapshot]:
    """All live points anew at every tick by PrivTree, as if no other tick were released.

    With ε/150 each time it is private. With all of ε it is not; this is the paper's first baseline,
    which shows what a stream costs.
    """
    epsilon = EPSILON if variant.kind.endswith("all of ε") else EPSILON / TICKS
    for t in range(1, TICKS + 1):
        now = stream.upto(t)
        left = int((now.sign < 0).sum())  # deletions took the oldest points
        live = Stream(*(column[now.sign > 0][left:] for column in now))
        yield at_once(variant.parameters, live, epsilon, f"{seed}.{t}")


def gone(events: Stream, t: int, name: str) -> float:
    """The released number of a tick's deletions."""
    delete = Stream(*(column[events.sign < 0] for column in events))
    mechanism = made(Parameters(domain=Domain.unit(2, 0)), EPSILON, TICKS, False)
    part = part_of(mechanism, delete._replace(sign=-delete.sign))
    _, release = mechanism.release(Store(mechanism.traits).closed(part, t), keyed(name))
    return float(release.value[0, 1]) / GRID


def increments(variant: Variant, stream: Stream, deletions: bool, seed: str) -> Iterator[Snapshot]:
    """The insertions of a tick alone, rescaled to the total; every event counts once."""
    total, exact = 0.0, 0
    for t in range(1, TICKS + 1):
        events = stream.at(t)
        insert = Stream(*(column[events.sign > 0] for column in events))
        snap = at_once(variant.parameters, insert, EPSILON, f"{seed}.{t}")
        new = max(float(snap.counts.sum()), 1.0)
        left = gone(events, t, f"{seed}.{t}.gone") if deletions else 0.0
        total += float(snap.counts.sum()) - left
        exact += int(events.sign.sum())
        scale = exact / len(insert.sign) if "exact" in variant.kind else max(total, 0.0) / new
        yield snap._replace(counts=snap.counts * scale)


KINDS = {
    "stream": streamed,
    "frozen": streamed,
    "each tick anew": anew,
    "each tick anew, all of ε": anew,
    "increments": increments,
    "increments, exact total": increments,
}


class Truth:
    """Exact box counts of a stream, once per tick."""

    def __init__(self, stream: Stream, count: int) -> None:
        self.stream, self.boxes, self._known = stream, boxes(count), {}

    def at(self, t: int) -> tuple[dict[str, np.ndarray], float]:
        if t not in self._known:
            now = self.stream.upto(t)
            counts = {name: box_counts(now, *box) for name, box in self.boxes.items()}
            self._known[t] = (counts, float(now.sign.sum()))
        return self._known[t]

    def errors(self, domain: Domain, snap: Snapshot, t: int) -> list[float]:
        counts, live = self.at(t)
        out = []
        for name, (low, high) in self.boxes.items():
            estimate = range_counts(domain, snap.codes, snap.counts, low, high)
            off = np.abs(estimate - counts[name]) / np.maximum(counts[name], 0.001 * live)
            out.append(float(off.mean()))
        return out


Row = dict[str, float]


def measure(variant: Variant, truth: Truth, deletions: bool, seed: int) -> Row:
    """Errors by size, seconds per tick, leaves and stored nodes of one run."""
    snaps, errors, every = [], [], max(int(truth.stream.tick[-1]) // 15, 1)
    generator = KINDS[variant.kind](variant, truth.stream, deletions, f"{seed}")
    for t, snap in enumerate(generator, 1):
        snaps.append(snap)
        if t % every == 0 and t >= variant.parameters.first:
            errors.append(truth.errors(variant.parameters.domain, snap, t))
    row = dict(zip(SIZES, np.mean(errors, axis=0).tolist(), strict=True))
    shown = snaps[variant.parameters.first - 1 :]
    row["seconds_per_tick"] = float(np.mean([snap.seconds for snap in shown]))
    row["leaves"] = float(np.mean([len(snap.codes) for snap in shown]))
    row["nodes"] = float(snaps[-1].nodes)
    return row


def average(rows: list[Row]) -> Row:
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def run(quick: bool, console: Console) -> dict[str, dict[bool, Row]]:
    variants = [v for v in VARIANTS if not quick or v.name in (BEST, "private, simple")]
    seeds = 1 if quick else 3
    result: dict[str, dict[bool, Row]] = {variant.name: {} for variant in variants}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("counting", total=2 * len(variants) * seeds)
        for deletions in (False, True):
            truth = Truth(circles(deletions, TICKS), 1000)
            for variant in variants:
                rows = []
                for seed in range(seeds):
                    rows.append(measure(variant, truth, deletions, seed))
                    progress.advance(bar)
                result[variant.name][deletions] = average(rows)
    return result


def sweeps() -> Iterator[tuple[str, str, Variant, int]]:
    """What varies, its value, the variant, and the events of a tick."""

    def one(epsilon: Fraction = EPSILON, depth: int = 8, **given: Any) -> Variant:
        domain = Domain.unit(2, depth, "all")
        return Variant("", Parameters(domain=domain, **given), epsilon=epsilon)

    for epsilon in ("0.1", "0.25", "0.5", "1", "2"):
        yield "ε", epsilon, one(Fraction(epsilon)), EACH
    for what, name, values in (
        ("first trigger", "first", (1, 5, 15, 50)),
        ("events of a unit", "bound", (1, 2, 4, 8)),
        ("depth", "depth", (6, 8, 10, 12)),
    ):
        for value in values:
            yield what, str(value), one(**{name: value}), EACH
    for each in (100, 500, 2500):
        yield "events of a tick", str(each), one(), each


def sweep(quick: bool, console: Console) -> list[dict[str, Any]]:
    """Errors with one setting changed at a time; the stream always has all its events."""
    rows, truths = [], dict[tuple[bool, int], Truth]()
    jobs = list(sweeps())
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for what, value, variant, each in progress.track(jobs, description="sweeping"):
            row: dict[str, Any] = {"varied": what, "value": value}
            for deletions, suffix in ((False, ""), (True, ", deletions")):
                if (deletions, each) not in truths:
                    stream = circles(deletions, TICKS * EACH // each, each)
                    truths[deletions, each] = Truth(stream, 300 if quick else 1000)
                truth, seeds = truths[deletions, each], 1 if quick else 3
                found = average([measure(variant, truth, deletions, seed) for seed in range(seeds)])
                row |= {f"{size}{suffix}": found[size] for size in SIZES}
                row |= {f"leaves{suffix}": found["leaves"]}
            rows.append(row)
    return rows


def show_sweep(rows: list[dict[str, Any]], console: Console) -> None:
    table = Table(*rows[0], title="mean relative error of boxes, one setting changed at a time")
    for row in rows:
        table.add_row(*(v if isinstance(v, str) else f"{v:.3g}" for v in row.values()))
    console.print(table)


def show(result: dict[str, dict[bool, Row]], console: Console) -> None:
    notes = {variant.name: variant.note for variant in VARIANTS}
    for deletions in (False, True):
        title = "with deletions" if deletions else "insertions only"
        table = Table(title=f"mean relative error of boxes, ε = {float(EPSILON)}, {title}")
        table.add_column("variant")
        for heading in (*SIZES, "ms/tick", "leaves", "nodes", ""):
            table.add_column(heading, justify="right")
        theirs = AUTHORS[deletions]
        sizes = [f"{theirs[size]:.3f}" for size in SIZES]
        cells = [f"{1e3 * theirs['seconds']:.0f}", f"{theirs['leaves']:.0f}", "", "not private"]
        table.add_row("authors' code (recorded)", *sizes, *cells)
        for name, rows in result.items():
            row = rows[deletions]
            sizes = [f"{row[size]:.3f}" for size in SIZES]
            cells = [f"{1e3 * row['seconds_per_tick']:.2f}", f"{row['leaves']:.0f}"]
            table.add_row(name, *sizes, *cells, f"{row['nodes']:.0f}", notes[name])
        console.print(table)


def draw(path: Path) -> None:
    """The stream's last tick beside synthetic points from its released tree."""
    figure, axes = plt.subplots(2, 2, figsize=(8, 8.4), layout="constrained")
    for row, deletions in zip(axes, (False, True), strict=True):
        stream = circles(deletions, TICKS)
        *_, last = streamed(VARIANTS[0], stream, deletions, "0")
        points = scatter(SQUARE, last.codes, np.rint(last.counts * GRID).astype(np.int64), GRID)
        live = stream.sign > 0
        live[np.flatnonzero(live)[: int((stream.sign < 0).sum())]] = False
        title = "with deletions" if deletions else "insertions only"
        for axis, place, name in (
            (row[0], stream.point[live], f"live points, {title}"),
            (row[1], np.stack([points["x1"], points["x2"]], axis=1), "synthetic, ε = 0.5"),
        ):
            axis.plot(place[:, 0], place[:, 1], ",", color="#0b6e4f", alpha=0.5)
            axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=[], yticks=[])
            axis.set_title(name, loc="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def summary(result: dict[str, dict[bool, Row]]) -> dict[str, object]:
    best = result[BEST]
    out: dict[str, object] = {}
    for deletions, suffix in ((False, ""), (True, "_deletions")):
        row, theirs = best[deletions], AUTHORS[deletions]
        for name in (*SIZES, "seconds_per_tick", "leaves"):
            out[name + suffix] = row[name]
        each = theirs["seconds"] / theirs["leaves"]
        out["speedup" + suffix] = each / (row["seconds_per_tick"] / row["leaves"])
        out["authors" + suffix] = theirs
    out["variants"] = {
        name: {"insertions": rows[False], "deletions": rows[True]} for name, rows in result.items()
    }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two variants, one seed")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--sweep", action="store_true", help="ε, t₀, sensitivity, batch, depth")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the picture goes")
    options = parser.parse_args()
    console = Console(stderr=True)
    if options.sweep:
        rows = sweep(options.quick, console)
        show_sweep(rows, Console(stderr=options.json, width=140))
        if options.json:
            print(json.dumps(rows), file=sys.stdout)
        return
    result = run(options.quick, console)
    show(result, console if options.json else Console())
    draw(options.out / "phdstream.png")
    if options.json:
        print(json.dumps(summary(result)), file=sys.stdout)


if __name__ == "__main__":
    main()
