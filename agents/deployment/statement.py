"""What a release says of its own privacy: noise, bounds, threshold and budget spent.

Functions of public parameters and of the trigger in the clock log; nothing here sees data.
"""

from __future__ import annotations

from fractions import Fraction
from math import sqrt
from typing import Any

from ...mechanisms.contract import Mechanism
from ...mechanisms.factorization.prefix_noise import STEPS
from ...mechanisms.histogram.mechanism import Histogram
from ...mechanisms.histogram.rounds import Rounds
from ...mechanisms.pak.counter import MatrixCounter as PakMatrix
from ...mechanisms.parts.bounding import MOST, Bound
from ...mechanisms.phdstream.matrix_counter import MatrixCounter as SpatialMatrix
from ...mechanisms.privhp.noise import MatrixNoise
from ...topics.records import Trigger
from .model import Pipeline

GAUSSIAN = (Histogram, Rounds, PakMatrix, SpatialMatrix, MatrixNoise)


def significant(value: float) -> float:
    """Six significant digits: the same text whatever the machine's last bit."""
    return float(f"{value:.6g}")


def plain(value: Fraction) -> int | float:
    """An exact value as the JSON number that is nearest to it."""
    return value.numerator if value.denominator == 1 else float(value)


def distribution(mechanism: Mechanism) -> str:
    """Of the noise in released values; selection may use another."""
    if definition(mechanism) == "local":
        return "local_randomizer"
    carrier = getattr(mechanism, "counter", mechanism)
    return "discrete_gaussian" if isinstance(carrier, GAUSSIAN) else "discrete_laplace"


def definition(mechanism: Mechanism) -> str:
    """Which definition of differential privacy the guarantee is stated in."""
    return getattr(mechanism, "definition", "approximate")


def stated(mechanism: Mechanism) -> dict[str, Fraction]:
    """What a mechanism itself adds to its cost per unit: local ones that of one report."""
    return getattr(mechanism, "stated", {})


def bounds(pipeline: Pipeline) -> dict[str, Any]:
    """What one privacy unit may contribute in an epoch, in numbers and in words."""
    mechanism, unit = pipeline.mechanism, pipeline.unit_name
    if isinstance(mechanism, Histogram | Rounds):
        found = _quadratic if mechanism.bound.kind == "quadratic" else _records
        return found(mechanism.bound, unit)
    most = _most(mechanism)
    words = f"at most {most} records of one {unit} count in an epoch"
    return {"kind": "records", "budget": most, "in_words": words}


def _quadratic(bound: Bound, unit: str) -> dict[str, Any]:
    budget = plain(Fraction(bound.left, bound.weights[0]))
    words = (
        f"m records of one {unit} with one key in one window cost m*m; "
        f"all its records of an epoch cost at most {budget:g}"
    )
    out: dict[str, Any] = {"kind": "quadratic", "budget": budget}
    out["most_records_per_key"] = bound.most_per_key()
    if len(bound.weights) > 1:
        ratio = Fraction(bound.weights[1], bound.weights[0])
        out["price_of_released_keys"] = plain(ratio)
        words += f", those with keys that are public already {float(ratio):g} times as much"
    if bound.caps and bound.caps[0] < MOST:
        words += f"; until a key is public, {bound.caps[0]} per window count for it"
    return out | {"in_words": words}


def _records(bound: Bound, unit: str) -> dict[str, Any]:
    most = bound.most_per_key()
    words = f"at most {bound.left} records of one {unit} count in an epoch"
    if most < bound.left:
        words += f", and at most {most} of them with one key in one window"
    out = {"kind": "records", "budget": bound.left, "most_records_per_key": most}
    return out | {"in_words": words}


def _most(mechanism: Any) -> int:
    """Records of one unit that count, of a mechanism without a bound per key."""
    for holder in (mechanism, *(getattr(mechanism, n, None) for n in ("counter", "slots"))):
        if isinstance(most := getattr(holder, "bound", None), int):
            return most
    return int(mechanism.survey.reports)


def key_threshold(mechanism: Mechanism, index: int) -> int | float | None:
    """What the noisy count of a key must reach at a trigger; None where keys are not selected.

    With rounds it depends on how long a round has lasted: this is the last of its triggers.
    """
    if not isinstance(mechanism, Histogram | Rounds) or not mechanism.threshold:
        return None
    if isinstance(mechanism, Rounds):
        index = mechanism.horizon
    return plain(Fraction(mechanism.threshold[index - 1], STEPS))


def privacy(pipeline: Pipeline, trigger: Trigger) -> dict[str, Any]:
    """The guarantee, what it costs, and what the pipeline has spent so far."""
    cost = pipeline.mechanism.cost()
    epochs = trigger.epochs or None
    return {
        "unit": pipeline.unit_name,
        "neighbouring": getattr(pipeline.mechanism, "neighbouring", "add_remove"),
        "epoch": trigger.epoch,
        "definition": definition(pipeline.mechanism),
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
        **{name: plain(value) for name, value in stated(pipeline.mechanism).items()},
    }


def _limit(text: str) -> float | None:
    return float(Fraction(text)) if text else None
