"""The public parameters that a device and its aggregator share."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from .channels import Hybrid, Window, hybrid, square_wave
from .sampling import Below, below, round_randomly

SLOTS = 1 << 32  # slots are integers below this
RANGE = 1  # group that reports by Square Wave, so that the aggregator learns the range
VALUE = 2  # group that reports by Hybrid within [0, theta]
LEAST, MOST = Fraction(1, 1000), Fraction(16)
_RATIONAL = re.compile(r"[0-9]{1,400}(/[0-9]{1,400})?")


class ReportError(ValueError):
    """A report cannot be made: a parameter or the value itself is not acceptable."""


def exact(value: Any) -> Fraction:
    """Any finite number as a fraction; NaN and infinities are refused.

    Raises:
        ReportError: it is none.
    """
    try:
        if isinstance(value, (int, Fraction)) or math.isfinite(value):
            return Fraction(value)
    except (TypeError, ValueError):
        pass
    raise ReportError("value: must be a finite number")  # never the value itself


@dataclass(frozen=True)
class Survey:
    """One question asked of every user, and how much each answer may say.

    Guarantee: each report is epsilon-locally differentially private in its value (neighbours: two
    values of one report), a user's reports of one period together ``reports * epsilon``. That
    somebody reported, and when, is not hidden.

    Attributes:
        epsilon: loss of one report, a fraction in [1/1000, 16].
        bound: B > 0, largest value in the user's own units; values are clipped to [0, B].
        salt: public text that assigns users to groups; another survey, another assignment.
        reports: R, most reports of one user, in each period.
        share: fraction of users in the range group, in (0, 1).
        buckets: input buckets of Square Wave, and the number of possible thresholds.
        levels: steps of [0, theta] in Hybrid; values are rounded to them at random, unbiasedly.
        period: slots of a period, the first of which is slot 0; 0 for one period without end.
    """

    epsilon: Fraction
    bound: Fraction
    salt: str
    reports: int = 1
    share: Fraction = Fraction(1, 10)
    buckets: int = 512
    levels: int = 512
    period: int = 0

    def __post_init__(self) -> None:
        for name in ("epsilon", "bound", "share"):
            object.__setattr__(self, name, exact(getattr(self, name)))
        self._require("epsilon", LEAST <= self.epsilon <= MOST, f"between {LEAST} and {MOST}")
        self._require("bound", self.bound > 0, "positive")
        self._require("share", 0 < self.share < 1, "between 0 and 1")
        for name, least, most in (
            ("reports", 1, SLOTS),
            ("buckets", 2, 4096),
            ("levels", 2, 4096),
            ("period", 0, SLOTS),
        ):
            number = getattr(self, name)
            fits = isinstance(number, int) and least <= number <= most
            self._require(name, fits, f"an integer between {least} and {most}")

    def _require(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            raise ReportError(f"{name} = {getattr(self, name)!r}: must be {rule}")

    @cached_property
    def square_wave(self) -> Window:
        """Channel of the range group."""
        return square_wave(self.epsilon, self.buckets)

    @cached_property
    def hybrid(self) -> Hybrid:
        """Channel of the value group."""
        return hybrid(self.epsilon, self.levels + 1)

    def group(self, user: str) -> int:
        """`RANGE` or `VALUE`, from the salt and the user alone.

        >>> Survey(Fraction(1), Fraction(10), "a", share=Fraction(1, 2)).group("alice")
        1
        """
        text = f"{len(self.salt)}:{self.salt}{user}".encode()
        place = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
        return RANGE if place < self.share * (1 << 64) else VALUE

    def period_of(self, slot: int) -> tuple[int, int]:
        """First slot and end of the period that ``slot`` lies in.

        >>> Survey(Fraction(1), Fraction(10), "a", period=7).period_of(15)
        (14, 21)
        """
        if not self.period:
            return 0, SLOTS
        first = slot - slot % self.period
        return first, first + self.period

    def threshold(self, theta: int) -> Fraction:
        """The threshold of step ``theta`` (1..buckets) in the user's own units.

        Raises:
            ReportError: no such step.
        """
        if not (isinstance(theta, int) and 1 <= theta <= self.buckets):
            raise ReportError(f"theta = {theta!r}: must be an integer from 1 to {self.buckets}")
        return self.bound * theta / self.buckets

    def perturb_range(self, value: Any, uniform: Below = below) -> int:
        """A Square Wave output for one value, clipped to [0, B] first."""
        clipped = min(max(exact(value), Fraction(0)), self.bound)
        bucket = (clipped * self.buckets / self.bound).__floor__()
        return self.square_wave.draw(min(bucket, self.buckets - 1), uniform)

    def perturb_value(self, value: Any, theta: int, uniform: Below = below) -> int:
        """A Hybrid output for one value, clipped to [0, theta] first."""
        top = self.threshold(theta)
        clipped = min(max(exact(value), Fraction(0)), top)
        return self.hybrid.draw(round_randomly(clipped * self.levels / top, uniform), uniform)

    def estimate(self, code: int, theta: int) -> Fraction:
        """Unbiased estimate of the clipped value from one Hybrid output, in the user's units."""
        return self.threshold(theta) * (1 + self.hybrid.decode(code)) / 2

    def to_json(self) -> str:
        """Canonical text, to be published with the survey."""
        fields = ("epsilon", "bound", "salt", "reports", "share", "buckets", "levels", "period")
        plain = {
            name: str(value) if isinstance(value := getattr(self, name), Fraction) else value
            for name in fields
        }
        return json.dumps(plain, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Survey:
        """The survey that `to_json` wrote; fractions are texts such as ``"1/2"``.

        Raises:
            ReportError: the text is not a survey, or a number of it is out of range.
        """
        try:
            plain = json.loads(text)
            for name in ("epsilon", "bound", "share"):
                if not _RATIONAL.fullmatch(plain[name]):  # 1e999999999 would take all memory
                    raise ValueError(f"{name} is not a fraction")
                plain[name] = Fraction(plain[name])
            return cls(**plain)
        except ReportError:
            raise
        except (ValueError, TypeError, KeyError, RecursionError, ZeroDivisionError) as error:
            raise ReportError(f"this is not a survey: {error}") from error

    @cached_property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that identify every parameter."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    @cached_property
    def number(self) -> int:
        """The first 48 bits of the digest: what a report says of its survey, exact in a double."""
        return int(self.digest[:12], 16)
