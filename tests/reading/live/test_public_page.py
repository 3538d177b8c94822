"""The public page: its figures are the ledger's, its sentences are complete, it fetches nothing.

Covers: reading/live/promise.py
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hushstream.agents.clock.ledger import FORMAT, SIGNED, Ledger
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Pipeline
from hushstream.agents.deployment.published.statement import charge_body
from hushstream.reading.live.budget import purses
from hushstream.reading.live.promise import Limits, facts
from hushstream.reading.live.public_page import page
from hushstream.topics.config.load import loads

from ...agents.deployment.test_sharing import text as shared
from ...support import deployment
from ..signed import KEY
from .test_declared import compiled

NOON = 1_551_441_600_000_000  # 2019-03-01 12:00
OUR = ("histogram-sums", "phdstream", "topl")


def ledger(pipelines: list[Pipeline], epochs: int, signed: bool = True) -> Ledger:
    """A ledger that declares pipelines and charges epochs of each, from 0 on."""
    made = Ledger(key=KEY if signed else None)
    body = {"genesis": "ab", "deployment": "shop <b>", "format": SIGNED if signed else FORMAT}
    made.take(
        made.next("genesis", NOON, body | ({"public_key": KEY.public} if signed else {})).encode()
    )
    for number, p in enumerate(pipelines):
        told = {"pipeline": p.name, "number": number, "config": p.config}
        made.take(made.next("pipeline", NOON, told).encode())
        for epoch in range(epochs):
            charge = charge_body(p, epoch, "1", "key")
            made.take(made.next("charge", NOON, charge).encode())
    return made


@pytest.fixture(scope="module")
def told() -> dict[str, object]:
    made = ledger([compiled(case) for case in OUR], 30)
    end = {"pipeline": "phdstream", "until": NOON + 90 * 86_400_000_000, "epoch": 400}
    for kind, body in (
        ("refused", {"pipeline": "histogram-sums", "epoch": 30, "reason": "x"}),
        ("retired", end),
    ):
        made.take(made.next(kind, NOON, body).encode())
    return facts(made, {"histogram-sums": Limits(60.0), "phdstream": Limits(600.0, 1e-3)})


class Words(HTMLParser):
    """All words of a page, and every address in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.said, self.opened, self.addresses, self.inside = "", [], [], ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append(tag)
        self.inside = tag
        self.addresses += [value for name, value in attrs if name in ("src", "href", "action")]

    def handle_data(self, data: str) -> None:
        self.said += "" if self.inside in ("style", "script") else data


def test_figures_are_those_of_the_ledger(told) -> None:
    first, second, third = told["pipelines"]
    assert (first["name"], first["unit"], first["epoch"]) == ("histogram-sums", "user", "8h")
    assert first["per_epoch"] == {"epsilon": 4.0, "delta": 1e-6}
    assert first["epochs"] == {"charged": 30, "refused": 1}
    assert first["spent"]["sum"] == 120.0 and 20 < first["spent"]["epsilon"] < 60
    assert first["left"] == pytest.approx(60 - first["spent"]["epsilon"])
    assert first["released"] == ["count", "sum of fare", "mean of fare"]
    assert len(first["newest_epochs"]) == 31 and first["newest_epochs"][0]["refused"]
    assert second["ends"] == "2019-05-30T12:00:00Z" and second["limit"]["delta"] == 1e-3
    assert third["on_device"] is True and third["left"] is None
    assert told["as_of"] == "2019-03-01T12:00:00Z" and told["public_key"] == KEY.public
    (unit,) = [one for one in told["units"] if one["neighbouring"] == "add_remove"]
    assert unit["spent"]["epsilon"] == 240.0


@pytest.mark.parametrize(
    "case,words",
    [
        ("phdstream", ["counts of cells over x, y"]),
        ("privhp", ["counts of cells over x, y"]),
        ("quantile", ["count, and quantiles 0.25, 0.5, 0.95 of fare"]),
        ("histogram-plain", ["count"]),
    ],
)
def test_what_is_published_is_said_as_the_mechanism_says_it(case: str, words: list[str]) -> None:
    (one,) = facts(ledger([compiled(case)], 1), {})["pipelines"]
    assert one["released"] == words


def test_conditions_of_what_is_published_are_said() -> None:
    more = "where = [{ field = 'f', above = 1.5 }]\naggregate = [{ kind = 'count' }, "
    more += "{ kind = 'count', name = 'some', where = [{ field = 'z', equals = '<a>' }] }]"
    made = facts(ledger(list(deployment(more=more).pipelines), 1), {})
    assert made["pipelines"][0]["released"] == [
        "count where f > 1.5", 'count where f > 1.5 and z = "<a>"',
    ]  # fmt: skip
    assert "count where f &gt; 1.5 and z = &quot;&lt;a&gt;&quot;" in page(made)
    keys = facts(ledger(list(deployment(more='aggregate = "keys"').pipelines), 1), {})
    assert keys["pipelines"][0]["released"] == ["keys"]


def test_the_page_says_them_in_words(told) -> None:
    said = " ".join(Words(page(told)).said.split())
    for words in (
        "shop <b>: what is promised, and what is spent",
        "As of 2019-03-01 12:00 UTC",
        "count, sum of fare, mean of fare, per 8 hours",
        "whether all data of one user are among those that were used",
        "ε = 4, δ = 1 · 10-6 (once in 1,000,000)",
        "a certain user is in the data could become 98.2 % sure of it at most",
        "could become all but sure of it, by this bound alone",
        "30 times; for a user in all of them",
        "Per 2 days",
        "the plain sum is ε = 120",
        "ε = 60 for all together",
        "values are blurred on each device",
        "Ends2019-05-30 12:00 UTC",
        "hush verify --deployment shop <b>",
        KEY.public,
    ):
        assert words in said, words
    assert "None" not in said and "nan" not in said


def test_it_is_one_file_that_runs_nothing_and_fetches_nothing(told) -> None:
    text = page(told)
    words = Words(text)
    assert words.addresses == [] and "http" not in text.replace("http-equiv", "")
    assert "url(" not in text and "@import" not in text
    assert words.opened.count("script") == 1 and "<b>:" not in text
    data = re.search(r'<script type="application/json" id="hush-promise">(.*?)</script>', text)
    assert data is not None and json.loads(data[1]) == json.loads(json.dumps(told))
    assert page(told) == text


def test_an_unsigned_deployment_and_one_that_has_released_nothing_say_so() -> None:
    said = Words(page(facts(ledger([compiled("pak")], 0, signed=False), {}))).said
    assert "began without a signing key" in said and "hush verify" not in said
    assert "nothing yet" in said and "none is stated" in said and "All together" not in said


def test_budgets_that_are_shared_stand_on_their_own() -> None:
    pipelines = list(
        compile_config(loads(shared("a = 1, b = 1", ("a", "b")), environ={})).pipelines
    )
    made = ledger(pipelines, 4)
    body = facts(made, {"people": Limits(5.0)})
    (one,) = body["shared_budgets"]
    assert one["name"] == "people" and one["pipelines"] == ["a", "b"] and one["epochs"] == 4
    assert one["per_epoch"] == {"epsilon": 1.0, "delta": 1e-6}
    assert one["spent"]["epsilon"] < 4.0
    ((purse,),) = [purses(made, {p.name: made.spent(p.name) for p in pipelines})]
    assert float(purse.spent.composed()) == one["spent"]["epsilon"]
    said = Words(page(body)).said
    assert "people, of a and b: each time ε = 1" in said and "of ε = 5 for all together" in said
    assert "that of the budget “people”, of which it has a part" in said


@pytest.mark.parametrize("period, shared, words", [
    (None, False, "At most, in allε = 8, δ = 1"), (365 * 86_400_000_000, False, "per 365 days"),
    (None, True, "published, from a and b together, no user loses more"),
])  # fmt: skip
def test_a_cap_for_each_unit_is_stated(period: int | None, shared: bool, words: str) -> None:
    p = compiled("histogram-plain")
    cap = {"epsilon": "8", "delta": "1/100000000", "period": period}
    share = {"name": "people", "epsilon": "1", "delta": "0", "per_unit": cap}
    budget = {"shared": share | {"members": {"a": 1, "b": 1}}} if shared else {"per_unit": cap}
    own = p.config | {"budget": p.config["budget"] | budget}
    told = facts(ledger([replace(p, config=own)], 1), {})
    (one,) = told["pipelines"]
    assert (one["per_unit"]["epsilon"], one["per_unit"]["delta"]) == (8.0, 1e-8)
    assert words in " ".join(Words(page(told)).said.split())
