"""Settings of the aggregator: parts of ε, errors to expect, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.topl.settings import ToPLParameters, build

SETTING = Setting(
    Fraction(2), Fraction(0), 4, columns=(("minutes", 0, 120),), grids=(Fraction(1, 4),)
)


def test_every_report_gets_its_part_of_epsilon() -> None:
    mechanism = build(ToPLParameters(reports=4, warmup=2), SETTING)
    assert mechanism.survey.epsilon == Fraction(1, 2)
    assert mechanism.survey.bound == 30 and mechanism.grid == Fraction(1, 4)
    assert mechanism.cost().epsilon == 2 and mechanism.cost().mu2 == mechanism.cost().delta == 0


def test_errors_shrink_with_reports() -> None:
    mechanism = build(ToPLParameters(warmup=2), SETTING)
    means = [mechanism.error(t)[0] for t in range(1, 5)]
    assert means == sorted(means, reverse=True) and means[2] < means[1] / 2
    sums = [mechanism.error(t)[1] for t in range(1, 5)]
    assert sums[0] == sums[1] > sums[2] == sums[3]


@pytest.mark.parametrize(
    "parameters,setting,name",
    [
        ({"warmup": 5}, {}, "warmup"),
        ({"warmup": 0}, {}, "warmup"),
        ({"expected": 0}, {}, "expected"),
        ({"reports": 0}, {}, "reports"),
        ({"share": "1/0"}, {}, "share"),
        ({"share": "half"}, {}, "share"),
        ({"share": 1}, {}, "share"),
        ({"buckets": 1}, {}, "buckets"),
        ({}, {"epsilon": Fraction(17)}, "epsilon"),
        ({}, {"keys": (b"a",)}, "keys"),
        ({}, {"columns": ()}, "columns"),
        ({}, {"columns": (("minutes", -1, 120),)}, "columns"),
    ],
)
def test_parameters_that_clash_are_named(
    parameters: dict[str, object], setting: dict[str, object], name: str
) -> None:
    with pytest.raises(ParameterError, match=name):
        build(ToPLParameters(**parameters), replace(SETTING, **setting))  # type: ignore[arg-type]
