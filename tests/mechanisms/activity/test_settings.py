"""Settings of activity: refusals, and the noise that a budget buys."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.accounting import total
from hushstream.mechanisms.activity.settings import ActivityParameters, build
from hushstream.mechanisms.contract import Setting

SETTING = Setting(Fraction(1), Fraction(1, 10**6), 1)


@pytest.mark.parametrize(
    ("parameters", "setting", "said"),
    [
        (ActivityParameters(), replace(SETTING, horizon=2), "triggers"),
        (ActivityParameters(), replace(SETTING, windows=2), "epoch"),
        (ActivityParameters(), replace(SETTING, columns=(("fare", 0, 9),)), "aggregate"),
        (ActivityParameters(), replace(SETTING, delta=Fraction(0)), "delta"),
        (ActivityParameters(48), SETTING, "most"),
    ],
)
def test_impossible_settings_are_refused(
    parameters: ActivityParameters, setting: Setting, said: str
) -> None:
    with pytest.raises(ParameterError, match=said):
        build(parameters, setting)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(4)])
def test_the_whole_budget_is_spent_and_no_more(epsilon: Fraction) -> None:
    made = build(ActivityParameters(), replace(SETTING, epsilon=epsilon))
    spent = total([made.cost()], SETTING.delta)[0]
    assert Fraction(99, 100) * epsilon < spent <= epsilon
