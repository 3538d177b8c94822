"""Accuracy of streaming histograms at equal privacy, on the published workload.

Ten million users, 59 million records, a million keys unknown in advance; user-level (ε = 6, δ =
1e-9) for everything released over T triggers. Errors are against the exact histogram over the whole
key space at the last trigger; a key that is not released counts as 0.

    python benchmarks/table1.py [--scale 1.0|0.1|0.01] [--triggers 100|1000] [--designs a,b,…]
                                [--shape NAME] [--delay 0|1] [--seeds N] [--curve Q,Q,…]
                                [--budget Q] [--weight w] [--thresholds] [--quick] [--json]

Designs: paper (as published; its threshold holds at each trigger, not at all of them),
sound_paper, repeated and incremental (one-shot histograms at every trigger; see
`_table1_designs.py`), tree, toeplitz, terminal, adaptive, debiased, final (debiased, with the
factorisation that spares little for earlier triggers), one_shot (a single release at the end: no
stream at all). Everything except `paper` is the product's own code path with exact keyed noise.

``--curve`` runs each design with several contribution bounds (records C of `paper`, Q of others).
``--thresholds`` prints the least number of users that published deployments need, and ours.

The last line under ``--json``: for each design NAME_keys, NAME_linf, NAME_l1, NAME_l2,
NAME_mean_l1 (mean over triggers), NAME_bias and NAME_bias_large (relative bias of the sum of all
released keys, and of those of 1,000 records or more), NAME_seconds (processor time),
NAME_slowest_trigger (the slowest release as a worker computes it; for designs whose noise is kept
between triggers, of five releases that are computed again without); each a mean over noise keys,
with NAME_FIELD_sd their standard deviation if there are several; ``private``: whether every
design other than `paper` passed its checks (its cost fits into ε and δ; no unit spent more than
its bound). One line per finished run comes before it, so that what is finished is never lost.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from typing import Any

from _table1_baselines import Incremental, Repeated, keyed
from _table1_designs import DELTA, EPSILON, PARAMETERS, design
from _table1_report import (
    Result,
    curve_picture,
    curve_table,
    fields,
    mean,
    picture,
    table,
    thresholds,
)
from _workload import SHAPES, Errors, Workload, cached, checks, play, shaped
from hushstream.mechanisms import accounting
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.planning.play import Run
from rich.console import Console
from rich.progress import Progress
from rich.table import Table


def private(run: Run | Repeated, triggers: int) -> bool:
    """Whether the cost fits into (ε, δ), and no unit has spent more than its bound."""
    fits = accounting.total([run.mechanism.cost()], DELTA)[0] <= EPSILON
    assert run.units is not None
    fired = run.memory.t if isinstance(run, Run) else run.t
    return bool(fits and (run.units.units.left >= 0).all() and fired == triggers)


def started(
    name: str, work: Workload, options: argparse.Namespace, changes: dict[str, Any], seed: int
) -> Run | Repeated:
    """A design at the beginning of the day."""
    mechanism = design(name, options.triggers, options.delay, changes)
    if name in ("repeated", "incremental"):
        kind = Repeated if name == "repeated" else Incremental
        assert isinstance(mechanism, Histogram)
        return kind(mechanism, work, seed)
    if isinstance(mechanism, Histogram):
        mechanism = cached(mechanism, work.keys)
    return Run(mechanism, work, keyed(name, seed), options.delay)


def measured(
    name: str,
    work: Workload,
    options: argparse.Namespace,
    changes: dict[str, Any],
    seed: int,
    tick: Callable[[], None],
) -> Result:
    """One design with one noise key."""
    began = time.process_time()
    triggers = 1 if name == "one_shot" else options.triggers
    run = started(name, work, options, changes, seed)
    found, slowest = play(run, triggers, tick)
    fine = name == "paper" or private(run, triggers)
    return Result(found.scaled(options.scale), time.process_time() - began, slowest, fine)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--scale", type=float, default=0.1, choices=(1.0, 0.1, 0.01))
    parser.add_argument("--triggers", type=int, default=100)
    parser.add_argument("--designs", default=",".join(PARAMETERS))
    parser.add_argument("--shape", default="published", choices=SHAPES)
    parser.add_argument("--delay", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="noise keys to average over")
    parser.add_argument("--data-seed", type=int, default=1)
    parser.add_argument("--curve", help="contribution bounds to compare, such as 2,4,8,16,32")
    parser.add_argument("--budget", type=float, help="contribution bound instead of the design's")
    parser.add_argument("--weight", type=float, help="adaptive weight instead of the design's")
    parser.add_argument("--thresholds", action="store_true", help="of deployments; runs nothing")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", default="out")
    options = parser.parse_args()
    if options.quick:
        options.scale, options.triggers = 0.01, min(options.triggers, 100)
    unknown = set(options.designs.split(",")) - set(PARAMETERS)
    if unknown:
        parser.error(f"unknown designs: {', '.join(sorted(unknown))}")
    if options.triggers < 1 or options.seeds < 1:
        parser.error("--triggers and --seeds must be at least 1")
    return options


def plans(options: argparse.Namespace) -> list[tuple[str, float | None, int]]:
    """(design, contribution bound, noise key) of every run."""
    curve = [float(one) for one in options.curve.split(",")] if options.curve else [options.budget]
    seeds = range(options.seeds)
    return [(n, b, seed) for n in options.designs.split(",") for b in curve for seed in seeds]


def changed(options: argparse.Namespace, name: str, budget: float | None) -> dict[str, Any]:
    changes: dict[str, Any] = {} if budget is None else {"budget": budget}
    if options.weight is not None and PARAMETERS[name].get("adaptive_weight"):
        changes["adaptive_weight"] = options.weight
    return changes


def played(options: argparse.Namespace, console: Console) -> tuple[dict[str, float], list[Any]]:
    """Facts of the workload, and (design, contribution bound, result) of every run."""
    runs, found = plans(options), []
    steps = sum(1 if name == "one_shot" else options.triggers for name, _, _ in runs)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("workload", total=steps)
        work = shaped(options.shape, options.scale, options.data_seed)
        facts = checks(work, options.scale)
        for name, budget, seed in runs:
            progress.update(bar, description=f"{name} {budget or ''}")
            changes = changed(options, name, budget)
            one = measured(name, work, options, changes, seed, lambda: progress.advance(bar))
            found.append((name, budget, one))
            line = {"design": name, "noise_key": seed, **changes, **one.row()}
            if options.json:
                print(json.dumps(line), flush=True)
            else:
                progress.console.print(line)
    return facts, found


def main() -> None:
    options = arguments()
    if options.thresholds:
        Console().print(thresholds())
        return
    facts, found = played(options, Console(stderr=True))
    results: dict[str, list[Result]] = {}
    curves: dict[str, list[tuple[float, Errors]]] = {}
    for name, _, one in found:
        results.setdefault(name, []).append(one)
    for name, budget, _ in found:
        if options.curve and budget not in [b for b, _ in curves.get(name, [])]:
            same = [one for n, b, one in found if (n, b) == (name, budget)]
            curves.setdefault(name, []).append((budget, mean(same)))
    path = curve_picture(curves, options) if curves else picture(results, options)
    if not options.json:
        shown: Table = curve_table(curves, options) if curves else table(results, options)
        Console().print(shown)
        Console().print(f"workload: {facts}\npicture: {path}")
        return
    row: dict[str, Any] = {"scale": options.scale, "triggers": options.triggers, **facts}
    row |= {"shape": options.shape, "delay": options.delay, "noise_keys": options.seeds}
    for name, runs in results.items():
        row |= fields(name, runs) if not curves else {}
    for name, points in curves.items():
        row[f"{name}_curve"] = [{"bound": bound, **e._asdict()} for bound, e in points]
    row["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps(row | {"private": all(one.private for _, _, one in found)}))


if __name__ == "__main__":
    main()
