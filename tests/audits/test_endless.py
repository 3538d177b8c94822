"""Audits of windows without a stated end: a key of one unit alone, and everything that is released.

Covers: mechanisms/histogram/endless/thresholds.py, mechanisms/factorization/endless.py
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
from hushstream.mechanisms.accounting import gaussian_cost
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.factorization import endless, reaching
from hushstream.mechanisms.histogram.calibration import processes
from hushstream.mechanisms.histogram.endless import thresholds
from hushstream.mechanisms.histogram.entry import build
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.keys import Keys
from scipy.stats import beta

from .likelihood import keyed
from .mutants import broken

TRIALS, T = 4000, 256
SETTING = Setting(Fraction(2), Fraction(1, 10), 1 << 24, endless=True)
KEYS = Keys.of_codes(np.arange(TRIALS, dtype=np.uint64))


def made() -> Histogram:
    mechanism = build(HistogramParameters(budget=1), SETTING)
    assert isinstance(mechanism, Histogram)
    return mechanism


def appearing() -> int:
    """Keys of one unit with one record that appear at one of many triggers."""
    mechanism, seen = made(), np.zeros(TRIALS, np.bool_)
    for t in range(1, T, 64):
        ahead = mechanism.selector.ahead(keyed("alone"), KEYS, t)
        bars = np.array(mechanism.threshold[t - 1 : t + 63])
        seen |= (256 + ahead >= bars).any(axis=1)
    return int(seen.sum())


def test_a_key_of_one_unit_appears_at_any_trigger_with_what_was_set_aside(monkeypatch) -> None:
    hits, share = appearing(), float(SETTING.delta) / 2
    assert beta.ppf(0.001, hits, TRIALS - hits + 1) <= share
    thresholds._least.cache_clear()
    broken(monkeypatch, thresholds, "share", "((1 << octave) * ", "(")
    hits = appearing()
    thresholds._least.cache_clear()
    assert beta.ppf(0.001, hits, TRIALS - hits + 1) > share


def lower_bound(mechanism: Histogram) -> float:
    """A lower bound of ε, along the likelihood ratio of all triggers, of a record at the first."""
    process, steps = mechanism.selector, 1 << endless.BITS
    core = reaching(T).matrices.core[:T] / steps
    noise = np.concatenate(
        [process.ahead(keyed("ratio"), KEYS, t) for t in range(1, T, 64)], axis=1
    )
    # Increments of what is released, times C, are y = Cx + z.
    moved = np.diff(noise / 256, axis=1, prepend=0)
    ratio = np.zeros(TRIALS)
    for row in range(T):
        ratio += core[row] * (moved[:, : row + 1] @ core[row::-1])
    without, delta = np.sort(ratio), float(SETTING.delta) / 2
    length = float(core @ core)
    best = -math.inf
    for cut in (0.5, 1, 1.5, 2):
        bar = length * cut
        one, other = int((without + length >= bar).sum()), int((without >= bar).sum())
        gap = beta.ppf(0.001, one, TRIALS - one + 1) - delta
        if gap > 0:
            best = max(best, math.log(gap / beta.ppf(0.999, other + 1, TRIALS - other)))
    return best


def test_all_releases_together_prove_no_more_than_epsilon(monkeypatch) -> None:
    assert lower_bound(made()) <= float(SETTING.epsilon)
    monkeypatch.setattr(endless, "sensitivity2", lambda: Fraction(1, 10))
    reached = reaching(1)
    lying = replace(reached, sensitivity2=Fraction(1, 10))
    monkeypatch.setattr(processes, "factor_of", lambda name, horizon: lying)
    assert lower_bound(made()) > float(SETTING.epsilon)


def test_the_declared_cost_is_that_of_all_triggers() -> None:
    mechanism = made()
    shift = endless.sensitivity2() * 4**endless.BITS
    whole = gaussian_cost(shift, mechanism.selector.variance, 1 << 24)
    assert mechanism.cost().mu2 >= whole.mu2
    assert mechanism.cost().epsilon >= whole.epsilon
