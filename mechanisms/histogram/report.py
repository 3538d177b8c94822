"""Report on a configured histogram before any budget is spent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ..columns import F64
from ..contract import Cost, Output
from ..factorization.prefix_noise import STEPS, Process
from ..parts.bounds.bounding import Bound
from .keyed_sums import FoundKeys

_Z95 = 1.6448536269514722
_ONCE = (
    "none: no key is public before a window's only trigger; with earlier ones (triggers.every) "
    "the last usually shows more keys with less error, at the same cost"
)
_BY_TRIGGER = {  # name of a factorisation: its setting, and its noise over the triggers
    "terminal": ("terminal", "grows slowly, and is less at the last trigger"),
    "final": ("final", "more than usual until the last trigger, which has less than usual"),
    "sqrt-toeplitz": ("toeplitz", "grows slowly until the last trigger"),
    "blt": ("blt", "grows slowly until the last trigger"),
    "normalized": ("normalized", "grows slowly at first, then falls towards the last trigger"),
    "tree": ("tree", "that of a binary tree: up and down, and more than usual"),
    "endless": ("endless", "grows as long as the window goes on, ever more slowly"),
    "honaker": ("honaker", "that of a binary tree, all of it used: up and down"),
}


def plan(mechanism: FoundKeys) -> dict[str, Any]:
    """Bounds, noise, thresholds and chances to appear; a function of public parameters alone.

    ``users_50`` and ``users_95`` are the numbers of users with one record each for which a key is
    public by the last trigger with a chance of 50 % and 95 %.

    Returns:
        Plain numbers, strings, lists and dictionaries, ready for JSON. ``noise_stddev`` has a list
        for each trigger, with a number in each output's own unit.
    """
    triggers, grids = _told(mechanism), grids_of(mechanism.traits.outputs)
    factor = mechanism.quantities[0].lanes[0].factor
    out: dict[str, Any] = {
        "factorization": factor.name,
        "factorization_digest": factor.digest(),
        "bound": bound_of(mechanism.bound, mechanism.traits.pairs),
        "outputs": [output.name for output in mechanism.traits.outputs],
        "noise_stddev": (np.array([mechanism.error(t) for t in triggers]) * grids).tolist(),
        "cost": cost_of(mechanism.loss),
        "delay": mechanism.delay,
    }
    return out | _chances(mechanism, mechanism.selector) if mechanism.threshold else out


def bound_of(bound: Bound, pairs: bool = False) -> dict[str, Any]:
    out: dict[str, Any] = {"kind": bound.kind, "most_records_per_key": bound.most_per_key()}
    if pairs:
        out["of"] = "distinct values"
    if bound.kind == "records":
        return out | {"budget": bound.left}
    out["budget"] = float(Fraction(bound.left, bound.weights[0]))
    if len(bound.weights) > 1:
        out["adaptive_weight"] = float(Fraction(bound.weights[1], bound.weights[0])) ** 0.5
    return out


def cost_of(loss: Cost) -> dict[str, float]:
    return {
        "mu": float(loss.mu2) ** 0.5,
        "epsilon": float(loss.epsilon),
        "delta": float(loss.delta),
    }


def _told(mechanism: FoundKeys) -> Sequence[int]:
    """Reported triggers: all, or some powers of two where no last trigger is stated."""
    if mechanism.selector.foremost == mechanism.horizon:
        return range(1, mechanism.horizon + 1)
    return [1 << octave for octave in range(mechanism.selector.foremost.bit_length())]


def _chances(mechanism: FoundKeys, process: Process) -> dict[str, Any]:
    triggers = _told(mechanism)
    last = triggers[-1]
    deviation = float(np.sqrt(process.variance_at(last, np.zeros(1, np.int64))[0]))
    half = mechanism.threshold[last - 1] / STEPS
    least = float(mechanism.min_units)
    return {
        "threshold": [mechanism.threshold[t - 1] / STEPS for t in triggers],
        "min_users": mechanism.min_units,
        "users_50": max(half, least),
        "users_95": max(half + _Z95 * deviation, least),
    }


def plan_rows(body: dict[str, Any], unit: str) -> list[tuple[str, str]]:
    """Format the result of `plan` as rows of text."""
    rows = [("contribution bound", bound_words(body["bound"], unit))]
    first = body["noise_stddev"][0]
    if len(body["noise_stddev"]) > 1:  # the noise of a single trigger stands elsewhere
        if first:
            rows.append(("noise over time", _course(body, "at the first trigger", "")))
        rows.append(_by_trigger(body))
    if "adaptive_weight" in body["bound"]:
        known = f"a public key is known {_triggers(body['delay'])} later"
        rows.append(("feedback", known if len(body["noise_stddev"]) > 1 else _ONCE))
    return rows + _key_rows(body, unit) if "threshold" in body else rows


def round_rows(body: dict[str, Any], unit: str) -> list[tuple[str, str]]:
    """Format the result of `plan` for rounds: their noise follows a key's releases."""
    count = len(body["noise_stddev"])
    new = f"a key is released again when enough new units ({unit}) have come since its last release"
    spread = _course(body, "at a key's first", f" at its {count:,}th, if it has one")
    bars = body["threshold"]
    threshold = f"{bars[0]:.4g} after the first trigger of a round … {bars[-1]:.4g} after the last"
    least = [("  and at least", f"{body['min_users']:,} units")] if body["min_users"] > 1 else []
    return [
        ("contribution bound", bound_words(body["bound"], unit)),
        ("rounds", new),
        ("noise over releases", spread),
        _by_trigger(body),
        ("threshold of new units", threshold),
        *least,
        ("feedback", f"a round is known to be over {_triggers(body['delay'])} later"),
        _chance_row(body, unit),
    ]


def _by_trigger(body: dict[str, Any]) -> tuple[str, str]:
    setting, words = _BY_TRIGGER[body["factorization"]]
    return "noise by trigger", f'{words} (factorization = "{setting}")'


def _key_rows(body: dict[str, Any], unit: str) -> list[tuple[str, str]]:
    bars = body["threshold"]
    course = f"{bars[0]:.4g} at the first trigger … " if len(bars) > 1 else ""
    rows = [("threshold of a key", f"{course}{bars[-1]:.4g}")]
    if body["min_users"] > 1:
        rows.append(("  and at least", f"{body['min_users']:,} × {unit}"))
    return [*rows, _chance_row(body, unit)]


def _chance_row(body: dict[str, Any], unit: str) -> tuple[str, str]:
    half, nearly = math.ceil(body["users_50"]), math.ceil(body["users_95"])
    chance = f"50 % at {half:,} × {unit}, 95 % at {nearly:,}"
    return "chance that a key appears", f"{chance} (one record each, last trigger)"


def bound_words(bound: dict[str, Any], unit: str) -> str:
    most, what = f"at most {bound['most_records_per_key']:,} of one key", bound.get("of", "records")
    if bound["kind"] == "records":
        what = what if bound["budget"] > 1 else what.removesuffix("s")
        return f"{bound['budget']:,} {what} of a {unit}, {most}"
    text = f"Σ m² ≤ {bound['budget']:.6g} for the m {what} of a {unit} in each key, {most}"
    if "adaptive_weight" in bound:
        text += f"; in a public key m² counts {bound['adaptive_weight']:.3g}² as much"
    return text


def _triggers(count: int) -> str:
    return f"{count:,} trigger" if count == 1 else f"{count:,} triggers"


def _course(body: dict[str, Any], first: str, last: str) -> str:
    """Name each output with its noise at the first and the last trigger, and these two once."""
    found = zip(body["outputs"], body["noise_stddev"][0], body["noise_stddev"][-1], strict=True)
    (name, low, high), *others = found
    parts = [f"{name} ±{low:.4g} {first} … ±{high:.4g}{last}"]
    return "; ".join([*parts, *(f"{name} ±{low:.4g} … ±{high:.4g}" for name, low, high in others)])


def grids_of(outputs: Sequence[Output]) -> F64:
    """(c',) steps of the outputs' grids, by which noise in grid units becomes that of values."""
    return np.array([float(one.grid) for one in outputs])
