"""How often ToPL's 95 % intervals cover the mean of all values, not only of clipped values.

A release's variance covers the devices' noise and the assignment of users to groups, but not what
the threshold cuts off. Each run draws users of a set, learns range and threshold as a pipeline
does, and takes the mean of all reports with its released variance.

    python research/cut_means.py [--quick] [--json] [--runs N] [--half tuned]

For each number of users and ε, over every second set of a half of `_heldout_topl`:

- ``clipped``, ``clipped_least``: share of runs whose interval covers the mean of all users' values,
  clipped at the threshold; and the least share of any set.
- ``values``, ``values_least``: the same for the mean of the values themselves.
- ``cut``: the part of the mean that the threshold cuts off, in released standard deviations: the
  median over the sets.
"""

from __future__ import annotations

import argparse
import json
from fractions import Fraction
from statistics import NormalDist
from typing import Any, NamedTuple

import _benchmarks  # noqa: F401
import _heldout_topl as heldout
import numpy as np
from _values import F64
from hushstream.client import Survey
from hushstream.client.survey import NARROW, RANGE, VALUE
from hushstream.mechanisms.topl.estimate import Buckets, density, mean, threshold
from hushstream.mechanisms.topl.fit import simulate
from hushstream.mechanisms.topl.rounds import GUARD, found_range, found_threshold
from hushstream.mechanisms.topl.spread import difference, division
from rich.console import Console
from rich.progress import track
from rich.table import Table

REACH = NormalDist().inv_cdf(0.975)
EPSILONS = tuple(Fraction(one) for one in ("1/10", "1/2", "1", "2", "4", "8"))
USERS = (5_000,)
Row = dict[str, Any]


class Run(NamedTuple):
    """Errors of one run, in standard deviations as released with the mean."""

    clipped: float
    values: float
    cut: float


def run_of(one: heldout.Values, survey: Survey, users: int, seed: tuple[int, int]) -> Run:
    """Run one window: draw users, learn range and threshold, and take the mean of all reports."""
    draw = np.random.default_rng([11, *seed])
    value: F64 = draw.choice(one.value, users)
    first = round(users * float(survey.share) / survey.rounds)
    own = np.split(value, [first, first * survey.rounds] if survey.rounds > 1 else [first])
    wide = reports(survey, own[0], RANGE, survey.buckets, draw)
    parts = [wide]
    if survey.rounds > 1:
        within = found_range(survey, wide, True, GUARD)
        parts.append(reports(survey, own[1], NARROW, within, draw))
        exact = density(survey, parts[1], True, NARROW)
        theta = found_threshold(survey, parts[1], exact, within)
    else:
        within, exact = survey.buckets, density(survey, wide, True)
        theta = threshold(survey, wide, exact)
    parts.append(reports(survey, own[-1], VALUE, theta, draw))
    seen = Buckets(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    said, variance = mean(survey, seen)
    assert said is not None
    variance += division(survey, seen, difference(survey, seen))
    clipped = float(np.minimum(value, float(survey.threshold(theta))).mean())
    whole, spread = float(value.mean()), variance**0.5
    return Run(*(x / spread for x in (float(said) - clipped, float(said) - whole, whole - clipped)))


def reports(
    survey: Survey, value: F64, group: int, told: int, draw: np.random.Generator
) -> Buckets:
    """Reports of a group about values, as buckets of one report each."""
    words = draw.integers(0, 1 << 64, (len(value), 3), dtype=np.uint64)
    who = np.full(len(value), group)
    code = simulate(survey, value, who, told, words)
    step = np.full(len(value), 0 if group == RANGE else told)
    return Buckets(who, step, code, np.ones_like(code))


def row_of(
    sets: list[heldout.Values], epsilon: Fraction, users: int, rounds: int, runs: int
) -> Row:
    """Shares of runs whose interval covers, for all sets together and for the worst set."""
    by_set = []
    for place, one in enumerate(sets):
        survey = heldout.survey_of(one, epsilon, rounds)
        found = np.array([run_of(one, survey, users, (place, seed)) for seed in range(runs)])
        by_set.append([*(np.abs(found[:, :2]) <= REACH).mean(axis=0), np.median(found[:, 2])])
    shares = np.array(by_set)
    row: Row = {"rounds": rounds, "users": users, "epsilon": float(epsilon)}
    for column, name in enumerate(("clipped", "values")):
        row[name] = round(float(shares[:, column].mean()), 3)
        row[f"{name}_least"] = round(float(shares[:, column].min()), 3)
    return row | {"cut": round(float(np.median(shares[:, 2])), 2)}


def main() -> None:
    """Run all and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few sets")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--runs", type=int, help="of each set; default 40")
    parser.add_argument("--half", choices=("held", "tuned"), default="held")
    args = parser.parse_args()
    sets = heldout.sets(args.half)[:: 6 if args.quick else 2]
    runs = args.runs or 40
    cases = [(rounds, users, epsilon) for rounds in (2, 1)
             for users in USERS for epsilon in EPSILONS]  # fmt: skip
    console = Console(stderr=True)
    rows = [row_of(sets, epsilon, users, rounds, runs)
            for rounds, users, epsilon in track(cases, console=console)]  # fmt: skip
    table = Table(*rows[0], title=f"{len(sets)} sets, {runs} runs of each")
    for row in rows:
        table.add_row(*(f"{value:,}" for value in row.values()))
    console.print(table)
    if args.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
