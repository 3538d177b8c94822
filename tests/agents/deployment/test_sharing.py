"""Shared budgets: members together cost the whole budget, and less than the sum of their parts.

Covers: topics/config/sharing.py
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import sqrt
from typing import Any

import pytest
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Pipeline
from hushstream.agents.deployment.published.statement import charge_body
from hushstream.agents.deployment.sharing import Charging
from hushstream.cli.ledger import _explanation, shared
from hushstream.errors import ConfigError
from hushstream.mechanisms.accounting import add, total
from hushstream.mechanisms.accounting.composition import Spent
from hushstream.mechanisms.contract import Cost
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.topics.config.load import loads

HEAD = """
[deployment]
name = "d"
[[input]]
name = "events"
topic = "events"
unit = "user"
time = { field = "t", format = "iso" }
"""
PIPELINE = """
[[pipeline]]
name = "NAME"
input = "events"
key = ["page"]
window = { length = "1d" }
triggers = { every = "6h" }
"""
NAMES = ("a", "b", "c", "d")
SHARED = '[[budget]]\nname = "people"\nepsilon = 1.0\ndelta = 1e-6\nmembers = { MEMBERS }\n'


def text(members: str, names: tuple[str, ...] = NAMES, budget: str = "", more: str = "") -> str:
    pipelines = "".join(PIPELINE.replace("NAME", name) + budget for name in names)
    return HEAD + pipelines + SHARED.replace("MEMBERS", members) + more


def made(*given: str, **more: str) -> tuple[Pipeline, ...]:
    return compile_config(loads(text(*given, **more), environ={})).pipelines


def even() -> tuple[Pipeline, ...]:
    return made("a = 1, b = 1, c = 1, d = 1")


def noise(p: Pipeline) -> float:
    output = p.traits.outputs[0]
    return float(p.mechanism.error(p.traits.horizon)[0] * output.grid)


def test_four_that_share_have_half_the_noise_of_four_parts_and_cost_no_more():
    pipelines = even()
    costs = [p.mechanism.cost() for p in pipelines]
    assert total(costs, Fraction(1, 10**6))[0] <= 1
    assert total(costs, Fraction(1, 10**6))[0] > Fraction(97, 100)  # and little is left
    alone = "budget = { epsilon = 0.25, delta = 2.5e-7 }\n"
    parts = compile_config(
        loads(HEAD + "".join(PIPELINE.replace("NAME", n) + alone for n in NAMES), environ={})
    ).pipelines
    gains = [noise(p) / noise(q) for p, q in zip(parts, pipelines, strict=True)]
    assert all(1.8 < gain < 2.2 for gain in gains)
    (purse,) = {p.purse for p in pipelines}
    assert purse is not None and purse.one.joint == add(costs)
    assert (purse.one.epsilon, purse.one.delta) == (1, Fraction(1, 10**6))


def test_weights_are_parts_of_the_squared_loss():
    first, second = made("a = 1, b = 4", names=("a", "b"))
    ratio = second.mechanism.cost().mu2 / first.mechanism.cost().mu2
    assert 3.8 < ratio < 4.2 and 1.8 < noise(first) / noise(second) < 2.2


def test_a_share_is_pinned_with_all_that_share_it():
    hashes = {p.config_hash for p in even()}
    assert len(hashes) == 4
    again = made("a = 1, b = 1, c = 1, d = 2")
    assert not hashes & {p.config_hash for p in again}
    limited = made("a = 1, b = 1, c = 1, d = 1", more="limit_epsilon = 9.0\n")
    assert hashes == {p.config_hash for p in limited}
    assert even()[0].config["budget"]["shared"]["members"] == dict.fromkeys(NAMES, 1)


def test_an_epoch_is_paid_for_once_for_all_members_and_limits_are_on_them_together():
    pipelines = even()
    purse = pipelines[0].purse
    assert purse is not None
    two = replace(purse, limit_epsilon=Spent().plus(purse.one, 2).composed())
    first, second, third, _ = (replace(p, purse=two) for p in pipelines)
    ledger = Ledger()
    ledger.take(ledger.next("genesis", 1, {}).encode())

    def charge(p: Pipeline, epoch: int) -> None:
        assert ledger.affordable(p, [epoch]) == 1
        ledger.take(ledger.next("charge", 1, charge_body(p, epoch, "1.0", "key")).encode())

    assert [ledger.affordable(p, range(9)) for p in (first, second)] == [2, 2]
    charge(first, 0)
    assert (ledger.affordable(first, range(1, 9)), ledger.affordable(second, range(9))) == (1, 2)
    charge(second, 3)
    assert ledger.standing(third) == Spent().plus(two.one, 2)
    assert [ledger.affordable(third, [e]) for e in (0, 1, 3)] == [1, 0, 1]
    charge(third, 0)
    charge(third, 3)
    for p in (first, second, third):
        assert ledger.affordable(p, [4]) == 0
    # All charges of the members add up to at most the budget of both epochs.
    charged = [ledger.spent(p.name) for p in (first, second, third)]
    spent = add([one.joint for one in charged])
    whole = ledger.standing(first).joint
    assert all(mine <= all_ for mine, all_ in zip(spent, whole, strict=True))


def test_epochs_are_added_up_only_where_there_is_a_limit(monkeypatch):
    purse = even()[0].purse
    assert purse is not None
    one, plus, sums = purse.one, Spent.plus, []
    two = plus(Spent(), one, 2)

    def counted(self: Spent, *given: Any) -> Spent:
        sums.append(given)
        return plus(self, *given)

    monkeypatch.setattr(Spent, "plus", counted)
    free = Charging(one, None, None)
    assert (free.limited, free.room(Spent(), 10**6), sums) == (False, 10**6, [])
    for limits in ((two.composed(), None), (None, two.delta)):
        terms = Charging(one, *limits)
        assert (terms.limited, terms.room(Spent(), 10**6)) == (True, 2)
    assert len(sums) > 2


B = 'name = "b"\n'
COST = "epsilon = 1.0\n"
WRONG = {
    "unknown": ("a = 1, b = 1, z = 1", "", "", 'there is no pipeline "z"'),
    "alone": ("a = 1", B, f"{B}budget = {{ epsilon = 1.0, delta = 1e-6 }}\n", "fewer than two"),
    "weightless": ("a = 1, b = 0", "", "", "between 1 and 1000"),
    "units": ("a = 1, b = 1", B, f'{B}unit_name = "x"\n', "differ in unit_name"),
    "epochs": ("a = 1, b = 1", B, f'{B}epoch = "2d"\n', "differ in epoch_length"),
    "zones": (
        "a = 1, b = 1",
        'length = "1d" }',
        'length = "1 day", ZONE }',
        "differ in window.zone",
    ),
    "end": ("a = 1, b = 1", B, f'{B}until = "2030-01-01T00:00:00Z"\n', "end together"),
    "twice": ("a = 1, b = 1", B, f"{B}budget = {{ epsilon = 1.0 }}\n", "one too many"),
    "limit": ("a = 1, b = 1", COST, f"{COST}limit_epsilon = 0.5\n", "less than epsilon"),
    "price": ("a = 1, b = 1", COST, "", "epsilon is missing"),
}


@pytest.mark.parametrize("case", WRONG)
def test_members_that_cannot_share_are_refused_with_their_line(case):
    members, old, new, said = WRONG[case]
    with pytest.raises(ConfigError, match=said) as caught:
        body = text(members, names=("a", "b")).replace(old, new)
        for zone in ("Europe/Berlin", "Europe/Paris"):
            body = body.replace("ZONE", f'zone = "{zone}"', 1)
        loads(body, environ={})
    assert "hush.toml:" in str(caught.value)


def test_the_gain_grows_with_the_square_root_of_the_members():
    two = made("a = 1, b = 1", names=("a", "b"))
    assert 1.3 < noise(even()[0]) / noise(two[0]) < 1.05 * sqrt(2)


def test_a_mechanism_of_another_relation_shares_nothing(monkeypatch):
    other = Histogram.guarantee._replace(neighbouring="replace_value")
    monkeypatch.setattr(Histogram, "guarantee", other)
    with pytest.raises(ConfigError, match="'a' protects values"):
        made("a = 1, b = 1", names=("a", "b"))


def test_what_members_spend_together_is_checked_with_their_real_costs(monkeypatch):
    """No share of the squared loss reduces a pure loss: a little fits, too much does not."""
    cost, dear = Histogram.cost, Fraction(1, 50)

    def with_pure_loss(self: Histogram) -> Cost:
        one = cost(self)
        return one._replace(epsilon=one.epsilon + dear)

    monkeypatch.setattr(Histogram, "cost", with_pure_loss)
    two = made("a = 1, b = 1", names=("a", "b"))
    assert total([p.mechanism.cost() for p in two], Fraction(1, 10**6))[0] <= 1
    dear = Fraction(2)
    with pytest.raises(ConfigError, match=r"no shares of \d+ fit"):
        made("a = 1, b = 1", names=("a", "b"))


def test_explain_names_the_limit_of_the_shared_budget() -> None:
    """A member has no limit of its own, but the shared budget has one."""
    p = made("a = 1, b = 1", names=("a", "b"), more="limit_epsilon = 20\n")[0]
    said = _explanation("a", charge_body(p, 0, "1", "key"), Spent(), p)
    assert "the limit is ε=20, of all of the budget people together" in said
    free = made("a = 1, b = 1", names=("a", "b"))[0]
    said = _explanation("a", charge_body(free, 0, "1", "key"), Spent(), free)
    assert "no limit is set" in said


def test_explain_says_that_a_cap_holds_whatever_was_charged() -> None:
    more = "per_unit = { epsilon = 3, delta = 1e-5 }\n"
    p = made("a = 1, b = 1", names=("a", "b"), more=more)[0]
    said = _explanation("a", charge_body(p, 0, "1", "key"), p.terms.one, p)
    assert "by these alone a unit present in all of them pays at most ε=" in said
    assert "; no limit is set, but a cap.\n" in said
    assert "A unit loses at most ε=3, δ=1e-05 by a and b together over all epochs" in said
    free = made("a = 1, b = 1", names=("a", "b"))[0]
    plain = _explanation("a", charge_body(free, 0, "1", "key"), free.terms.one, free)
    assert "a unit present in all of them pays ε=" in plain and "cap" not in plain


def test_the_line_of_a_shared_budget_states_its_cap() -> None:
    pipelines = made(
        "a = 1, b = 1", names=("a", "b"), more="per_unit = { epsilon = 3, delta = 1e-5 }\n"
    )
    ledger = Ledger()
    ledger.take(ledger.next("genesis", 1, {"genesis": "abcdef"}).encode())
    sums = {}
    for p in pipelines:
        ledger.take(ledger.next("charge", 2, charge_body(p, 0, "1", "key")).encode())
        ledger.pipelines[p.name] = {"config": p.config}
        sums[p.name] = ledger.spent(p.name)
    (line,) = shared(ledger, sums)
    assert line.endswith("; by the cap at most ε=3, δ=1e-05 by a and b together over all epochs")
