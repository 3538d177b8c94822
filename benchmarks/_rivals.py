"""One-shot releases of other libraries, and the budget of each of several releases.

A rival knows nothing of streams: at each trigger it releases a histogram of all records so far, and
the T releases together cost one (ε, δ) per unit. It bounds a unit to ``keys`` keys with at most
``per_key`` records each, drawn at random, as these libraries do.

* `OpenDP`: counts with Gaussian or Laplace noise above a threshold; its own maps give the cost of
  composed releases (zero-concentrated DP for Gaussian noise).
* `Google`: the key selection of Google's library (`python-dp`, the base of PipelineDP). Counts
  are of distinct units, whose noisy number selection gives at no further cost, or of records, which
  cost half of the budget. Gaussian releases are composed exactly, which the library does not do.
* `Sips`: our own implementation of DP-SIPS (Swanberg, Desfontaines and Haney, 2023): three rounds,
  each of which spreads a unit's weight over its still hidden keys; a half or a fifth of μ² is for
  counts of the found keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from hushstream.mechanisms.accounting import gdp_mu
from hushstream.mechanisms.workload import Workload
from scipy.optimize import brentq
from scipy.stats import norm

try:
    import opendp.prelude as dp
except ImportError:
    dp = None
try:
    from pydp.algorithms import numerical_mechanisms, partition_selection
except ImportError:
    partition_selection = None

THRESHOLD_SHARE = 0.5  # of δ that pays for selection, as in the product and in Google's library


class Budget(NamedTuple):
    """The total cost of ``times`` releases."""

    epsilon: float
    delta: float
    times: int


class Setting(NamedTuple):
    """The bound on a unit, and the kind of noise."""

    keys: int
    per_key: int
    noise: str = "gaussian"


class Counts(NamedTuple):
    """Released counts: (r,) numbers of keys, and their values."""

    key: np.ndarray
    value: np.ndarray


class Bounded(NamedTuple):
    """Accepted records of units: (p,) pairs of unit and key, and how many records each has."""

    unit: np.ndarray
    key: np.ndarray
    records: np.ndarray

    def counts(self, keys: int) -> np.ndarray:
        """(keys,) accepted records."""
        return np.bincount(self.key, self.records, keys).astype(np.int64)


def bounded(work: Workload, upto: int, setting: Setting, draw: np.random.Generator) -> Bounded:
    """Bound the first ``upto`` records."""
    pair, records = np.unique(
        work.unit[:upto].astype(np.int64) * work.keys + work.key[:upto], return_counts=True
    )
    unit, order = pair // work.keys, draw.permutation(len(pair))
    order = order[np.argsort(unit[order], kind="stable")]
    first = np.searchsorted(unit, unit)  # pairs are sorted by unit, so each unit begins here
    kept = order[np.arange(len(pair)) - first < setting.keys]
    return Bounded(unit[kept], pair[kept] % work.keys, np.minimum(records[kept], setting.per_key))


def gaussian_mu(budget: Budget) -> float:
    """μ of all releases together, without the share of δ for selection."""
    return float(gdp_mu(budget.epsilon, budget.delta * (1 - THRESHOLD_SHARE)))


@dataclass(frozen=True)
class OpenDP:
    """See the module."""

    setting: Setting
    budget: Budget
    name: ClassVar[str] = "opendp"
    noises: ClassVar[tuple[str, ...]] = ("gaussian", "laplace")

    def release(self, accepted: Bounded, keys: int, draw: np.random.Generator) -> Counts:
        """Counts above the threshold; the library draws its own noise."""
        exact = accepted.counts(keys)
        there = np.flatnonzero(exact)
        out = self.measurement()(dict(zip(there.tolist(), exact[there].tolist(), strict=True)))
        return Counts(np.array(list(out), np.int64), np.array(list(out.values()), np.int64))

    def cost(self) -> tuple[float, float]:
        """(ε, δ) of all releases, by the library's maps."""
        most, delta = self.measurement().map(self._moved())
        if self.setting.noise == "laplace":
            return most * self.budget.times, delta * self.budget.times
        together = most * self.budget.times
        return _epsilon(together, self.budget.delta / 2), delta * self.budget.times + (
            self.budget.delta / 2
        )

    def measurement(self) -> Any:
        """The library's measurement."""
        scale, threshold = self._calibrated()
        return _measurement(self.setting.noise, scale, threshold)

    def _moved(self) -> tuple[int, float, int]:
        keys, each, noise = self.setting
        return keys, each * (keys if noise == "laplace" else math.sqrt(keys)), each

    def _calibrated(self) -> tuple[float, int]:
        """Least noise and threshold that the maps allow."""
        (epsilon, delta, times), (_, size, each) = self.budget, self._moved()
        if self.setting.noise == "laplace":
            scale, selecting = size * times / epsilon, delta / times
        else:
            scale = size * math.sqrt(times / (2 * _rho(epsilon, delta / 2)))
            selecting = delta / 2 / times
        scale *= 1 + 1e-9

        def fails(threshold: int) -> bool:
            made = _measurement(self.setting.noise, scale, threshold)
            return bool(made.map(self._moved())[1] > selecting)

        low, high = each, each + math.ceil(40 * scale)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fails(middle) else (low, middle)
        return scale, high


@lru_cache(maxsize=4096)
def _measurement(noise: str, scale: float, threshold: int) -> Any:
    dp.enable_features("contrib")
    domain = dp.map_domain(dp.atom_domain(T="i32"), dp.atom_domain(T="i32"))
    if noise == "laplace":
        metric = dp.l01inf_distance(dp.absolute_distance(T="f64"))
        return dp.m.make_laplace_threshold(domain, metric, scale, threshold)
    metric = dp.l02inf_distance(dp.absolute_distance(T="f64"))
    return dp.m.make_gaussian_threshold(domain, metric, scale, threshold)


@lru_cache
def _epsilon(rho: float, delta: float) -> float:
    """ε of ρ by the library's own conversion."""
    space = dp.atom_domain(T="f64", nan=False), dp.absolute_distance(T="f64")
    gauss = dp.m.make_gaussian(*space, scale=1.0)
    profile = dp.c.make_zCDP_to_approxDP(gauss).map(math.sqrt(2 * rho))
    return float(profile.epsilon(delta))


@lru_cache
def _rho(epsilon: float, delta: float) -> float:
    """The ρ that costs ``epsilon``."""
    dp.enable_features("contrib")
    return float(brentq(lambda rho: _epsilon(rho, delta) - epsilon, 1e-6, 100)) * (1 - 1e-9)


@dataclass(frozen=True)
class Google:
    """See the module."""

    setting: Setting
    budget: Budget
    name: ClassVar[str] = "google"
    noises: ClassVar[tuple[str, ...]] = ("gaussian", "laplace")

    def release(self, accepted: Bounded, keys: int, draw: np.random.Generator) -> Counts:
        """Keys that selection keeps, with noisy counts of units, or of records."""
        units = np.bincount(accepted.key, minlength=keys)
        there = np.flatnonzero(units)
        alone = self.setting.per_key == 1
        epsilon, delta = self.each(1.0 if alone else 0.5)
        kind = getattr(partition_selection, f"create_{self.setting.noise}_partition_strategy")
        kept = kind(epsilon, delta, self.setting.keys).noised_value_if_should_keep
        noisy = [kept(n) for n in units[there].tolist()]
        shown = np.array([one is not None for one in noisy], bool)
        if alone:
            return Counts(there[shown], np.rint([n for n in noisy if n is not None]).astype(int))
        add = self._adding(epsilon, delta)
        exact = accepted.counts(keys)[there[shown]].astype(float).tolist()
        return Counts(there[shown], np.rint([add(one) for one in exact]).astype(np.int64))

    def _adding(self, epsilon: float, delta: float) -> Callable[[float], float]:
        keys, each, noise = self.setting
        if noise == "laplace":
            made = numerical_mechanisms.LaplaceMechanism(epsilon, keys * each)
        else:
            moved = each * math.sqrt(keys)
            made = numerical_mechanisms.GaussianMechanism(epsilon, delta / 2, moved)
        add: Callable[[float], float] = made.add_noise
        return add

    def each(self, share: float) -> tuple[float, float]:
        """(ε, δ) of one release: the library spends half of δ on noise, and half on keys."""
        epsilon, delta, times = self.budget
        if self.setting.noise == "laplace":
            return epsilon / times * share, delta / times
        mu = gaussian_mu(self.budget) * math.sqrt(share / times)
        part = delta / times
        return float(brentq(lambda e: float(gdp_mu(e, part / 2)) - mu, 1e-4, 100)), part


@dataclass(frozen=True)
class Sips:
    """See the module; during key selection each pair of unit and key counts once."""

    setting: Setting
    budget: Budget
    name: ClassVar[str] = "sips"
    noises: ClassVar[tuple[str, ...]] = ("1/2 counts", "1/5 counts")
    rounds: ClassVar[tuple[float, ...]] = (1 / 13, 3 / 13, 9 / 13)

    @property
    def counting(self) -> float:
        """Share of μ² for counts."""
        return 1 / int(self.setting.noise[2])

    def release(self, accepted: Bounded, keys: int, draw: np.random.Generator) -> Counts:
        """Counts of the keys that any round finds."""
        mu2, found = gaussian_mu(self.budget) ** 2 / self.budget.times, np.zeros(keys, bool)
        selecting = self.budget.delta * THRESHOLD_SHARE / self.budget.times
        for share in self.rounds:
            open_ = ~found[accepted.key]
            unit, key = accepted.unit[open_], accepted.key[open_]
            weight = 1 / np.sqrt(np.bincount(unit)[unit]) if len(unit) else np.zeros(0)
            deviation = 1 / math.sqrt(mu2 * (1 - self.counting) * share)
            noisy = np.bincount(key, weight, keys) + draw.normal(0, deviation, keys)
            there = np.bincount(key, minlength=keys) > 0
            found |= there & (noisy > self.threshold(deviation, selecting * share))
        deviation = self.setting.per_key * math.sqrt(self.setting.keys / (mu2 * self.counting))
        shown = np.flatnonzero(found)
        noisy = accepted.counts(keys)[shown] + draw.normal(0, deviation, len(shown))
        return Counts(shown, np.rint(noisy).astype(np.int64))

    def threshold(self, deviation: float, delta: float) -> float:
        """Least weight at which keys of one unit alone appear with probability at most δ."""
        n = np.arange(1, self.setting.keys + 1)
        quantile = norm.isf(-np.expm1(np.log1p(-delta) / n))
        return float((1 / np.sqrt(n) + deviation * quantile).max())


def rivals() -> Iterator[type[OpenDP] | type[Google] | type[Sips]]:
    """Rivals that can run here."""
    if dp is not None:
        yield OpenDP
    if partition_selection is not None:
        yield Google
    yield Sips


MISSING = {
    "opendp": (lambda: dp is None, "pip install opendp"),
    "google": (lambda: partition_selection is None, "pip install python-dp"),
}


def left_out() -> dict[str, str]:
    """Libraries that are not installed, and how to install them."""
    return {name: how for name, (missing, how) in MISSING.items() if missing()}
