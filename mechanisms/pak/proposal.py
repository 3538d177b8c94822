"""Expected errors of a configured PAK stream, and the choice of its optimiser."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from ...errors import ParameterError
from ..contract import Setting
from ..slots.settings import slots_of
from ..slots.slots import Slots
from .optimise import Choice, ThresholdProblem, fixed, optimise, predicted
from .settings import PakParameters, choice_of, counter_of, problem_of, sampling_of

_LONGEST = 3  # a warm-up takes at most this part of a window: nothing is released before its end


class PakProposal(NamedTuple):
    """Errors are mean absolute errors to expect of the last prefix sum, in grid steps."""

    records: int  # n, of a window, as stated or configured
    scale: Fraction  # s, the guessed scale of the tail, in grid steps
    parameters: PakParameters  # proposed
    # the optimiser's numbers behind them; with ``threshold = "top"`` they were rejected
    choice: Choice
    error: float  # with the proposed parameters
    configured: float | None  # with the given ones; None where no threshold can come of them
    top: float  # with B itself
    largest: int  # B

    @property
    def break_even(self) -> float:
        """The largest (1-p)-quantile, in grid steps, with which a threshold still wins.

        Thresholds, and errors with them, grow in proportion to it.
        """
        quantile = -math.log(self.choice.tail) * float(self.scale)
        return min(quantile * self.top / self.error, float(self.largest))

    @property
    def clip(self) -> bool:
        """True if a threshold is better than B."""
        return self.parameters.threshold != "top"


def propose(
    parameters: PakParameters,
    setting: Setting,
    records: int | None = None,
    scale: float | None = None,
) -> PakProposal:
    """Warm-up, p, λ, r, split, and whether to choose a threshold at all; nothing looks at data.

    Without the warm-up's sum its length is unchanged, because the model has no error for what it
    hides.

    Args:
        records: n, where it is better known than by ``expected``.
        scale: s in grid steps, where it is better known than by ``excess``.

    Raises:
        ParameterError: an argument is out of range, or the configuration is.
    """
    slots = slots_of(parameters, setting)
    if records is not None:
        if records < 2:
            raise ParameterError("records", records, "must be at least 2")
        parameters = replace(parameters, expected=max(1, round(records / slots.slots)))
    if scale is not None:
        parameters = replace(parameters, excess=scale)
    given = _problem(parameters, setting)
    error, best, choice = _best(parameters, setting, slots)
    one = replace(parameters, warmup=1 if parameters.publish_warmup else parameters.warmup)
    top = fixed(_problem(one, setting))
    if error >= top:
        best = replace(one, threshold="top", tail=0.0, safety=0.0, factor=0.0, split=0.0)
    return PakProposal(
        given.records, given.scale, best, choice, min(error, top),
        _configured(parameters, setting, slots, given), top, slots.top,
    )  # fmt: skip


def _problem(parameters: PakParameters, setting: Setting) -> ThresholdProblem:
    slots = slots_of(parameters, setting)
    delta = setting.delta - sampling_of(parameters, setting, slots)
    return problem_of(parameters, setting, slots, counter_of(parameters, setting, slots, delta))


def _best(
    parameters: PakParameters, setting: Setting, slots: Slots
) -> tuple[float, PakParameters, Choice]:
    """The best kind of threshold, with its warm-up."""
    tried = []
    for kind in sorted({"noisy-max", parameters.threshold} - {"top"}):
        one = replace(parameters, threshold=kind)
        each = one.expected * slots.per_trigger
        first = optimise(_problem(one, setting), [each * t for t in _warmups(one, slots)])
        one = replace(one, warmup=first.records // each)
        # Anew, with the counter of the stream that this warm-up leaves.
        problem = _problem(one, setting)
        choice = optimise(problem, [first.records])
        error = predicted(
            problem, choice.records, choice.tail, choice.safety, choice.factor, choice.split
        )
        tried.append((float("inf") if error is None else error, _with(one, choice), choice))
    return min(tried, key=lambda found: found[0])


def _warmups(parameters: PakParameters, slots: Slots) -> Iterator[int]:
    if parameters.publish_warmup:
        t = 1
        while t * _LONGEST <= slots.horizon:
            yield t
            t += max(1, t // 2)
    if not parameters.publish_warmup or slots.horizon < _LONGEST:
        yield parameters.warmup


def _with(parameters: PakParameters, choice: Choice) -> PakParameters:
    return replace(
        parameters, tail=float(choice.tail), safety=float(choice.safety),
        factor=float(choice.factor), split=float(choice.split) if choice.split < 1 else 0.0,
    )  # fmt: skip


def _configured(
    parameters: PakParameters, setting: Setting, slots: Slots, problem: ThresholdProblem
) -> float | None:
    if parameters.threshold == "top":
        return fixed(problem)
    share = setting.delta - sampling_of(parameters, setting, slots)
    own = choice_of(parameters, setting, slots, counter_of(parameters, setting, slots, share))
    numbers = [
        Fraction(mine).limit_denominator(1 << 20) or chosen
        for mine, chosen in (
            (parameters.tail, own.tail),
            (parameters.safety, own.safety),
            (parameters.factor, own.factor),
            (parameters.split if parameters.publish_warmup else 1.0, own.split),
        )
    ]
    return predicted(problem, own.records, *numbers)
