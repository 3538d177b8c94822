"""Columns that hold some of the records: the cost covers every way a unit's records can fall."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.columns import Batch
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.calibration.shared import SharedNoise
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import zero

DELTA = Fraction(1, 10**4)
HORIZON, MOST = 3, 3
COLUMNS = (("few", 0, 1), ("many", 0, 1), ("spent", -2, 5))
GROUPS = ((0, 1), (2,))

Placed = tuple[int, tuple[int, ...]]  # trigger of a record, and its value in each column


def made(apart: Any = GROUPS, count: bool = False, **given: Any) -> Histogram:
    """Counts of two conditions and a sum under a third, for two public keys."""
    setting = Setting(
        Fraction(4), DELTA, HORIZON, columns=COLUMNS, grids=(Fraction(1),) * 3,
        keys=(b'["a"]', b'["b"]'), count=count, apart=apart,
    )  # fmt: skip
    found = build(HistogramParameters(**given), setting)
    assert isinstance(found, Histogram)
    return found


def shift2(mechanism: Histogram, records: Iterable[Placed]) -> float:
    """Squared shift of all columns by the records of one unit, in units of the noise variance."""
    moved = np.zeros((HORIZON, 1 + mechanism.traits.columns))
    units = mechanism.traits.units(1)
    for t in range(1, HORIZON + 1):
        mine = [value for trigger, value in records if trigger == t]
        if not mine:
            continue
        n = len(mine)
        batch = Batch(
            Keys.of([b'["a"]']), np.zeros(n, np.intp), np.zeros(n, np.intp),
            np.array(mine, np.int64), np.ones(n, np.int8), np.zeros(1, np.int32),
        )  # fmt: skip
        units, part = mechanism.absorb(units, batch)
        for sums in part.sums:
            moved[t - 1] += sums
    total = 0.0
    for quantity in mechanism.quantities:
        process = quantity.lanes[0]
        change = process.factor.C.astype(float) @ moved[:, quantity.column]
        total += float((change**2).sum()) / float(process.variance)
    return total


SPREAD = (("x", 2, 7), ("few", 0, 1), ("y", -3, 3), ("many", 0, 1))
INSIDE = [(x, 1, 0, 0) for x in (2, 4, 5, 7)] + [(0, 0, y, 1) for y in (-3, 0, 3)]
OUTSIDE = (0, 0, 0, 0)


def spread(apart: Any = ((0, 2), (1, 3)), count: bool = False, **given: Any) -> Histogram:
    """Variances under two conditions that exclude each other; 0 is outside the first interval."""
    setting = Setting(
        Fraction(4), DELTA, HORIZON, columns=SPREAD, grids=(Fraction(1),) * 4,
        keys=(b'["a"]', b'["b"]'), count=count, apart=apart, squares=("x", "y"),
        within=((0, 1), (2, 3)),
    )  # fmt: skip
    found = build(HistogramParameters(**given), setting)
    assert isinstance(found, Histogram)
    return found


def streams(values: list[tuple[int, ...]]) -> Iterable[tuple[Placed, ...]]:
    """Every stream of up to `MOST` records of one unit with these values."""
    one = [(t, value) for t in range(1, HORIZON + 1) for value in values]
    for length in range(1, MOST + 1):
        yield from itertools.combinations_with_replacement(one, length)


APART = [(a, b, c) for a, b in ((0, 0), (1, 0), (0, 1)) for c in (-2, 0, 5)]
BOTH = [*APART, (1, 1, 5)]


@pytest.mark.spread(3)
@pytest.mark.parametrize(
    "given", [{"budget": 9}, {"bound": "records", "budget": 3}, {"budget": 9, "count_share": 0.3}]
)
@pytest.mark.parametrize("count", [False, True])
def test_over_all_ways_a_unit_moves_no_more_than_it_pays_for(count: bool, given: Any) -> None:
    mechanism = made(count=count, **given)
    paid = float(mechanism.cost().mu2)
    worst = max(shift2(mechanism, records) for records in streams(APART))
    assert worst <= paid * (1 + 1e-9)
    assert worst > 0.99 * paid  # the constant is reached


def test_a_record_moves_no_column_of_which_it_is_no_part() -> None:
    """A sum and a count exclude each other: counted records leave the sum's centring unchanged."""
    mechanism = made(((0, 2), (1,)), count=True, budget=9)
    values = [(1, b, 0) for b in (0, 1)] + [(0, b, c) for b in (0, 1) for c in (-2, 0, 5)]
    worst = max(shift2(mechanism, records) for records in streams(values))
    assert worst <= float(mechanism.cost().mu2) * (1 + 1e-9)


@pytest.mark.thorough
def test_records_in_two_columns_of_a_group_would_cost_more_than_is_paid() -> None:
    """Shared noise is too little if records fall in two columns of a group; own shares suffice."""
    together, own = made(budget=9), made(((0,), (1,), (2,)), budget=9)
    assert max(shift2(together, r) for r in streams(BOTH)) > 1.3 * float(together.cost().mu2)
    assert max(shift2(own, r) for r in streams(BOTH)) <= float(own.cost().mu2) * (1 + 1e-9)


@pytest.mark.spread(2)
@pytest.mark.parametrize("apart", [((0, 2), (1, 3)), ((0,), (1,), (2,), (3,))])
@pytest.mark.parametrize("count", [False, True])
def test_variances_of_some_records_move_no_more_than_they_pay_for(apart: Any, count: bool) -> None:
    """Squares take the share of their group; a record outside a column leaves its square alone."""
    mechanism = spread(apart, count, budget=9)
    paid = float(mechanism.cost().mu2)
    worst = max(shift2(mechanism, records) for records in streams([*INSIDE, OUTSIDE]))
    assert worst <= paid * (1 + 1e-12)
    one_group = len(apart) == 2
    assert worst > (0.99 if one_group else 0.4) * paid  # else no record has every share


def test_a_record_outside_moves_neither_a_column_nor_its_square() -> None:
    """It holds 0, which is below one column's interval; in the other column q(0) is not 0."""
    assert shift2(spread(), [(1, OUTSIDE)] * 3) == 0
    assert shift2(spread(), [(1, (0, 0, 0, 1))]) > 0


def test_variances_of_some_records_follow_from_what_is_released() -> None:
    """The noisy count of its own records, and no other count, undoes the centring of a sum."""
    for count in (False, True):
        mechanism = spread(count=count)
        cell = np.zeros(1, mechanism.traits.row_dtype)
        cell["first"] = 1
        n, xs, ys = 4, np.array([2, 3, 7]), np.array([-3, 1])
        moved = [one.moved(np.array([(x, 1, 0, 0) for x in xs]), 0) for one in mechanism.summed[:1]]
        squares = mechanism.squares[0].of(moved[0])
        cell["sums"][0, 0, 0] = n
        cell["sums"][0, 0, 1:3] = moved[0].sum(), len(xs)
        cell["sums"][0, 0, 3:5] = ys.sum(), len(ys)
        cell["sums"][0, 0, 5] = squares.sum()
        value, variance = mechanism._values(cell, Keys.of([b'["a"]']), HORIZON, zero, None)
        names = [one.name for one in mechanism.traits.outputs]
        told = dict(zip(names, value[0].tolist(), strict=True))
        assert told["sum:x"] == xs.sum() and told["centred:x"] == moved[0].sum()
        assert told["sum:few"] == len(xs) and told["sum:y"] == ys.sum()
        assert told.get("count", n) == n
        spreads = dict(zip(names, variance[0], strict=True))
        middle = mechanism.summed[0].middle
        whole = spreads["centred:x"] + middle**2 * spreads["sum:few"]
        assert spreads["sum:x"] == pytest.approx(whole)


def test_records_in_different_columns_count_together() -> None:
    """Two records in one column move it by 2, one in each move both by √2 in all."""
    mechanism = made(budget=9)
    one = shift2(mechanism, [(1, (1, 0, 0))])
    assert shift2(mechanism, [(1, (1, 0, 0))] * 2) == pytest.approx(4 * one)
    assert shift2(mechanism, [(1, (1, 0, 0)), (1, (0, 1, 0))]) == pytest.approx(2 * one)


def test_columns_of_a_group_have_the_noise_of_one() -> None:
    few, many, spent = made().error(HORIZON)
    alone = build(
        HistogramParameters(),
        Setting(Fraction(4), DELTA, HORIZON, columns=(COLUMNS[0], COLUMNS[2]),
                grids=(Fraction(1),) * 2, keys=(b'["a"]',), count=False, apart=((0,), (1,))),
    ).error(HORIZON)  # fmt: skip
    assert few == many == pytest.approx(alone[0])
    assert spent == pytest.approx(alone[1])
    own = made(((0,), (1,), (2,))).error(HORIZON)
    assert own[0] == pytest.approx(few * (3 / 2) ** 0.5, rel=1e-6)


def test_shares_and_variances_of_groups() -> None:
    shared = SharedNoise.of([(0, 2), (3,)], [4, 9, 25, 16])
    assert shared.sizes2 == (1, 9, 16)
    assert shared.need == (0, 1, 0, 2)
    assert shared.variances([Fraction(2), Fraction(3), Fraction(5)]) == (8, 3, 50, 5)


def test_rounds_have_no_conditions() -> None:
    setting = Setting(
        Fraction(1), DELTA, 2, columns=COLUMNS[:1], grids=(Fraction(1),), apart=((0,),)
    )
    with pytest.raises(ParameterError, match="conditions"):
        build(HistogramParameters(selection="rounds"), setting)
