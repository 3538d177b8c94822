"""What a configured histogram will do, told before anything is spent."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from ..contract import Cost
from ..factorization.prefix_noise import STEPS, Process
from .mechanism import Histogram, S
from .rounds import Rounds

_Z95 = 1.6448536269514722


def plan(mechanism: Histogram | Rounds) -> dict[str, Any]:
    """Bounds, noise, thresholds and chances to appear; a function of public parameters alone.

    ``users_50`` and ``users_95`` say how many users with one record each give a key a chance of
    50 % and 95 % to be public at the last trigger (or earlier).

    Returns:
        Plain numbers, strings, lists and dictionaries, ready for JSON.
    """
    triggers = range(1, mechanism.horizon + 1)
    factor = mechanism.quantities[0].lanes[S].factor
    out: dict[str, Any] = {
        "factorization": factor.name,
        "factorization_digest": factor.digest(),
        "bound": _bound(mechanism),
        "outputs": [output.name for output in mechanism.outputs],
        "noise_stddev": [[float(x) for x in mechanism.error(t)] for t in triggers],
        "cost": _cost(mechanism.loss),
        "delay": mechanism.delay,
    }
    if isinstance(mechanism, Rounds):
        return out | _chances(mechanism, mechanism.selector)
    if mechanism.public is not None:
        return out
    return out | _chances(mechanism, mechanism.quantities[0].lanes[S])


def _bound(mechanism: Histogram | Rounds) -> dict[str, Any]:
    bound = mechanism.bound
    out: dict[str, Any] = {"kind": bound.kind, "most_records_per_key": bound.most_per_key()}
    if bound.kind == "records":
        return out | {"budget": bound.left}
    out["budget"] = float(Fraction(bound.left, bound.weights[0]))
    if len(bound.weights) > 1:
        out["adaptive_weight"] = float(Fraction(bound.weights[1], bound.weights[0])) ** 0.5
    return out


def _cost(loss: Cost) -> dict[str, float]:
    return {
        "mu": float(loss.mu2) ** 0.5,
        "epsilon": float(loss.epsilon),
        "delta": float(loss.delta),
    }


def _chances(mechanism: Histogram | Rounds, process: Process) -> dict[str, Any]:
    last = mechanism.horizon
    deviation = float(np.sqrt(process.variance_at(last, np.zeros(1, np.int64))[0]))
    half = mechanism.threshold[-1] / STEPS
    least = float(mechanism.min_units)
    return {
        "threshold": [bar / STEPS for bar in mechanism.threshold],
        "min_users": mechanism.min_units,
        "users_50": max(half, least),
        "users_95": max(half + _Z95 * deviation, least),
    }
