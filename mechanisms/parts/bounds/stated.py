"""The statement of a contribution bound: numbers for programs and one sentence for people."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from .bounding import MOST, Bound


def plain(value: Fraction) -> int | float:
    """The JSON number nearest to an exact value.

    >>> plain(Fraction(4, 2)), plain(Fraction(1, 4))
    (2, 0.25)
    """
    return value.numerator if value.denominator == 1 else float(value)


def quotient(value: float, stddev: float) -> Fraction:
    """The fraction next to a quotient of released numbers whose rounding its noise hides.

    The denominator is at most a million, or more where the noise is finer than a thousandth.

    >>> quotient(1 / 3, 0.1), quotient(3.3e-7, 6e-12) == 0
    (Fraction(1, 3), False)
    """
    finest = math.ceil(min(1000 / stddev, 1e300)) if stddev > 0 else 0
    return Fraction(value).limit_denominator(max(1_000_000, finest))


def stated_records(most: int, unit: str) -> dict[str, Any]:
    """A bound on all records of a unit together.

    >>> stated_records(2, "user")["in_words"]
    'at most 2 records of one user count in an epoch'
    """
    words = f"at most {most} records of one {unit} count in an epoch"
    return {"kind": "records", "budget": most, "in_words": words}


def stated_bound(
    bound: Bound, unit: str, what: str = "records", within: str = "window"
) -> dict[str, Any]:
    """A bound on ``what`` a unit shows, with a price or a cap per key and ``within``."""
    made = _quadratic if bound.kind == "quadratic" else _per_key
    return made(bound, unit, what, within)


def _quadratic(bound: Bound, unit: str, what: str, within: str) -> dict[str, Any]:
    budget = plain(Fraction(bound.left, bound.weights[0]))
    words = (
        f"m {what} of one {unit} with one key in one {within} cost m*m; "
        f"all its {what} of an epoch cost at most {budget:g}"
    )
    out: dict[str, Any] = {"kind": "quadratic", "budget": budget}
    out["most_records_per_key"] = bound.most_per_key()
    if len(bound.weights) > 1:
        ratio = Fraction(bound.weights[1], bound.weights[0])
        out["price_of_released_keys"] = plain(ratio)
        words += f", those with keys that are public already {float(ratio):g} times as much"
    if bound.caps and bound.caps[0] < MOST:
        words += f"; until a key is public, {bound.caps[0]} per window count for it"
    return out | {"in_words": words}


def _per_key(bound: Bound, unit: str, what: str, within: str) -> dict[str, Any]:
    most = bound.most_per_key()
    words = f"at most {bound.left} {what} of one {unit} count in an epoch"
    if most < bound.left:
        words += f", and at most {most} of them with one key in one {within}"
    out = {"kind": "records", "budget": bound.left, "most_records_per_key": most}
    return out | {"in_words": words}
