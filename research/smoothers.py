"""Which of ToPS's five smoothers (Wang et al., CCS 2021) predicts slots inside a block best.

There is one record per slot. ToPS chooses tree and penalty by default, and each run draws a
threshold and the noise of all blocks. Until a block ends, each of its slots gets the prediction of
the mechanism's own `Smoother`, from the noisy totals of earlier blocks. All smoothers of a run see
the same totals, so they differ only by their predictions.

    python research/smoothers.py [--quick] [--json] [--half unseen]

For each smoother, over all streams of a half and ε where the tree has blocks of several slots:

- ``ranges``, ``ranges_worst``: mean squared error of random ranges over that of ``recent``: the
  geometric mean over the cells, and the largest ratio. Smoothers with a history have the default
  one.
- ``slots``: the geometric mean for single slots that are not the last one of a block.
- ``best``: share of the cells in which no other smoother has a smaller error of ranges.
"""

from __future__ import annotations

import argparse
import json
from fractions import Fraction
from typing import Any

import _benchmarks  # noqa: F401
import _heldout_values as heldout
import numpy as np
from _heldout_streams import streams
from _values import F64, I64, Stream, keyed
from hushstream.mechanisms.parts.thresholds.clip import exceedance_scores, noisy_max
from hushstream.mechanisms.parts.trees.hierarchy import Chunks
from hushstream.mechanisms.parts.trees.smoothing import KINDS, Smoother
from rich.console import Console
from rich.progress import track
from rich.table import Table

EPSILONS = (Fraction(1, 20), Fraction(1, 5), Fraction(1))
MOST = 20_000  # slots used of a stream; more would not change a block
Row = dict[str, Any]
Errors = dict[str, tuple[float, float]]  # of ranges and of slots


def predictions(smoother: Smoother, totals: I64, first: float) -> F64:
    """(k,) predicted totals of k blocks; ``first`` for the first block."""
    made = [first]
    for block in range(1, len(totals)):
        past = totals[max(0, block - max(smoother.memory, 1)) : block][::-1].tolist()
        made.append(float(smoother.predict(past, int(totals[:block].sum()), block)))
    return np.array(made)


def noisy_totals(stream: Stream, made: Any, run: int) -> tuple[int, I64]:
    """A drawn threshold, and the noisy totals of all whole blocks after the warm-up."""
    start, noise = len(stream.values) // heldout.WARMUP, keyed(run, "smoothers")
    places = np.searchsorted(made.slots.thresholds, stream.values[:start])
    histogram = np.bincount(places, minlength=len(made.slots.thresholds))
    scores = exceedance_scores(histogram, np.array(made.penalty))
    theta = made.slots.thresholds[noisy_max(scores, 1 / made.threshold_epsilon, noise, 1)]
    rest = np.minimum(stream.values[start:], theta)
    blocks, drawn, before = len(rest) // made.width, [0.0], 0.0
    for end in range(1, blocks + 1):
        since, more = made.tree.prefix(noise, theta, end)
        before = drawn[since] if since < len(drawn) else before
        drawn.append(before + float(more))
    exact = rest[: blocks * made.width].reshape(blocks, made.width).sum(axis=1)
    return theta, exact + np.rint(np.diff(drawn)).astype(np.int64)


def errors(stream: Stream, made: Any, run: int) -> Errors:
    """Mean squared errors of each smoother in one run."""
    theta, totals = noisy_totals(stream, made, run)
    width, blocks = made.width, len(totals)
    start = len(stream.values) // heldout.WARMUP
    rest = stream.values[start:][: blocks * width]
    first = heldout.guessed(made, stream.values[:start], theta, run) * width * theta
    ends = np.sort(np.random.default_rng(run).integers(0, len(rest), (heldout.RANGES, 2)), axis=1)
    true = np.concatenate([[0], np.cumsum(rest)])
    upto = np.concatenate([[0], np.cumsum(totals)])
    inner = rest.reshape(blocks, width)[:, :-1]
    found: Errors = {}
    for kind in KINDS:
        each = predictions(Smoother(kind, made.smoother.history), totals, first) / width
        block, into = np.divmod(ends, width)
        shown = upto[block] + into * each[block]
        miss = np.diff(shown - true[ends], axis=1)
        found[kind] = float(np.mean(miss**2)), float(np.mean((inner - each[:, None]) ** 2))
    return found


def row_of(stream: Stream, epsilon: Fraction, runs: int) -> Row | None:
    """Errors of one stream and ε; None unless the tree has chunks of blocks of several slots."""
    short = stream._replace(values=stream.values[:MOST])
    made = heldout.defaults(short, epsilon)
    if made.width == 1 or not isinstance(made.tree, Chunks):
        return None
    each = [errors(short, made, run) for run in range(runs)]
    means = {kind: np.mean([one[kind] for one in each], axis=0).tolist() for kind in KINDS}
    return {"stream": stream.name, "epsilon": float(epsilon), "width": made.width} | means


def totals_of(rows: list[Row]) -> list[Row]:
    """A row for each smoother, relative to ``recent``."""
    table = np.array([[row[kind] for kind in KINDS] for row in rows])  # cell, smoother, figure
    ratio = table / table[:, :1]
    means = np.exp(np.log(ratio).mean(axis=0))
    wins = (table[:, :, 0] <= table[:, :, 0].min(axis=1, keepdims=True)).mean(axis=0)
    return [{"smoother": kind, "ranges": float(means[n, 0]), "slots": float(means[n, 1]),
             "ranges_worst": float(ratio[:, n, 0].max()), "best": float(wins[n])}
            for n, kind in enumerate(KINDS)]  # fmt: skip


def main() -> None:
    """Run all and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few streams, one run")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--half", choices=("held", "tuned", "unseen"), default="held")
    args = parser.parse_args()
    console = Console(stderr=args.json)
    cells = [(one, epsilon) for one in streams(args.half)[:: 5 if args.quick else 1]
             for epsilon in EPSILONS]  # fmt: skip
    runs = 1 if args.quick else 3
    made = [row_of(*cell, runs) for cell in track(cells, console=Console(stderr=True))]
    rows = [row for row in made if row is not None]
    found = totals_of(rows)
    table = Table(*found[0], title=f"{len(rows)} cells, squared errors over those of recent")
    for row in found:
        table.add_row(*(one if isinstance(one, str) else f"{one:.3f}" for one in row.values()))
    console.print(table)
    if args.json:
        print(json.dumps({"smoothers": found, "cells": rows}))


if __name__ == "__main__":
    main()
