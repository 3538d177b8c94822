"""The judge's optimal encoders against the product's, and the parts of their computation."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
from hushstream.mechanisms.factorization import terminal

from .matrices import BITS, matrix
from .optimal import PRECISION, inverse, quadrature


@pytest.mark.parametrize(("name", "last"), [("terminal", 1), ("final", 16)])
@pytest.mark.parametrize("horizon", [1, 2, 7, 60])
def test_the_encoder_is_that_of_the_product(name: str, last: int, horizon: int) -> None:
    made = terminal.encoder(horizon, BITS, last).tolist()
    assert made == matrix(name, horizon).C


def test_rows_of_b_undo_c() -> None:
    one = matrix("terminal", 24)
    for t in (1, 5, 24):
        row, common = one.row(t)
        for j in range(24):
            product = sum(b * one.C[i][j] for i, b in enumerate(row))
            assert abs(product - (j < t) * (common << BITS)) < 1 << 30


def test_a_sum_of_inverses_is_an_inverse_root() -> None:
    with localcontext(PRECISION):
        for x in (Decimal("0.001"), Decimal("0.7"), Decimal(90)):
            terms = quadrature(Decimal("0.001"), Decimal(90))
            found = sum(weight / (x + shift) for shift, weight in terms)
            assert abs(found * x.sqrt() - 1) < Decimal("1e-20")
        diagonal, beside = inverse([Decimal(2), Decimal(3)], 3)
        # W·M·W with M = ((3, 2), (2, 2)).
        assert round(12 * diagonal[0] + 12 * beside[0], 20) == 1
