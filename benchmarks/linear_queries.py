"""Selective counting of linear queries other than tree nodes, with PHDStream's counters.

Kumar, Strohmer & Vershynin, "An Algorithm for Streaming Differentially Private Data" (2024),
Algorithm 4, counts any linear queries: at each trigger a rule picks the active ones, and only
their counters see the trigger's records. PHDStream does it for the leaves of a tree. Here the
families are overlapping ranges of a line, random sets of cells, and the same sets with weights.

*Guarantee.* One record, inserted or deleted at trigger t in cell x, is added or removed (the unit
is the record). Query q counts it with an integer weight w(q, x) ≥ 0. At every trigger the active
set A satisfies Σ_{q∈A} w(q, x) ≤ Δ in every cell x (`admitted` refuses whatever would exceed it),
and it is a function of public weights and of outputs released before (`chosen` sees nothing else).
Each counter is (ε/Δ)-DP for a change by 1 at one of its activations, over its whole sequence of
outputs (`node_counters`), and so wε/Δ-DP for a change by w: every draw that covers the change is
moved by w instead of 1. Then everything released is ε-DP. *Proof.* Fix a transcript. The sets A
follow from it, hence they are the same in both worlds; given them, counters are independent runs
on fixed triggers, and the record enters those of A(t) alone, at trigger t. The losses add up to
Σ w(q, x)·ε/Δ ≤ ε. ∎ With all queries active, Δ would be the overlap of the whole family:

- ranges of L cells that begin at multiples of L/4: a cell is in at most four of each length,
  because their starts lie in a half-open interval of length L; four lengths make 16.
- sets: each of eight random partitions has one set for a cell: exactly 8.
- weighted sets: weights of 1 to 3 make at most 24.

*Error* of an active query's count since it was first active, over its active triggers: root mean
square over queries and triggers, beside what the counter's variance says; beside all queries
counted at all triggers; and beside a recomputation of the active ones at every trigger with
ε/T each. *Bound*: by Chan, Shi & Song (2011, Corollary 2.9) the error of k draws of scale s is at
most √8·s·√k·ln(2/β) with probability 1 - β. It holds for discrete Laplace noise too, whose moment
generating function is smaller, because sinh(x)/x increases.

    python benchmarks/linear_queries.py [--quick] [--json]

The last line under ``--json``: ``worst_ratio``, the largest measured error over the stated one;
``least_within``, the least share of outputs within the bound for β = 1 %; ``gain``, the least
ratio of a recomputation's error to that of the best counter; and every row.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from _spatial import keyed
from hushstream.mechanisms.contract import Noise
from hushstream.mechanisms.phdstream.node_counters import (
    BlockCounter,
    NodeCounter,
    Now,
    SimpleCounter,
    TreeCounter,
    laplace_variance,
)
from hushstream.mechanisms.phdstream.tree import NODE, States, picked, put
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

I64 = NDArray[np.int64]
EPSILON, BETA = Fraction(1), 0.01
CELLS, EACH = 1024, 3000  # cells of the line; records of a trigger
DELTA = {"ranges": 4, "sets": 2, "weighted sets": 6}  # Δ: total weight of a record at a trigger


def ranges() -> I64:
    """(q, cells) indicators of overlapping ranges of 32 to 256 cells."""
    rows = []
    for length in (32, 64, 128, 256):
        start = np.arange(0, CELLS - length + 1, length // 4)
        cell = np.arange(CELLS)
        rows.append((cell >= start[:, None]) & (cell < start[:, None] + length))
    return np.concatenate(rows).astype(np.int64)


def sets(layers: int = 8, groups: int = 32) -> I64:
    """(q, cells) indicators of the parts of random partitions into groups of equal size."""
    rng, rows = np.random.default_rng(11), []
    for _ in range(layers):
        group = rng.permutation(np.arange(CELLS) % groups)
        rows.append(group == np.arange(groups)[:, None])
    return np.concatenate(rows).astype(np.int64)


def weighted_sets() -> I64:
    """(q, cells) the same sets, each cell with a weight of 1 to 3."""
    return sets() * np.random.default_rng(12).integers(1, 4, (1, CELLS))


FAMILIES: dict[str, Callable[[], I64]] = {
    "ranges": ranges, "sets": sets, "weighted sets": weighted_sets,
}  # fmt: skip


def counters(epsilon: Fraction, horizon: int) -> list[SimpleCounter | BlockCounter | TreeCounter]:
    """PHDStream's counters of pure ε."""
    return [SimpleCounter(epsilon), BlockCounter(epsilon, 8), TreeCounter(epsilon, horizon)]


def admitted(weight: I64, order: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Queries in ascending order, taken in ``order`` unless a cell's total would exceed Δ."""
    load, taken = np.zeros(weight.shape[1], np.int64), []
    for query in order.tolist():
        if (load + weight[query]).max() <= most:
            load += weight[query]
            taken.append(query)
    return np.sort(np.array(taken, np.intp))


def chosen(weight: I64, out: I64, steps: I64, most: int) -> NDArray[np.intp]:
    """Active queries: those never tried first, then the densest by released counts.

    Args:
        weight: (q, cells) public weights.
        out: (q,) released counts.
        steps: (q,) triggers at which each query was active; public.
        most: Δ.
    """
    density = np.where(steps > 0, out / np.maximum(steps, 1) / weight.sum(axis=1), np.inf)
    return admitted(weight, np.argsort(-density, kind="stable"), most)


def stream(triggers: int) -> Iterator[I64]:
    """(cells,) records of each trigger: three hot spots that move by a third of the line."""
    rng = np.random.default_rng(2024)
    for t in range(triggers):
        middle = np.array([100, 420, 800]) + CELLS // 3 * t / triggers
        which = rng.integers(0, 4, EACH)
        spot = middle[which % 3] + np.array([10, 40, 25])[which % 3] * rng.standard_normal(EACH)
        place = np.where(which < 3, spot, rng.uniform(0, CELLS, EACH)).astype(np.int64) % CELLS
        yield np.bincount(place, minlength=CELLS)


class Step(NamedTuple):
    """The release of a trigger, and the exact result."""

    active: NDArray[np.intp]  # (a,) queries
    change: I64  # (a,) exact weights of the trigger's records
    exact: I64  # (a,) exact totals over active triggers
    out: I64  # (a,) released
    variance: NDArray[np.float64]  # (a,) stated


def counted(
    weight: I64,
    most: int,
    counter: NodeCounter,
    days: Iterable[I64],
    noise: Noise,
    sets: Sequence[NDArray[np.intp]] | None = None,
) -> list[Step]:
    """Algorithm 4; queries are labelled like nodes, by their numbers.

    Args:
        weight: (q, cells) public weights.
        most: Δ.
        counter: counter that is (ε/Δ)-DP for a change by 1.
        days: (cells,) records of each trigger.
        noise: keyed noise.
        sets: active queries of a fixed transcript; None: `chosen` picks them.
    """
    queries = len(weight)
    cell, exact = np.zeros(queries, NODE), np.zeros(queries, np.int64)
    label = np.arange(1, queries + 1, dtype=np.uint64)
    found = []
    for t, records in enumerate(days, 1):
        steps = cell["steps"].astype(np.int64)
        active = chosen(weight, cell["out"], steps, most) if sets is None else sets[t - 1]
        change = weight[active] @ records
        exact[active] += change
        now: States = counter.step(picked(cell, active), label[active], change, Now(t), noise)
        put(cell, active, now)
        variance = counter.variance(now["steps"])
        found.append(Step(active, change, exact[active], now["out"].copy(), variance))
    return found


def bound(counter: SimpleCounter | BlockCounter | TreeCounter, variance: Any) -> Any:
    """Bound that the error exceeds with probability at most β, by Chan, Shi & Song."""
    draws = variance / laplace_variance(counter.scale)
    return math.sqrt(8) * float(counter.scale) * np.sqrt(draws) * math.log(2 / BETA)


def rms(steps: list[Step]) -> float:
    """Root mean square of the errors."""
    error = np.concatenate([step.out - step.exact for step in steps]).astype(float)
    return float(np.sqrt((error**2).mean()))


def rows(family: str, triggers: int, seeds: int) -> list[dict[str, Any]]:
    """Figures of one family, one row per counter."""
    weight, most = FAMILIES[family](), DELTA[family]
    overlap, found, days = int(weight.sum(axis=0).max()), [], list(stream(triggers))
    selective, every = (counters(EPSILON / part, triggers) for part in (most, overlap))
    for counter, with_all in zip(selective, every, strict=True):
        steps, whole = [], []
        for seed in range(seeds):
            noise = keyed(f"{family} {seed}")
            steps += counted(weight, most, counter, days, noise)
            whole += counted(weight, overlap, with_all, days, noise)
        error = np.concatenate([abs(step.out - step.exact) for step in steps])
        variance = np.concatenate([step.variance for step in steps])
        found.append({
            "family": family, "counter": counter.name, "queries": len(weight), "Δ": most,
            "overlap": overlap, "active": float(np.mean([len(step.active) for step in steps])),
            "count": float(np.concatenate([step.exact for step in steps]).mean()),
            "error": rms(steps), "stated": float(np.sqrt(variance.mean())),
            "within": float((error <= bound(counter, variance)).mean()),
            "bound": float(bound(counter, variance).mean()), "all": rms(whole),
            "recomputed": math.sqrt(laplace_variance(most * triggers / EPSILON)),
        })  # fmt: skip
    return found


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    gains = []
    for family in FAMILIES:
        mine = [row for row in found if row["family"] == family]
        gains.append(min(row["recomputed"] for row in mine) / min(row["error"] for row in mine))
    return {
        "worst_ratio": max(row["error"] / row["stated"] for row in found),
        "least_within": min(row["within"] for row in found), "gain": min(gains), "rows": found,
    }  # fmt: skip


def table(found: list[dict[str, Any]]) -> Table:
    shown = Table(title="error of an active query's count, records, ε = 1")
    columns = ("family", "counter", "Δ", "count", "error", "stated", "bound", "all", "recomputed")
    for column in columns:
        shown.add_column(column, justify="right" if column not in ("family", "counter") else "left")
    for row in found:
        cells = [row[column] for column in columns]
        shown.add_row(*(f"{v:,.0f}" if isinstance(v, float) else str(v) for v in cells))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="24 triggers, one noise key")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    triggers, seeds = (24, 1) if options.quick else (128, 5)
    found = [row for family in FAMILIES for row in rows(family, triggers, seeds)]
    if options.json:
        print(json.dumps(summary(found)))
    else:
        Console().print(table(found))


if __name__ == "__main__":
    main()
