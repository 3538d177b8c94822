"""Exact local channels: integer weights whose ratio in any column cannot exceed e^epsilon.

Every probability is an integer weight over a common integer total, the same for every input.
There are two weights only, ``high`` and ``low``, and ``high / low`` is a rational number that was
rounded down from e^epsilon. So the probabilities of one output under two inputs differ by a factor
of at most e^epsilon, whatever the number of levels, the window's width or the mixing probability.

Papers: Square Wave is by Li, Wang, Lopuhaä-Zwakenberg, Skoric and Li ("Estimating Numerical
Distributions under Local Differential Privacy", SIGMOD 2020); Piecewise and Hybrid are by Wang et
al. ("Collecting and Analyzing Multidimensional Data with Local Differential Privacy", ICDE 2019);
the two-point channel is by Duchi, Jordan and Wainwright (JASA 2018).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

Below = Callable[[int], int]  # uniform integer in 0..n-1

LOW = 1 << 24  # weight of an unlikely output; `high` is at most e^epsilon times this
NO_PIECEWISE = Fraction(61, 100)  # up to here the two-point channel alone has least variance


def _partial_exp(x: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """A partial Taylor sum of e^x for x ≥ 0, and a bound on what it leaves out."""
    total = term = Fraction(1)
    n = 0
    while n < 2 * x or term > Fraction(1, 1 << (bits + 2)):
        n += 1
        term = term * x / n
        total += term
    return total, term  # each later term is at most half of its predecessor


def exp_below(x: Fraction, bits: int = 128) -> Fraction:
    """A multiple of 2^-bits that is at most e^x, and less than 2^(1-bits) below it (x ≥ 0).

    >>> float(exp_below(Fraction(1)))
    2.718281828459045
    """
    total, _ = _partial_exp(x, bits)
    return Fraction((total * (1 << bits)).__floor__(), 1 << bits)


def exp_above(x: Fraction, bits: int = 128) -> Fraction:
    """A multiple of 2^-bits that is at least e^x (x ≥ 0)."""
    total, rest = _partial_exp(x, bits)
    return Fraction(((total + rest) * (1 << bits)).__ceil__(), 1 << bits)


def high_weight(epsilon: Fraction) -> int:
    """The largest integer weight ``high`` with ``high / LOW`` at most e^epsilon."""
    return (exp_below(epsilon) * LOW).__floor__()


@dataclass(frozen=True)
class Window:
    """Input i makes the outputs i .. i+width-1 likely, all others unlikely.

    Square Wave and Piecewise are both this channel; only what an output *means* differs.

    Guarantee: epsilon-local differential privacy per output drawn, with
    ``high / low ≤ e^epsilon``; two inputs of one user are the neighbours.

    Attributes:
        inputs: number of input levels d.
        width: outputs in the window.
        high, low: integer weights of an output inside and outside the window.
    """

    inputs: int
    width: int
    high: int
    low: int = LOW

    @property
    def outputs(self) -> int:
        """Number of outputs, d + width - 1."""
        return self.inputs + self.width - 1

    @property
    def total(self) -> int:
        """Sum of the weights of any input."""
        return self.width * self.high + (self.inputs - 1) * self.low

    def weights(self, level: int) -> list[int]:
        """Integer weights of all outputs for input ``level``."""
        inside = range(level, level + self.width)
        return [self.high if j in inside else self.low for j in range(self.outputs)]

    def draw(self, level: int, below: Below) -> int:
        """One output, exactly with probability weight / total."""
        place = below(self.total)
        if place < self.width * self.high:
            return level + place // self.high
        rest = (place - self.width * self.high) // self.low
        return rest if rest < level else rest + self.width

    @cached_property
    def step(self) -> Fraction:
        """Distance of neighbouring outputs that makes the mean output equal the input.

        Input i stands for v = 2i/(d-1) - 1. Outputs lie symmetrically around zero, so only the
        window's surplus ``high - low`` contributes to the mean, and it is linear in i.
        """
        return Fraction(2 * self.total, (self.inputs - 1) * self.width * (self.high - self.low))

    def decode(self, output: int) -> Fraction:
        """The value that an output stands for: unbiased, within a fixed interval [-c, c]."""
        return self.step * Fraction(2 * output - self.outputs + 1, 2)


@dataclass(frozen=True)
class TwoPoint:
    """Input v is answered by ±C with mean v; outputs 0 and 1 stand for -C and +C.

    Guarantee: as for `Window`. The weights are linear in the input level, hence largest and
    smallest at its ends, where their ratio is ``high / low``.
    """

    inputs: int
    high: int
    low: int = LOW
    outputs: ClassVar[int] = 2

    @property
    def total(self) -> int:
        """Sum of the weights of any input."""
        return (self.inputs - 1) * (self.high + self.low)

    def weights(self, level: int) -> list[int]:
        """Integer weights of -C and +C for input ``level``."""
        up = (self.inputs - 1) * self.low + level * (self.high - self.low)
        return [self.total - up, up]

    def draw(self, level: int, below: Below) -> int:
        """One output, exactly with probability weight / total."""
        return int(below(self.total) >= self.weights(level)[0])

    @cached_property
    def reach(self) -> Fraction:
        """C, the absolute value of either answer."""
        return Fraction(self.high + self.low, self.high - self.low)

    def decode(self, output: int) -> Fraction:
        """-C or +C."""
        return self.reach if output else -self.reach


@dataclass(frozen=True)
class Hybrid:
    """Piecewise with probability ``mix``, else two-point; the output shows which one was used.

    The choice does not depend on the input, so each column has the ratio of one of the two
    channels. Outputs 0 .. n-1 are Piecewise, n and n+1 are two-point. With a mix of 0 or 1 only
    one channel is used, and the other's outputs do not occur.
    """

    piecewise: Window
    two_point: TwoPoint
    mix: Fraction

    @property
    def inputs(self) -> int:
        """Number of input levels."""
        return self.piecewise.inputs

    @property
    def outputs(self) -> int:
        """Number of outputs of both channels together."""
        return self.piecewise.outputs + 2

    @property
    def total(self) -> int:
        """Sum of the weights of any input."""
        return self.mix.denominator * self.piecewise.total * self.two_point.total

    def weights(self, level: int) -> list[int]:
        """Integer weights of all outputs for input ``level``."""
        often = self.mix.numerator * self.two_point.total
        else_ = (self.mix.denominator - self.mix.numerator) * self.piecewise.total
        return [
            *(often * weight for weight in self.piecewise.weights(level)),
            *(else_ * weight for weight in self.two_point.weights(level)),
        ]

    def draw(self, level: int, below: Below) -> int:
        """One output, exactly with probability weight / total."""
        if below(self.mix.denominator) < self.mix.numerator:
            return self.piecewise.draw(level, below)
        return self.piecewise.outputs + self.two_point.draw(level, below)

    def decode(self, output: int) -> Fraction:
        """The unbiased value in units of the half range; always within fixed bounds."""
        first = self.piecewise.outputs
        if output < first:
            return self.piecewise.decode(output)
        return self.two_point.decode(output - first)

    def variance(self, level: int) -> Fraction:
        """Exact variance of a decoded output for input ``level``."""
        mean = Fraction(2 * level, self.inputs - 1) - 1
        square = sum(
            (weight * self.decode(j) ** 2 for j, weight in enumerate(self.weights(level))),
            Fraction(0),
        )
        return square / self.total - mean**2


def square_wave(epsilon: Fraction, inputs: int) -> Window:
    """Square Wave on ``inputs`` buckets of [0, 1], with the half-window of the paper's eq. (5).

    >>> square_wave(Fraction(1), 1000).width  # 2 * floor(0.25608 * 1000) + 1
    513
    """
    e = exp_below(epsilon)
    half = (epsilon * e - e + 1) / (2 * e * (e - 1 - epsilon))
    return Window(inputs, 2 * (half * inputs).__floor__() + 1, high_weight(epsilon))


def piecewise(epsilon: Fraction, inputs: int) -> Window:
    """Piecewise on ``inputs`` levels of [-1, 1]: width / (inputs - 1) is near e^(-epsilon/2)."""
    width = round((inputs - 1) / exp_below(epsilon / 2))
    return Window(inputs, max(1, width), high_weight(epsilon))


def hybrid(epsilon: Fraction, inputs: int) -> Hybrid:
    """The Hybrid channel: mixing probability 1 - e^(-epsilon/2) above 0.61, else zero."""
    mix = Fraction(0)
    if epsilon > NO_PIECEWISE:
        mix = Fraction(round((1 - 1 / exp_below(epsilon / 2)) * 65536), 65536)
    return Hybrid(piecewise(epsilon, inputs), TwoPoint(inputs, high_weight(epsilon)), mix)
