"""Designs measured beside the product's histogram: bounds, costs, report."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hushstream.mechanisms import accounting
from hushstream.mechanisms.columns import Batch, Units, empty_units
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.planning.play import Run, Workload
from hushstream.mechanisms.keys import Keys
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]

sys.path[:0] = [str(ROOT / name) for name in ("research", "benchmarks")]
try:
    import _table1_baselines as baselines
    import _table1_designs as designs
    import _table1_ideas as ideas
finally:
    del sys.path[:2]

UNITS, KEYS = 3, 4
records = st.lists(
    st.tuples(st.integers(0, UNITS - 1), st.integers(0, KEYS - 1)), min_size=1, max_size=40
)
bounds = st.builds(
    lambda whole, weights, grid, least, rest: ideas.SoftBound(
        "quadratic", whole * weights[0] * grid**2, (weights[0], weights[1] * grid**2),
        grid=grid, least=min(least, grid), rest=rest,
    ),
    st.integers(1, 9), st.sampled_from([(16, 1), (100, 9), (1, 1)]), st.sampled_from([2, 4, 5]),
    st.integers(1, 4), st.sampled_from([Fraction(1), Fraction(1, 3), Fraction(2, 7)]),
)  # fmt: skip


def batch(rows: list[tuple[int, int]], public: tuple[bool, ...]) -> Batch:
    unit, key = (np.array(column, np.intp) for column in zip(*rows, strict=True))
    return Batch(
        Keys.of([b"%d" % k for k in range(KEYS)]), key, unit, np.zeros((len(rows), 0), np.int64),
        np.ones(len(rows), np.int8), np.array(public, np.int32),
    )  # fmt: skip


def one_by_one(
    bound: ideas.SoftBound, rows: list[tuple[int, int]], public: tuple[bool, ...]
) -> tuple[list[int], list[int]]:
    """The weight of each record and the rest of each unit, by the rule as documented."""
    left, had = [bound.left] * UNITS, {}
    counted = []
    for unit, key in rows:
        m = had.get((unit, key), 0)
        if public[key]:
            price = bound.weights[1] * ((m + 1) ** 2 - m**2)
            options = [(bound.grid, 1, price)] * (price <= left[unit])
        else:
            priced = [
                (f, bound.weights[0] * ((m + f) ** 2 - m**2))
                for f in range(bound.least, bound.grid + 1)
            ]
            options = [
                (f, f, price)
                for f, price in priced
                if price <= (left[unit] if f == bound.least else bound.rest * left[unit])
            ]
        amount, step, price = max(options, default=(0, 0, 0))
        counted.append(amount)
        had[unit, key] = m + step
        left[unit] -= price
    return counted, left


def taken(
    bound: ideas.SoftBound,
    rows: list[tuple[int, int]],
    public: tuple[bool, ...],
    cut: int,
) -> tuple[Units, list[int]]:
    """Units and weights by the design, in two slices."""
    units, counted = empty_units(UNITS, 2, bound.left), []
    lane = np.array(public, np.intp)
    for part in (rows[:cut], rows[cut:]):
        if part:
            units, amount = bound.amounts(units, batch(part, public), lane)
            counted += amount.tolist()
    return units, counted


@given(bounds, records, st.tuples(*[st.booleans()] * KEYS), st.integers(0, 40))
def test_weights_hold_the_bound_exactly_and_follow_the_log(
    bound: ideas.SoftBound, rows: list[tuple[int, int]], public: tuple[bool, ...], cut: int
) -> None:
    units, counted = taken(bound, rows, public, cut)
    want, left = one_by_one(bound, rows, public)
    assert counted == want
    assert units.left.tolist() == left
    owner = np.repeat(np.arange(UNITS), np.diff(units.start))
    price = (units.used.astype(np.int64) ** 2 * np.array(bound.weights)).sum(axis=1)
    spent = np.bincount(owner, price, UNITS)
    assert (spent == bound.left - units.left).all() and (units.left >= 0).all()
    hidden = units.used[:, 0][units.used[:, 0] > 0]
    assert (hidden >= bound.least).all()  # thresholds assume no smaller weight in a key


def test_a_rest_that_does_not_pay_for_a_record_pays_for_a_part() -> None:
    bound = ideas.SoftBound("quadratic", 20, (1, 16), grid=4, least=2)
    units, counted = taken(bound, [(0, 0), (0, 1), (0, 2)], (False,) * KEYS, 1)
    assert counted == [4, 2, 0]
    assert units.left[0] == 20 - 16 - 4


@pytest.mark.parametrize("name", ["default", "debiased"])
def test_without_a_change_a_design_is_the_product(name: str) -> None:
    own = ideas.design(ideas.IDEAS[name], 5)
    product = designs.design({"default": "adaptive"}.get(name, name), 5, 0)
    assert isinstance(product, Histogram)
    assert own == replace(product, spending=None)  # a study is not charged to a ledger


@pytest.mark.parametrize("name", ideas.IDEAS)
def test_every_idea_fits_into_its_budget(name: str) -> None:
    idea = ideas.IDEAS[name]
    made = ideas.design(idea, 7)
    assert accounting.total([made.cost()], designs.DELTA)[0] <= designs.EPSILON
    # A key with one unit, at any weight that the bound allows, stays hidden.
    finder, bound = made.selector, made.bound
    beta = designs.DELTA / 4 / 6
    q = Fraction(bound.left, bound.weights[0])
    for m in range(idea.least, bound.most_per_key() + 1):
        assert made.threshold[2] >= (m + finder.quantile(3, beta * m * m / q)) * 256
    # How far one record moves all processes that read it, in units of their noise.
    for lane, weight in enumerate(bound.weights):
        steps = idea.grid if lane == 0 else 1
        price = Fraction(weight * steps**2, bound.left)
        processes = [one.lanes[lane] for one in made.quantities if lane < len(one.lanes)]
        shift2 = sum(
            p.factor.sensitivity2 * 4**p.factor.bits * idea.grid**2 / p.variance for p in processes
        )
        assert shift2 <= made.cost().mu2 * price


def test_soft_counts_are_shown_as_whole_records() -> None:
    users = 6_000
    unit = np.tile(np.arange(users, dtype=np.int32), 3)
    work = Workload(unit, np.repeat(np.arange(3, dtype=np.int32), users), users, 3)
    idea = ideas.Idea({"budget": 2.25, "adaptive_weight": 0.5}, grid=4, least=2)
    made = ideas.design(idea, 3)
    run = Run(ideas.kept(made, work.keys), work, baselines.keyed("ideas", 3))
    for part in work.micro_batches(3):
        run.step(part)
    # The budget of 2.25 pays for two whole records and a half of each user: 1 + 1 + 1/4.
    want = np.array([users, users, users // 2])
    spread = made.error(3)[0]
    assert 1 < spread < 60
    assert abs(run.shown - want).max() < 6 * spread


def test_the_report_pairs_an_idea_with_its_base() -> None:
    done = subprocess.run(
        [
            sys.executable, str(ROOT / "research" / "ideas.py"), "--json", "--scale", "0.003",
            "--triggers", "3", "--seeds", "2", "--set", "drawn", "--ideas",
            "debiased;debiased, soft",
        ],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    row = json.loads(done.stdout.splitlines()[-1])
    assert row["private"] is True
    base, soft = row["ideas"]["debiased"], row["ideas"]["debiased, soft"]
    assert 0 < base["hidden"] < base["l1"]
    assert soft["over"]["l1"] == pytest.approx(soft["l1"] / base["l1"] - 1, abs=0.02)
    assert soft["over"]["l1_sd"] > 0
