"""Configured caps: what they allow, which pipelines share one, and what is refused."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.compiling.lifetime import capped
from hushstream.agents.deployment.model import Pipeline
from hushstream.agents.deployment.published.statement import bounds, charge_body
from hushstream.errors import ConfigError
from hushstream.mechanisms.accounting import add, total
from hushstream.mechanisms.contract import Cost
from hushstream.topics.config.canonical import canonical
from hushstream.topics.config.load import loads
from hushstream.topics.records import encode

from ..test_sharing import HEAD, PIPELINE, SHARED

BUDGET = "budget = { epsilon = 1.0, delta = 1e-9MORE }\n"
CAP = "{ epsilon = 8, delta = 1e-8PERIOD }"


def text(cap: str = "", names: tuple[str, ...] = ("a",), more: str = "") -> str:
    budget = BUDGET.replace("MORE", f", per_unit = {cap}" if cap else "")
    return HEAD + "".join(PIPELINE.replace("NAME", name) + budget + more for name in names)


def made(*given: str, **more: str) -> tuple[Pipeline, ...]:
    return compile_config(loads(text(*given, **more), environ={})).pipelines  # type: ignore[arg-type]


def cap(period: str = "") -> str:
    return CAP.replace("PERIOD", f', period = "{period}"' if period else "")


def test_a_unit_may_spend_what_its_budget_holds_and_no_more() -> None:
    (p,) = made(cap("365d"))
    assert p.lifetime is not None and p.mechanism.spending is not None
    assert (p.lifetime.cap.epochs, p.lifetime.cap.opening, p.lifetime.members) == (365, 0, ("a",))
    spent = Fraction(p.lifetime.cap.most, 1200)
    assert 19 < spent <= p.lifetime.part <= 20  # keys take half of δ: 2e-8 / 1e-9 of them
    paid = total([Cost(*(spent * one for one in p.mechanism.spending.whole))], Fraction(1, 10**8))
    assert paid[0] <= 8
    (forever,) = made(cap())
    assert forever.lifetime is not None and forever.lifetime.cap.epochs is None
    assert forever.lifetime.cap.most == p.lifetime.cap.most


def test_a_smaller_share_of_delta_for_keys_lets_a_unit_spend_more() -> None:
    (p,) = made(cap(), more='mechanism = { kind = "histogram", threshold_delta_share = 0.05 }\n')
    assert p.lifetime is not None and p.lifetime.part > 50


def test_members_of_a_budget_share_a_cap_whose_costs_add_up() -> None:
    names = ("a", "b")
    shared = (
        SHARED.replace("MEMBERS", "a = 1, b = 3")
        + 'per_unit = { epsilon = 8, delta = 1e-5, period = "7d" }\n'
    )
    body = HEAD + "".join(PIPELINE.replace("NAME", name) for name in names) + shared
    pipelines = compile_config(loads(body, environ={})).pipelines
    costs = []
    for p in pipelines:
        assert p.lifetime is not None and p.mechanism.spending is not None
        assert p.lifetime.members == names and p.lifetime.cap.epochs == 7
        left = p.traits.bound
        part = Fraction(p.lifetime.cap.most, left)
        costs.append(Cost(*(part * one for one in p.mechanism.spending.whole)))
    assert len({p.lifetime.part for p in pipelines if p.lifetime}) == 1
    assert total([add(costs)], Fraction(1, 10**5))[0] <= 8
    sentence = capped(json.loads(encode(charge_body(pipelines[0], 0, "1", "k"))))
    assert "by a and b together over each period of 7d" in sentence


def test_charges_and_bounds_state_the_cap() -> None:
    (p,) = made(cap("14d"))
    body = json.loads(encode(charge_body(p, 3, "1", "k")))
    assert (body["per_unit_epsilon"], body["per_unit_delta"]) == ("8", "1/100000000")
    assert body["config"]["budget"]["per_unit"]["period"] == 14 * 86_400_000_000
    assert "loses at most ε=8, δ=1e-08 over each period of 14d" in capped(body)
    stated = bounds(p)
    assert stated["lifetime_period"] == 14 and 239 < stated["lifetime_budget"] < 240
    assert "over 14d one unit spends at most 239.99" in stated["in_words"]
    (plain,) = made()
    assert capped(json.loads(encode(charge_body(plain, 3, "1", "k")))) == ""
    assert "lifetime_period" not in bounds(plain) and "over" not in bounds(plain)["in_words"]


def test_without_a_cap_the_charged_settings_are_those_of_before() -> None:
    config = loads(text(), environ={})
    assert b"per_unit" not in canonical(config, config.pipeline[0])
    config = loads(text(cap()), environ={})
    assert b'"per_unit":{"delta":"1/100000000","epsilon":"8","period":null}' in canonical(
        config, config.pipeline[0]
    )


@pytest.mark.parametrize(
    ("given", "more", "why"),
    [
        (cap("36h"), "", r"pipeline 'a': budget\.per_unit: period = 1d12h is not a multiple .* 1d"),
        (
            "{ epsilon = 1e-4, delta = 1e-8 }",
            "",
            r"epsilon = 0\.0001, .* less than one record costs",
        ),
        ("{ epsilon = 8, delta = 1e-14 }", "", "delta = 1e-14: .* less than one record costs"),
        (
            cap(),
            'mechanism = { kind = "privhp" }\ninputs = { x1 = "x", x2 = "y" }\n',
            "privhp has no cap for each unit: only histogram",
        ),
        ("{ epsilon = 8 }", "", "delta is missing"),
        ("{ epsilon = 8, delta = 0.1, cap = 1 }", "", "unknown setting"),
    ],
)
def test_what_no_cap_can_be_is_refused(given: str, more: str, why: str) -> None:
    body = text(given, more=more)
    if "privhp" in more:
        body = body.replace('key = ["page"]\n', "")
    with pytest.raises(ConfigError, match=why):
        compile_config(loads(body, environ={}))


LARGE = "{ epsilon = 40, delta = 1e-7PERIOD }"


def large(budget: int, period: str = "", more: str = "", given: str = LARGE) -> Pipeline:
    """A pipeline whose units may count in ``budget`` keys."""
    cap = given.replace("PERIOD", period)
    bound = f'mechanism = {{ kind = "histogram", adaptive_weight = 0, budget = {budget} }}\n'
    return made(cap, more=bound + more)[0]


@pytest.mark.parametrize(
    ("budget", "given", "why"),
    [
        (50_001, {}, "2 open epochs of 50,001 keys or values each, and has room for 100,000"),
        (33_334, {"more": 'lateness = "24h"\n'}, "3 open epochs of 33,334 keys"),
        (
            25_001,
            {"more": 'aggregate = [{ kind = "distinct", field = "item" }]\n'},
            "2 open epochs of 25,001 keys or values each, and has room for 50,000",
        ),
    ],
)
def test_a_bound_whose_open_epochs_exceed_a_units_state_is_refused(
    budget: int, given: dict[str, str], why: str
) -> None:
    said = rf"per_unit: mechanism\.budget = {budget}: .*{why}.* in all: lower mechanism\.budget"
    with pytest.raises(ConfigError, match=said):
        large(budget, **given)
    assert large(budget - 1, **given).lifetime is not None


def test_a_cap_or_a_period_may_keep_a_units_state_small() -> None:
    assert large(100_000, ', period = "1d"').lifetime is not None  # one epoch is open, the period's
    small = large(100_000, given="{ epsilon = 0.5, delta = 1e-7 }").lifetime
    assert small is not None and small.cap.most < 100_000


def test_a_period_needs_windows_of_a_length() -> None:
    body = text(cap("7d")).replace('window = { length = "1d" }', "window = { horizon = 4 }")
    with pytest.raises(ConfigError, match=r"period needs window\.length"):
        compile_config(loads(body, environ={}))
    months = text(cap("31d")).replace('length = "1d"', 'length = "1 month"')
    with pytest.raises(ConfigError, match="period needs windows of a fixed length"):
        compile_config(loads(months, environ={}))
    forever = text(cap()).replace('window = { length = "1d" }', "window = { horizon = 4 }")
    assert compile_config(loads(forever, environ={})).pipelines[0].lifetime is not None
