"""Which depth of PHDStream's domain is best: error of boxes, stored nodes and time over depth 8's.

Streams of 24 triggers (`intervals`): "tuned" may choose a default, "held" judges it. Errors are
abs(estimate - truth) / max(truth, 0.1 % of the live records) at the last trigger, for random boxes
of the sizes of `_spatial.SIZES`, and for ``fine`` ones around random records, with sides of 1/1000
to 1/316 of the domain's: smaller than a cell of depth 8.

    python research/depths.py [--quick] [--json] [--half held]

The last line under ``--json``: every row, its figures divided by those of depth 8.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import _benchmarks  # noqa: F401
import intervals
import numpy as np
from _spatial import Store, Stream, box_counts, boxes, keyed, part_of
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.phdstream.settings import PHDStreamParameters, build
from hushstream.mechanisms.phdstream.tree import GRID
from hushstream.mechanisms.spatial.domain import Domain
from hushstream.mechanisms.spatial.synthetic import range_counts
from rich.console import Console
from rich.table import Table

HALVES = {"tuned": intervals.CHOSEN_ON, "held": intervals.CHECKED_ON}
EPSILONS, DEPTHS, USUAL = ("0.1", "0.5", "2"), (6, 8, 10, 12), 8
COUNT, FINE = 500, (1e-6, 1e-5)
FIGURES = ("fine", "small", "medium", "large", "nodes", "seconds")
F64 = np.ndarray
Row = dict[str, Any]


def fine(stream: Stream) -> tuple[F64, F64]:
    """Both corners of boxes around random records."""
    draw = np.random.default_rng(3)
    records = stream.point[stream.sign > 0]
    centre = records[draw.integers(0, len(records), COUNT)]
    side = draw.uniform(FINE[0] ** 0.5, FINE[1] ** 0.5, (COUNT, 2))
    return np.clip(centre - side / 2, 0, 1), np.clip(centre + side / 2, 0, 1)


def figures(stream: Stream, name: str, epsilon: str, depth: int, truth: dict[str, Any]) -> Row:
    """Errors by size, stored nodes, and seconds of all triggers, of one run."""
    domain = Domain.unit(2, depth, "all")
    deletions = bool((stream.sign < 0).any())
    bound = 2 if deletions else 1
    parameters = PHDStreamParameters(domain=domain, deletions=deletions, bound=bound)
    setting = Setting(Fraction(epsilon), Fraction(0), intervals.TICKS)
    mechanism = build(parameters, setting)
    store, noise = Store(mechanism.traits), keyed(name)
    start = time.thread_time()
    for t in range(1, intervals.TICKS + 1):
        rows, out = mechanism.release(store.closed(part_of(mechanism, stream.at(t)), t), noise)
        store.store(rows)
    row: Row = {"seconds": time.thread_time() - start, "nodes": float(store.nodes)}
    least = 0.001 * float(stream.sign.sum())
    for size, (box, exact) in truth.items():
        shown = range_counts(domain, out.key.codes(), out.value[:, 0] / GRID, *box)
        row[size] = float(np.mean(np.abs(shown - exact) / np.maximum(exact, least)))
    return row


def compared(half: str, quick: bool) -> Iterator[Row]:
    """A row for each set, ε and depth other than the usual one."""
    sets, runs = HALVES[half], 1 if quick else 2
    for name in list(sets)[-2:] if quick else sets:
        stream = sets[name]()
        places = {"fine": fine(stream), **boxes(COUNT, seed=11)}
        truth = {size: (box, box_counts(stream, *box)) for size, box in places.items()}
        for epsilon in EPSILONS:
            found = {}
            for depth in DEPTHS:
                each = [figures(stream, f"{name}{i}", epsilon, depth, truth) for i in range(runs)]
                found[depth] = {key: float(np.mean([one[key] for one in each])) for key in FIGURES}
            for depth in DEPTHS:
                ratios = {key: found[depth][key] / found[USUAL][key] for key in FIGURES}
                yield {"set": name, "epsilon": epsilon, "depth": depth, **ratios}


def show(rows: list[Row], console: Console) -> None:
    """Medians, least and largest ratio by ε and depth."""
    table = Table("ε", "depth", *FIGURES, title=f"over depth {USUAL}: median, least to largest set")
    for epsilon in EPSILONS:
        for depth in DEPTHS:
            mine = [row for row in rows if (row["epsilon"], row["depth"]) == (epsilon, depth)]
            cells = []
            for key in FIGURES:
                ratios = [row[key] for row in mine]
                cells.append(f"{np.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")
            table.add_row(epsilon, str(depth), *cells)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two sets, one run")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--half", choices=tuple(HALVES), default="tuned")
    options = parser.parse_args()
    rows = []
    with Console(stderr=True).status("depths") as status:
        for row in compared(options.half, options.quick):
            rows.append(row)
            status.update(row["set"])
    show(rows, Console(stderr=options.json, width=140))
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
