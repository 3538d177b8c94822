"""The privacy statement of a release: noise, bounds, threshold and budget spent.

All functions take public parameters and the trigger in the clock log; none sees data.
"""

from __future__ import annotations

from fractions import Fraction
from math import sqrt
from typing import Any

from ....mechanisms.contract import Mechanism
from ....mechanisms.parts.bounds.stated import plain
from ....topics.config.toml.values import format_duration
from ....topics.records import Trigger
from ..model import Lifetime, Pipeline


def significant(value: float) -> float:
    """Round to six significant digits: the same text whatever the machine's last bit.

    >>> significant(1 / 3)
    0.333333
    """
    return float(f"{value:.6g}")


def bounds(pipeline: Pipeline) -> dict[str, Any]:
    """State the bound on one unit's contribution in an epoch, in numbers and in words.

    Where units have a cap, it says as well how much of it they may use over many epochs.
    """
    found = pipeline.mechanism.bounds(pipeline.unit_name)
    lifetime = pipeline.lifetime
    if lifetime is None:
        return found
    left = pipeline.traits.bound
    most = Fraction(lifetime.cap.most * found["budget"]) / left
    words = (
        f"{found['in_words']}; over {span_of(lifetime)} one {pipeline.unit_name} spends at most "
        f"{float(most):g} of that, then its records are dropped"
    )
    capped = {"lifetime_budget": plain(most), "lifetime_period": lifetime.cap.epochs or 0}
    return found | capped | {"in_words": words}


def span_of(lifetime: Lifetime) -> str:
    """Name the time that a cap holds for: its period, or all epochs."""
    if lifetime.period is None:
        return "all epochs"
    return format_duration(lifetime.period)


def key_threshold(mechanism: Mechanism, index: int) -> int | float | None:
    """State the threshold of a key's noisy count at a trigger.

    Args:
        index: number of the trigger in its window, from 1; where rows are carried, of the window
            in its epoch.

    Returns:
        None where keys are not selected.
    """
    bar = mechanism.key_threshold(index)
    return None if bar is None else plain(bar)


def privacy(pipeline: Pipeline, trigger: Trigger) -> dict[str, Any]:
    """State the guarantee, its cost, and the budget that the pipeline has spent so far.

    Args:
        trigger: trigger of the release; names the charge and the epochs charged by then.
    """
    cost = pipeline.mechanism.cost()
    epochs = trigger.epochs or None
    return {
        "unit": pipeline.unit_name,
        "neighbouring": pipeline.mechanism.guarantee.neighbouring,
        "epoch": trigger.epoch,
        "definition": definition(pipeline),
        "mu": significant(sqrt(cost.mu2)),
        "mu2": significant(float(cost.mu2)),
        "pure_epsilon": significant(float(cost.epsilon)),
        "epsilon": float(pipeline.epsilon),
        "delta": float(pipeline.delta),
        "pipeline_epochs": epochs,
        "pipeline_epsilon_total": epochs and float(pipeline.epsilon * epochs),
        "pipeline_epsilon_limit": _limit(trigger.limit_epsilon),
        "pipeline_delta_total": epochs and float(pipeline.delta * epochs),
        "pipeline_delta_limit": _limit(trigger.limit_delta),
        "ledger_seq": trigger.charge_seq,
        "charge": trigger.charge,
        **{name: plain(value) for name, value in stated(pipeline).items()},
    }


def definition(pipeline: Pipeline) -> str:
    """Name the definition of privacy that the budget is stated in: without a δ, the pure one."""
    stated = pipeline.mechanism.guarantee.definition
    return "pure" if stated == "approximate" and not pipeline.delta else stated


def _limit(text: str) -> float | None:
    return float(Fraction(text)) if text else None


def stated(pipeline: Pipeline) -> dict[str, Fraction]:
    """Collect further costs: those that a mechanism states, and the most that a unit ever pays."""
    found, lifetime = dict(pipeline.mechanism.stated(pipeline.unit_name).values), pipeline.lifetime
    if lifetime is not None:
        found |= {"per_unit_epsilon": lifetime.epsilon, "per_unit_delta": lifetime.delta}
    return found


def charge_body(
    pipeline: Pipeline, epoch: int, code_version: str, key_fingerprint: str
) -> dict[str, Any]:
    """Make the body of a charge: exact cost, configuration and code of one epoch."""
    cost = pipeline.mechanism.cost()
    return {
        "pipeline": pipeline.name,
        "epoch": epoch,
        "mechanism": pipeline.kind,
        "unit": pipeline.unit_name,
        "neighbouring": pipeline.mechanism.guarantee.neighbouring,
        "definition": definition(pipeline),
        "mu2": text(cost.mu2),
        "pure_epsilon": text(cost.epsilon),
        "coupling_delta": text(cost.delta),
        "epsilon": text(pipeline.epsilon),
        "delta": text(pipeline.delta),
        "config": pipeline.config,
        "config_hash": pipeline.config_hash,
        "code_version": code_version,
        "key_fingerprint": key_fingerprint,
        **{name: text(value) for name, value in stated(pipeline).items()},
    }


def limits(pipeline: Pipeline) -> tuple[str, str]:
    """Write the limits on a pipeline's total ε and δ as texts; empty where there is none."""
    found = pipeline.limit_epsilon, pipeline.limit_delta
    epsilon, delta = ("" if limit is None else text(limit) for limit in found)
    return epsilon, delta


def text(value: Fraction) -> str:
    """Write an exact rational as text.

    >>> text(Fraction(3, 2)), text(Fraction(2))
    ('3/2', '2')
    """
    return (
        f"{value.numerator}/{value.denominator}" if value.denominator != 1 else str(value.numerator)
    )
