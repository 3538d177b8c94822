"""Accuracy of streaming histograms at equal privacy, on the published workload.

Ten million users, 59 million records, a million keys that nobody knows beforehand; user-level
(ε = 6, δ = 1e-9) for everything that is released over T triggers. Errors are against the exact
histogram over the whole key space at the last trigger; a key that is not released counts as 0.

    python benchmarks/table1.py [--scale 1.0|0.1|0.01] [--triggers 100|1000] [--designs a,b,…]
                                [--shape NAME] [--delay 0|1] [--seeds N] [--quick] [--json]

Designs: paper (as published; its threshold holds at each trigger, not at all of them),
sound_paper, tree, toeplitz, terminal, adaptive, debiased, one_shot (a single release at the end:
no stream at all). Everything except `paper` is the product's own code path with exact keyed noise.

The last line under ``--json``: for each design NAME_keys, NAME_linf, NAME_l1, NAME_l2,
NAME_mean_l1 (mean over triggers), NAME_seconds, NAME_slowest_trigger, and ``private``: whether
every design other than `paper` passed its checks (its cost fits into ε and δ; no unit spent more
than its bound).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from _workload import SHAPES, Errors, Run, Workload, cached, checks, play, shaped
from hushstream.mechanisms import accounting, selection
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram import Histogram
from hushstream.mechanisms.histogram_plan import HistogramParameters, build
from hushstream.mechanisms.histogram_rounds import Rounds
from hushstream.mechanisms.noise import KeyedNoise
from hushstream.mechanisms.process import STEPS
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

mpl.use("Agg")
import matplotlib.pyplot as plt

EPSILON, DELTA = Fraction(6), Fraction(1, 10**9)
PARAMETERS: dict[str, dict[str, Any]] = {
    "paper": {"selection": "rounds", "budget": 32},
    "sound_paper": {"selection": "rounds", "budget": 32},
    "tree": {"bound": "per-key", "budget": 32, "per_key": 1, "factorization": "honaker"},
    "toeplitz": {"budget": 32, "adaptive_weight": 0, "factorization": "toeplitz"},
    "terminal": {"budget": 32, "adaptive_weight": 0, "factorization": "terminal"},
    "adaptive": {"budget": 12, "adaptive_weight": 0.3, "factorization": "terminal"},
    "debiased": {"budget": 4, "adaptive_weight": 0.25, "debias": True},
    "one_shot": {"budget": 8, "adaptive_weight": 0, "debias": True},
}
COLOURS = {"paper": "#b23a48", "sound_paper": "#8d99ae", "one_shot": "#2b2d42"}


class Result(NamedTuple):
    """Means over noise keys, scaled to the full workload."""

    errors: Errors
    seconds: float
    slowest: float
    private: bool


def design(name: str, horizon: int, delay: int) -> Histogram | Rounds:
    """A calibrated mechanism; `paper` is altered to what was published."""
    horizon = 1 if name == "one_shot" else horizon
    setting = Setting(EPSILON, DELTA, horizon)
    mechanism = build(HistogramParameters(delay=delay, **PARAMETERS[name]), setting)
    if name == "paper":
        assert isinstance(mechanism, Rounds)
        return as_published(mechanism)
    return mechanism


def as_published(mechanism: Rounds) -> Rounds:
    """Noise by zCDP composition, δ with its factor 1 + e^ε, β at each trigger on its own.

    This is what the paper evaluates. It is not private: its threshold fails up to T times as often
    as claimed. It exists here only, for comparison.
    """
    rho = accounting.zcdp_rho(EPSILON, DELTA / 2)
    ratio = mechanism.loss.mu2 / (2 * rho)
    louder = replace(mechanism.selector, variance=mechanism.selector.variance * ratio)
    values = tuple(
        one._replace(lanes=tuple(replace(p, variance=p.variance * ratio) for p in one.lanes))
        for one in mechanism.quantities
    )
    beta = DELTA / 2 / Fraction(int(np.ceil(1 + np.exp(float(EPSILON)))))
    records = Fraction(mechanism.bound.left)
    marginal = (
        selection.thresholds(
            [beta] * mechanism.horizon, selection.Exposure(records, 1), louder.quantile, 1, STEPS
        )
        - STEPS
    )  # the paper's test is N + noise > threshold, without the unit's own record
    return replace(
        mechanism, selector=louder, quantities=values, threshold=tuple(marginal.tolist())
    )


def private(run: Run) -> bool:
    """The cost fits into (ε, δ), and no unit has spent more than its bound."""
    fits = accounting.total([run.mechanism.cost()], DELTA)[0] <= EPSILON
    return bool(fits and (run.units.left >= 0).all() and run.t == run.mechanism.horizon)


def measured(
    name: str, work: Workload, options: argparse.Namespace, tick: Callable[[], None]
) -> Result:
    """One design, over all noise keys."""
    found, began, slowest, fine = [], time.perf_counter(), 0.0, True
    for seed in range(options.seeds):
        mechanism = design(name, options.triggers, options.delay)
        if isinstance(mechanism, Histogram):
            mechanism = cached(mechanism, work.keys)
        noise = KeyedNoise(
            seed.to_bytes(32), charge=bytes(32), mechanism=name, config=b"", pipeline="table1",
            window="day",
        )  # fmt: skip
        run = Run(mechanism, work, noise, options.delay)
        errors, slow = play(run, tick)
        found.append(errors)
        slowest, fine = max(slowest, slow), fine and (name == "paper" or private(run))
    mean = Errors(*np.mean(np.array(found), axis=0).tolist())
    s = options.scale
    scaled = Errors(mean.keys / s, mean.linf, mean.l1 / s, mean.l2 / s**0.5, mean.mean_l1 / s)
    return Result(scaled, (time.perf_counter() - began) / options.seeds, slowest, fine)


def table(results: dict[str, Result], options: argparse.Namespace) -> Table:
    shown = Table(
        title=f"{options.shape}, scale {options.scale}, T = {options.triggers}, ε = 6, δ = 1e-9"
    )
    for column in ("design", "keys", "l∞", "l1", "l2", "mean l1", "seconds", "slowest trigger"):
        shown.add_column(column, justify="left" if column == "design" else "right")
    for name, one in results.items():
        e = one.errors
        shown.add_row(
            name, f"{e.keys:,.0f}", f"{e.linf:,.0f}", f"{e.l1 / 1e6:.2f} M", f"{e.l2:,.0f}",
            f"{e.mean_l1 / 1e6:.2f} M", f"{one.seconds:.0f}", f"{one.slowest:.2f} s",
        )  # fmt: skip
    return shown


def picture(results: dict[str, Result], options: argparse.Namespace) -> Path:
    """Keys released and l1, one bar per design."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    names = list(results)
    colours = [COLOURS.get(name, "#0b6e4f") for name in names]
    titles = ("keys released", "l1 error at the last trigger (millions)")
    heights = (
        [one.errors.keys for one in results.values()],
        [one.errors.l1 / 1e6 for one in results.values()],
    )
    for axis, title, height in zip(axes, titles, heights, strict=True):
        axis.bar(names, height, color=colours)
        axis.set_title(title)
        axis.tick_params(axis="x", rotation=40)
    figure.suptitle(f"(ε = 6, δ = 1e-9) per user, T = {options.triggers}, scale {options.scale}")
    path = Path(options.out) / "table1.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--scale", type=float, default=0.1, choices=(1.0, 0.1, 0.01))
    parser.add_argument("--triggers", type=int, default=100)
    parser.add_argument("--designs", default=",".join(PARAMETERS))
    parser.add_argument("--shape", default="published", choices=SHAPES)
    parser.add_argument("--delay", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="noise keys to average over")
    parser.add_argument("--data-seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", default="out")
    options = parser.parse_args()
    if options.quick:
        options.scale, options.triggers = 0.01, min(options.triggers, 100)
    unknown = set(options.designs.split(",")) - set(PARAMETERS)
    if unknown:
        parser.error(f"unknown designs: {', '.join(sorted(unknown))}")
    return options


def main() -> None:
    options = arguments()
    console = Console(stderr=True)
    names = options.designs.split(",")
    results: dict[str, Result] = {}
    with Progress(console=console, disable=not console.is_terminal) as progress:
        steps = sum(1 if name == "one_shot" else options.triggers for name in names)
        bar = progress.add_task("workload", total=steps * options.seeds)
        work = shaped(options.shape, options.scale, options.data_seed)
        facts = checks(work, options.scale)
        for name in names:
            progress.update(bar, description=name)
            results[name] = measured(name, work, options, lambda: progress.advance(bar))
    path = picture(results, options)
    if not options.json:
        Console().print(table(results, options))
        Console().print(f"workload: {facts}\npicture: {path}")
        return
    row: dict[str, Any] = {"scale": options.scale, "triggers": options.triggers, **facts}
    for name, one in results.items():
        row |= {f"{name}_{field}": value for field, value in one.errors._asdict().items()}
        row |= {f"{name}_seconds": one.seconds, f"{name}_slowest_trigger": one.slowest}
    print(json.dumps(row | {"private": all(one.private for one in results.values())}))


if __name__ == "__main__":
    main()
