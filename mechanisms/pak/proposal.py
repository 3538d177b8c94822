"""Expected errors of a configured PAK stream, and the choice of its optimiser."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...errors import ParameterError
from ..contract import Setting
from ..slots.settings import slots_of
from ..slots.slots import Slots
from .optimise import Choice, ThresholdProblem, error_of, fixed, optimise, predicted
from .settings import (
    PakParameters,
    choice_of,
    counter_of,
    kind_of,
    penalty_of,
    problem_of,
    sampling_of,
    split_of,
    steps_of,
)

_TAIL = Fraction(1, 100)
_LONGEST = 3  # a warm-up takes at most a third of a window: nothing is released before its end


class PakProposal(NamedTuple):
    """A proposal; its errors are expected absolute errors of the last prefix sum, in grid steps."""

    records: int  # n, of a window, as stated or configured
    scale: Fraction  # s, the guessed scale of the tail, in grid steps
    parameters: PakParameters  # proposed
    choice: Choice | None  # the optimiser's numbers behind them, where a rank is proposed
    error: float  # with the proposed parameters
    configured: float | None  # with the given ones; None where they allow no threshold
    top: float  # with B itself
    largest: int  # B

    @property
    def break_even(self) -> float:
        """The largest (1-p)-quantile, in grid steps, with which a threshold still beats B.

        Thresholds and their errors are proportional to it.
        """
        quantile = -math.log(self.tail) * float(self.scale)
        return min(quantile * self.top / self.error, float(self.largest))

    @property
    def tail(self) -> Fraction:
        """p of `break_even`."""
        return self.choice.tail if self.choice else _TAIL

    @property
    def clip(self) -> bool:
        """Whether a threshold is better than B."""
        return self.parameters.threshold != "top"


def propose(
    parameters: PakParameters,
    setting: Setting,
    records: int | None = None,
    scale: float | None = None,
) -> PakProposal:
    """Warm-up, p, λ, r, split, and whether to choose a threshold at all; nothing looks at data.

    If the warm-up's sum is not released, the warm-up keeps its length, because the model has no
    error for what it hides.

    Args:
        records: n, if known better than by ``expected``.
        scale: s in grid steps, if known better than by ``excess``.

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
) -> tuple[float, PakParameters, Choice | None]:
    """The best warm-up. Ranks are proposed only if they are configured.

    The smooth threshold is not tried: it never had less error than the other two.
    """
    kind = parameters.threshold if parameters.threshold == "exceedance" else "auto"
    one = replace(parameters, threshold=kind, tail=0.0, safety=0.0, factor=0.0)
    tried = [_balanced(replace(one, warmup=t), setting) for t in _warmups(one, slots)]
    error, best = min(tried, key=lambda found: found[0])
    if kind_of(parameters) != "noisy-max":
        return error, best, None
    ranked, found, choice = _ranked(replace(parameters, threshold="noisy-max"), setting, slots)
    return (ranked, found, choice) if ranked < error else (error, best, None)


def _balanced(one: PakParameters, setting: Setting) -> tuple[float, PakParameters]:
    """Expected error if records above the threshold are weighed against its noise."""
    problem, slots = _problem(one, setting), slots_of(one, setting)
    counter = counter_of(one, setting, slots, setting.delta - sampling_of(one, setting, slots))
    split, seen = split_of(one, None), slots.warmup_slots
    late = steps_of(one, slots)
    penalty = penalty_of(slots, late, seen, counter, split, setting.epsilon / slots.bound)
    theta = np.array(slots.thresholds) / float(problem.scale)
    records = one.expected * seen
    above = records * np.exp(-theta) - records * math.exp(-theta[-1])
    tau = theta[int(np.argmin(above + np.array(penalty)))]
    spread = error_of(problem, records, Fraction(1) - split, Decimal(tau))
    return spread, one


def _ranked(
    one: PakParameters, setting: Setting, slots: Slots
) -> tuple[float, PakParameters, Choice]:
    """The optimiser's ranks and factors."""
    each = one.expected * slots.per_trigger
    first = optimise(_problem(one, setting), [each * t for t in _warmups(one, slots)])
    one = replace(one, warmup=first.records // each)
    # Computed again, with the counter of the stream after this warm-up.
    problem = _problem(one, setting)
    choice = optimise(problem, [first.records])
    error = predicted(
        problem, choice.records, choice.tail, choice.safety, choice.factor, choice.split
    )
    return float("inf") if error is None else error, _with(one, choice), choice


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
    kind = kind_of(parameters)
    if kind == "top":
        return fixed(problem)
    if kind == "exceedance":
        return _balanced(parameters, setting)[0]
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
