"""A unit's privacy loss for what it spends, checked against every way to spend that much."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations_with_replacement

import pytest
from hushstream.mechanisms.accounting import gaussian_cost
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.parts.bounds.bounding import Bound

F = Fraction
EPSILON, DELTA = F(1), F(1, 10**6)


def made(**parameters: object) -> Histogram:
    found = build(HistogramParameters(**parameters), Setting(EPSILON, DELTA, 3))  # type: ignore[arg-type]
    assert isinstance(found, Histogram) and found.spending is not None
    return found


def ways(bound: Bound) -> Iterator[tuple[int, int, int]]:
    """For each choice of record numbers m in up to four keys of lane 0: spent, Σ m², records."""
    for counts in combinations_with_replacement(range(6), 4):
        records, squares = sum(counts), sum(m * m for m in counts)
        cost = bound.weights[0] * squares if bound.kind == "quadratic" else records
        if 0 < cost <= bound.left and max(counts) <= bound.per_key:
            yield cost, squares, records


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"adaptive_weight": 0},
        {"budget": 2.5},
        {"bound": "records", "budget": 5},
        {"bound": "per-key", "per_key": 2, "budget": 7},
        {"bound": "per-key", "per_key": 1, "budget": 4},
        {"debias": True},
    ],
    ids=str,
)
def test_no_way_to_spend_costs_more_than_its_part(parameters: dict[str, object]) -> None:
    """For the count's process: shifts, the slack of discrete noise, and selection."""
    mechanism = made(**parameters)
    bound, spending = mechanism.bound, mechanism.spending
    assert spending is not None
    process = mechanism.quantities[0].lanes[0]
    column = process.factor.sensitivity2 * 4**process.factor.bits
    most = F(bound.sensitivity2(), bound.weights[0])
    tight = F(0)
    for cost, squares, records in ways(bound):
        part = F(cost, bound.left)
        paid = gaussian_cost(squares * column, process.variance, records * mechanism.horizon)
        assert paid.mu2 <= part * spending.whole.mu2
        assert paid.epsilon <= part * spending.whole.epsilon
        # with m records of a key, its unit decides on it with m²/Q of selection's δ
        assert DELTA / 2 * squares / most <= part * spending.whole.delta
        tight = max(tight, paid.mu2 / (part * spending.whole.mu2))
    assert tight > F(9, 10)  # the claim is nearly tight


def test_the_whole_is_what_the_ledger_charges() -> None:
    """μ² is the same and δ nearly so; the pure part, which is tiny, is doubled."""
    mechanism = made()
    assert mechanism.spending is not None
    whole, loss = mechanism.spending.whole, mechanism.cost()
    assert whole.mu2 == loss.mu2 and whole.epsilon == 2 * loss.epsilon
    assert loss.delta <= whole.delta <= loss.delta * (1 + F(1, 10**9))
    assert mechanism.spending.opening == 0


def test_the_opening_price_pays_for_what_debiasing_counts() -> None:
    mechanism = made(debias=True)
    spending, debias = mechanism.spending, mechanism.debias
    assert spending is not None and debias is not None
    paid = F(0)
    for process in debias.processes[::2]:  # of one look, S and V together
        column = process.factor.sensitivity2 * 4**process.factor.bits
        paid += debias.cap**2 * column / process.variance
    part = F(spending.opening, mechanism.bound.left)
    assert paid / 10 < part * spending.whole.mu2 and spending.opening == 13
    assert mechanism.cost().mu2 - spending.whole.mu2 <= part * spending.whole.mu2
    # A unit that uses up the bound of an epoch pays no less than the epoch is charged.
    full = [(1 + part) * one for one in spending.whole]
    assert all(a >= b for a, b in zip(full, mechanism.cost(), strict=True))


def test_rounds_count_a_unit_once_for_each_record() -> None:
    setting = Setting(EPSILON, DELTA, 3)
    mechanism = build(HistogramParameters(selection="rounds", budget=8), setting)
    assert mechanism.spending is not None and mechanism.spending.whole.mu2 == mechanism.cost().mu2
    select, value = mechanism.selector, mechanism.quantities[0].lanes[0]  # type: ignore[union-attr]
    column = select.factor.sensitivity2 * 4**select.factor.bits
    for records in range(1, 9):
        paid = records * column / select.variance + records**2 * column / value.variance
        assert paid <= F(records, 8) * mechanism.spending.whole.mu2


def test_a_public_list_selects_nothing() -> None:
    setting = Setting(EPSILON, DELTA, 3, keys=(b"a", b"b"))
    mechanism = build(HistogramParameters(), setting)
    assert mechanism.spending is not None
    assert mechanism.spending.whole.delta < F(1, 10**20)
