"""Report on windows that hop, before any budget is spent."""

from __future__ import annotations

from typing import Any, Protocol

from ..columns import F64
from ..contract import Cost, Output
from ..factorization.prefix_noise import STEPS
from ..parts.bounding import Bound
from .report import bound_of, bound_words, cost_of


class PlannedHops(Protocol):
    """Members of `Hopping` that the report reads; all of them are public."""

    @property
    def hops(self) -> int: ...
    @property
    def per_epoch(self) -> int: ...
    @property
    def bound(self) -> Bound: ...
    @property
    def threshold(self) -> tuple[int, ...]: ...
    @property
    def loss(self) -> Cost: ...
    @property
    def outputs(self) -> tuple[Output, ...]: ...
    def deviations(self) -> F64: ...
    def digests(self) -> tuple[str, ...]: ...


def plan(mechanism: PlannedHops) -> dict[str, Any]:
    """Bounds, and noise and thresholds by ordinal: a function of public parameters alone."""
    out: dict[str, Any] = {
        "hops": mechanism.hops,
        "hops_per_epoch": mechanism.per_epoch,
        "factorization_digest": mechanism.digests()[0],
        "bound": bound_of(mechanism),
        "outputs": [output.name for output in mechanism.outputs],
        "noise_stddev": mechanism.deviations().tolist(),
        "cost": cost_of(mechanism.loss),
    }
    if mechanism.threshold:
        out["threshold"] = [bar / STEPS for bar in mechanism.threshold]
    return out


def plan_rows(body: dict[str, Any], unit: str) -> list[tuple[str, str]]:
    """Format the result of `plan` as rows of text."""
    noise = body["noise_stddev"]
    least, most = min(noise), max(noise)
    rows = [
        ("windows", f"each the sum of {body['hops']:,} hops, {body['hops_per_epoch']:,} an epoch"),
        ("contribution bound", bound_words(body["bound"], unit)),
    ]
    if least:
        named = zip(body["outputs"], least, most, strict=True)
        shown = (f"{name} ±{low:.4g} … {high:.4g}" for name, low, high in named)
        rows.append(("noise by place in the epoch", ", ".join(shown)))
    if "threshold" in body:
        bars = body["threshold"]
        rows.append(("threshold of a key", f"{min(bars):.4g} … {max(bars):.4g}"))
    return rows
