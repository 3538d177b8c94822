"""Ranks and factors with which PAK's threshold suits a public sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..planner import Question
from ..slots.aim import aim
from .settings import PakParameters, build, kind_of

_RANKS = (4, 8, 16, 32)  # divided by ε: a noisy rank is off by about 3/ε
_LARGEST = 16.0  # a factor that extrapolates the sample's law further is meaningless


def aimed(question: Question, known: PakParameters) -> Iterator[Any]:
    """The settings with each of some ranks, and the factor from its quantile to the threshold.

    A low rank is near the threshold but noisy. A high rank is reliable but must be raised by a
    factor, which is only as well known as the shape of the law. Neither is always best.

    Args:
        question: question with a sample.
        known: settings with the sample's ``expected`` and ``excess``.

    Raises:
        ParameterError: the settings contradict each other or the setting.
    """
    if kind_of(known) not in ("exceedance", "noisy-max"):
        return
    made = build(known, question.setting)
    slots = made.slots
    found = aim(question, slots, lambda end: made.counter.variance(1, 0, end))
    records = known.expected * slots.warmup_slots
    epsilon = float(question.setting.epsilon) / slots.bound
    for times in _RANKS:
        rank = round(times / epsilon)
        if not 1 <= rank <= records // 4:
            continue
        place = min(int(len(found.values) * (1 - rank / records)), len(found.values) - 1)
        quantile = float(found.values[place])
        if found.threshold > quantile * _LARGEST:
            continue
        yield replace(
            known, threshold="noisy-max", safety=1.0, tail=float(f"{(rank - 0.5) / records:.4g}"),
            factor=round(found.threshold / quantile, 3),
        )  # fmt: skip
