"""The judge's encoder for windows that hop against the product's, and what finding it costs."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import pytest
from hushstream.mechanisms.factorization.hopping import hopping

from . import optimal, overlapping
from .matrices import matrix
from .optimal import PRECISION

Square = list[list[Decimal]]
SIZES = [(1, 2), (2, 3), (4, 4), (7, 3), (7, 2), (9, 4), (3, 8)]  # hops of an epoch, of a window


@pytest.mark.parametrize(("horizon", "hops"), [
    *SIZES, (24, 24), (24, 10), (48, 48), (129, 12), (129, 200), (168, 168), (300, 24),
    pytest.param(128, 1024, marks=pytest.mark.thorough),
    pytest.param(96, 24, marks=pytest.mark.thorough),
])  # fmt: skip
def test_the_encoder_is_that_of_the_product(horizon: int, hops: int) -> None:
    made = hopping(hops, horizon).C.tolist()
    assert made == matrix("hopping", horizon, hops).C


@pytest.mark.parametrize(("horizon", "hops"), SIZES)
def test_the_encoder_is_that_of_the_plain_way(horizon: int, hops: int) -> None:
    with localcontext(PRECISION):
        plain = cubic(horizon, hops)
        for one, other in zip(overlapping.of_windows(horizon, hops), plain, strict=True):
            assert all(abs(a - b) < Decimal("1e-20") for a, b in zip(one, other, strict=True))


def cubic(horizon: int, hops: int) -> Square:
    """The same with whole matrices, each root by Denman & Beavers' iteration (1976)."""
    size, v = range(horizon), [Decimal(1)] * horizon
    for _ in range(overlapping.ROUNDS):
        w = [x.sqrt() for x in v]
        root = _root([[w[i] * w[j] * max(0, hops - abs(i - j)) for j in size] for i in size])
        v = [root[j][j] for j in size]
    return overlapping.factor([[root[i][j] / (w[i] * w[j]) for j in size] for i in size])


def _root(square: Square) -> Square:
    size = range(len(square))
    root, inverse = square, [[Decimal(i == j) for j in size] for i in size]
    moved = Decimal(1)
    while moved > Decimal("1e-30"):
        other = _inverted(inverse), _inverted(root)
        new = [[(root[i][j] + other[0][i][j]) / 2 for j in size] for i in size]
        inverse = [[(inverse[i][j] + other[1][i][j]) / 2 for j in size] for i in size]
        moved, root = max(abs(new[i][i] / root[i][i] - 1) for i in size), new
    return root


def _inverted(square: Square) -> Square:
    size = len(square)
    rows = [[*row, *(Decimal(i == j) for j in range(size))] for i, row in enumerate(square)]
    for j in range(size):
        rows[j] = [x / rows[j][j] for x in rows[j]]
        for i in range(size):
            if i != j and (times := rows[i][j]):
                rows[i] = [x - times * y for x, y in zip(rows[i], rows[j], strict=True)]
    return [row[size:] for row in rows]


def test_columns_have_unit_length_and_undo_the_gram_matrix() -> None:
    square = [[Decimal(4)], [Decimal(2), Decimal(5)], [Decimal(1), Decimal(3), Decimal(6)]]
    with localcontext(PRECISION):
        C, length = overlapping.factor(square), [square[j][j].sqrt() for j in range(3)]
        for i in range(3):
            for j in range(i + 1):
                product = sum(C[k][i] * C[k][j] for k in range(3)) * length[i] * length[j]
                assert abs(product - square[i][j]) < Decimal("1e-50")


class Counted(Decimal):
    """A number that counts the multiplications and divisions of its kind."""

    done = 0


def _operation(name: str) -> Callable[..., Any]:
    plain = getattr(Decimal, name)

    def counted(self: Decimal, *other: Any) -> Any:
        Counted.done += "mul" in name or "div" in name
        return Counted(plain(self, *other))

    return counted


for _name in ("add", "sub", "mul", "truediv"):
    for _full in (f"__{_name}__", f"__r{_name}__"):
        setattr(Counted, _full, _operation(_full))
Counted.sqrt = _operation("sqrt")  # type: ignore[method-assign]


def cost(horizon: int, hops: int, rounds: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Multiplications and divisions for one encoder, with a quadrature of 8 terms."""
    with monkeypatch.context() as patch:
        for module in (optimal, overlapping):
            patch.setattr(module, "Decimal", Counted)
        patch.setattr(overlapping, "NONE", Counted(0))
        patch.setattr(overlapping, "ROUNDS", rounds)
        patch.setattr(overlapping, "scaled", lambda bits: [(Counted(2**n), Counted(1))
                                                           for n in range(8)])  # fmt: skip
        before = Counted.done
        overlapping.of_windows(horizon, hops)
    return Counted.done - before


@pytest.mark.parametrize(("few", "many", "most"), [
    ((32, 32), (64, 64), 2.1),  # windows as long as an epoch: linear
    ((32, 64), (64, 128), 2.1),
    ((16, 4), (64, 8), 16.5),  # the windows that cost most: quadratic
    ((32, 4), (64, 4), 2.6),  # short windows
    ((32, 24), (64, 48), 2.6),
])  # fmt: skip
def test_a_round_is_at_most_quadratic_in_the_hops(
    few: tuple[int, int], many: tuple[int, int], most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (cost(*n, 3, monkeypatch) - cost(*n, 2, monkeypatch) for n in (few, many))
    assert 0 < other <= most * one


@pytest.mark.parametrize(("few", "many"), [((32, 32), (64, 64)), ((200, 200), (400, 400))])
def test_an_encoder_is_at_most_quadratic_in_the_hops(
    few: tuple[int, int], many: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (cost(*n, 8, monkeypatch) for n in (few, many))
    assert 0 < other <= 4.1 * one
