"""How near to the best any rule can come that chooses ToPL's threshold from its two groups.

Sets, groups and errors are those of `_heldout_topl`. Errors are relative to ``best``, the least
error of any constant threshold, chosen for the data, with the reports of nine users in ten:

* ``topl``: the product's rules.
* ``factor``: their thresholds times one of `FACTORS`, the best for this set and ε. No rule that
  differs only by a margin has less error. **Not private**, as are the next two.
* ``told``: the range is `ROOM` times the best threshold, and the second group reports within it.
* ``exact``: the threshold of least error on the second group's exact values.

So ``topl`` over ``told`` is the cost of a range from the first group, ``told`` over ``exact``
the cost of the second group's noise, and ``exact`` the cost of so few users in that group, and of
leaving both groups out of the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from _heldout_topl import BEST, EPSILONS, PLACES, USERS, Values, reports, sets, squared, survey_of
from _values import F64
from hushstream.client import Survey
from hushstream.client.survey import NARROW, RANGE
from hushstream.mechanisms.topl.estimate import density
from hushstream.mechanisms.topl.rounds import GUARD, found_range, found_threshold, step_of

FACTORS = np.array([0.25, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 4])
ROOM = 1.5
COARSE = PLACES[::4]  # thresholds that exact values choose among
RULES = ("topl", "factor", "told", "exact")
Row = dict[str, Any]


def row_of(one: Values, epsilon: Fraction, runs: int) -> Row:
    """Squared errors on one set."""
    survey = survey_of(one, epsilon, 2, "hybrid")  # so that only thresholds differ
    values = USERS * float(1 - survey.share)
    errors = squared(one, survey, PLACES * one.top, BEST)
    best = float(PLACES[errors.argmin()] * one.top)
    room = step_of(survey, min(1.0, ROOM * best / one.top))
    learnt, told, exact = (np.zeros(runs) for _ in range(3))
    for run in range(runs):
        draw = np.random.default_rng([6, run])
        wide = reports(one, survey, RANGE, survey.buckets, group_size(survey), draw)
        learnt[run] = within(one, survey, found_range(survey, wide, True, GUARD), draw)
        told[run] = within(one, survey, room, draw)
        seen = one._replace(value=draw.choice(one.value, group_size(survey)))
        exact[run] = one.top * COARSE[squared(seen, survey, COARSE * one.top, values).argmin()]

    def error(thetas: F64) -> float:
        return float(squared(one, survey, thetas, values).mean())

    row: Row = {"set": one.name, "epsilon": float(epsilon), "best": float(errors.min())}
    row["topl"], row["told"], row["exact"] = error(learnt), error(told), error(exact)
    row["factor"] = min(error(learnt * factor) for factor in FACTORS)
    return row


def group_size(survey: Survey) -> int:
    """Users of each of the two groups."""
    return int(USERS * survey.share) // survey.rounds


def within(one: Values, survey: Survey, told: int, draw: np.random.Generator) -> float:
    """The threshold from the second group, whose devices were told a range."""
    near = reports(one, survey, NARROW, told, group_size(survey), draw)
    shares = density(survey, near, True, NARROW)
    return float(survey.threshold(found_threshold(survey, near, shares, told)))


def measure(half: str, quick: bool, tick: Callable[[Row], object]) -> list[Row]:
    """Rows of a half; ``tick`` is called with each."""
    rows = []
    for one in sets(half)[:: 4 if quick else 1]:
        for epsilon in EPSILONS[::2] if quick else EPSILONS:
            rows.append(row_of(one, epsilon, 2 if quick else 12))
            tick(rows[-1])
    return rows


def totals(rows: list[Row]) -> Row:
    """For each rule the median and largest ratio to the best, and the number of ratios above 3."""
    out: Row = {}
    for rule in RULES:
        ratio = np.array([row[rule] / row["best"] for row in rows])
        name = f"oracle_topl_{rule}_over_best"
        out[name], out[f"{name}_worst"] = float(np.median(ratio)), float(ratio.max())
        out[f"{name}_over_3"] = int((ratio > 3).sum())
    return out
