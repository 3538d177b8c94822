"""Configuration of PAK: settings, their checks, the counter of least error, the optimiser."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

from ...errors import ParameterError
from .. import accounting, factorization
from ..accounting.calibration import inexact_draws
from ..contract import Cost, Setting
from ..factorization.prefix_noise import chosen
from ..parts.thresholds.clip import scale_free_penalty
from ..parts.thresholds.smooth_quantile import SmoothQuantile
from ..parts.trees.hierarchy import Chunks, choose_height
from ..slots.relearning import Chooser, Exceedance, Relearning
from ..slots.settings import (
    SlotParameters,
    check_delta,
    check_sums,
    relearn_of,
    slots_of,
    watch_of,
)
from ..slots.slots import Slots
from ..validate import non_negative, one_of, positive
from .counter import HierarchyPrefix, MatrixPrefix, PrefixCounter, TreePrefix
from .mechanism import Pak, RankQuantile
from .optimise import Choice, ThresholdProblem, optimise
from .running import Running

_FANOUT = 16
_TALLEST = 5
_TAIL = 24
_SAMPLES = 64
_SPARE = Fraction(1, 1 << 20)
_SPLIT = Fraction(7, 10)


@dataclass(frozen=True)
class PakParameters(SlotParameters):
    """Settings of ``mechanism = "pak"``, in addition to those of `SlotParameters`.

    Attributes:
        threshold: "exceedance" (clipped records against noise), "noisy-max" (a raised rank),
            "smooth" (the paper's, costs δ), or "top" for B. "auto" is "noisy-max" where tail,
            safety or factor are given, else "exceedance".
        counter: "tree", "hierarchy", "matrix"; "auto" means the one with the least mean error.
        publish_warmup: release the warm-up's sum.
        tail, safety: the rank is ⌊safety·tail·m⌋ + 1 from the top, m = expected warm-up records.
        factor: number by which the quantile is raised.
        split: share of the warm-up's ε for the threshold if its sum is released.
        beta: probability that the smooth quantile falls below the exact one.
        excess: public guess of the scale of the tail in grid steps; 0 means B/24.
        sliding: slots of an additional sliding sum and moving average; 0 for none.
        decay: share of a slot's sum that remains a slot later, for a decayed sum; 0 for none.

    `optimise` chooses tail, safety, factor and split where they are 0; the rule "exceedance" does
    not use the first three, and its split is seven tenths.
    """

    later: ClassVar[tuple[str, ...]] = ("sliding", "decay")

    threshold: str = "auto"
    counter: str = "auto"
    publish_warmup: bool = True
    tail: float = 0.0
    safety: float = 0.0
    factor: float = 0.0
    split: float = 0.0
    beta: float = 0.1
    excess: float = 0.0
    sliding: int = 0
    decay: float = 0.0


def kind_of(parameters: PakParameters) -> str:
    """The rule that chooses the threshold.

    Raises:
        ParameterError: there is no such rule, or it does not use a given setting.
    """
    named = ("auto", "exceedance", "noisy-max", "smooth", "top")
    kind = one_of("threshold", parameters.threshold, named)
    ranks = parameters.tail or parameters.safety or parameters.factor
    if kind == "auto":
        return "noisy-max" if ranks else "exceedance"
    if kind == "exceedance" and ranks:
        rule = 'has no rank and no factor: leave tail, safety and factor out, or take "noisy-max"'
        raise ParameterError("threshold", kind, rule)
    return kind


def build(parameters: PakParameters, setting: Setting) -> Pak:
    """The mechanism for a configuration.

    Raises:
        ParameterError: settings clash or are out of range.
    """
    slots, kind = slots_of(parameters, setting), kind_of(parameters)
    sampling = sampling_of(parameters, setting, slots)
    check_delta(setting, sampling)
    counter = counter_of(parameters, setting, slots, setting.delta - sampling)
    check_sums(slots, counter.steps, parameters.expected)
    choice = None if kind == "exceedance" else choice_of(parameters, setting, slots, counter)
    epsilon = setting.epsilon / slots.bound
    split = split_of(parameters, choice)
    chooser: SmoothQuantile | Chooser | None
    if choice is None:
        late = steps_of(parameters, slots)
        penalty = penalty_of(slots, late, slots.warmup_slots, counter, split, epsilon)
        chooser = Exceedance(epsilon * split, penalty)
    else:
        records = parameters.expected * slots.warmup_slots
        chooser = _chooser(parameters, setting, slots, epsilon * split, choice, records)
    rest = epsilon * (1 - split) if parameters.publish_warmup else None
    gaussian = isinstance(counter, MatrixPrefix)
    spent = gaussian or isinstance(chooser, SmoothQuantile)
    if spent:
        check_delta(setting, sampling / _SPARE)
    loss = Cost(epsilon=setting.epsilon, delta=setting.delta if spent else sampling)
    watch, anew = epsilon * watch_of(parameters), relearn_of(parameters, slots)
    relearning = _relearning(parameters, setting, slots, counter, epsilon * anew) if anew else None
    running = Running(parameters.sliding, Fraction(parameters.decay).limit_denominator(10_000))
    return Pak(slots, chooser, counter, rest, loss, watch or None, relearning, running)


def split_of(parameters: PakParameters, choice: Choice | None) -> Fraction:
    """The threshold's share of the warm-up's ε."""
    if not parameters.publish_warmup or parameters.threshold == "top":
        return Fraction(int(parameters.threshold != "top"))
    return _share("split", parameters.split) or (choice.split if choice else _SPLIT)


def penalty_of(
    slots: Slots, late: int, seen: int, counter: PrefixCounter, split: Fraction, epsilon: Fraction
) -> tuple[int, ...]:
    """The noise that each threshold causes, in records of ``seen`` slots.

    Args:
        late: slots that the counter covers.
        split: the threshold's share of the warm-up's ε; the warm-up's sum has the rest.
        epsilon: ε of one record.
    """
    variance = Fraction(mean_error(counter, late)).limit_denominator(1 << 20) ** 2
    if split < 1:
        variance += 2 / ((1 - split) * epsilon) ** 2
    found = scale_free_penalty(slots.thresholds, seen, late, variance / 2)
    return tuple(found.tolist())


def sampling_of(parameters: PakParameters, setting: Setting, slots: Slots) -> Fraction:
    """The δ of a unit due to the distance between drawn and exact noise."""
    draws = len(slots.thresholds) + 2 * slots.slots.bit_length() + 2 * slots.slots
    if parameters.relearn:
        draws += len(slots.thresholds)  # a record may affect the noise of two choices, not more
    return inexact_draws(setting.epsilon, slots.bound * draws)


def steps_of(parameters: PakParameters, slots: Slots) -> int:
    """Number of slots that a counter covers: a stretch, or all after the warm-up."""
    return (parameters.relearn or slots.horizon - slots.warmup) * slots.per_trigger


def _relearning(
    parameters: PakParameters,
    setting: Setting,
    slots: Slots,
    counter: PrefixCounter,
    epsilon: Fraction,
) -> Relearning:
    """Stretches, whose noisy ranks are optimised separately for their numbers of records.

    Raises:
        ParameterError: the threshold is not chosen by a noisy maximum.
    """
    kind, late = kind_of(parameters), steps_of(parameters, slots)
    if kind == "exceedance":
        penalty = penalty_of(slots, late, late, counter, Fraction(1), epsilon)
        chosen = Exceedance(epsilon, penalty)
        return Relearning(chosen, parameters.relearn, slots.warmup, slots.horizon)
    if kind != "noisy-max":
        rule = f'needs threshold = "exceedance" or "noisy-max", not "{parameters.threshold}"'
        raise ParameterError("relearn", parameters.relearn, rule)
    records = parameters.expected * late
    problem = replace(
        problem_of(parameters, setting, slots, counter),
        epsilon=epsilon, published=False, records=2 * records,
    )  # fmt: skip
    chooser = _chooser(parameters, setting, slots, epsilon, optimise(problem, [records]), records)
    assert isinstance(chooser, RankQuantile)
    return Relearning(chooser, parameters.relearn, slots.warmup, slots.horizon)


def choice_of(
    parameters: PakParameters, setting: Setting, slots: Slots, counter: PrefixCounter
) -> Choice:
    """The optimiser's choice for this warm-up, and whether a threshold is better than B."""
    problem = problem_of(parameters, setting, slots, counter)
    return optimise(problem, [parameters.expected * slots.warmup_slots])


def problem_of(
    parameters: PakParameters, setting: Setting, slots: Slots, counter: PrefixCounter
) -> ThresholdProblem:
    """The optimiser's input."""
    known = non_negative("excess", parameters.excess)
    late = steps_of(parameters, slots)
    return ThresholdProblem(
        records=max(2, parameters.expected * slots.slots),
        top=slots.top,
        epsilon=setting.epsilon / slots.bound,
        delta=_smooth_delta(setting, slots.bound),
        scale=Fraction(known).limit_denominator(1 << 20) if known else Fraction(slots.top, _TAIL),
        smooth=parameters.threshold == "smooth",
        published=parameters.publish_warmup,
        beta=_beta(parameters),
        unit_error=mean_error(counter, late, late // 2),
    )


def _chooser(
    parameters: PakParameters,
    setting: Setting,
    slots: Slots,
    epsilon: Fraction,
    choice: Choice,
    records: int,
) -> SmoothQuantile | RankQuantile | None:
    if parameters.threshold == "top":
        return None
    tail = _share("tail", parameters.tail) or choice.tail
    safety = _share("safety", parameters.safety) or choice.safety
    factor = Fraction(parameters.factor).limit_denominator(1000) or choice.factor
    rank = int(safety * tail * records) + 1
    if kind_of(parameters) == "noisy-max":
        return RankQuantile(epsilon, rank, factor, slots.thresholds)
    delta = _smooth_delta(setting, slots.bound)
    return SmoothQuantile(epsilon, delta, rank, slots.thresholds, factor, _beta(parameters))


def _beta(parameters: PakParameters) -> Fraction:
    beta = Fraction(positive("beta", parameters.beta)).limit_denominator(1 << 40)
    return positive("beta", beta)


def counter_of(
    parameters: PakParameters, setting: Setting, slots: Slots, delta: Fraction
) -> PrefixCounter:
    """The configured counter, or the one with the least mean error among the possible ones.

    It gets the part of ε that ``watch`` and ``relearn`` leave: a unit's records pay those shares of
    their part of ε in addition, for any number of records in any stretches after the warm-up.
    """
    one_of("counter", parameters.counter, ("auto", "tree", "hierarchy", "matrix"))
    rest = (1 - watch_of(parameters)) - relearn_of(parameters, slots)
    setting = replace(setting, epsilon=setting.epsilon * rest)
    steps, epsilon = steps_of(parameters, slots), setting.epsilon / slots.bound
    if parameters.counter != "auto":
        try:
            return _counter(parameters.counter, steps, epsilon, setting, slots.bound, delta)
        except ParameterError as error:
            if error.name != "horizon":
                raise
            rule = f'cannot count {steps:,} slots ({error}): take counter = "tree"'
            raise ParameterError("counter", parameters.counter, rule) from error
    options = [TreePrefix(steps, epsilon), *_others(steps, setting, slots, delta)]
    return min(options, key=lambda counter: mean_error(counter, steps))


def _others(steps: int, setting: Setting, slots: Slots, delta: Fraction) -> list[PrefixCounter]:
    epsilon = setting.epsilon / slots.bound
    out = []
    for name in ("hierarchy", "matrix"):
        try:
            out.append(_counter(name, steps, epsilon, setting, slots.bound, delta))
        except ParameterError:
            continue  # impossible: the stream is too long, or there is no δ
    return out


def _counter(
    name: str, steps: int, epsilon: Fraction, setting: Setting, bound: int, delta: Fraction
) -> PrefixCounter:
    if name == "tree":
        return TreePrefix(steps, epsilon)
    if name == "hierarchy":
        height = choose_height(_FANOUT, steps, _TALLEST)
        if _FANOUT**height < steps:
            raise ParameterError("horizon", steps, f"more than {_FANOUT**_TALLEST} slots")
        return HierarchyPrefix(Chunks(_FANOUT, height, epsilon))
    name = chosen("auto", steps)
    factorization.build(name, steps)
    share = delta if bound == 1 else delta / 2
    return MatrixPrefix(name, steps, _variance(name, steps, setting.epsilon, share, bound))


@lru_cache(maxsize=32)
def _variance(name: str, steps: int, epsilon: Fraction, delta: Fraction, bound: int) -> Fraction:
    """Noise for which every division of a unit's records fits into (ε, δ).

    j records in the warm-up cost at most jε/k and, with the smooth threshold, δ/2; the k - j others
    cost what k - j records of the counter cost, at δ (k = 1: in one part or the other) or δ/2.
    """
    factor = factorization.build(name, steps)
    unit = factor.sensitivity2 * 4**factor.bits
    variance = accounting.gaussian_variance(epsilon, delta, bound**2 * unit, bound * factor.noises)
    for inside in range(1, bound):
        others = bound - inside
        while not _fits(epsilon * others / bound, delta, others**2 * unit, variance, factor.noises):
            variance = variance * Fraction(17, 16)
    return variance


def _fits(
    epsilon: Fraction, delta: Fraction, shift: Fraction, variance: Fraction, touched: int
) -> bool:
    loss = accounting.gaussian_cost(shift, variance, touched)
    return accounting.total([loss], delta)[0] <= epsilon


@lru_cache(maxsize=64)
def _smooth_delta(setting: Setting, bound: int) -> Fraction:
    """δ of one record such that k of them cost at most δ (k = 1) or δ/2, less the sampler's."""
    if setting.delta <= 0:
        return Fraction(0)
    epsilon = setting.epsilon / bound
    whole = setting.delta * (1 - _SPARE)
    share = whole if bound == 1 else whole / 2
    small = share / (bound * 3 ** int(-(-setting.epsilon // 1)))  # stays below 1 when grown
    grown = accounting.group_approximate(epsilon, small, bound)[1]
    each: Fraction = share * small / grown * (1 - _SPARE)
    return each


def mean_error(counter: PrefixCounter, steps: int, first: int = 1) -> float:
    """Root mean square noise of prefix sums for θ = 1 over evenly spread steps from ``first``."""
    ends = sorted({max(first, 1, -(-steps * i // _SAMPLES)) for i in range(1, _SAMPLES + 1)})
    squares = [counter.variance(1, 0, end) for end in ends]
    return float((sum(squares) / len(squares)) ** 0.5)


def _share(name: str, value: float) -> Fraction:
    share = Fraction(value).limit_denominator(1 << 20)
    if not 0 <= share <= 1:
        raise ParameterError(name, value, "must lie in [0, 1], 0 to have it chosen")
    return share
