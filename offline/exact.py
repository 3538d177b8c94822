"""Exact answers from a file for what a pipeline releases, with which a simulation compares.

Nothing here is private. Answers ignore the contribution bound, so the comparison shows what the
bound cut off; values are clipped to their public range, as the release states.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..agents.deployment.model import Pipeline
from ..formats.events.decode import View
from ..mechanisms.columns import F64, I64
from ..mechanisms.pairs import split
from ..mechanisms.parts.bounds.bounding import Bound
from ..mechanisms.truth import Truth
from ..topics.config.aggregates.contract import COUNT, AnyAggregate, Estimate
from ..topics.config.aggregates.spread import Stddev, Variance

Bool = NDArray[np.bool_]


def counts_units(p: Pipeline) -> bool:
    """Whether the pipeline counts distinct units: each counts once in a key."""
    bound = getattr(p.mechanism, "bound", None)
    units = isinstance(bound, Bound) and bound.of_units
    return p.in_parts and units and not p.traits.pairs


def of_keys(p: Pipeline, view: View, mine: Bool, unit: I64) -> Truth:
    """Answer for a pipeline that releases aggregates by key.

    ``mine`` holds the (n,) records of the window, ``unit`` the (n,) number of each record's unit.
    """
    if p.traits.pairs:
        return _of_values(p, view, mine)
    key, sign = view.key[mine], view.sign[mine].astype(np.int64)
    size = len(view.keys)
    if counts_units(p):
        pairs = np.unique(np.stack([key.astype(np.int64), unit[mine]]), axis=1)
        number = np.bincount(pairs[0], minlength=size)
    else:
        number = _added(key, sign, size)
    live = np.flatnonzero(np.bincount(key, minlength=size))
    names = view.keys.take(live).tolist()
    sums = {
        f.name: _added(key, sign * view.value[mine, place], size)
        for place, f in enumerate(p.columns)
    }
    place = {f.name: at for at, f in enumerate(p.columns)}
    squares: dict[str, tuple[I64, F64]] = {}
    for one in p.aggregates:
        if isinstance(one, Variance | Stddev):
            values, *count = (view.value[mine, place[f.name]] for f in one.columns)
            weight = sign * count[0] if count else sign
            squares[one.label] = _added(key, weight, size), _moments(key, weight, values, size)
    grids = {f.name: f.grid for f in p.columns}
    records = _added(key, sign, size)
    values = {}
    for one in p.aggregates:
        if isinstance(one, Variance | Stddev):
            weights, moments = squares[one.label]
            answers = _spread(one, weights[live], moments[live])
            values[one.label] = dict(zip(names, answers.tolist(), strict=True))
            continue
        counted = number if one.parts == (COUNT,) else records
        values[one.label] = {
            name: _answer(
                one, int(counted[at]), {f: int(s[at]) * grids[f] for f, s in sums.items()}
            )
            for name, at in zip(names, live.tolist(), strict=True)
        }
    held = dict(zip(names, number[live].tolist(), strict=True))
    return Truth(int(mine.sum()), held, values, every=True)


def _of_values(p: Pipeline, view: View, mine: Bool) -> Truth:
    """The number of distinct values of each key; keys of records list the value last."""
    if not mine.any():
        return Truth(0, {}, {p.aggregates[0].label: {}}, every=True)
    parts = split(view.keys)
    if p.public_keys is not None:  # the mechanism drops other keys, but the decoder does not
        mine = mine & np.array([key in p.public_keys for key in parts.keys])[parts.key][view.key]
    number = np.bincount(parts.key[np.unique(view.key[mine])], minlength=len(parts.keys))
    held = {k: n for k, n in zip(parts.keys.tolist(), number.tolist(), strict=True) if n}
    answers = {key: float(n) for key, n in held.items()}
    return Truth(int(mine.sum()), held, {p.aggregates[0].label: answers}, every=True)


def _answer(one: AnyAggregate, number: int, sums: Mapping[str, Fraction]) -> float:
    """The aggregate of exact parts, by its own rule."""
    names = [f.name for f in one.columns]
    parts = [Estimate(Fraction(number), 0.0)] if COUNT in one.parts else []
    parts += [Estimate(sums[name], 0.0) for name in names]
    if len(parts) == 2 and number == 0:
        return float("nan")  # the mean of no records
    if len(parts) == 2:
        return float(parts[1].value / parts[0].value)
    return float(parts[0].value)


def _moments(key: NDArray[np.intp], sign: I64, value: I64, size: int) -> F64:
    """(size,) sums of squared distances from the key's mean, in squared grid steps."""
    n = np.bincount(key, sign, size)
    mean = np.bincount(key, sign * value, size) / np.where(n == 0, 1, n)
    squares = np.bincount(key, sign * (value - mean[key]) ** 2, size)
    return squares.astype(np.float64)


def _spread(one: Variance | Stddev, number: I64, squares: F64) -> F64:
    """(keys,) variances or deviations; NaN where there are too few records."""
    by = (number - one.sample).astype(np.float64)
    by[by <= 0] = np.nan
    variance: F64 = np.maximum(squares, 0) * float(one.grid) ** 2 / by
    return variance if isinstance(one, Variance) else np.sqrt(variance)


def _added(key: NDArray[np.intp], value: I64, size: int) -> I64:
    """(size,) exact sums of integers by key."""
    out = np.zeros(size, np.int64)
    np.add.at(out, key, value)
    return out


def kept_share(view: View, unit: I64, epoch: I64, most: int) -> float:
    """Share of records within a bound of ``most`` records of a unit in an epoch.

    ``unit`` and ``epoch`` hold the (n,) numbers of each record's unit and epoch.
    """
    if not len(view.key):
        return 1.0
    _, number = np.unique(np.stack([unit, epoch]), axis=1, return_counts=True)
    return float(np.minimum(number, most).sum() / len(view.key))
