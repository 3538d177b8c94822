"""Notes on default bounds and bounds of one: their origin, and what they cut off."""

from __future__ import annotations

from ..agents.deployment.model import Pipeline
from ..mechanisms.parts.bounds.bounding import Bound

SENT = 10  # records of a unit in the example
CHOOSE = "--sample chooses by the error of all counts together"


def implied_bound(p: Pipeline) -> str:
    """State what a default bound, or a bound of 1, keeps of a unit's records; empty for others.

    It follows from the configuration alone. What the bound cuts off the stream depends on the
    number of records that units send.
    """
    given, bound = p.config["mechanism"]["parameters"], getattr(p.mechanism, "bound", None)
    if isinstance(bound, Bound) and given.get("budget", 0) is None:
        what = "distinct values" if p.traits.pairs else "records"
        return f"{_source(p, bound)}: {_kept(bound, what, p)}; {CHOOSE}"
    if given.get("bound") == 1 and p.mechanism.survey is None:
        return (
            f"bound = 1, the least: of {SENT} records of a {p.unit_name} in an epoch 1 counts; "
            "set bound if a unit sends more. --sample chooses it by the error"
        )
    return ""


def _source(p: Pipeline, bound: Bound) -> str:
    """Name the default, and the setting on which it depends."""
    text = f"budget = {bound.left // bound.weights[0]}"
    if p.config["mechanism"]["parameters"].get("selection") == "rounds":
        return f'{text}, the default with selection = "rounds"'
    if p.public_keys is not None:
        return f"{text}, the default with public_keys (12 without)"
    return f"{text}, the default without public_keys (4 with)"


def _kept(bound: Bound, what: str, p: Pipeline) -> str:
    apart = min(SENT, bound.left // bound.weights[0])
    same = min(apart, bound.most_per_key())
    return (
        f"of {SENT} {what} of a {p.unit_name} in an epoch {apart} count if each has a key of its "
        f"own, {same} if all have one key"
    )
