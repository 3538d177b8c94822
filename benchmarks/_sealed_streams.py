"""Streams of values with randomly drawn laws and parameters.

`FAMILY` was fixed before anyone looked at the streams; every kind has its own seed, so adding a
kind changes no other. Each kind is drawn three times: its scale, its shape, and the public bound B,
which is 1.2 to 400 times the mean of large values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from _values import F64

FAMILY = 20261127
DRAWS = 3
Draw = Callable[[np.random.Generator, int], F64]


def _between(g: np.random.Generator, low: float, high: float) -> float:
    """A number whose logarithm is uniform."""
    return float(np.exp(g.uniform(np.log(low), np.log(high))))


def _gamma(g: np.random.Generator, n: int) -> F64:
    return g.gamma(_between(g, 0.3, 10), 1, n)


def _weibull(g: np.random.Generator, n: int) -> F64:
    made: F64 = g.weibull(_between(g, 0.5, 3), n)
    return made


def _pareto(g: np.random.Generator, n: int) -> F64:
    return g.pareto(_between(g, 1.2, 4), n) + 1


def _lognormal(g: np.random.Generator, n: int) -> F64:
    return g.lognormal(0, _between(g, 0.2, 2), n)


def _triangle(g: np.random.Generator, n: int) -> F64:
    return g.beta(_between(g, 0.5, 6), _between(g, 0.5, 6), n)


def _levels(g: np.random.Generator, n: int) -> F64:
    """A few distinct values, as in price lists."""
    values = np.sort(g.lognormal(0, 1.5, int(g.integers(2, 9))))
    made: F64 = g.choice(values, n, p=g.dirichlet(np.ones(len(values))))
    return made


def _seldom(g: np.random.Generator, n: int) -> F64:
    """Mostly zero."""
    return np.where(g.random(n) < _between(g, 0.003, 0.3), g.gamma(_between(g, 0.5, 5), 1, n), 0)


def _rare(g: np.random.Generator, n: int) -> F64:
    """Small values, with rare far larger ones."""
    large = g.random(n) < _between(g, 0.003, 0.1)
    return np.where(large, _between(g, 5, 300) * g.gamma(3, 1 / 3, n), g.gamma(2, 0.5, n))


def _humps(g: np.random.Generator, n: int) -> F64:
    second = g.normal(_between(g, 2, 12), 0.3, n)
    return np.where(g.random(n) < g.uniform(0.2, 0.8), g.gamma(6, 1 / 6, n), np.maximum(second, 0))


def _bursts(g: np.random.Generator, n: int) -> F64:
    length = int(2 ** g.integers(5, 12))
    on = np.repeat(g.random(n // length) < _between(g, 0.02, 0.3), length)
    loud = np.resize(on, n)
    return g.exponential(1, n) * np.where(loud, _between(g, 4, 40), 1)


def _waves(g: np.random.Generator, n: int) -> F64:
    """A cycle of about a day, with noise proportional to the level."""
    length, place = _between(g, 200, 12_000), np.arange(n) * 2 * np.pi
    return g.gamma(_between(g, 0.7, 6), 1, n) * (1 + g.uniform(0.1, 0.9) * np.sin(place / length))


def _drift(g: np.random.Generator, n: int) -> F64:
    return g.gamma(2, 0.5, n) * np.geomspace(1, _between(g, 0.2, 5), n)


def _steps(g: np.random.Generator, n: int) -> F64:
    """A level that changes once, at most eightfold, anywhere after the warm-up."""
    at = np.arange(n) < g.uniform(0.2, 0.9) * n
    return g.exponential(1, n) * np.where(at, 1, _between(g, 0.125, 8))


KINDS: dict[str, Draw] = {
    "gamma": _gamma, "Weibull": _weibull, "Pareto": _pareto, "lognormal": _lognormal,
    "beta": _triangle, "price list": _levels, "seldom": _seldom, "rare and larger": _rare,
    "humps": _humps, "bursts": _bursts, "waves": _waves, "drift": _drift, "step": _steps,
}  # fmt: skip


def sealed(length: int) -> Iterator[tuple[str, F64, int]]:
    """Name, values and B of every stream."""
    for place, (name, draw) in enumerate(KINDS.items()):
        for number in range(DRAWS):
            g = np.random.default_rng([FAMILY, place, number])
            values = draw(g, length) * _between(g, 10, 1000)
            large = float(values[values >= np.quantile(values, 0.99)].mean())
            top = max(2, round(large * _between(g, 1.2, 400)))
            yield f"drawn {name} {number + 1}", values, min(top, 1 << 20)
