"""The part of its bounds that a unit may spend over a period: as much as the theorem allows."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.accounting.costs import total
from hushstream.mechanisms.accounting.lifetime import GRID, MOST, portion, purse, together
from hushstream.mechanisms.contract import Cost, Spending

F = Fraction
COSTS = [
    Cost(F(1, 30), F(1, 10**7), F(5, 10**10)),
    Cost(F(1, 30), F(1, 10**7), F(5, 10**11)),
    Cost(F(4), F(1, 10**5), F(1, 10**12)),
    Cost(F(1, 1000), F(1, 100), F(0)),
]


@pytest.mark.parametrize("joint", COSTS)
@pytest.mark.parametrize(
    "limit", [(F(8), F(1, 10**8)), (F(1), F(1, 10**6)), (F(3, 10), F(1, 10**9))]
)
def test_one_step_more_would_cost_too_much(joint: Cost, limit: tuple[Fraction, Fraction]) -> None:
    epsilon, delta = limit
    part = portion(joint, epsilon, delta)
    assert (part * GRID).denominator == 1 and part < MOST

    def paid(times: Fraction) -> Fraction | None:
        try:
            return total([Cost(*(times * one for one in joint))], delta)[0]
        except ParameterError:
            return None  # nothing is left of δ

    if part:
        found = paid(part)
        assert found is not None and found <= epsilon
    more = paid(part + F(1, GRID))
    assert more is None or more > epsilon


def test_several_pipelines_have_the_same_part_of_their_own_bounds() -> None:
    each = Spending(COSTS[0])
    one, four = (portion(together([each] * n), F(8), F(1, 10**8)) for n in (1, 4))
    assert abs(4 * four - one) <= F(4, GRID)  # δ is the tighter limit here, and is shared equally
    assert purse(each, 1200, four) == int(1200 * four)


def test_what_costs_nothing_ends_somewhere() -> None:
    assert portion(Cost(), F(1), F(1, 10**9)) == MOST


def test_a_purse_that_holds_no_record_is_refused() -> None:
    dear = Spending(COSTS[0], opening=13, least=100)
    assert purse(dear, 1200, F(113, 1200)) == 113
    with pytest.raises(ParameterError, match="less than one record costs"):
        purse(dear, 1200, F(112, 1200))
