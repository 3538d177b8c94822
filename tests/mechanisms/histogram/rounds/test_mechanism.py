"""Rounds beyond their contract: which units they count when, their noise, their plan.

Covers: mechanisms/histogram/rounds/settings.py
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hushstream.mechanisms.columns import Batch
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.rounds.mechanism import Rounds, _newly_counted
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.keys import Keys

from ..bench import CODES, DELTA, EPSILON


def test_a_unit_is_counted_once_per_round_whatever_steps_its_records_come_in() -> None:
    setting = Setting(EPSILON, DELTA, 4)
    mechanism = build(HistogramParameters(selection="rounds", budget=9), setting)
    units, counted = mechanism.traits.units(1), []
    for status in (0, 0, 1, 1, 0):
        batch = Batch(
            CODES[:1], np.zeros(1, np.intp), np.zeros(1, np.intp), np.zeros((1, 0), np.int64),
            np.ones(1, np.int8), np.full(1, status, np.int32),
        )  # fmt: skip
        units, part = mechanism.absorb(units, batch)
        counted.append(int(part.sums[part.lane > 0, 0].sum()))
    assert counted == [1, 0, 1, 0, 0]


def test_the_papers_noise_is_what_its_theorem_asks_for() -> None:
    """σ² = C·H(T)/(2ρ), so 2ρσ² = C·H(T), which is 4 for C = 1 and T = 8; μ² = 2ρ."""
    mechanism = build(
        HistogramParameters(selection="rounds", budget=1, factorization="tree"),
        Setting(EPSILON, DELTA, 8),
    )
    assert isinstance(mechanism, Rounds)
    factor = mechanism.selector.factor
    variance = mechanism.selector.variance / 4**factor.bits
    rho = mechanism.loss.mu2 / 2 / 2  # half of it pays for selection
    assert float(variance * 2 * rho) == pytest.approx(4, rel=1e-9)


@pytest.mark.parametrize("signs", [[-1, 1], [1, -1, 1], [-1, -1, 1, 1]])
def test_rounds_with_deletions_do_not_depend_on_where_a_slice_ends(signs: list[int]) -> None:
    mechanism = build(HistogramParameters(selection="rounds"), Setting(EPSILON, DELTA, 4))

    def absorb(units: Any, some: list[int]) -> Any:
        rows = np.zeros(len(some), np.intp)
        value, sign = np.zeros((len(some), 0), np.int64), np.array(some, np.int8)
        return mechanism.absorb(
            units, Batch(Keys.of([b"k"]), rows, rows, value, sign, np.zeros(1, np.int32))
        )

    whole, part = absorb(mechanism.traits.units(1), signs)
    units, sums = mechanism.traits.units(1), np.zeros_like(part.sums)
    for sign in signs:
        units, one = absorb(units, [sign])
        sums += one.sums
    assert part.sums.tolist() == sums.tolist() == [[sum(signs)], [1]]
    assert units.used.tolist() == whole.used.tolist()


def test_rounds_count_a_pair_again_only_when_its_round_has_advanced() -> None:
    slot = np.array([0, 0, 1, 0, 1, 0], np.intp)
    status = np.array([0, 0, 2, 1, 1, 3], np.int64)
    last = np.array([0, 2], np.uint16)
    assert _newly_counted(slot, status, last).tolist() == [True, False, True, True, False, True]
    assert _newly_counted(slot[:0], status[:0], last).tolist() == []


def test_a_plan_of_rounds_says_what_their_noise_follows() -> None:
    mechanism = build(
        HistogramParameters(selection="rounds", budget=2, min_users=5), Setting(EPSILON, DELTA, 4)
    )
    rows = dict(mechanism.plan_rows("user"))
    body = mechanism.plan()["histogram"]
    assert "2 records of a user" in rows["contribution bound"]
    assert "new units (user)" in rows["rounds"]
    first, last = (float(mechanism.error(t)[0]) for t in (1, 4))
    course = f"count ±{first:.4g} at a key's first … ±{last:.4g} at its 4th, if it has one"
    assert rows["noise over releases"] == course
    assert f"{body['threshold'][-1]:.4g} after the last" in rows["threshold of new units"]
    assert rows["  and at least"] == "5 units"
    assert "1 trigger later" in rows["feedback"]
    assert f"50 % at {math.ceil(body['users_50'])}" in rows["chance that a key appears"]
