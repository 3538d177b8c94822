"""What a unit pays in many epochs: never said to be more than its cap."""

from __future__ import annotations

from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Pipeline
from hushstream.cli.planning.over_epochs import many
from hushstream.topics.config.load import loads

from ...agents.deployment.test_sharing import text as shared
from ..bench import CONFIG


def alone(cap: str, limit: str = "") -> Pipeline:
    budget = f"epsilon = 8.0, delta = 1e-4{cap}{limit}"
    given = CONFIG.replace("epsilon = 8.0, delta = 1e-4, limit_epsilon = 80.0", budget)
    return compile_config(loads(given, environ={})).pipelines[0]


def test_a_cap_bounds_what_a_unit_pays_in_many_epochs() -> None:
    plain = many(alone(""))
    assert plain.endswith(" for a user present in 30 epochs; no limit set")
    cost = plain.removesuffix(" for a user present in 30 epochs; no limit set")
    for period, held in (("", ""), (', period = "10d"', " in each 10d")):
        said = many(alone(f", per_unit = {{ epsilon = 20, delta = 1e-3{period} }}"))
        assert said == (
            f"at most ε=20, δ=0.001{held}, by the cap, however many epochs a user is present in; "
            f"by the charges alone {cost} in 30 epochs; no limit set"
        )


def test_a_cap_is_said_beside_a_limit() -> None:
    said = many(alone(", per_unit = { epsilon = 20, delta = 1e-3 }", ", limit_epsilon = 80.0"))
    assert " epochs charged: ε=7" in said
    assert said.endswith(" in total; at most ε=20, δ=0.001, by the cap")


def test_members_of_a_budget_have_one_cap_together() -> None:
    given = shared("a = 1, b = 1", ("a", "b"), more="per_unit = { epsilon = 3, delta = 1e-5 }\n")
    for p in compile_config(loads(given, environ={})).pipelines:
        assert many(p).startswith("at most ε=3, δ=1e-05 by a and b together, by the cap, however")
