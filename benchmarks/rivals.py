"""Histograms over unknown keys against one-shot libraries that are run at each trigger.

    python benchmarks/rivals.py [--quick] [--json] [--tumult PYTHON]

A user of another library releases all records so far at every trigger, and composes: `_rivals`
describes how. Ours is the histogram as run by the worker. All have the same (ε, δ) per unit for
everything released, and the same records, in two shapes: the published workload of `_workload`, and
units that return to a few favourite keys.

Ours may release more often than it is asked to, as `hush plan` proposes: later records of a key
that is public already use less of the bound, so that early releases make the last one better.

Every competitor's setting (bound, noise, weight, factorisation) is chosen on another draw of the
same law, at the same number of triggers; figures are for records that were not used to choose. Each
has two settings: one with the least ``l1``, one with the most ``keys``; each figure compares the
settings chosen by it. ``default`` is ours without settings, in both.

Figures are for the last trigger, and means over noise. Once found, a rival's key stays known, with
its newest count. A hidden key counts as 0 in ``l1``, which is a share of all records.

* `keys_over_best_rival`, `l1_over_best_rival`: ours over the best rival's, in objects with one
  entry for each number of triggers (``t1``, ``t24``); the worst over all shapes and ε. More keys
  and less l1 are better.
* `default_keys_over_best_rival`, `default_l1_over_best_rival`: the same without settings.
* `rows`: keys, l1, and processor seconds of a whole window, for every competitor.
* `left_out`: rivals that are not installed, and how to install them.

For one release DP-SIPS finds more keys than any setting of ours. It divides a unit's weight by the
unit's actual number of keys, where our bound charges every unit alike. A stream must count a record
before it knows that number, so no budget, share of δ or bound of ours finds those keys.

``pip install opendp python-dp`` installs two of them. Tumult Analytics needs Java, Spark and an
interpreter with an old NumPy (`pip install tmlt.analytics` in a separate environment), which
``--tumult`` names. It takes seconds for each release, so only its last one is run, with the best
bound for OpenDP's Laplace noise, which is of the same kind.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _rivals import Bounded, Budget, OpenDP, Setting, bounded, left_out, rivals
from _workload import cached, draw, law, published
from hushstream.mechanisms import contract
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.planning.play import Run
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.noise.trial import noise_of
from hushstream.mechanisms.workload import Workload
from rich.console import Console
from rich.table import Table

PRIVACY = ((6.0, 1e-9), (1.0, 1e-6))
TRIGGERS, QUICK_TRIGGERS = (1, 4, 24), (1, 24)
SCALE, QUICK_SCALE = 0.01, 0.003
TUNED, JUDGED = 1, 2  # seeds of records to choose settings on, and to judge on
RUNS, QUICK_RUNS = 4, 2
BUDGETS, WEIGHTS, FACTORS = (2.0, 4.0, 8.0, 16.0, 32.0, 96.0), (0.0, 0.3), ("terminal", "final")
QUICK_BUDGETS = (2.0, 8.0, 32.0, 96.0)
LOOKS, SMALL = 24, (0.15, 0.3)  # releases of a window that is released early; weights for these
BOUNDS, PER_KEY = (1, 2, 4, 8, 16, 32), (1, 2, 4, 8)
QUICK_BOUNDS, QUICK_PER_KEY = (2, 4, 8, 16), (1, 3)
AIMS = {"l1": 1, "keys": -1}  # criteria for settings: the least l1, the most keys


class Case(NamedTuple):
    """One comparison: records, a budget, and the number of triggers."""

    shape: str
    budget: Budget


class Ours(NamedTuple):
    """A setting of ours, and how often it releases."""

    parameters: HistogramParameters
    releases: int

    def __str__(self) -> str:
        p = self.parameters
        debiased = ", debiased" if p.debias else ""
        return (
            f"Q {p.budget:g}, w {p.adaptive_weight:g}, {p.factorization}{debiased}, "
            f"{self.releases} releases"
        )


class Figures(NamedTuple):
    """Figures of the last trigger, and CPU of the whole window."""

    keys: float
    l1: float
    seconds: float


Play = Callable[[Workload, int], Figures]


def favourites(scale: float, seed: int) -> Workload:
    """Units that return to some favourite keys."""
    work, rng = published(scale, seed), np.random.default_rng([seed, 9])
    mine = draw(rng, law(work.keys, 1000 * scale, 1.4), work.users * 4).reshape(-1, 4)
    which = rng.choice(4, len(work.unit), p=(0.4, 0.3, 0.2, 0.1))
    return work._replace(key=mine[work.unit, which])


SHAPES = {"published": published, "favourites": favourites}


@lru_cache(maxsize=4)
def records(shape: str, scale: float, seed: int) -> Workload:
    """Records of one window."""
    return SHAPES[shape](scale, seed)


def figures(work: Workload, known: np.ndarray, value: np.ndarray, seconds: float) -> Figures:
    gap = np.abs(work.truth() - np.where(known, value, 0)).sum()
    return Figures(float(known.sum()), float(gap) / len(work.unit), seconds)


def ours(one: Ours, budget: Budget) -> Play:
    """The histogram with these settings."""
    epsilon, delta = (Fraction(str(part)) for part in (budget.epsilon, budget.delta))
    made = build(one.parameters, contract.Setting(epsilon, delta, one.releases))
    assert isinstance(made, Histogram)

    def play(work: Workload, number: int) -> Figures:
        noise, began = noise_of("rivals", number), time.process_time()
        run = Run(cached(made, work.keys), work, noise, made.delay)
        for part in work.micro_batches(one.releases):
            run.step(part)
        return figures(work, run.status > 0, run.shown, time.process_time() - began)

    return play


def theirs(rival: Any, budget: Budget) -> Play:
    """A rival at every trigger."""

    def play(work: Workload, number: int) -> Figures:
        rng, began = np.random.default_rng(number), time.process_time()
        known, value = np.zeros(work.keys, bool), np.zeros(work.keys, np.int64)
        for part in work.micro_batches(budget.times):
            accepted: Bounded = bounded(work, part.stop, rival.setting, rng)
            out = rival.release(accepted, work.keys, rng)
            known[out.key], value[out.key] = True, out.value
        return figures(work, known, value, time.process_time() - began)

    return play


def tumult(python: str, budget: Budget, setting: Setting) -> Play:
    """The last release of Tumult Analytics."""
    script = Path(__file__).with_name("_rivals_tumult.py")

    def play(work: Workload, number: int) -> Figures:
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder, "in.npz"), Path(folder, "out.npz")
            np.savez(source, unit=work.unit, key=work.key)
            each = (budget.epsilon / budget.times, budget.delta / budget.times)
            asked = map(str, (source, target, *each, *setting[:2]))
            subprocess.run([python, str(script), *asked], check=True, capture_output=True)
            with np.load(target) as out:
                known, value = np.zeros(work.keys, bool), np.zeros(work.keys, np.int64)
                known[out["key"]], value[out["key"]] = True, out["value"]
                return figures(work, known, value, float(out["seconds"]))

    return play


def candidates(quick: bool, times: int) -> Iterator[Ours]:
    """Settings of ours: with the releases that are asked for, and with early ones as well."""
    factors, budgets = FACTORS if times > 1 else FACTORS[:1], QUICK_BUDGETS if quick else BUDGETS
    for budget, weight, factor in itertools.product(budgets, WEIGHTS, factors):
        made = HistogramParameters(budget=budget, adaptive_weight=weight, factorization=factor)
        yield Ours(made, times)
    for budget, weight, debias in itertools.product(budgets, SMALL, (False, True)):
        made = HistogramParameters(
            budget=budget, adaptive_weight=weight, factorization="final", debias=debias
        )
        yield Ours(made, LOOKS)


def settings(kind: Any, quick: bool) -> Iterator[Setting]:
    """Settings of a rival."""
    bounds = (QUICK_BOUNDS, QUICK_PER_KEY) if quick else (BOUNDS, PER_KEY)
    for one in itertools.product(*bounds, kind.noises):
        yield Setting(*one)


def best(plays: dict[Any, Play], work: Workload) -> dict[str, Any]:
    """The best setting by each aim."""
    seen = {one: play(work, 0) for one, play in plays.items()}
    return {a: min(seen, key=lambda one: s * getattr(seen[one], a)) for a, s in AIMS.items()}


def contest(
    case: Case, options: argparse.Namespace
) -> Iterator[tuple[str, str, str, list[Figures]]]:
    """Name, aim, setting and figures of every competitor."""
    scale, runs = (QUICK_SCALE, QUICK_RUNS) if options.quick else (SCALE, RUNS)
    seen, judged = (records(case.shape, scale, seed) for seed in (TUNED, JUDGED))
    budget = case.budget

    def shown(play: Play, runs: int = runs) -> list[Figures]:
        return [play(judged, 1 + number) for number in range(runs)]

    plain = shown(ours(Ours(HistogramParameters(), budget.times), budget))
    yield from (("default", aim, "", plain) for aim in AIMS)
    mine = {one: ours(one, budget) for one in candidates(options.quick, budget.times)}
    for aim, one in best(mine, seen).items():
        yield "ours", aim, str(one), shown(mine[one])
    for kind in rivals():
        plays = {s: theirs(kind(s, budget), budget) for s in settings(kind, options.quick)}
        for aim, chosen in best(plays, seen).items():
            yield kind.name, aim, ", ".join(map(str, chosen)), shown(plays[chosen])
        if options.tumult and kind is OpenDP:
            alike = {s: p for s, p in plays.items() if s.noise == "laplace"}
            for aim, chosen in best(alike, seen).items():
                play = tumult(options.tumult, budget, chosen)
                yield "tumult", aim, ", ".join(map(str, chosen[:2])), shown(play, 1)


def cases(quick: bool) -> Iterator[Case]:
    for shape in SHAPES:
        for epsilon, delta in PRIVACY[:1] if quick else PRIVACY:
            for times in QUICK_TRIGGERS if quick else TRIGGERS:
                yield Case(shape, Budget(epsilon, delta, times))


def rows_of(case: Case, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for every competitor."""
    return [
        {"shape": case.shape, "epsilon": case.budget.epsilon, "triggers": case.budget.times,
         "who": who, "by": aim, "setting": setting,
         **{n: float(np.mean([getattr(f, n) for f in each])) for n in Figures._fields}}
        for who, aim, setting, each in contest(case, options)
    ]  # fmt: skip


def over_best(rows: list[dict[str, Any]], who: str = "ours") -> dict[str, dict[str, float]]:
    """The worst ratio of each number of triggers, by each aim."""
    found: dict[str, dict[str, float]] = {}
    same = ("shape", "epsilon", "triggers", "by")
    for mine in (row for row in rows if row["who"] == who):
        aim, name = mine["by"], f"t{mine['triggers']}"
        rival = [
            row[aim] for row in rows
            if row["who"] not in ("ours", "default") and all(row[n] == mine[n] for n in same)
        ]  # fmt: skip
        worst, most = (max, min) if aim == "l1" else (min, max)
        ratio = round(mine[aim] / max(most(rival), 1e-9), 4)
        one = found.setdefault(f"{'' if who == 'ours' else who + '_'}{aim}_over_best_rival", {})
        one[name] = worst(one.get(name, ratio), ratio)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer records, settings and budgets")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--tumult", metavar="PYTHON", help="an interpreter with tmlt.analytics")
    options = parser.parse_args()
    console, rows = Console(stderr=True, width=110), []
    for case in cases(options.quick):
        with console.status(f"{case}"):
            rows += rows_of(case, options)
    missing = left_out()
    if not options.tumult:
        missing["tumult"] = "pip install tmlt.analytics, with Java, for --tumult"
    told = {**over_best(rows), **over_best(rows, "default"), "left_out": missing}
    table = Table(title="The last trigger of a window")
    for column in rows[0]:
        table.add_column(
            column, justify="left" if column in ("shape", "who", "setting") else "right"
        )
    for row in rows:
        table.add_row(*(v if isinstance(v, str) else f"{v:,.4g}" for v in row.values()))
    console.print(table)
    for name, how in missing.items():
        console.print(f"left out: {name} ({how})")
    print(json.dumps({**told, "rows": rows}) if options.json else told)


if __name__ == "__main__":
    sys.exit(main())
