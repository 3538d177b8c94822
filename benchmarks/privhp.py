"""Private trees in bounded memory: accuracy against a full tree, memory, speed.

A million points, ε = 1, depth 20, sketches of one row, in all at most a hundredth of the 2^21 - 1
sums of a full tree. The full tree has a counter with its optimal share of ε at every node, as in
the private measure mechanism of He, Vershynin and Zhu (``pooled`` is the same tree read like ours).
Error: Wasserstein-1 distance from the points to the released tree, exact for d = 1, sliced for d =
2; means over noise seeds. Rivals: a superregular random walk, an adaptive grid, Misra-Gries
summaries (δ = 10^-6) and, in d = 3 and 5, the full tree. Speed: the product's encode and absorb, in
time of one core; a tick is one of a hundred, of a million points.

    python benchmarks/privhp.py [--quick] [--json] [--out DIR]

The last line under ``--json``: ``w1_ratio`` (the worst skewed input against the full tree),
``w1_ratio_pooled`` (the same, both read alike), ``memory_ratio``, ``points_per_second``,
``tick_seconds``, ``rows`` (rivals of other papers: ``ratio`` is our distance over the rival's, so
above 1 the rival is better), and every row of every table.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
from _privhp import (
    DEPTH,
    FULL,
    NOTHING,
    Input,
    Leaves,
    absorbed,
    distance,
    inputs,
    keyed,
    made,
    mixture,
    multifractal,
    one_level,
    postal,
    released,
    tail,
)
from _privhp_rivals import DELTA, grid, summaries, summarised, walk
from hushstream.mechanisms.columns import Closed, merge
from hushstream.mechanisms.privhp.mechanism import PrivHP
from hushstream.mechanisms.spatial.sample import sample
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

mpl.use("Agg")
import matplotlib.pyplot as plt

N = 1_000_000
TREE = {"k": 1, "exact": DEPTH, "width": 1, "decode": "single"}  # every node a counter
USUAL = {"k": 2048, "width": 1850}  # counters down to level 11; 20,745 sums
Row = dict[str, float | str]


def error(source: Input, seeds: int, epsilon: float = 1.0, **given: object) -> tuple[float, PrivHP]:
    """Mean Wasserstein distance over seeds, and the mechanism."""
    mechanism = made(source.domain, epsilon, **given)
    part = absorbed(mechanism, source.columns, mechanism.traits.units(len(source.points)))
    measure = distance(source)
    found = [measure(released(mechanism, part, str(seed))) for seed in range(seeds)]
    return float(np.mean(found)), mechanism


def compare(source: Input, seeds: int) -> Row:
    """One input against its rivals."""
    measure = distance(source)
    full, _ = error(source, seeds, **TREE)
    ours, mechanism = error(source, seeds, **USUAL)
    few = min(seeds, 2)
    pooled, _ = error(source, few, **{**TREE, "decode": "joint"})
    single, _ = error(source, few, decode="single", **USUAL)
    flat = float(np.mean([measure(one_level(source, 1.0, str(seed))) for seed in range(few)]))
    return {
        "input": source.name, "w1": ours, "full": full, "ratio": ours / full,
        "single": single / full, "full, pooled": pooled / full, "one level": flat / full,
        "uniform": measure(NOTHING) / full,
        "skewed": float(source.skewed), "memory": mechanism.shape.sums / FULL,
    }  # fmt: skip


def variants(source: Input, seeds: int, quick: bool) -> Iterator[Row]:
    """Sketches and prunings compared at equal memory."""
    narrow = USUAL["width"] // 3
    ways: list[tuple[str, dict[str, object]]] = [
        ("Count-Sketch j=1", {}),
        ("Count-Min j=1", {"sketch": "min"}),
        ("threshold, 1 deviation", {"prune": "threshold", "bar": 1.0}),
        ("Count-Sketch j=3", {"rows": 3, "width": narrow}),
        ("Count-Min j=3", {"sketch": "min", "rows": 3, "width": narrow}),
        ("threshold, 4 deviations", {"prune": "threshold", "bar": 4.0}),
    ]
    for name, given in ways[: 3 if quick else None]:
        row: Row = {"input": source.name, "variant": name}
        for decode in ("joint", "single"):
            row[decode], _ = error(source, seeds, **{**USUAL, **given, "decode": decode})
        yield row


def by_memory(source: Input, seeds: int, quick: bool) -> Iterator[Row]:
    """Error against memory: k and w grow together."""
    for exact in (8, 12) if quick else (6, 8, 9, 10, 11, 12, 13, 14):
        k = 1 << exact - 1
        given = {"k": k, "exact": exact, "width": 3 * k // 2}
        joint, mechanism = error(source, seeds, **given)
        single, _ = error(source, seeds, decode="single", **given)
        yield {"input": source.name, "memory": mechanism.shape.sums, "joint": joint,
               "single": single}  # fmt: skip


def by_epsilon(source: Input, seeds: int, quick: bool) -> Iterator[Row]:
    """Error against ε."""
    for epsilon in (0.1, 1.0) if quick else (0.05, 0.1, 0.3, 1.0, 3.0, 10.0):
        ours, _ = error(source, seeds, epsilon, **USUAL)
        full, _ = error(source, seeds, epsilon, **TREE)
        yield {"input": source.name, "epsilon": epsilon, "w1": ours, "full": full}


def trend(source: Input, seeds: int, quick: bool) -> Iterator[Row]:
    """Error beside the theorem's terms log²M/(εn) and tail_k/(Mn), M = k log2²n, constants 1."""
    for k in (64, 1024) if quick else (16, 32, 64, 128, 256, 512, 1024, 2048, 4096):
        memory = k * np.log2(N) ** 2
        noise, cut = np.log2(memory) ** 2 / N, tail(source, k) / (memory * N)
        for factor in (2,) if quick else (1, 2, 4):
            row: Row = {"k": k, "w/k": factor, "noise term": float(noise), "tail term": float(cut)}
            for decode in ("joint", "single"):
                row[decode], _ = error(source, seeds, k=k, width=factor * k, decode=decode)
            yield row


def speed(source: Input, repeats: int) -> Row:
    """Points absorbed per second, and seconds of a tick of all points, of one core's time."""
    mechanism = made(source.domain, horizon=100, **USUAL)
    units = mechanism.traits.units(N)
    absorb = tick = float("inf")
    for _ in range(repeats):
        start = time.thread_time()
        part = absorbed(mechanism, source.columns, units)
        absorb = min(absorb, time.thread_time() - start)
        rows, _ = mechanism.release(Closed(mechanism.traits.rows(part.key), part, 1), keyed("tick"))
        stored = rows._replace(key=rows.key[:-1], state=rows.state[:-1], due=rows.due[:-1])
        start = time.thread_time()
        part = merge([absorbed(mechanism, source.columns, units)])
        mechanism.release(Closed(stored, part, 63), keyed("tick"))  # 6 draws a sum, the most
        tick = min(tick, time.thread_time() - start)
    return {"points_per_second": len(source.points) / absorb, "tick_seconds": tick}


def beside(source: Input, seeds: int, quick: bool, epsilon: float = 1.0) -> Iterator[Row]:
    """Rivals of other papers on one input; ``words`` is their memory at the end."""
    measure = distance(source)
    ours, mechanism = error(source, seeds, epsilon, **USUAL)
    dimensions = source.points.shape[1]

    def row(rival: str, w1: float, words: int, delta: float = 0.0) -> Row:
        return {"input": source.name, "rival": rival, "n": len(source.points), "epsilon": epsilon,
                "delta": delta, "words": words, "ours": ours, "w1": w1,
                "ratio": ours / w1}  # fmt: skip

    def mean(rival: Callable[[int], Leaves]) -> float:
        return float(np.mean([measure(rival(seed)) for seed in range(seeds)]))

    full, _ = error(source, seeds, epsilon, **TREE)
    yield row("full tree", full, FULL)
    if dimensions > 2:
        return
    yield row("walk", mean(lambda seed: walk(source, epsilon, seed)), 1 << DEPTH)
    if dimensions == 2:
        made_grids = [grid(source, epsilon, seed) for seed in range(seeds)]
        w1 = float(np.mean([measure(leaves) for leaves, _ in made_grids]))
        yield row("adaptive grid", w1, max(words for _, words in made_grids))
    if quick and dimensions == 2:
        return
    found = summaries(source, mechanism.shape)
    read = mean(lambda seed: summarised(source, mechanism, found, epsilon, seed))
    yield row("Misra-Gries", read, mechanism.shape.sums, DELTA)
    single, _ = error(source, seeds, epsilon, decode="single", **USUAL)
    yield row("our sketch, read singly", single, mechanism.shape.sums)


def rivals(sources: list[Input], quick: bool) -> Iterator[Callable[[], list[Row]]]:
    """One job per input."""
    rng = np.random.default_rng(35)
    spaces = [Input("uniform, d=3", rng.random((N, 3)), False)]
    spaces += [Input(f"Gaussian mixture, d={d}", mixture(rng, N, d), True) for d in (3, 5)]
    chosen = [sources[1], sources[6], spaces[1]] if quick else [*sources, *spaces]
    for source in chosen:
        yield lambda s=source: list(beside(s, 1 if quick else 3, quick))


def run(quick: bool, console: Console) -> dict[str, list[Row]]:
    """All tables."""
    seeds = 3 if quick else 5
    sources = inputs(N)
    shown = [sources[i] for i in ((2, 5, 6) if quick else range(7))]
    skewed = [sources[6]] if quick else [sources[1], sources[6]]
    cascade = Input("multifractal, d=1", multifractal(np.random.default_rng(5), N), True)
    plane = sources[4]
    jobs = [
        *(("inputs", lambda s=s: [compare(s, seeds)]) for s in shown),
        ("speed", lambda: [speed(plane, 3 if quick else 7)]),
        *(("memory", lambda s=s: list(by_memory(s, 1 if quick else 3, quick))) for s in skewed),
        *(
            ("epsilon", lambda s=s: list(by_epsilon(s, 1 if quick else 3, quick)))
            for s in skewed[-1:]
        ),
        ("trend", lambda: list(trend(cascade, 1 if quick else 3, quick))),
        *(("variants", lambda s=s: list(variants(s, 1 if quick else 3, quick))) for s in skewed),
        *(("rivals", job) for job in rivals(sources, quick)),
    ]
    out: dict[str, list[Row]] = {}
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("privhp", total=len(jobs))
        for name, job in jobs:
            out.setdefault(name, []).extend(job())
            progress.advance(bar)
    return out


def summary(result: dict[str, list[Row]]) -> dict[str, object]:
    """The object of the last line."""
    rows = result["inputs"]
    return {
        "w1_ratio": max(float(row["ratio"]) for row in rows if row["skewed"]),
        "w1_ratio_pooled": max(
            float(row["ratio"]) / float(row["full, pooled"]) for row in rows if row["skewed"]
        ),
        "memory_ratio": max(float(row["memory"]) for row in rows),
        **result["speed"][0],
        "rows": result["rivals"],
        "tables": result,
    }


def show(result: dict[str, list[Row]], console: Console) -> None:
    """Tables for people."""
    for name, rows in result.items():
        table = Table(title=name)
        for column in rows[0]:
            table.add_column(
                column, justify="left" if isinstance(rows[0][column], str) else "right"
            )
        for row in rows:
            table.add_row(*(v if isinstance(v, str) else f"{v:.3g}" for v in row.values()))
        console.print(table)


def draw(result: dict[str, list[Row]], path: Path, dpi: int = 110) -> None:
    """Postal codes and synthetic points; error against memory; error beside the theorem."""
    source = postal(np.random.default_rng(1), 200_000)
    mechanism = made(source.domain, **USUAL)
    part = absorbed(mechanism, source.columns, mechanism.traits.units(len(source.points)))
    points = sample(source.domain, *released(mechanism, part, "picture"), 20_000)
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), constrained_layout=True)
    clouds = (source.points[:20_000].T, np.stack(list(points.values())))
    for axis, (x, y), title in zip(axes[0], clouds, ("records", "synthetic, ε = 1"), strict=True):
        axis.plot(x, y, ",", color="#0b6e4f", alpha=0.6)
        axis.set(title=title, xticks=[], yticks=[])
    memory = [row for row in result["memory"] if str(row["input"]).startswith("postal")]
    full = next(row["full"] for row in result["inputs"] if str(row["input"]).startswith("postal"))
    for name, colour in (("joint", "#0b6e4f"), ("single", "#b23a48")):
        axes[1, 0].loglog(
            [r["memory"] for r in memory], [r[name] for r in memory], "o-", color=colour,
            label=f"sketches read {name}ly" if name == "joint" else "sketches read singly",
        )  # fmt: skip
    axes[1, 0].axhline(full, color="#8d99ae", label=f"full tree, {FULL:,} sums")
    axes[1, 0].set(xlabel="sums in memory", ylabel="Wasserstein-1 distance", title="postal codes")
    axes[1, 0].legend()
    rows = [row for row in result["trend"] if row["w/k"] == 2]
    looks = {"joint": "#0b6e4f", "single": "#b23a48", "noise term": "#8d99ae", "tail term": "#222"}
    for name, colour in looks.items():
        axes[1, 1].loglog([r["k"] for r in rows], [r[name] for r in rows], "o-", color=colour,
                          label=name)  # fmt: skip
    axes[1, 1].set(xlabel="k", title="multifractal, w = 2k")
    axes[1, 1].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three seeds, few points per curve")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the picture goes")
    options = parser.parse_args()
    console = Console(stderr=True)
    result = run(options.quick, console)
    show(result, console if options.json else Console())
    draw(result, options.out / "privhp.png")
    if options.json:
        print(json.dumps(summary(result)), file=sys.stdout)


if __name__ == "__main__":
    main()
