"""How near to the best any rule could come that chooses ToPL's threshold from its two groups.

The same sets, groups and errors as in `_heldout_topl`. Errors, each over ``best``, the least of any
constant threshold for nine users of ten, found with the data in view:

* ``topl``: the rules as they are.
* ``factor``: their thresholds times one of `FACTORS`, the best for this set and ε. No rule that
  differs by a margin alone has less error.
* ``told``: the range is `ROOM` times the best threshold, and the second group reports within it.
* ``exact``: the second group's users show their values, and the threshold of least error by them
  is taken. **Not private**, as the two before are not.

So ``topl`` over ``told`` is what the first group does not tell, ``told`` over ``exact`` the noise
of the second one, and ``exact`` what so few users know, and cost.
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
    survey = survey_of(one, epsilon, 2, "hybrid")  # so that thresholds alone differ
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
    """The threshold by the second group, which was told a range."""
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
    """Per rule: the median ratio to the best, the largest one, and how many are above 3."""
    out: Row = {}
    for rule in RULES:
        ratio = np.array([row[rule] / row["best"] for row in rows])
        name = f"oracle_topl_{rule}_over_best"
        out[name], out[f"{name}_worst"] = float(np.median(ratio)), float(ratio.max())
        out[f"{name}_over_3"] = int((ratio > 3).sum())
    return out
