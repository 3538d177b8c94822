"""The public parameters of a survey, and the distribution that its reports suggest.

Square Wave and Piecewise make a window of outputs likely; Hybrid is Piecewise or two points. All
estimates are post-processing of reports that are private already. Expectation maximisation uses
doubles, so a released part per million may differ by one if sums are taken in another order.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from .gaussian import DIGITS

RANGE, VALUE, NARROW = 1, 2, 3
LOW, OCTAVES = 1 << 24, 16
STEP = 8192  # clients are told a threshold's step plus STEP times a channel
Report = tuple[int, int, int]  # group, theta, code


def exp_below(x: Fraction) -> Fraction:
    """e^x, rounded down to 2^-128."""
    with localcontext(DIGITS):
        return Fraction(math.floor((Decimal(x.numerator) / x.denominator).exp() * 2**128), 2**128)


class Window(NamedTuple):
    """A channel: input i makes the outputs i … i+width-1 likely."""

    inputs: int
    width: int
    high: int

    @property
    def outputs(self) -> int:
        return self.inputs + self.width - 1

    @property
    def total(self) -> int:
        return self.width * self.high + (self.inputs - 1) * LOW

    def decode(self, output: int) -> Fraction:
        """An unbiased estimate of the input, in units of [-1, 1]."""
        step = Fraction(2 * self.total, (self.inputs - 1) * self.width * (self.high - LOW))
        return step * Fraction(2 * output - self.outputs + 1, 2)

    def squares(self) -> list[float]:
        """Mean square of the decoded outputs, by input."""
        each = [float(self.decode(n)) ** 2 for n in range(self.outputs)]
        whole = sum(each)
        return [(LOW * whole + (self.high - LOW) * sum(each[n : n + self.width])) / self.total
                for n in range(self.inputs)]  # fmt: skip


class Survey:
    """The parameters of one survey, from the configuration of a pipeline."""

    def __init__(self, config: dict[str, Any], bound: Fraction, horizon: int) -> None:
        p = config["mechanism"]["parameters"]
        fits = 2 * p["warmup"] < horizon and p["buckets"] % OCTAVES == 0
        self.rounds = p["rounds"] or 1 + fits
        self.bound, self.salt, self.reports = bound, p["salt"], p["reports"]
        self.epsilon = Fraction(config["budget"]["epsilon"]) / self.reports
        self.share = Fraction(str(p["share"])) or Fraction(self.rounds, 10)
        self.buckets, self.levels, self.period = p["buckets"], p["levels"], p["period"]
        e, high = exp_below(self.epsilon), math.floor(exp_below(self.epsilon) * LOW)
        half = (self.epsilon * e - e + 1) / (2 * e * (e - 1 - self.epsilon))
        self.wave = Window(self.buckets, 2 * math.floor(half * self.buckets) + 1, high)
        root = exp_below(self.epsilon / 2)
        self.fine = Window(self.levels + 1, max(1, round(self.levels / root)), high)
        self.mix = Fraction(round((1 - 1 / root) * 65536), 65536)
        self.mix *= self.epsilon > Fraction(61, 100)
        self.reach = Fraction(high + LOW, high - LOW)
        self.told = p.get("channel", "hybrid") == "told"

    @cached_property
    def number(self) -> int:
        """The survey's number: 48 bits of the digest of all parameters."""
        names = ["epsilon", "bound", "salt", "reports", "share", "buckets", "levels", "period"]
        told = {name: getattr(self, name) for name in [*names, *["rounds"] * (self.rounds > 1)]}
        told |= {"channel": "told"} if self.told else {}
        plain = {n: str(v) if isinstance(v, Fraction) else v for n, v in told.items()}
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return int(hashlib.sha256(text.encode()).hexdigest()[:12], 16)

    def group(self, unit: tuple[Any, ...]) -> int:
        """The group of a unit, by a salted hash."""
        user = str(unit[0]) if len(unit) == 1 else json.dumps(unit)
        text = f"{len(self.salt)}:{self.salt}{user}".encode()
        place = Fraction(int.from_bytes(hashlib.sha256(text).digest()[:8], "big"), 2**64)
        if place >= self.share:
            return VALUE
        return RANGE if place * self.rounds < self.share else NARROW

    def top(self, theta: int) -> Fraction:
        """The threshold of a step: the largest value that a report can state; B for step 0."""
        theta %= STEP
        if not theta:
            return self.bound
        if self.rounds == 1:
            return self.bound * theta / self.buckets
        steps = self.buckets // OCTAVES
        octave, place = divmod(theta - 1, steps)
        return self.bound * Fraction(steps + place + 1, steps << (OCTAVES - octave))

    @cached_property
    def variances(self) -> dict[int, Fraction]:
        """By group, the worst variance of a report about a value of [-1, 1]."""
        wave = _worst(self.wave.squares(), self.buckets)
        mix, far = float(self.mix), float(self.reach) ** 2
        squares = [mix * x + float(1 - self.mix) * far for x in self.fine.squares()]
        return {RANGE: wave, NARROW: wave, VALUE: _worst(squares, self.levels + 1)}

    @cached_property
    def alone(self) -> tuple[Fraction, Fraction]:
        """The worst variance of Piecewise, and of the channel with two points."""
        inputs = self.levels + 1
        flat = [float(self.reach) ** 2] * inputs
        return _worst(self.fine.squares(), inputs), _worst(flat, inputs)

    @cached_property
    def bend(self) -> tuple[float, float]:
        """a and b: Piecewise answers v with variance a + b v²; from its two last inputs."""
        squares, v = self.fine.squares(), 1 - 2 / self.levels
        steep = (squares[-1] - squares[-2]) / (1 - v * v)
        return squares[-1] - steep, steep - 1

    def worst(self, group: int, theta: int) -> Fraction:
        """The worst variance of a report, given what its client was told."""
        if group != VALUE or theta < STEP:
            return self.variances[group]
        return self.alone[theta // STEP - 1]

    def noise(self, group: int, theta: int, mine: "Counter[Report]") -> Fraction:
        """The variance of a report's noise, estimated from all answers where that is possible.

        With Piecewise, the mean square estimates the mean of v². With two points, all values are
        taken as equal.
        """
        worst, n = self.worst(group, theta), mine.total()
        if group != VALUE or theta < STEP or not n:
            return worst
        one, two = (float(sum((k * self.decoded(r) ** p for r, k in mine.items()), Fraction(0)) / n)
                    for p in (1, 2))  # fmt: skip
        if theta // STEP == 1:
            a, b = self.bend
            found = a + b * min(max((two - a) / (1 + b), 0), 1)
        else:
            flat = min(abs(one), 1) ** 2
            found = float(self.reach) ** 2 - min(max(flat - (two - flat) / n, 0), 1)
        found = min(found + 1 / self.levels**2, float(worst))
        return (n * Fraction(found) + worst) / (n + 1)

    def varying(self, density: Sequence[float]) -> list[tuple[float, int]]:
        """The least expected variance at each threshold i/d, with the channel that attains it."""
        d, plain, found = len(density), float(self.variances[VALUE]), []
        for i in range(1, d + 1):
            made = [(plain, 0)]
            if self.told:
                v = [min((n + 0.5) / i, 1) * 2 - 1 for n in range(d)]
                rest = max(0.0, 1 - sum(density))
                square = sum(p * (v[n] ** 2 if n < i else 1) for n, p in enumerate(density)) + rest
                a, b = self.bend
                made += [(a + b * square, 1), (float(self.reach) ** 2 - square, 2)]
            found.append(min(made))
        return found

    def decoded(self, report: Report) -> Fraction:
        """The estimate that a report gives: a value of [-1, 1] in expectation."""
        group, _, code = report
        if group != VALUE:
            return self.wave.decode(code)
        if code < self.fine.outputs:
            return self.fine.decode(code)
        return self.reach if code > self.fine.outputs else -self.reach

    def density(self, seen: Counter[Report], group: int, smooth: bool) -> list[float]:
        """The distribution of values, by buckets, under which a group's reports are most likely."""
        counts = [0] * self.wave.outputs
        for (mine, _, code), number in seen.items():
            if mine == group:  # other channels use other codes
                counts[code] += number
        d, n, w = self.buckets, sum(counts), self.wave.width
        x, last = [1 / d] * d, -math.inf
        low = LOW / self.wave.total
        gap = (self.wave.high - LOW) / self.wave.total
        for done in range(10_000 if n else 0):
            seen_ = [low + gap * s for s in windows(x, w, range(1 - w, d))]
            likely = sum(c * math.log(s) for c, s in zip(counts, seen_, strict=True))
            if done and likely - last < 1e-3:
                break
            last = likely
            ratio = [c / s for c, s in zip(counts, seen_, strict=True)]
            whole, near = sum(ratio), windows(ratio, w, range(d))
            x = [one * (low * whole + gap * s) / n for one, s in zip(x, near, strict=True)]
            if smooth:
                wide = [x[0], *x, x[-1]]
                x = [(wide[i] + 2 * wide[i + 1] + wide[i + 2]) / 4 for i in range(d)]
            total = sum(x)
            x = [one / total for one in x]
        return x


def _worst(squares: Sequence[float], inputs: int) -> Fraction:
    """The largest variance over all inputs, including that of random rounding to them."""
    level = [2 * i / (inputs - 1) - 1 for i in range(inputs)]
    worst = max(s - v * v for s, v in zip(squares, level, strict=True)) * (1 + 1e-9)
    return Fraction(worst) + Fraction(1, (inputs - 1) ** 2)


def windows(values: Sequence[float], width: int, starts: range) -> list[float]:
    """Sums of ``width`` values from each start."""
    upto = [0.0]
    for one in values:
        upto.append(upto[-1] + one)

    def cut(place: int) -> int:
        return min(max(place, 0), len(values))

    return [upto[cut(s + width)] - upto[cut(s)] for s in starts]


def excess(density: Sequence[float]) -> list[float]:
    """E[(v - i/d)₊] for i = 1 … d, with the mass of a bucket at its middle."""
    d = len(density)
    return [sum(p * (place + 0.5 - i) for place, p in enumerate(density) if place >= i) / d
            for i in range(1, d + 1)]  # fmt: skip


def least(scores: Sequence[float]) -> int:
    """Index of the least score; the first one if several are equal."""
    return min(range(len(scores)), key=scores.__getitem__)
