"""Comparison of two settings under the same noise keys, without selection bias.

The least of many noisy errors is a lucky one, so a ratio to it is too large. Here half of the noise
keys select the rival, and the other half compare it, both ways round.
"""

from __future__ import annotations

import numpy as np

F64 = np.ndarray
SQUARED = frozenset({"pak", "tops", "topl"})  # their error is the root of a mean of squares
_SURE = 1.645  # one-sided 95 % quantile of the standard normal law


def overall(errors: F64, squared: bool) -> F64:
    """(settings,) error over all noise keys.

    Args:
        errors: (settings, keys) errors under each noise key.
        squared: whether these are roots of mean squares.
    """
    return np.sqrt(np.mean(errors**2, axis=-1)) if squared else np.mean(errors, axis=-1)


def apart(errors: F64, squared: bool) -> tuple[float, float]:
    """Ratio of the first setting's error to its best rival's (maybe itself), and its deviation.

    Args:
        errors: (settings, keys), infinite if a setting is impossible; the first one is judged.
        squared: whether these are roots of mean squares.
    """
    if errors.shape[1] < 4:
        raise ValueError(f"errors: {errors.shape[1]} noise keys are too few, 4 are needed")
    halves = errors[:, ::2], errors[:, 1::2]
    logs, variances = [], []
    for known, held in (halves, halves[::-1]):
        rival = int(np.argmin(overall(known, squared)))
        pair = held[[0, rival]]
        logs.append(_log_ratio(pair, squared))
        variances.append(_jackknife(pair, squared))
    ratio = float(np.exp(np.mean(logs)))
    return ratio, ratio * float(np.sqrt(np.sum(variances))) / 2


def verdict(ratio: float, deviation: float, most: float = 1.1) -> str:
    """Return "within" or "beyond" with 95 % confidence, else "open"."""
    if ratio + _SURE * deviation <= most:
        return "within"
    return "beyond" if ratio - _SURE * deviation > most else "open"


def _log_ratio(pair: F64, squared: bool) -> float:
    chosen, rival = overall(pair, squared)
    return float(np.log(max(chosen, 1e-12) / max(rival, 1e-12)))


def _jackknife(pair: F64, squared: bool) -> float:
    """Variance of the logarithm, by the jackknife over noise keys."""
    n = pair.shape[1]
    without = [_log_ratio(np.delete(pair, i, axis=1), squared) for i in range(n)]
    return float((n - 1) * np.var(without))
