"""Predictions inside blocks."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.parts.trees.smoothing import KINDS, Smoother

PAST = [12, 4, 5, 100, 7]


@pytest.mark.parametrize(
    "smoother,expected",
    [
        (Smoother("recent"), Fraction(12)),
        (Smoother("mean"), Fraction(300, 10)),
        (Smoother("median", 4), Fraction(17, 2)),
        (Smoother("median", 5), Fraction(7)),
        (Smoother("moving", 3), Fraction(7)),
        (Smoother("exponential", 3), Fraction(12 * 4 + 4 * 2 + 5, 7)),
        (Smoother("exponential", 9, Fraction(1)), Fraction(12)),
    ],
)
def test_predictions(smoother: Smoother, expected: Fraction) -> None:
    assert smoother.predict(PAST, 300, 10) == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [1, 2, 5, 40])
def test_weights_sum_to_one_and_a_constant_is_predicted(kind: str, known: int) -> None:
    smoother = Smoother(kind, 6)
    if smoother.memory:
        assert sum(smoother.weights(known)) == 1
        assert len(smoother.weights(known)) == min(known, smoother.memory)
    assert smoother.predict([9] * known, 9 * known, known) == 9


def test_wrong_parameters_are_named() -> None:
    for options, name in (
        ({"kind": "kalman"}, "smoother"),
        ({"history": 0}, "history"),
        ({"history": 65}, "history"),
        ({"alpha": Fraction(0)}, "alpha"),
    ):
        with pytest.raises(ParameterError, match=name):
            Smoother(**options)  # type: ignore[arg-type]
