"""A two-neighbour audit of quantiles: all nodes, levels and triggers, with and without a unit.

Every key is one trial. The statistic is the likelihood ratio of everything that is released, which
is normal in both worlds where the noise is as declared; the claim is compared with a lower bound of
ε at confidence 99.9 % (`test_histogram`), and noise that is too small must exceed it.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from hushstream.mechanisms.quantile.mechanism import Quantiles
from hushstream.mechanisms.quantile.settings import QuantileParameters, build

from .test_histogram import CODES, DELTA, EPSILON, TRIALS, epsilon_bound

T, BUDGET = 3, 9


def made() -> Quantiles:
    keys = tuple(Keys.of_codes(CODES).tolist())
    parameters = QuantileParameters(0, 14, (0.5,), 16, budget=BUDGET)
    return build(parameters, Setting(EPSILON, DELTA, T, keys=keys))


def ratio(mechanism: Quantiles, declared: Quantiles, when: int, band: int, m: int) -> np.ndarray:
    """(TRIALS,) log likelihood ratios of m records in one band, by declared noise."""
    noise = KeyedNoise(
        b"q" * 32, charge=bytes(32), mechanism="audit", config=b"", pipeline="p",
        window=f"{m}", nonces=STEADY,
    )  # fmt: skip
    factor = declared.counter.factor
    C = factor.C.astype(float) * 2.0**-factor.bits
    counts = np.zeros((TRIALS, 16), np.int64)
    seen = []
    for t in range(T):
        counts[:, band] += m * (t == when)
        levels = mechanism._nodes(counts, Keys.of_codes(CODES), t + 1, noise)
        seen.append([nodes[:, band // 4**level] for level, nodes in enumerate(levels)])
    out = np.zeros(TRIALS)
    for level, process in enumerate(declared.processes):
        sums = np.diff([at[level] for at in seen], axis=0, prepend=0)
        shift = C[:, when] / (float(process.variance) / 4.0**factor.bits)
        out += shift @ (C @ sums)
    return out


def bound(mechanism: Quantiles, declared: Quantiles) -> float:
    factor = declared.counter.factor
    when = int((factor.C.astype(float) ** 2).sum(axis=0).argmax())
    present = ratio(mechanism, declared, when, 6, 3)
    absent = ratio(mechanism, declared, when, 6, 0)
    cuts = np.quantile(present[::2], np.linspace(0.3, 0.98, 18))  # chosen on a half of the runs
    best = max(cuts, key=lambda cut: epsilon_bound(present > cut, absent > cut))
    return epsilon_bound(present > best, absent > best)


def test_all_levels_together_stay_below_the_claim_and_close_to_it() -> None:
    assert BUDGET == 3**2  # the unit spends all that it has in one key
    found = bound(made(), made())
    assert 0.75 * float(EPSILON) < found < float(EPSILON)


@pytest.mark.spread(3)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_level_with_too_little_noise_is_caught(level: int) -> None:
    declared = made()
    quiet = list(declared.processes)
    quiet[level] = replace(quiet[level], variance=quiet[level].variance * Fraction(1, 16))
    # The attacker knows which noise it is.
    broken = replace(declared, processes=tuple(quiet))
    assert bound(broken, broken) > 1.3 * float(EPSILON)
