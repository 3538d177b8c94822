"""Words on what a unit pays in many epochs of a configuration."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ...agents.deployment.model import Lifetime, Pipeline
from ...agents.deployment.published import statement
from ...mechanisms.accounting.composition import MANY, Spent
from ...topics.config.toml.values import counted


def many(p: Pipeline) -> str:
    """State what a unit pays in many epochs: by the charges, and by the cap if there is one."""
    terms = p.terms
    if p.windows.endless:
        return "there is one, and its cost is for all that is released"
    whose = f" by {' and '.join(p.purse.members)} together" if p.purse is not None else ""
    if not terms.limited:
        thirty = Spent().plus(terms.one, 30)
        cost = f"ε={float(thirty.composed()):.4g}, δ={float(thirty.delta):.4g}"
        if p.lifetime is None:
            return f"{cost} for a {p.unit_name} present in 30 epochs{whose}; no limit set"
        return (
            f"{_at_most(p.lifetime)}, by the cap, however many epochs a {p.unit_name} is present "
            f"in; by the charges alone {cost} in 30 epochs{whose}; no limit set"
        )
    most = terms.room(Spent(), MANY)
    whole = Spent().plus(terms.one, most)
    at = max(terms.limit_delta or Fraction(0), whole.delta)
    return (
        f"at most {counted(most, 'epoch')} charged{whose}: ε={float(whole.composed(at)):.4g}, "
        f"δ={float(at):.4g} in total"
        + ("" if p.lifetime is None else f"; {_at_most(p.lifetime)}, by the cap")
    )


def _at_most(lifetime: Lifetime) -> str:
    whose = f" by {' and '.join(lifetime.members)} together" if len(lifetime.members) > 1 else ""
    period = "" if lifetime.period is None else f" in each {statement.span_of(lifetime)}"
    return f"at most ε={float(lifetime.epsilon):g}, δ={float(lifetime.delta):g}{whose}{period}"


def cap(p: Pipeline, body: dict[str, Any]) -> str:
    """State the cap per unit, and how long it lasts; ``body`` is the result of `describe`."""
    assert p.lifetime is not None
    lifetime, share = p.lifetime, body["kept_of_full_bounds"]
    whose = f" of {' and '.join(lifetime.members)} together" if len(lifetime.members) > 1 else ""
    text = (
        f"ε={float(lifetime.epsilon):g}, δ={float(lifetime.delta):g}{whose} over "
        f"{statement.span_of(lifetime)}, however many epochs there are: a {p.unit_name} may use "
        f"up its bound {float(lifetime.part):.4g} times, then its records are dropped"
    )
    if share is None:
        return text
    kept = "all" if share == 1 else f"{100 * share:.3g} %"
    return f"{text}; kept of one that uses it up in every epoch: {kept}"
