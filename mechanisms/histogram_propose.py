"""Propose the public parameters of a histogram from a guess of the data's shape.

The guess is a sample that is public or synthetic: never the protected stream, whose shape is
private. Every candidate is calibrated to the same (ε, δ) and played over the sample with the
mechanism itself; the one with the least l1 error at the last trigger is proposed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from .contract import Noise, Setting
from .histogram_plan import HistogramParameters, build
from .simulation import Run, Workload, last_error

BUDGETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
WEIGHTS = (0.0, 0.5, 0.3)


class Proposal(NamedTuple):
    """The best parameters, and what every candidate would have done."""

    parameters: HistogramParameters
    error: dict[tuple[float, float], float]  # (budget, weight) to l1 at the last trigger


def propose(
    parameters: HistogramParameters, setting: Setting, sample: Workload, noise: Noise
) -> Proposal:
    """Fill in ``budget`` and ``adaptive_weight``; everything else stays as given.

    First the budget without adaptive weights on a geometric grid, then the weights around it,
    then budgets in between: about 20 plays of the sample. The sample must have the size of a
    window: thresholds and noise do not shrink with it.

    Raises:
        ParameterError: the parameters contradict each other or the setting.
    """
    error: dict[tuple[float, float], float] = {}

    def play(budget: float, weight: float) -> None:
        if (budget, weight) not in error:
            one = replace(parameters, budget=budget, adaptive_weight=weight)
            error[budget, weight] = last_error(Run(build(one, setting), sample, noise))

    for budget in BUDGETS:
        play(budget, WEIGHTS[0])
    for weight in WEIGHTS[1:] if setting.keys is None else ():
        for budget in BUDGETS[1:-1]:
            play(budget, weight)
    best = min(error, key=error.__getitem__)
    for factor in (0.7, 0.85, 1.2, 1.4):
        play(round(max(1.0, best[0] * factor), 2), best[1])
    best = min(error, key=error.__getitem__)
    return Proposal(replace(parameters, budget=best[0], adaptive_weight=best[1]), error)
