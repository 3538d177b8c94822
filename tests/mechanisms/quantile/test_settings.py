"""Settings of quantiles: calibration, and refusals that name the setting."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms import accounting
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.entry import Frame
from hushstream.mechanisms.quantile.settings import QuantileParameters, build, objections

SETTING = Setting(Fraction(1), Fraction(1, 10**6), 4)
SUMMED = replace(SETTING, columns=(("tip", 0, 9),), grids=(Fraction(1),))
RANGE = {"low": 0, "high": 100}


@pytest.mark.parametrize("listed", [None, (b"a", b"b")])
@pytest.mark.parametrize("more", [{}, {"bands": 16}, {"bound": "records", "budget": 3}])
def test_the_cost_is_the_budget_and_hardly_less(listed: Any, more: dict[str, Any]) -> None:
    setting = replace(SETTING, keys=listed)
    made = build(QuantileParameters(**RANGE, **more), setting)
    found, _ = accounting.total([made.cost()], setting.delta)
    assert 0.999 * setting.epsilon < found <= setting.epsilon
    assert (made.cost().delta > setting.delta / 3) == (listed is None)


def test_levels_cost_their_shares() -> None:
    made = build(QuantileParameters(**RANGE, count_share=0.28), SETTING)
    inverse = [1 / one.variance for one in made.processes]
    shares = [float(one / sum(inverse)) for one in inverse]
    assert shares == pytest.approx([0.18, 0.18, 0.18, 0.18, 0.28], rel=1e-3)


def test_quantiles_are_sorted_and_exact() -> None:
    made = build(QuantileParameters(**RANGE, at=(0.9, 0.1, 0.333)), SETTING)
    assert made.at == (Fraction(1, 10), Fraction(333, 1000), Fraction(9, 10))


def test_an_interval_has_the_level_of_the_release() -> None:
    made = build(QuantileParameters(**RANGE), replace(SETTING, confidence=Fraction(9, 10)))
    assert made.reach == pytest.approx(1.6448536)


@pytest.mark.parametrize(
    ("given", "setting", "said"),
    [
        ({"low": 0}, SETTING, "high"),
        ({**RANGE, "at": ()}, SETTING, "at"),
        ({**RANGE, "at": (0.5, 0.5)}, SETTING, "different"),
        ({**RANGE, "at": (0.0,)}, SETTING, "0.5 for the median"),
        ({**RANGE, "at": (1.0,)}, SETTING, "0.5 for the median"),
        ({**RANGE, "bands": 8}, SETTING, "16, 64 or 256"),
        ({**RANGE, "count_share": 1.0}, SETTING, "count_share"),
        ({**RANGE, "threshold_delta_share": 0.0}, SETTING, "threshold_delta_share"),
        ({**RANGE, "bound": "per-key"}, SETTING, "per_key"),
        ({**RANGE, "per_key": 2}, SETTING, "per_key"),
        (RANGE, replace(SETTING, delta=Fraction(0)), "delta"),
        (RANGE, SUMMED, "second pipeline"),
    ],
)
def test_impossible_settings_are_refused(
    given: dict[str, Any], setting: Setting, said: str
) -> None:
    with pytest.raises(ParameterError, match=said):
        build(QuantileParameters(**given), setting)


def test_keys_alone_are_refused() -> None:
    frame = Frame(1, True, False, None, 0, False)
    assert [name for name, _ in objections(QuantileParameters(**RANGE), frame)] == ["kind"]
    assert list(objections(QuantileParameters(**RANGE), frame._replace(keys_only=False))) == []
