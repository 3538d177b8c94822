"""Coverage of ToPL's 95 % intervals for the mean of all reporting users' clipped values.

Users draw one of eight values of a law and are divided at random into the groups of a survey, with
the defaults of `topl`; each reports once. The published range and threshold are eight and four
times the mean, at most B; the published channel is each of the three in turn. The exact mean is
taken over all users, of ``a min(v, theta) + (1 - a) min(v, R)``, where a is the value group's
weight. *Noise alone* is an interval from the noise of reports only; *stated* is the released one,
which also covers that only a sample of users report values.

Users with one value are interchangeable, so a run draws one multinomial for each value and group,
and its time does not depend on the number of users.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from hushstream.client.channels import Hybrid, Window
from hushstream.client.survey import CHANNELS, HYBRID, NARROW, RANGE, STEP, VALUE, Survey
from hushstream.mechanisms.topl.channels import worst_of
from hushstream.mechanisms.topl.estimate import Buckets, mean
from hushstream.mechanisms.topl.rounds import step_of
from hushstream.mechanisms.topl.spread import difference, division

REACH = 1.959964
EPSILONS = tuple(Fraction(e) for e in ("1/10", "1/2", "1", "2", "4", "8"))
USERS = (2_000, 100_000)
_RANK = (np.arange(8) + 0.5) / 8
LAWS = {
    "exponential, B 20 times the mean": -np.log(1 - _RANK) / 20,
    "the whole range": _RANK,
    "two ends": (np.arange(8) % 2).astype(float),
    "three of four are 0": np.where(_RANK < 0.75, 0, _RANK),
}
Row = dict[str, Any]
F64 = np.ndarray[Any, np.dtype[np.float64]]
I64 = np.ndarray[Any, np.dtype[np.int64]]


def of_window(channel: Window, level: I64) -> F64:
    """Probabilities of the outputs, a row for each level."""
    place = np.arange(channel.outputs) - level[:, None]
    inside = (place >= 0) & (place < channel.width)
    return np.asarray(np.where(inside, channel.high, channel.low) / channel.total)


def of_hybrid(channel: Hybrid, share: F64) -> F64:
    """Likewise for shares of theta, which are rounded to a level at random."""
    place = share * (channel.inputs - 1)
    low = np.minimum(place.astype(np.int64), channel.inputs - 2)
    part, mix, two = (place - low)[:, None], float(channel.mix), channel.two_point

    def at(level: I64) -> F64:
        up = ((two.inputs - 1) * two.low + level * (two.high - two.low)) / two.total
        coarse = (1 - mix) * np.stack([1 - up, up], axis=1)
        return np.concatenate([mix * of_window(channel.piecewise, level), coarse], axis=1)

    return np.asarray((1 - part) * at(low) + part * at(low + 1))


class Case:
    """A survey with its range and threshold, and each output's probability given each value."""

    def __init__(self, epsilon: Fraction, rounds: int, law: F64, channel: int = HYBRID) -> None:
        value, times = np.unique(law, return_counts=True)
        self.chance = times / len(law)
        share = Fraction(rounds, 10)
        self.survey = Survey(
            epsilon, Fraction(1), "intervals", share=share, rounds=rounds, channel="told"
        )
        self.value, self.wide = value, NARROW if rounds > 1 else RANGE
        self.theta = self._step(4 * law.mean()) + channel * STEP
        self.range = self._step(8 * law.mean()) if rounds > 1 else 0
        self.top = float(self.survey.threshold(self.theta))
        self.reach = float(self.survey.threshold(self.range)) if rounds > 1 else 1.0
        self.near = of_hybrid(self.survey.mixed(channel), np.minimum(value / self.top, 1))
        inputs = self.survey.buckets
        bucket = (np.minimum(value / self.reach, 1) * inputs).astype(np.int64)
        self.far = of_window(self.survey.square_wave, np.minimum(bucket, inputs - 1))

    def _step(self, share: float) -> int:
        if self.survey.rounds > 1:
            return step_of(self.survey, min(share, 1))
        return min(int(np.ceil(share * self.survey.buckets)), self.survey.buckets)

    def seen(self, users: I64, draw: np.random.Generator) -> Buckets:
        """Reports of ``users`` users of each value."""
        share = float(self.survey.share) / self.survey.rounds
        parts = [1 - share * self.survey.rounds, share, share * (self.survey.rounds - 1)]
        group = draw.multinomial(users, parts)
        made = [
            (VALUE, self.theta, draw.multinomial(group[:, 0], self.near).sum(axis=0)),
            (self.wide, self.range, draw.multinomial(group[:, 1], self.far).sum(axis=0)),
            (RANGE, 0, group[:, 2].sum(keepdims=True)),  # in two rounds only their number matters
        ]
        columns = [
            (np.full(len(n), g), np.full(len(n), told), np.arange(len(n)), n) for g, told, n in made
        ]
        everything = Buckets(*(np.concatenate(column) for column in zip(*columns, strict=True)))
        return everything.where(everything.reports > 0)

    def exact(self, users: I64, seen: Buckets) -> float:
        """The exact mean, over all users, of the quantity that the groups estimate."""
        near, far = (
            int(seen.reports[seen.group == group].sum())
            / float(worst_of(self.survey, group, self.theta))
            for group in (VALUE, self.wide)
        )
        near /= self.top**2
        weight = near / (near + far / self.reach**2)
        clipped = [np.minimum(self.value, end) for end in (self.top, self.reach)]
        return float(users @ (weight * clipped[0] + (1 - weight) * clipped[1]) / users.sum())


def scores(case: Case, users: int, runs: int, seed: int) -> tuple[F64, F64]:
    """Errors divided by the standard deviation: of the noise alone, and as stated."""
    draw = np.random.default_rng(seed)
    found = np.empty((runs, 2))
    for run in range(runs):
        people = draw.multinomial(users, case.chance)
        seen = case.seen(people, draw)
        value, noise = mean(case.survey, seen)
        whole = noise + division(case.survey, seen, difference(case.survey, seen))
        miss = float(value or 0) - case.exact(people, seen)
        found[run] = miss / noise**0.5, miss / whole**0.5
    return found[:, 0], found[:, 1]


def of_law(law: str, runs: int, quick: bool, tick: Callable[[Row], object]) -> list[Row]:
    """Coverage for each survey, ε and number of users."""
    rows: list[Row] = []
    for rounds in (1, 2):
        for epsilon in EPSILONS[::2] if quick else EPSILONS:
            for channel in range(CHANNELS):
                case = Case(epsilon, rounds, LAWS[law], channel)
                told = {"law": law, "rounds": rounds, "epsilon": float(epsilon), "channel": channel}
                for users in USERS:
                    both = scores(case, users, runs, len(rows))
                    noise, stated = (float((np.abs(one) <= REACH).mean()) for one in both)
                    rows.append(told | {"users": users, "noise_alone": noise, "stated": stated})
                    tick(rows[-1])
    return rows


def measure(runs: int, quick: bool, tick: Callable[[Row], object]) -> list[Row]:
    """Coverage of every law."""
    laws = list(LAWS)[:: 2 if quick else 1]
    return [row for law in laws for row in of_law(law, runs, quick, tick)]
