"""Report on windows that hop, before any budget is spent."""

from __future__ import annotations

from typing import Any

from .report import bound_words


def plan_rows(body: dict[str, Any], unit: str) -> list[tuple[str, str]]:
    """Format what a mechanism plans as rows of text."""
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
