"""Slow, exact counterparts of the samplers, written independently."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

from hushstream.mechanisms.noise._tables import Table

Law = dict[int, Decimal]


def exp_decimal(x: Fraction) -> Decimal:
    """``exp(-x)`` to the precision of the current decimal context."""
    return (-Decimal(x.numerator) / Decimal(x.denominator)).exp()


def gaussian_law(variance: Fraction, reach: int) -> Law:
    """Discrete Gaussian on -reach … reach."""
    right = [exp_decimal(z * z / (2 * variance)) for z in range(reach + 1)]
    return normalised({z: right[abs(z)] for z in range(-reach, reach + 1)})


def laplace_law(scale: Fraction, reach: int) -> Law:
    """Discrete Laplace on -reach … reach."""
    a, right = exp_decimal(1 / scale), [Decimal(1)]
    for _ in range(reach):
        right.append(right[-1] * a)
    return normalised({z: right[abs(z)] for z in range(-reach, reach + 1)})


def normalised(law: Law) -> Law:
    total = sum(law.values())
    return {value: weight / total for value, weight in law.items()}


def law_of_table(table: Table) -> dict[int, Fraction]:
    """The exact probability of every value that a table returns, from its thresholds."""
    edges = [0, *table.thresholds(), 1 << 128]
    pairs = enumerate(pairwise(edges), table.offset)
    return {value: Fraction(b - a, 1 << 128) for value, (a, b) in pairs if b > a}


def variance_of(law: Law) -> float:
    return float(sum(p * value * value for value, p in law.items()))


def total_variation(exact: Law, sampled: dict[int, Fraction]) -> Decimal:
    """Half the sum of the absolute differences of the probabilities."""
    values: Iterable[int] = exact.keys() | sampled.keys()
    return (
        sum((abs(exact.get(v, Decimal(0)) - decimal(sampled.get(v))) for v in values), Decimal(0))
        / 2
    )


def decimal(value: Fraction | None) -> Decimal:
    return Decimal(0) if value is None else Decimal(value.numerator) / Decimal(value.denominator)
