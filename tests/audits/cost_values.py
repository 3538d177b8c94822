"""Losses of the mechanisms over streams of values, from their stated bounds and their releases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from hushstream.mechanisms.in_memory import Trace
from hushstream.mechanisms.pak.mechanism import Pak, RankQuantile
from hushstream.mechanisms.tops.mechanism import Tops

from .loss import LARGE, Linear, Probe, choice_loss, gdp_epsilon
from .recorder import Label, Recorder, View, seen

UNIT = 10**6
CHOICE = "threshold"
COUNTS = 1 << 14
REACH = 512  # no two scores are further apart here


class Value(NamedTuple):
    """A record of a unit of its own, in a slot that is open in its trigger."""

    trigger: int
    value: int


def stream(mechanism: Pak | Tops, values: Sequence[Value]) -> Trace:
    """A trace of such records, in the order of triggers."""
    slots, some = mechanism.slots, sorted(values)
    t = np.array([one.trigger for one in some], np.int64)
    time = slots.origin + (t - 1) * slots.per_trigger * slots.length
    coded = slots.encode({"time": time, "value": np.array([one.value for one in some], np.int64)})
    return Trace(
        t.astype(np.intp), np.arange(len(some)), coded.keys, coded.key, coded.value,
        np.ones(len(some), np.int8),
    )  # fmt: skip


def choice(label: Label) -> bool:
    """Whether a draw chooses a threshold: the first one, or that of a later stretch."""
    return label.purpose.split(".")[0] == CHOICE


def choosing(place: int) -> Callable[[Label], int]:
    """Noise with which a candidate wins."""

    def forced(label: Label) -> int:
        return LARGE if choice(label) and label.index == place else 0

    return forced


def look_of(mechanism: Pak | Tops) -> Callable[[Trace, Recorder], View]:
    def look(trace: Trace, noise: Recorder) -> View:
        """Counts in fine steps: they are exact, and no slack for rounding may hide one."""
        view = seen(mechanism, trace, noise)
        return {at: v * COUNTS if at[1] == "clipped" else v for at, v in view.items()}

    return look


class Loss(NamedTuple):
    """Losses of one record: ε of the warm-up's sums; ε of Laplace noise and μ of Gaussian later."""

    warm: float
    late: float
    mu: float


def numbers(mechanism: Pak | Tops, place: int) -> Loss:
    """What released numbers lose of one record while a threshold is held in its place."""
    plain = mechanism.slots.warmup, mechanism.traits.horizon
    exact = isinstance(mechanism, Pak) and mechanism.counter.steps == 1
    probe = Probe(
        look_of(mechanism), stream(mechanism, []), choosing(place),
        lambda one: not choice(one), rounding=0.0 if exact else 4.0,
    )  # fmt: skip
    top = mechanism.slots.top
    shifts = [(t, probe.shift(stream(mechanism, [Value(t, top)]))) for t in range(1, plain[1] + 1)]
    warm = [shift for t, shift in shifts if t <= plain[0]]
    late = [shift for t, shift in shifts if t > plain[0]]
    before = max(only(probe.linear, "laplace").laplace(shift) for shift in warm)
    if all(one.kind == "laplace" for one in probe.linear.labels):
        return Loss(before, max(probe.linear.laplace(shift) for shift in late), 0.0)
    kinds = np.array([one.kind == "gauss" for one in probe.linear.labels])
    scale = np.array([1 / float(one.parameter) for one in probe.linear.labels])
    found = whole_shifts(probe.linear, late)
    gauss = np.sqrt((found[:, kinds] ** 2 * scale[kinds]).sum(axis=1).max())
    laplace = (np.abs(found[:, ~kinds]) * scale[~kinds]).sum(axis=1).max()
    return Loss(before, float(laplace), float(gauss))


def whole_shifts(linear: Linear, shifts: Sequence[np.ndarray]) -> np.ndarray:
    """(s, draws) the one shift of the draws that explains each difference; inf where none does.

    Draws of both laws are compared by no common norm, so there must be no choice between them.
    """
    fixed = [one._replace(parameter=Fraction(1)) for one in linear.labels]
    used = np.abs(linear.B).max(axis=0) > 0
    assert np.linalg.matrix_rank(linear.B[:, used]) == used.sum(), "several shifts explain it"
    return Linear(fixed, linear.B, linear.rounding).gaussian(shifts)


def only(linear: Linear, kind: str) -> Linear:
    """The draws of one kind."""
    kept = [place for place, one in enumerate(linear.labels) if one.kind == kind]
    return Linear([linear.labels[i] for i in kept], linear.B[:, kept], linear.rounding)


class Choice(NamedTuple):
    """A choice of a threshold: the purpose of its draws, and the trigger that releases it."""

    purpose: str
    at: int


def unraised(mechanism: Pak | Tops) -> Pak | Tops:
    """The mechanism without the factor that hides which candidate won."""
    if isinstance(mechanism, Tops) or not isinstance(mechanism.chooser, RankQuantile):
        return mechanism
    plain = replace(mechanism, chooser=replace(mechanism.chooser, factor=Fraction(1)))
    if plain.relearning is None:
        return plain
    later = plain.relearning.chooser
    assert isinstance(later, RankQuantile)
    again = replace(plain.relearning, chooser=replace(later, factor=Fraction(1)))
    return replace(plain, relearning=again)


def least(wins: Callable[[int], bool], near: int) -> int:
    """The least noise with which a candidate wins: looked for around a guess, wider each time."""
    low, high, step = near - 1, near, 1
    if wins(low):
        low, high = low - step, low
        while wins(low):
            step *= 2
            low, high = low - step, low
            assert low > -REACH, "a score is out of reach"
    else:
        while not wins(high):
            low, high, step = high, high + step, 2 * step
            assert high < REACH, "a score is out of reach"
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if wins(middle) else (middle, high)
    return high


def scores(
    mechanism: Pak | Tops, values: Sequence[Value], made: Choice, near: np.ndarray | None = None
) -> tuple[np.ndarray, Fraction]:
    """Scores of all candidates less that of the first, read from who wins; and the noise's scale.

    Candidate i beats the first one from some noise on: that noise is the gap of their scores.
    ``near`` are scores that are alike, from which the search begins; else it is the score before.
    """
    plain = unraised(mechanism)
    trace, out, scale = stream(mechanism, values), [0], Fraction(0)
    for place in range(1, len(mechanism.slots.thresholds)):

        def wins(noise: int, place: int = place) -> bool:
            def planted(label: Label) -> int:
                if label.purpose != made.purpose:
                    return 0
                return {0: 0, place: noise}.get(label.index, -LARGE)

            nonlocal scale
            recorder = Recorder(planted)
            view = seen(plain, trace, recorder, until=made.at)
            scale = next(one.parameter for one in recorder.asked if one.purpose == made.purpose)
            return bool(view[made.at, "threshold", 0] == plain.slots.thresholds[place])

        guess = out[-1] if near is None else int(near[place])
        out.append(1 - least(wins, 1 - guess))  # ties go to the first
    return np.array(out), scale


def chosen(mechanism: Pak | Tops, records: int, crowds: Sequence[int], made: Choice) -> float:
    """ε of a threshold for so many records of one unit, beside others in the middle.

    All of them lie in the trigger that makes the choice.
    """
    thresholds, worst = mechanism.slots.thresholds, 0.0
    for others in crowds:
        crowd = [Value(made.at, thresholds[len(thresholds) // 2])] * others
        first, scale = scores(mechanism, crowd, made)
        for value in (thresholds[-1], thresholds[0]):
            more = [Value(made.at, value)] * records
            second, _ = scores(mechanism, [*crowd, *more], made, first)
            worst = max(worst, choice_loss(first, second, scale))
    return worst


def over_budget(mechanism: Pak | Tops, crowds: Sequence[int] = (1, 30)) -> float:
    """What a unit loses over what is declared, for the dearest division of its records.

    j of them lie in the warm-up, where they pay for the threshold and for its sum, the others
    later, where they pay for sums and, with `relearning`, for the threshold of the next stretch.
    Gaussian loss is turned into ε at the declared δ.
    """
    cost, k = mechanism.cost(), int(mechanism.bounds("u")["budget"])
    worst, last = 0.0, len(mechanism.slots.thresholds) - 1
    free = isinstance(mechanism, Pak) and mechanism.chooser is None
    first = Choice(CHOICE, mechanism.slots.warmup)
    before = [0.0 if free or not j else chosen(mechanism, j, crowds, first) for j in range(k + 1)]
    again = [0.0] * (k + 1)
    if mechanism.relearning:
        next_one = Choice(f"{CHOICE}.1", first.at + mechanism.relearning.every)
        again[1:] = [chosen(mechanism, j, crowds, next_one) for j in range(1, k + 1)]
    for place in (last, last - 2):
        loss = numbers(mechanism, place)
        for early in range(k + 1):
            warm = early * loss.warm + before[early]
            late = (k - early) * loss.late + again[k - early]
            if loss.mu and early < k:
                late += gdp_epsilon(((k - early) * loss.mu) ** 2, float(cost.delta))
            worst = max(worst, warm + late)
    return worst / float(cost.epsilon)
