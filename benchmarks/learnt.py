"""The learnt contribution bound against every fixed one, on shapes of the published workload.

A first day is run with the default bound. Its last release and one noisy profile of its units
(`mechanisms/parts/unit_profile.py`, with a twentieth of the day's μ²) choose the budget
(`mechanisms/histogram/planning/learnt.py`) of a second day, drawn anew from the same law. That day
is run with the chosen budget and with every budget of the ladder, under the same noise keys, which
the choice has not seen. No constant of the choice was fitted on these shapes.

    python benchmarks/learnt.py [--quick] [--json]

- ``l1_over_best``: error of all counts at the last trigger with the learnt bound, over that with
  the best fixed bound, on the worst shape; in the mean over first days. 1 is best.
- ``default_over_best``: the same for the default bound, on the same shapes, the worst of them.
- ``rows``: the choices on each shape, how often each was made, and the errors.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from _workload import shaped
from hushstream.mechanisms.accounting import gdp_epsilon, gdp_mu
from hushstream.mechanisms.columns import Batch, empty_units
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.planning.learnt import LADDER, EpochReleases, chosen
from hushstream.mechanisms.histogram.planning.play import Run, numbered, play
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.noise.trial import noise_of
from hushstream.mechanisms.parts.unit_profile import STEPS, UnitProfile
from hushstream.mechanisms.workload import Workload
from rich.console import Console
from rich.table import Table

SHAPES = ("published", "heavy", "repeat")
TRIGGERS = 8
SHARE = Fraction(1, 20)
FIRST, SECOND = 20261126, 20261127  # seeds of the two days
START = HistogramParameters()
PROFILE = UnitProfile()


def setting() -> Setting:
    """The budget of every day."""
    return Setting(Fraction(1), Fraction(1, 10**6), TRIGGERS)


def learning() -> Setting:
    """The part of the first day's budget for its counts."""
    asked = setting()
    mu = float(gdp_mu(asked.epsilon, asked.delta / 2)) * float(1 - SHARE) ** 0.5
    return replace(asked, epsilon=gdp_epsilon(mu, asked.delta / 2))


def variance() -> Fraction:
    """Variance of the profile's noise, in squared steps; half of δ selects keys."""
    asked = setting()
    return STEPS**2 / (SHARE * gdp_mu(asked.epsilon, asked.delta / 2) ** 2)


def profiled(work: Workload) -> np.ndarray:
    """(cells,) exact numbers of units."""
    n, fresh = len(work.unit), empty_units(work.users, 1, PROFILE.most)
    keys, key = numbered(np.arange(work.keys)), work.key.astype(np.intp)
    nothing, one = np.zeros((n, 0), np.int64), np.ones(n, np.int8)
    status = np.zeros(work.keys, np.int32)
    batch = Batch(keys, key, work.unit.astype(np.intp), nothing, one, status)
    return PROFILE.absorb(fresh, batch)[1]


def learnt(first: Workload, totals: np.ndarray, play_: int) -> float:
    """The budget that one first day chooses, under its own noise."""
    mechanism = build(START, learning())
    run = Run(mechanism, first, noise_of("first", play_), mechanism.delay)
    for part_of_day in first.micro_batches(TRIGGERS):
        run.step(part_of_day)
    told = noise_of("profile", play_)
    noisy = PROFILE.release(totals, TRIGGERS, TRIGGERS, variance(), told)
    seen = EpochReleases(noisy, variance(), run.shown[run.status > 0])
    found = chosen(PROFILE, seen, START, setting())
    return START.budget or 12.0 if found is None else found.budget


def error(second: Workload, budget: float, plays: int) -> float:
    """l1 error of all counts at the last trigger, as a share of all records."""
    mechanism = build(replace(START, budget=budget), setting())
    made = [
        play(Run(mechanism, second, noise_of("second", play_), mechanism.delay))
        for play_ in range(plays)
    ]
    return float(np.mean([one.last[0] / one.size[0] for one in made]))


def row(shape: str, scale: float, days: int, plays: int) -> dict[str, Any]:
    """One shape."""
    first, second = (shaped(shape, scale, seed) for seed in (FIRST, SECOND))
    totals = profiled(first)
    choices = Counter(learnt(first, totals, day) for day in range(days))
    errors = {budget: error(second, budget, plays) for budget in LADDER}
    best = min(errors, key=errors.__getitem__)
    mean = sum(errors[one] * times for one, times in choices.items()) / days
    return {
        "shape": shape, "units": first.users, "chosen": dict(sorted(choices.items())), "best": best,
        "learnt": mean / errors[best], "default": errors[12.0] / errors[best], "errors": errors,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20,000 units, and fewer noise keys")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    size = (0.002, 6, 4) if options.quick else (0.02, 12, 8)
    rows = [row(shape, *size) for shape in SHAPES]
    table = Table(title="error with a learnt bound over that with the best fixed one")
    for name in ("shape", "units", "chosen", "best", "learnt / best", "default / best"):
        table.add_column(name)
    for one in rows:
        often = ", ".join(f"{budget:g} ({times})" for budget, times in one["chosen"].items())
        table.add_row(
            one["shape"], f"{one['units']:,}", often, f"{one['best']:g}", f"{one['learnt']:.3f}",
            f"{one['default']:.3f}",
        )  # fmt: skip
    Console(stderr=options.json, width=100).print(table)
    worst = {
        "l1_over_best": round(max(one["learnt"] for one in rows), 3),
        "default_over_best": round(max(one["default"] for one in rows), 3),
    }
    print(json.dumps(worst | {"rows": rows}) if options.json else worst)


if __name__ == "__main__":
    main()
