"""Configuration of ToPS: settings, their checks, and the public choices made from them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ...errors import ParameterError
from ..accounting.calibration import inexact_draws
from ..columns import I64
from ..contract import Setting
from ..parts.thresholds.clip import noise_penalty, scale_free_penalty
from ..parts.trees.hierarchy import Chunks, InfiniteTree, choose_height
from ..parts.trees.shape import choose_shape, endless, mean_variance
from ..parts.trees.smoothing import Smoother
from ..slots.relearning import Exceedance, Relearning
from ..slots.settings import (
    SlotParameters,
    check_delta,
    check_sums,
    relearn_of,
    slots_of,
    watch_of,
)
from ..slots.slots import Slots
from ..validate import at_least, non_negative, one_of
from .mechanism import Tops, Warmup

SUM_SHARE = Fraction(1, 10)
"""Share of the warm-up's ε for its sum, which predicts the first block. It was chosen on the tuned
and held halves of `benchmarks/heldout.py`. The threshold keeps most of ε: all sums depend on it."""
_FINEST = 64
_LARGEST = 1 << 40
_TAIL = 8
_ENDLESS = 16


@dataclass(frozen=True)
class TopsParameters(SlotParameters):
    """Settings of ``mechanism = "tops"``, in addition to those of `SlotParameters`.

    Attributes:
        fanout: children per node; 0: chosen by expected error.
        height: a chunk holds fanout^height slots; 0: chosen by expected error.
        skip: levels at the bottom without their own noise; -1: chosen by expected error.
        excess: public guess of the distance above the threshold of values beyond it, in grid steps;
            0 means a threshold that does not depend on the scale of values.
        stream: "chunks", or "infinite" for one tree whose error grows logarithmically for ever.
        smoother, history, alpha: parameters of the `Smoother`.
        publish_warmup: release the warm-up's slots as well, once the threshold is known.
        threshold_share: in that case, the threshold's share of the warm-up's ε.
    """

    fanout: int = 0
    height: int = 0
    skip: int = -1
    excess: float = 0.0
    stream: str = "chunks"
    smoother: str = "moving"
    history: int = 4
    alpha: float = 0.5
    publish_warmup: bool = False
    threshold_share: float = 0.5


def build(parameters: TopsParameters, setting: Setting) -> Tops:
    """The mechanism for a configuration.

    Raises:
        ParameterError: settings clash or are out of range.
    """
    slots = slots_of(parameters, setting)
    late = slots.slots - slots.warmup_slots
    epsilon = setting.epsilon / slots.bound
    one_of("stream", parameters.stream, ("chunks", "infinite"))
    smoother = smoother_of(parameters)
    watch, anew = epsilon * watch_of(parameters), epsilon * relearn_of(parameters, slots)
    if anew:
        late = parameters.relearn * slots.per_trigger
        if parameters.stream == "infinite":
            rule = 'needs stream = "chunks": an infinite tree has one threshold'
            raise ParameterError("relearn", parameters.relearn, rule)
    tree, width = tree_of(parameters, late, epsilon - watch - anew, late if anew else 0)
    warmup, first = _warmup(parameters, slots, epsilon)
    told = None if warmup else epsilon * SUM_SHARE
    penalty = penalty_of(parameters, slots.warmup_slots, late, slots, tree, width)
    later = penalty_of(parameters, late, late, slots, tree, width)
    widest = max(width, warmup.width if warmup else 1)
    made = Tops(
        slots, first, tree, width, tuple(penalty.tolist()), smoother,
        widest * _fineness(slots.top * widest), warmup, parameters.expected,
        inexact_draws(setting.epsilon, draws(slots, 65, warmup, anew > 0)), watch or None,
        _relearning(parameters, slots, anew, later) if anew else None, told,
    )  # fmt: skip
    check_delta(setting, made.sampling)
    check_sums(slots, made.steps, parameters.expected)
    return made


def smoother_of(parameters: TopsParameters) -> Smoother:
    """The predictor of blocks."""
    alpha = Fraction(parameters.alpha).limit_denominator(1000)
    return Smoother(parameters.smoother, parameters.history, alpha)


def history_of(parameters: TopsParameters) -> int:
    """Blocks whose mean predicts the next one, for expected errors: about so, but for `moving`."""
    return max(1, smoother_of(parameters).memory)


def tree_of(
    parameters: TopsParameters, slots: int, epsilon: Fraction, whole: int = 0
) -> tuple[Chunks | InfiniteTree, int]:
    """The tree over ``slots`` slots, and the slots per block; in chunks these divide ``whole``."""
    fanout, skip, history = parameters.fanout, parameters.skip, history_of(parameters)
    if parameters.stream == "infinite":
        fanout = fanout or _ENDLESS
        at_least("fanout", fanout, 2)
        return endless(slots, epsilon, parameters.expected, fanout, skip, history)
    height, load = parameters.height, parameters.expected
    shape = choose_shape(slots, epsilon, load, fanout, height, skip, whole, history)
    return Chunks(shape.fanout, shape.levels, epsilon), shape.width


def penalty_of(
    parameters: TopsParameters,
    seen: int,
    late: int,
    slots: Slots,
    tree: Chunks | InfiniteTree,
    width: int,
) -> I64:
    """The public part of scores from ``seen`` slots for the threshold of ``late`` slots."""
    if non_negative("excess", parameters.excess):
        excess = Fraction(parameters.excess).limit_denominator(1 << 20)
        fanout = tree.fanout
        height = parameters.height or choose_height(fanout, late)
        return noise_penalty(slots.thresholds, seen, fanout, height, tree.epsilon, excess)
    mean = mean_variance(tree, width, late, history_of(parameters))
    variance = Fraction(mean).limit_denominator(1 << 20)
    return scale_free_penalty(slots.thresholds, seen, late, variance)


def _relearning(
    parameters: TopsParameters, slots: Slots, epsilon: Fraction, penalty: I64
) -> Relearning:
    chooser = Exceedance(epsilon, tuple(penalty.tolist()))
    return Relearning(chooser, parameters.relearn, slots.warmup, slots.horizon)


def draws(slots: Slots, levels: int, warmup: Warmup | None, relearns: bool = False) -> int:
    """Most draws that one unit can affect."""
    choice = len(slots.thresholds)
    once = choice + (warmup.chunks.levels if warmup else 1)
    return slots.bound * max(once, levels + choice * relearns)


def _warmup(
    parameters: TopsParameters, slots: Slots, epsilon: Fraction
) -> tuple[Warmup | None, Fraction]:
    """The publication of the warm-up, and the ε of the threshold."""
    if not parameters.publish_warmup:
        return None, epsilon * (1 - SUM_SHARE)
    share = Fraction(parameters.threshold_share).limit_denominator(1000)
    if not 0 < share < 1:
        raise ParameterError("threshold_share", parameters.threshold_share, "must lie in (0, 1)")
    rest = epsilon * (1 - share)
    shape = choose_shape(
        slots.warmup_slots, rest, parameters.expected, parameters.fanout,
        history=history_of(parameters),
    )  # fmt: skip
    skip = shape.skip
    while slots.warmup_slots % shape.fanout**skip:
        skip -= 1
    chunks = Chunks(shape.fanout, shape.levels, rest, "warmup")
    return Warmup(chunks, shape.fanout**skip), epsilon * share


def excess_of(parameters: TopsParameters, slots: Slots) -> Fraction:
    """c in grid steps, as stated or by default."""
    if non_negative("excess", parameters.excess):
        return Fraction(parameters.excess).limit_denominator(1 << 20)
    return Fraction(slots.top, _TAIL)


def _fineness(weight: int) -> int:
    """Output steps per grid step and slot, as fine as the largest sums allow in 63 bits."""
    fine = _FINEST
    while fine > 1 and weight * fine >= _LARGEST:
        fine //= 2
    return fine
