"""The public parameters that a device and its aggregator share."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from .channels import Hybrid, Window, hybrid, square_wave
from .sampling import Below, below, round_randomly

SLOTS = 1 << 32  # slots are integers below this
RANGE = 1  # group that reports by Square Wave, so that the aggregator learns the range
VALUE = 2  # group that reports by Hybrid or the published channel, within [0, theta]
NARROW = 3  # group of a survey in two rounds that reports by Square Wave within the range found
OCTAVES = 16  # powers of two that the scale of a survey in two rounds spans
HYBRID, PIECEWISE, TWO_POINT = range(3)  # channels of a value report
CHANNELS = 3
STEP = 1 << 13  # exceeds every threshold's step: theta + channel * STEP is published
LEAST, MOST = Fraction(1, 1000), Fraction(16)
_RATIONAL = re.compile(r"[0-9]{1,400}(/[0-9]{1,400})?")


class ReportError(ValueError):
    """A report cannot be made: a parameter or the value itself is not acceptable."""


def octave_end(step: int, buckets: int) -> Fraction:
    """The upper end of bucket ``step`` (1..buckets) of the scale of octaves, as a share of B.

    >>> [str(octave_end(step, 32)) for step in (1, 31, 32)]
    ['3/131072', '3/4', '1']
    """
    steps = buckets // OCTAVES
    octave, place = divmod(step - 1, steps)
    return Fraction(steps + place + 1, steps << (OCTAVES - octave))


def exact(value: Any) -> Fraction:
    """Any finite number as a fraction; NaN and infinities are refused.

    Raises:
        ReportError: it is not a finite number.
    """
    try:
        if isinstance(value, (int, Fraction)) or math.isfinite(value):
            return Fraction(value)
    except (TypeError, ValueError):
        pass
    raise ReportError("value: must be a finite number")  # never the value itself


@dataclass(frozen=True)
class Survey:
    """One question asked of every user, and how much each answer may reveal.

    Guarantee: each report is epsilon-locally differentially private in its value (neighbours: two
    values of one report), a user's reports of one period together ``reports * epsilon``. Whether
    and when a user reports is not hidden.

    Attributes:
        epsilon: loss of one report, a fraction in [1/1000, 16].
        bound: B > 0, largest value in the user's own units; values are clipped to [0, B].
        salt: public text that assigns users to groups; another salt assigns them anew.
        reports: R, the most reports of one user in a period.
        share: fraction of users whose reports find the threshold, in (0, 1): the range group; in
            two rounds, half of them are the narrow group.
        buckets: input buckets of Square Wave, and the number of possible thresholds.
        levels: steps of [0, theta] in Hybrid; values are rounded to them at random, unbiasedly.
        period: slots of a period, the first of which is slot 0; 0 for one period without end.
        channel: channel of value reports: ``"hybrid"``, or ``"told"``, the one published with the
            threshold.
        rounds: 1, or 2: the range group then reports on a scale of octaves, from which a range
            follows, and the narrow group within it, from which the threshold follows. Steps of
            range and threshold lie on that scale as well; ``buckets`` is a multiple of `OCTAVES`.
    """

    epsilon: Fraction
    bound: Fraction
    salt: str
    reports: int = 1
    share: Fraction = Fraction(1, 10)
    buckets: int = 512
    levels: int = 512
    period: int = 0
    rounds: int = 1
    channel: str = "hybrid"

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
            ("rounds", 1, 2),
        ):
            number = getattr(self, name)
            fits = isinstance(number, int) and least <= number <= most
            self._require(name, fits, f"an integer between {least} and {most}")
        whole = self.rounds == 1 or self.buckets % OCTAVES == 0
        self._require("buckets", whole, f"a multiple of {OCTAVES} in two rounds")
        self._require("channel", self.channel in ("hybrid", "told"), '"hybrid" or "told"')

    def _require(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            raise ReportError(f"{name} = {getattr(self, name)!r}: must be {rule}")

    @cached_property
    def square_wave(self) -> Window:
        """Channel of the range group and of the narrow group."""
        return square_wave(self.epsilon, self.buckets)

    @cached_property
    def hybrid(self) -> Hybrid:
        """Channel of the value group if none is given."""
        return hybrid(self.epsilon, self.levels + 1)

    def mixed(self, channel: int) -> Hybrid:
        """A channel of value reports; all share Hybrid's outputs and differ in the mix.

        Piecewise never speaks for `TWO_POINT`, always for `PIECEWISE`.
        """
        if channel == HYBRID:
            return self.hybrid
        return replace(self.hybrid, mix=Fraction(channel == PIECEWISE))

    def outputs(self, channel: int) -> range:
        """The outputs of a channel of value reports that a device can send."""
        first, end = self.hybrid.piecewise.outputs, self.hybrid.outputs
        return (range(end), range(first), range(first, end))[channel]

    def said_by(self, step: int) -> tuple[int, int]:
        """The threshold's own step and the channel that ``step`` stands for.

        Raises:
            ReportError: the survey has no such step.
        """
        whole = isinstance(step, int)
        channel, theta = divmod(step, STEP) if whole else (0, 0)
        channels = CHANNELS if self.channel == "told" else 1
        if not (whole and 1 <= theta <= self.buckets and 0 <= channel < channels):
            known = f" + {STEP} * channel (0, 1 or 2)" * (channels > 1)
            raise ReportError(
                f"theta = {step!r}: must be an integer from 1 to {self.buckets}{known}"
            )
        return theta, channel

    def group(self, user: str) -> int:
        """`RANGE`, `VALUE` or, in two rounds, `NARROW`, from the salt and the user alone.

        >>> Survey(Fraction(1), Fraction(10), "a", share=Fraction(1, 2)).group("alice")
        1
        """
        text = f"{len(self.salt)}:{self.salt}{user}".encode()
        place = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
        if place >= self.share * (1 << 64):
            return VALUE
        return RANGE if place * self.rounds < self.share * (1 << 64) else NARROW

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

        In two rounds it is the upper end of that bucket on the scale of octaves. A channel coded in
        ``theta`` is ignored.

        Raises:
            ReportError: no such step.
        """
        theta, _ = self.said_by(theta)
        if self.rounds == 1:
            return self.bound * theta / self.buckets
        return self.bound * octave_end(theta, self.buckets)

    def perturb_range(self, value: Any, uniform: Below = below) -> int:
        """A Square Wave output for one value, clipped to [0, B] first."""
        share = _clipped(value, self.bound) / self.bound
        bucket = (share * self.buckets).__floor__() if self.rounds == 1 else self._scaled(share)
        return self.square_wave.draw(min(bucket, self.buckets - 1), uniform)

    def _scaled(self, share: Fraction) -> int:
        """The bucket of a share of B on the scale of octaves; smaller shares are in the first."""
        steps = self.buckets // OCTAVES
        octave = OCTAVES - 1
        while octave and share * (1 << (OCTAVES - octave)) < 1:
            octave -= 1
        within = (share * (1 << (OCTAVES - octave)) - 1) * steps
        return octave * steps + max(within.__floor__(), 0)

    def perturb_narrow(self, value: Any, theta: int, uniform: Below = below) -> int:
        """A Square Wave output for one value, clipped to [0, theta] first, in equal buckets."""
        top = self.threshold(theta)
        if theta > self.buckets:
            raise ReportError(f"theta = {theta!r}: a range has no channel")
        bucket = (_clipped(value, top) * self.buckets / top).__floor__()
        return self.square_wave.draw(min(bucket, self.buckets - 1), uniform)

    def perturb_value(self, value: Any, theta: int, uniform: Below = below) -> int:
        """An output of the published channel or Hybrid for one value, clipped to [0, theta]."""
        top, (_, channel) = self.threshold(theta), self.said_by(theta)
        level = round_randomly(_clipped(value, top) * self.levels / top, uniform)
        return self.mixed(channel).draw(level, uniform)

    def estimate(self, code: int, theta: int) -> Fraction:
        """Unbiased estimate of the clipped value from a value report, in the user's units."""
        return self.threshold(theta) * (1 + self.hybrid.decode(code)) / 2

    def to_json(self) -> str:
        """Canonical text to publish; the defaults (one round, Hybrid) are left out."""
        fields = ["epsilon", "bound", "salt", "reports", "share", "buckets", "levels", "period"]
        fields += ["rounds"] * (self.rounds > 1) + ["channel"] * (self.channel != "hybrid")
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
        """The first 48 bits of the digest: a report's name of its survey, exact in a double."""
        return int(self.digest[:12], 16)


def _clipped(value: Any, top: Fraction) -> Fraction:
    """The value within [0, top], exactly."""
    return min(max(exact(value), Fraction(0)), top)
