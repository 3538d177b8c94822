"""Noise of prefix sums by key, from a factorisation, a variance and noise labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ...errors import ParameterError
from .. import accounting, factorization
from ..columns import F64, I64
from ..contract import Noise
from ..keys import Keys
from ..ranges import GAUSS_TAIL, Draws
from . import exact_rounding as grid
from .matrix import Factorization

STEPS = 256
"""Noise is rounded down to 1/STEPS before it is added to integers or compared."""

_ROUNDED = 2.0**51  # integers in doubles, to a quarter
_CHUNK = 1 << 22  # draws at a time
_CONFIGURED = ("auto", "terminal", "final", "toeplitz", "blt", "normalized", "tree", "honaker")
ENDLESS = "endless"
_AHEAD = 64  # triggers predicted at a time where there is no last trigger
_NORM = 4.0  # bound: longest row of the endless factorisation over that of its smallest table


def chosen(name: str, horizon: int) -> str:
    """The factorisation meant by a configured name; "auto" depends on the horizon alone.

    A running pipeline has charged for "auto" and, by digest, for the factorisation that it means
    (`agents.deployment.compile.pinned_hash`). Choosing another one would stop that pipeline.
    """
    names = {"toeplitz": "sqrt-toeplitz"}
    if name == "auto":
        return "terminal" if horizon <= 1024 else "blt"
    return names.get(name, name)


@dataclass(frozen=True)
class Process:
    """Correlated noise of one quantity and lane, for every key of a window.

    Attributes:
        purpose: use of the noise, such as selection; part of every label.
        name: factorisation.
        horizon: triggers per window.
        variance: variance of each discrete Gaussian, in squared steps of the factorisation's grid.
    """

    purpose: str
    name: str
    horizon: int
    variance: Fraction

    @property
    def factor(self) -> Factorization:
        """The factorisation; of an endless one, the part for the first triggers."""
        return self._reaching(1)

    def _reaching(self, t: int) -> Factorization:
        """The part of the factorisation that step t needs."""
        if self.name == ENDLESS:
            return factorization.reaching(t)
        return factorization.build(self.name, self.horizon)

    @property
    def first(self) -> I64:
        """(m,) step, from 1 on, at which each coordinate of the noise is used for the first time.

        (Cx)_i is complete at that step: C has zeros in the columns of later steps. Hence z_i covers
        only the data up to that step, wherever it is used again.
        """
        return self._first(self.factor)

    @staticmethod
    def _first(factor: Factorization) -> I64:
        width = factor.width
        return np.searchsorted(width, np.arange(width[-1]), side="right").astype(np.int64) + 1

    def at(self, noise: Noise, keys: Keys, t: int, since: I64, first: I64 | None = None) -> I64:
        """(r,) noise at step t in 1/STEPS, rounded down.

        Args:
            keys: (r,) labels.
            t: step; steps are triggers unless ``first`` says otherwise.
            since: (r,) coordinates that are complete by that step are left out, because the
                process of that key had no data then, so its noise is publicly known.
            first: (m,) trigger at which each coordinate covers content first, or (r, 1) a trigger
                before which none of a key's coordinates covers content and after which no nonce
                changes; None where steps are triggers.
        """
        return self._floors(noise, keys, np.array([t]), since, first)[:, 0]

    def ahead(
        self,
        noise: Noise,
        keys: Keys,
        t: int,
        since: I64 | None = None,
        first: I64 | None = None,
    ) -> I64:
        """(r, u) noise at steps from t to `foreseen` in 1/STEPS, rounded down; see `at`."""
        return self._floors(noise, keys, np.arange(t, self.foreseen(t) + 1), since, first)

    def several(self, noise: Noise, keys: Keys, triggers: I64) -> I64:
        """(r, m) noise at increasing steps in 1/STEPS, rounded down, with all coordinates."""
        return self._floors(noise, keys, triggers, None, None)

    def foreseen(self, t: int) -> int:
        """The last step predicted at step t: T, or a later one where no last step is stated."""
        return self.horizon if self.name != ENDLESS else min(self.horizon, t + _AHEAD - 1)

    def _floors(
        self, noise: Noise, keys: Keys, triggers: I64, since: I64 | None, first: I64 | None
    ) -> I64:
        out = np.empty((len(keys), len(triggers)), np.int64)
        factor = self._reaching(int(triggers[-1]))
        index = np.arange(factor.width[triggers[-1] - 1])
        begun = self._first(factor) if first is None else first
        step = self._step(len(index))
        for rows in (slice(begin, begin + step) for begin in range(0, len(keys), step)):
            each = begun[: len(index)] if begun.ndim == 1 else begun[rows]
            z = noise.gauss(self.purpose, keys[rows], index, self.variance, each)
            if since is not None:
                z[index < _known(factor, since[rows])[:, None]] = 0
            out[rows] = grid.floors(factor, triggers, z, STEPS)
        return out

    def chunks(self, rows: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
        """``rows`` in pieces whose noise fits into memory."""
        step = self._step(self.factor.noises)
        for begin in range(0, len(rows), step):
            yield rows[begin : begin + step]

    @staticmethod
    def _step(width: int) -> int:
        return max(1, _CHUNK // width)

    def variance_at(self, t: int, since: I64) -> F64:
        """(r,) variance of the noise that `at` draws, in squared records."""
        factor = self._reaching(t)
        row = factor.rows(np.array([t]))[0, : int(factor.width[t - 1])]
        tails = np.concatenate([np.cumsum((row * row)[::-1])[::-1], np.zeros(1)])
        scale = float(self.variance) / 4.0**factor.bits
        return tails[np.minimum(_known(factor, since), len(row))] * scale

    @property
    def foremost(self) -> int:
        """The last trigger, or the last one in the smallest table of an endless factorisation."""
        return min(self.horizon, self.factor.horizon)

    @property
    def growth(self) -> float:
        """Bound of the deviation at any trigger, relative to that at `foremost`.

        The rows of an endless factorisation grow, and those of 2^24 triggers would take minutes to
        compute.
        """
        return _NORM if self.name == ENDLESS else 1.0

    def draws(self, of: str) -> Draws:
        """Draws of this noise, and their limit for exact rounding (`exact_rounding.floors`)."""
        return Draws(of, "gauss", self.variance, largest(self.factor))

    def quantile(self, t: int, beta: Fraction) -> Fraction:
        """x with P(noise at trigger t ≥ x) ≤ β, in records."""
        factor = self._reaching(t)
        norms = factor.norm2(t), factor.norm1(t)
        return accounting.sum_tail(beta, self.variance, *norms, factor.noises) / (1 << factor.bits)


def _known(factor: Factorization, since: I64) -> I64:
    """(r,) leading coordinates that are complete by trigger ``since``."""
    return np.concatenate([np.zeros(1, np.int64), factor.width])[since]


def largest(factor: Factorization) -> Fraction:
    """The largest variance of noise whose prefix sums can be rounded exactly."""
    longest = float(factor.row_norms.max()) * (_NORM if factor.name == ENDLESS else 1)
    widest = max(longest * STEPS / 2.0**factor.bits, 0.25)
    return Fraction(_ROUNDED / GAUSS_TAIL / widest) ** 2


def longest(name: str) -> int:
    """The most triggers of a configured factorisation; the overall maximum if it is unknown."""
    most = max(factorization.LONGEST.values())
    return factorization.LONGEST.get(chosen(name, most), most)


def factor_of(name: str, horizon: int) -> Factorization:
    """The factorisation for a configured name.

    Raises:
        ParameterError: the name is unknown, or its factorisation does not reach ``horizon``.
    """
    if name == ENDLESS:
        return factorization.reaching(1)
    if name not in _CONFIGURED:
        raise ParameterError("factorization", name, "is unknown")
    return factorization.build(chosen(name, horizon), horizon)
