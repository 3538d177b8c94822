"""Simulated devices that find a threshold, only for proposals and forecasts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...client.survey import NARROW, RANGE, Survey
from ..columns import F64
from ..keys import Keys
from ..noise.keyed import KeyedNoise
from .estimate import Buckets, density, threshold
from .fit import simulate
from .rounds import found_range, found_threshold
from .settings import ToPLParameters

U64 = NDArray[np.uint64]
Answer = Callable[[int, int], Buckets]  # group and told step → the group's reports


def words_of(noise: KeyedNoise, devices: int) -> U64:
    """(n, 4) uniform words, the randomness of n devices."""
    keys = Keys.of_codes(np.arange(devices, dtype=np.uint64))
    bits = noise.bits("report", keys, np.arange(2, dtype=np.int64), np.ones(2, np.int64))
    return bits.reshape(devices, 4)


def uniform(words: U64) -> F64:
    """(n,) numbers in [0, 1) from each device's first word."""
    return (words[:, 0] >> np.uint64(11)).astype(np.float64) * 2.0**-53


def reports(survey: Survey, value: F64, group: int, told: int, words: U64) -> Buckets:
    """Reports of one group's devices: (n,) raw values, (n, 4) words, step ``told``."""
    who = np.full(len(value), group)
    codes = simulate(survey, value, who, told, words[:, 1:])
    theta = np.full(len(value), told if group == NARROW else 0)
    return Buckets(who, theta, codes, np.ones_like(codes))


def learnt(survey: Survey, parameters: ToPLParameters, answer: Answer) -> int:
    """The step of threshold and channel that simulated reports choose."""
    smooth = parameters.smooth
    wide = answer(RANGE, survey.buckets)
    if survey.rounds == 1:
        return threshold(survey, wide, density(survey, wide, smooth))
    within = found_range(survey, wide, smooth, parameters.guard)
    near = answer(NARROW, within)
    return found_threshold(survey, near, density(survey, near, smooth, NARROW), within)
