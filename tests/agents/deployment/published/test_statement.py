"""Statements of manifests: true of the mechanism, and functions of nothing else.

Covers: cli/releases.py
"""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hushstream.agents.deployment.compile import pinned_hash
from hushstream.agents.deployment.published.statement import bounds, definition, key_threshold
from hushstream.agents.stages.aggregate.release_records import Writer
from hushstream.cli.releases import cost
from hushstream.mechanisms.columns import I64, Batch
from hushstream.mechanisms.factorization.prefix_noise import STEPS
from hushstream.mechanisms.in_memory import Memory, run, seed
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from hushstream.topics.releases import Manifest

from ....mechanisms.test_contract import CASES, trace_of
from ....support import deployment, engine, event, start, trigger

P = deployment().pipelines[0]
LOCAL = "local_randomizer"


def manifest(p: Any = P, **other: Any) -> dict[str, Any]:
    out = Writer(p, trigger(p, 2, [0], **other), 0).manifest({}, bytes(16), 0)
    body: dict[str, Any] = json.loads(out.value)
    return body


class Recording(KeyedNoise):
    """Noise that remembers the distributions that were asked for."""

    def __init__(self) -> None:
        given = {"charge": b"c" * 32, "mechanism": "m", "config": b"f"}
        super().__init__(b"s" * 32, **given, pipeline="p", window="w", nonces=STEADY)
        self.asked: set[str] = set()

    def gauss(self, purpose: str, key: Keys, index: I64, variance: Fraction, first: I64) -> I64:
        self.asked.add("discrete_gaussian")
        return super().gauss(purpose, key, index, variance, first)

    def laplace(self, purpose: str, key: Keys, index: I64, scale: Fraction, first: I64) -> I64:
        self.asked.add("discrete_laplace")
        return super().laplace(purpose, key, index, scale, first)


@pytest.mark.spread(3)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_distribution_is_the_one_that_is_drawn_and_bounds_are_the_mechanism_s(case):
    noise = Recording()
    memory = Memory(case.mechanism, noise)
    if case.public is not None:
        seed(memory, case.public)
    list(run(memory, trace_of(case)))
    said = case.mechanism.guarantee.distribution
    if said == LOCAL:
        assert noise.asked == set() and not case.noisy
    elif said == "discrete_gaussian":
        assert said in noise.asked
    else:
        assert noise.asked == {said}
    found = bounds(replace(P, mechanism=case.mechanism))
    assert found["budget"] >= 1 and f" {found['budget']:g}" in found["in_words"]
    # One unit that sends more than its budget with one key is cut to the stated bound.
    if found["kind"] == "records" and said != LOCAL:
        left = case.mechanism.traits.units(1).left[0]
        if "most_in_total" in found:  # a single number has both remainders
            assert f"at most {found['most_in_total']}" in found["in_words"]
            assert left // (found["budget"] + 1) <= found["most_in_total"]
            left %= found["budget"] + 1
        assert left <= found["budget"]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_what_is_charged_pins_the_factorisation_of_gaussian_noise(case):
    """Floating point computes it, so a machine that rounds differently must be refused.

    A survey pins the rules by which its reports count.
    """
    pinned = pinned_hash("configuration", case.mechanism)
    assert (pinned != pinned_hash("configuration", SimpleNamespace(digests=tuple))) == (
        case.mechanism.guarantee.distribution in ("discrete_gaussian", "local_randomizer")
        or case.name.startswith("privhp")  # its layout of rows is pinned as well
    )


@pytest.mark.parametrize(
    ("mechanism", "found"),
    [
        ("", {"kind": "quadratic", "budget": 4, "most_records_per_key": 2}),
        (", min_users = 2", {"kind": "quadratic", "budget": 4, "most_records_per_key": 1}),
        (', bound = "records"', {"kind": "records", "budget": 4, "most_records_per_key": 4}),
        (
            ', bound = "per-key", per_key = 3',
            {"kind": "records", "budget": 4, "most_records_per_key": 3},
        ),
        (', selection = "rounds"', {"kind": "records", "budget": 4, "most_records_per_key": 4}),
    ],
)
def test_bounds_of_histograms_hold_as_they_are_stated(mechanism, found):
    p = deployment(mechanism=mechanism).pipelines[0]
    stated = bounds(p)
    assert found.items() <= stated.items()
    if found["kind"] == "quadratic":
        assert stated["price_of_released_keys"] == 0.09
        assert "cost at most 4, " in stated["in_words"]
    if "per_key" in mechanism:
        assert "at most 3 of them with one key" in stated["in_words"]
    # One unit sends ten records of one key; as many as stated are accepted. (Rounds also send a row
    # for each distinct unit, which is no record of the unit.)
    log = [event(i, "one", "page") for i in range(10)]
    run_ = engine(deployment(mechanism=mechanism), [log], [start(p), trigger(p, 1, [10])])
    extra = 1 if "rounds" in mechanism else 0
    assert run_.counts["p", "accepted"] - extra == found["most_records_per_key"]


def test_a_threshold_is_that_of_the_trigger_and_absent_where_keys_are_public():
    m = P.mechanism
    assert [key_threshold(m, t) for t in range(1, 5)] == [x / STEPS for x in m.threshold]
    assert len({key_threshold(m, t) for t in range(1, 5)}) > 1
    assert manifest()["key_threshold"] == m.threshold[1] / STEPS
    public = deployment(more='public_keys = ["a"]').pipelines[0]
    assert manifest(public)["key_threshold"] is None
    rounds = deployment(mechanism=', selection = "rounds"').pipelines[0].mechanism
    assert {key_threshold(rounds, t) for t in range(1, 5)} == {rounds.threshold[-1] / STEPS}


def test_a_key_appears_exactly_when_its_noisy_count_reaches_the_stated_threshold():
    p = deployment(mechanism=", adaptive_weight = 0").pipelines[0]
    bar = [key_threshold(p.mechanism, t) for t in range(1, 5)]
    users = range(round(bar[0]) - 40, round(bar[0]) + 40, 2)
    log = [event(0, f"u{n}-{i}", f"p{n}") for n in users for i in range(n)]
    log = [raw._replace(offset=place) for place, raw in enumerate(log)]
    run_ = engine(deployment(mechanism=", adaptive_weight = 0"), [log],
                  [start(p), trigger(p, 1, [len(log)])])  # fmt: skip
    rows = [json.loads(o.value or b"") for o in run_.outs[p.release_topic]]
    values = [r["values"]["count"]["value"] for r in rows if r["schema"] == "hush.release/2"]
    assert 5 < len(values) < len(users)
    assert min(values) >= bar[0] - 1  # values are rounded


def test_what_was_spent_follows_from_the_clock_and_the_limit_of_its_time():
    limited = replace(P, limit_epsilon=Fraction(80), limit_delta=Fraction(1, 100))
    privacy = manifest(limited, epochs=3)["privacy"]
    assert privacy["pipeline_epochs"] == 3
    assert (privacy["pipeline_epsilon_total"], privacy["pipeline_epsilon_limit"]) == (24.0, 80.0)
    assert (privacy["pipeline_delta_total"], privacy["pipeline_delta_limit"]) == (3e-4, 0.01)
    assert privacy["mu"] == pytest.approx(privacy["mu2"] ** 0.5, rel=1e-5)
    # Clock records from before this field do not have it.
    old = manifest(limited, epochs=0)["privacy"]
    assert old["pipeline_epsilon_total"] is old["pipeline_epochs"] is None


def test_a_limit_that_is_raised_changes_no_byte_of_what_was_released_before():
    """A shard may publish, and a replay may recompute, under a later configuration."""
    limited = replace(P, limit_epsilon=Fraction(80), limit_delta=Fraction(1, 100))
    then = trigger(limited, 2, [0])
    for raised in (replace(limited, limit_epsilon=Fraction(800)), P):
        first, second = (Writer(p, then, 0).manifest({}, bytes(16), 0) for p in (raised, limited))
        assert first == second


def test_readers_see_what_was_spent():
    limited = replace(P, limit_epsilon=Fraction(80))

    def said(epochs: int, p: Any = P) -> str:
        return cost(
            msgspec.json.decode(msgspec.json.encode(manifest(p, epochs=epochs)), type=Manifest)
        )

    first = "a user pays ε=8 δ=0.0001 per epoch"
    assert (
        said(3, limited)
        == f"{first}, added up ε=24 so far; composed, all epochs may cost at most ε=80"
    )
    assert said(3) == f"{first}, added up ε=24 so far"
    assert said(0) == first


def test_manifests_depend_on_released_rows_alone():
    """The same clock over different data, or over none: only the number of rows differs."""
    found = []
    rng = np.random.default_rng(0)
    for size in (0, 1, 300):
        log = [event(i, f"u{rng.integers(50)}", f"p{rng.integers(9)}") for i in range(size)]
        cuts = [trigger(P, n, [size], epochs=1) for n in range(1, 5)]
        run_ = engine(deployment(), [log], [start(P), *cuts])
        records = [json.loads(o.value or b"") for o in run_.outs[P.release_topic]]
        manifests = [r for r in records if r["schema"] == "hush.manifest/2"]
        rows = [r["trigger"] for r in records if r["schema"] == "hush.release/2"]
        assert [m.pop("rows") for m in manifests] == [rows.count(m["trigger"]) for m in manifests]
        assert bool(rows) == (size == 300)
        found.append(manifests)
    assert len(found[0]) == 4 and found[0] == found[1] == found[2]


SIGNED = 'sign = "gone"\npublic_keys = ["a", "b"]\n'


def test_deletions_cost_like_records_and_are_not_matched_with_any():
    """As the mechanism's page says. A budget of 4 pays for two records of a unit with one key."""
    made = deployment(more=SIGNED)
    p = made.pipelines[0]
    sent = [
        *[(f"u{n}", "a", True) for n in range(500)],  # nothing was inserted before
        *[(f"v{n}", "b", False) for n in range(500)],
        *[(f"v{n}", "b", True) for n in range(500)],  # the insertion is taken back
        *[(f"v{n}", "b", True) for n in range(500)],  # these are no longer paid for
    ]
    log = [event(n, user, page, gone=gone) for n, (user, page, gone) in enumerate(sent)]
    run_ = engine(made, [log], [start(p), trigger(p, 1, [len(log)])])
    rows = [json.loads(o.value or b"") for o in run_.outs[p.release_topic]]
    released = {r["key"]["page"]: r["values"]["count"] for r in rows if "key" in r}
    for page, exact in (("a", -500), ("b", 0)):
        assert abs(released[page]["value"] - exact) < 6 * released[page]["stddev"]
    assert released["a"]["value"] < 0


def test_the_price_of_a_deletion_is_that_of_a_record():
    mechanism = deployment(more=SIGNED).pipelines[0].mechanism
    for sign in ([1, 1, 1], [1, -1, -1], [-1, -1, -1], [-1, 1, -1]):
        none = np.zeros(3, np.intp)
        batch = Batch(Keys.of([b'["a"]']), none, none, np.zeros((3, 0), np.int64),
                      np.array(sign, np.int8), np.zeros(1, np.int32))  # fmt: skip
        after, part = mechanism.absorb(mechanism.traits.units(1), batch)
        # Two records cost 4 = 2 * 2, the whole budget, for any signs.
        assert after.left.tolist() == [0] and after.used.tolist() == [[2]]
        assert part.sums.tolist() == [[sum(sign[:2])]]


def test_a_budget_without_delta_is_stated_as_pure():
    every = [case.mechanism for case in CASES]
    mechanism = next(one for one in every if one.guarantee.distribution != LOCAL)
    said = [
        definition(replace(P, mechanism=mechanism, delta=delta))
        for delta in (Fraction(0), Fraction(1, 10**9))
    ]
    assert said == ["pure", "approximate"]
    local = next(one for one in every if one.guarantee.distribution == LOCAL)
    assert definition(replace(P, mechanism=local, delta=Fraction(0))) == "local"
