"""Forecast for a configured ToPS stream: public choices, threshold, errors.

Nothing looks at data. If values above any threshold lie c above it on average, they have an
exponential tail of scale c. With that guess the distribution of the noisy maximum, and so of θ and
of the error of ranges, follows from the configuration alone.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...errors import ParameterError
from ..columns import F64
from ..contract import Setting
from ..parts.trees.hierarchy import Chunks
from ..parts.trees.shape import candidates, shape_error
from ..slots.settings import slots_of
from .mechanism import Tops
from .settings import TopsParameters, build, excess_of, history_of

_FINE = 64.0
_ENDS = 9  # ranges go between every two of this number of positions in a chunk


class TopsProposal(NamedTuple):
    """Values in grid steps."""

    records: int  # records of a window, if known better than by ``expected``
    excess: Fraction  # c, the guessed scale of the tail
    parameters: TopsParameters  # proposed
    skip: int  # s, levels without noise; ``width`` = fanout^s slots share one noisy total
    width: int
    chunk: int  # slots of one hierarchy; 0 where one tree covers the stream
    # (s, root mean squared error of a range at θ = 1) for every s, as in `trees.shape`, each
    # with the best levels for the chosen fanout
    skips: tuple[tuple[int, float], ...]
    # 5 %, 50 % and 95 % points of θ for a warm-up with exactly the expected counts
    thresholds: tuple[int, int, int]
    ideal: int  # the θ of least error
    error: float  # root mean squared error of a random range, over the draws of θ
    # ideal_error, top_error: the error with the ideal θ and with B
    ideal_error: float
    top_error: float

    @property
    def clip(self) -> bool:
        """Whether the threshold is better than B."""
        return self.error < self.top_error


def propose(
    parameters: TopsParameters,
    setting: Setting,
    records: int | None = None,
    scale: float | None = None,
) -> TopsProposal:
    """The public choices for the stated stream, and the expected errors with them.

    Args:
        parameters: configured parameters; a configured skip or height stays.
        records: records of a window, if known better than by ``expected``.
        scale: c in grid steps, if known better than by ``excess``.

    Raises:
        ParameterError: an argument is out of range, or the configuration is.
    """
    slots = slots_of(parameters, setting)
    if records is not None:
        if records < 1:
            raise ParameterError("records", records, "must be at least 1")
        parameters = replace(parameters, expected=max(1, round(records / slots.slots)))
    if scale is not None:
        parameters = replace(parameters, excess=scale)
    made = build(parameters, setting)
    excess = excess_of(parameters, slots)
    weights = _thresholds(made, parameters.expected, excess)
    squares = _squares(made, parameters.expected, excess)
    below = np.cumsum(weights)
    found = [slots.thresholds[int(np.searchsorted(below, share))] for share in (0.05, 0.5, 0.95)]
    fanout = made.tree.fanout
    skip = round(np.log(made.width) / np.log(fanout))
    levels = made.tree.levels if isinstance(made.tree, Chunks) else 0
    height = levels + skip
    late = slots.slots - slots.warmup_slots
    return TopsProposal(
        parameters.expected * slots.slots, excess, parameters, skip, made.width,
        fanout**height if levels else 0,
        _skips(made, late, parameters) if levels else (),
        (found[0], found[1], found[2]),
        slots.thresholds[int(np.argmin(squares))],
        float(weights @ squares) ** 0.5, float(squares.min()) ** 0.5, float(squares[-1]) ** 0.5,
    )  # fmt: skip


def _skips(made: Tops, slots: int, parameters: TopsParameters) -> tuple[tuple[int, float], ...]:
    """(s, least error of a range at θ = 1) for every number of levels without noise."""
    least: dict[int, float] = {}
    load, history = parameters.expected, history_of(parameters)
    for shape in candidates(slots, made.tree.fanout, parameters.height):
        error = shape_error(shape, slots, made.tree.epsilon, load, history) ** 0.5
        least[shape.skip] = min(error, least.get(shape.skip, error))
    return tuple(sorted(least.items()))


def _tail(made: Tops, excess: Fraction) -> F64:
    """(c,) probability that a value lies above each threshold; values are at most B."""
    above: F64 = np.exp(-np.array(made.slots.thresholds, np.float64) / float(excess))
    above[-1] = 0.0
    return above


def _thresholds(made: Tops, load: int, excess: Fraction) -> F64:
    """(c,) probability that the noisy maximum selects each threshold.

    Discrete noise and ties are included: i wins at x = s_i + Z_i with probability
    ``P(Z_i = x - s_i) Π_{j<i} P(Z_j < x - s_j) Π_{j>i} P(Z_j ≤ x - s_j)``. Counts are the expected
    ones.
    """
    counts = load * made.slots.warmup_slots * _tail(made, excess)
    scale = 1 / float(made.threshold_epsilon)
    step = max(1.0, scale / _FINE)  # ties hardly matter for such wide noise
    score = np.rint((-counts - np.array(made.penalty, np.float64)) / step)
    decay = math.exp(-step / scale)
    reach = scale / step
    x = np.arange(-20 * reach, (25 + math.log(len(score))) * reach) // 1 + score.max()
    away = x[:, None] - score
    upto = np.cumsum(_log_below(away, decay)[:, ::-1], axis=1)[:, ::-1]
    less = np.cumsum(_log_below(away - 1, decay), axis=1)
    log = np.log(1 - decay) - np.abs(away) * (step / scale)
    log[:, 1:] += less[:, :-1]
    log[:, :-1] += upto[:, 1:]
    mass = np.exp(log - log.max()).sum(axis=0)
    weights: F64 = mass / mass.sum()
    return weights


def _log_below(k: F64, decay: float) -> F64:
    """ln P(Z ≤ k) of the discrete Laplace distribution with ratio ``decay``."""
    low = k * -math.log(decay) - math.log1p(decay)
    high = np.log1p(-(decay ** (np.maximum(k, 0) + 1)) / (1 + decay))
    below: F64 = np.where(k < 0, low, high)
    return below


def _squares(made: Tops, load: int, excess: Fraction) -> F64:
    """(c,) mean squared error of a range at each threshold: noise and the loss by clipping."""
    span = made.slots.slots - made.slots.warmup_slots
    blocks = max(1, span // made.width)
    places = sorted({round(i * blocks / (_ENDS - 1)) for i in range(_ENDS)})
    ranges = list(itertools.combinations(places, 2))
    top = made.slots.top
    noise = np.mean([made.worst_blocks().tree.variance(top, a, z) for a, z in ranges]) / top**2
    length2 = np.mean([((z - a) * made.width) ** 2 for a, z in ranges])
    theta = np.array(made.slots.thresholds, np.float64)
    cut = load * float(excess) * (_tail(made, excess) - np.exp(-theta[-1] / float(excess)))
    squares: F64 = noise * theta**2 + length2 * np.maximum(cut, 0) ** 2
    return squares
