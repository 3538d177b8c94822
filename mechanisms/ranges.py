"""Limits of noise: a configuration that exceeds them is refused before its stream begins.

Draws are exact up to `LARGEST_VARIANCE` and `LARGEST_SCALE`, and results computed from them must
stay within 64 bits, or within the integers that doubles hold. A mechanism's noise follows from its
configuration alone. So every mechanism states it (`Mechanism.draws`), and `check` refuses a
configuration whose release would fail or be wrong at some later trigger.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal, NamedTuple, NoReturn

from ..errors import ParameterError

LARGEST_VARIANCE = Fraction(1 << 100)
LARGEST_SCALE = Fraction(1 << 50)
RECORDS = 1 << 30
"""Records at an end of the clip interval that fit into one key's sum, with room for noise."""

GAUSS_TAIL = 16
"""Standard deviations that a draw exceeds with P < 2^-180."""
LAPLACE_TAIL = 128
"""Scales that a draw exceeds with P < 2^-180."""

_OUTPUT = 1 << 61


class Draws(NamedTuple):
    """One kind of draw that releases request, at its largest possible parameter."""

    of: str  # the quantity that gets the noise: name of a value column, or "count"
    kind: Literal["gauss", "laplace"]  # the distribution
    parameter: Fraction  # largest variance (gauss) or scale (laplace), on the grid of the draws
    # limit of the arithmetic behind the draw; the sampler's own limit holds as well
    largest: Fraction = LARGEST_VARIANCE

    @property
    def limit(self) -> Fraction:
        """The largest parameter that can be released."""
        sampler = LARGEST_VARIANCE if self.kind == "gauss" else LARGEST_SCALE
        return min(self.largest, sampler)


def laplace(of: str, scale: Fraction, lift: int = 1) -> Draws:
    """Laplace draws, of which up to ``lift`` are added up, or which are multiplied by ``lift``.

    >>> laplace("count", Fraction(3), 2).limit == LARGEST_SCALE
    True
    """
    return Draws(of, "laplace", scale, Fraction(_OUTPUT, LAPLACE_TAIL * lift))


def check(mechanism: Any, setting: Any) -> None:
    """Refuse a mechanism whose noise could leave the range of sampler or arithmetic.

    Args:
        mechanism: any `Mechanism`.
        setting: the `Setting` that it was built for, which names its columns.

    Raises:
        ParameterError: names the column and says what to change.
    """
    columns = [name for name, _, _ in setting.columns]
    for one in mechanism.draws():
        if one.parameter > one.limit:
            times = _size(one, one.parameter) / _size(one, one.limit)
            _refuse(one.of, columns, f"is {times:.3g} times what can be drawn and added up exactly")
    deviations = mechanism.error(mechanism.traits.horizon).tolist()
    for output, deviation in zip(mechanism.traits.outputs, deviations, strict=True):
        if not deviation * GAUSS_TAIL < _OUTPUT:
            times = deviation * GAUSS_TAIL / _OUTPUT
            _refuse(output.name, columns, f"is {times:.3g} times what 63 bits hold")


def _refuse(of: str, columns: list[str], rule: str) -> NoReturn:
    name = of.removeprefix("sum:")
    if name in ("value", "sum", "prefix", "mean", *columns):
        name = name if name in columns else columns[0]
        way = "a coarser grid, an interval (low, high) that is narrower, or a larger epsilon"
    else:
        way = "a larger epsilon or a smaller contribution bound"
    raise ParameterError(name, "its noise", f"{rule}: choose {way}")


def _size(one: Draws, parameter: Fraction) -> float:
    return math.sqrt(parameter) if one.kind == "gauss" else float(parameter)
