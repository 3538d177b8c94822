"""The threshold for a public or synthetic sample: noise against the loss by clipping.

A sum over L slots has noise of variance V·θ² and loses L·E(θ), where E(θ) is the mean of
``(value - θ)₊`` over the sample, per slot. Both follow from the sample without a run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..columns import F64
from ..forecast import sample_of
from ..planner import Question
from .slots import Slots

_RANGES = 12  # lengths of ranges over which the mean is taken


class Aim(NamedTuple):
    """Facts about a sample."""

    values: F64  # (n,) of all windows in increasing order, in grid steps, clipped to the largest
    threshold: int  # θ of least mean squared error of ranges after the warm-up, in grid steps


def aim(question: Question, slots: Slots, variance: Callable[[int], float]) -> Aim:
    """The best threshold for a sample.

    Args:
        question: question with a sample of values.
        slots: the public frame.
        variance: noise variance of a number of first slots after the warm-up, for θ = 1.
    """
    values = np.sort(sample_values(question, slots))
    thetas = np.asarray(slots.thresholds, np.float64)
    place = np.searchsorted(values, thetas, side="right")
    upto = np.concatenate([[0.0], np.cumsum(values)])
    above = (upto[-1] - upto[place]) - thetas * (len(values) - place)
    each = above / max(sample_of(question).windows * slots.slots, 1)
    rest = slots.slots - slots.warmup_slots
    lengths = np.unique(np.linspace(1, rest, _RANGES).round().astype(int))
    noise = float(np.mean([variance(int(one)) for one in lengths]))
    square = noise * thetas**2 + float(np.mean(lengths.astype(float) ** 2)) * each**2
    return Aim(values, slots.thresholds[int(np.argmin(square))])


def sample_values(question: Question, slots: Slots) -> F64:
    """(n,) values of all windows in grid steps, clipped to the largest."""
    epochs = sample_of(question).epochs
    values = [
        np.asarray((work.columns or {})["value"], np.float64) for epoch in epochs for work in epoch
    ]
    clipped: F64 = np.clip(np.concatenate(values) / float(slots.grid), 0, slots.top)
    return clipped
