"""Proposed parameters are near the best on data of the same shape, for three shapes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram_plan import HistogramParameters, build
from hushstream.mechanisms.histogram_propose import propose
from hushstream.mechanisms.noise import KeyedNoise
from hushstream.mechanisms.simulation import Run, Workload, last_error

SETTING = Setting(Fraction(4), Fraction(1, 10**7), 6)
FIXED = HistogramParameters(delay=0)
GRID = [
    (budget, weight)
    for budget in (1, 1.5, 2, 3, 4.5, 7, 10, 16, 26)
    for weight in (0, 0.25, 0.5)
    if budget * (weight or 1) ** 2 > 0.04
]


def keyed(name: str) -> KeyedNoise:
    return KeyedNoise(
        b"p" * 32, charge=bytes(32), mechanism="m", config=b"", pipeline="p", window=name
    )


def drawn(shape: str, seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    users, keys = 20_000, 2_000
    zipf = (np.arange(keys) + 3.0) ** -1.3
    if shape == "one record each":
        unit = np.arange(users)
        key = rng.choice(keys, users, p=zipf / zipf.sum())
    elif shape == "many keys each":
        unit = np.repeat(np.arange(users // 2), rng.geometric(0.15, users // 2))
        key = rng.choice(keys, len(unit), p=zipf / zipf.sum())
    else:  # repeats one key
        unit = np.repeat(np.arange(users // 2), rng.geometric(0.25, users // 2))
        own = rng.choice(keys, users, p=zipf / zipf.sum())
        key = own[unit]
    order = rng.permutation(len(unit))
    return Workload(unit[order].astype(np.int32), key[order].astype(np.int32), users, keys)


@pytest.mark.parametrize("shape", ["one record each", "many keys each", "repeats one key"])
def test_the_proposal_is_within_a_tenth_of_the_best(shape: str) -> None:
    found = propose(FIXED, SETTING, drawn(shape, 1), keyed("plan"))
    real = drawn(shape, 2)

    def error(budget: float, weight: float) -> float:
        one = replace(FIXED, budget=budget, adaptive_weight=weight)
        return last_error(Run(build(one, SETTING), real, keyed("real")))

    chosen = found.parameters
    assert chosen.budget is not None and chosen.adaptive_weight is not None
    mine = error(chosen.budget, chosen.adaptive_weight)
    assert mine <= 1.1 * min(error(*one) for one in GRID)
    assert mine < 0.97 * max(error(*one) for one in GRID[::4])  # and there was something to choose
