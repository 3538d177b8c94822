"""The judge against the product on points, in memory: PHDStream and PrivHP."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Deployment
from hushstream.formats.events.decode import RawRecord
from hushstream.mechanisms.phdstream import mechanism as phd
from hushstream.mechanisms.phdstream import node_counters, tree
from hushstream.mechanisms.spatial import privtree
from hushstream.topics.config.load import loads

from .outcomes import outcome, public, verdict
from .published import objections
from .worlds import HORIZONS, INPUT, PIPELINE, SHARED, World, first_twice, sharing, world

AXES = '{ name = "x", low = 0, high = 2 }, { name = "y", low = -1, high = 1, kind = "integer" }'
DOMAIN = 'domain = {{ depth = {}, split = "{}", axes = [{}] }}'
SIGN = 'sign = "gone"'


def text(kind: str, more: str, pipeline: str = "", depth: int = 3, axes: str = AXES) -> str:
    head = INPUT.format(units=2, cells=2, partitioner="none", unit='"user"')
    domain = DOMAIN.format(depth, "all" if kind == "phdstream" else "binary", axes)
    return head + PIPELINE.format(
        name="p", key="[]", window=HORIZONS[6], epsilon=8, delta="0.001", more=pipeline,
        mechanism=f", {domain}{more}",
    ).replace('kind = "histogram"', f'kind = "{kind}"').replace("key = []\n", "")  # fmt: skip


def placed(one: World) -> list[list[RawRecord]]:
    """The records of a world with points: most in one corner, some outside the box."""
    return [[_placed(r, Random(f"{n} {r.offset}")) for r in log] for n, log in enumerate(one.logs)]


def _placed(record: RawRecord, random: Random) -> RawRecord:
    try:
        body = dict(json.loads(record.value or b""))
    except (ValueError, TypeError):
        return record
    x, y = 2.2 * random.betavariate(1, 6), random.choice([-1, -1, -1, 0, 1, 0.5])
    return record._replace(value=json.dumps(body | {"x": x, "y": y}).encode())


def judged(given: str, seed: int = 5, events: int = 500) -> tuple[list[str], int]:
    made = compile_config(loads(given, environ={}), {"events": 2})
    one = world(made, Random(seed), events=events, users=60)
    return verdict(made, placed(one), one.clock)


PHD = {
    "default": ("", ""),
    "signed": (", bound = 4, deletions = true, floor = 1", SIGN),
    "later": (', start = "as later", bound = 3, theta = 1, resolution = 1.5', SIGN),
    "private": (', selection = "private", bound = 2', ""),
    "block": (', counter = "block", block = 3, forget = false, bound = 2', ""),
    "tree": (', counter = "tree", bound = 2', ""),
    "tree-later": (', counter = "tree", start = "as later", smoothing = 0', ""),
    "matrix": (', counter = "matrix", bound = 2', ""),
    "waits": (", first = 3, lifetime = 2, bound = 4", ""),
    "total": (", bound = 2, debias = true, debias_cap = 20, first = 2, expected = 300", ""),
}


@pytest.mark.spread(3)
@pytest.mark.parametrize("case", PHD)
def test_phdstream_releases_what_the_judge_says(case: str) -> None:
    found, rows = judged(text("phdstream", *PHD[case]))
    assert found == [] and rows > 20


HP = {
    "default": (", k = 4", ""),
    "signed": (", k = 8, bound = 4, deletions = true, rows = 3", SIGN),
    "single": (', k = 4, decode = "single", sketch = "min", width = 16, exact = 1', ""),
    "threshold": (', prune = "threshold", bar = 0.5, k = 4, exact = 2, seed = 5', ""),
    "gauss": (', noise = "gauss", k = 4, bound = 2', ""),
    "total": (", k = 4, bound = 2, debias = true, debias_cap = 20, expected = 300", ""),
    "chosen": (", expected = 20", ""),
}


@pytest.mark.spread(3)
@pytest.mark.parametrize("case", HP)
def test_privhp_releases_what_the_judge_says(case: str) -> None:
    axes = AXES.replace(', kind = "integer"', "")
    found, rows = judged(text("privhp", *HP[case], depth=7, axes=axes))
    assert found == [] and rows > 20


SHARING = {
    "gaussian": (', noise = "gauss", k = 4, bound = 2', ', counter = "matrix", bound = 2', 0.001),
    "both": (', noise = "gauss", k = 4, debias = true', ", lifetime = 2, bound = 4", 0.001),
    "pure": (", k = 4, bound = 2", ', selection = "private", bound = 2', 0),
}


def shared(case: str) -> Deployment:
    """Two maps, and where δ allows it a histogram, that share a budget."""
    hp, phd, delta = SHARING[case]
    given, members = [], {"p": ("privhp", "binary", hp), "q": ("phdstream", "all", phd)}
    for name, (kind, split, more) in members.items():
        domain = DOMAIN.format(3, split, AXES)
        one = sharing(name, "[]", 6, "", f", {domain}{more}").replace("key = []\n", "")
        given.append(one.replace('kind = "histogram"', f'kind = "{kind}"'))
    given += [sharing("h", '["page"]', 6, "", "")] * bool(delta)
    names = ", ".join(f"{name} = 1" for name in "pqh"[: len(given)])
    budget = SHARED.format(members=names, epsilon=12, delta=delta, cap="")
    head = INPUT.format(units=2, cells=2, partitioner="none", unit='"user"')
    return compile_config(loads(head + budget + "".join(given), environ={}), {"events": 2})


@pytest.mark.parametrize("case", SHARING)
def test_maps_that_share_a_budget_are_judged(case: str) -> None:
    made = shared(case)
    one = world(made, Random(5), events=300, users=40)
    found, rows = verdict(made, placed(one), one.clock)
    assert found == [] and rows > 20


@pytest.mark.parametrize("case", SHARING)
def test_maps_that_spend_more_together_than_they_have_are_found(case: str) -> None:
    made = shared(case)
    for pipeline in made.pipelines:
        told = public(made.inputs[0], pipeline)
        rules = told.rules()
        assert rules.affordable()
        cost, charged = rules.epoch, pipeline.mechanism.cost()
        assert (cost.mu2, cost.delta) == (charged.mu2, charged.delta)
        assert float(cost.pure) == pytest.approx(float(charged.epsilon), rel=1e-9)
        budget = told.config["budget"]
        less = {n: str(Fraction(budget["shared"][n]) * Fraction(4, 5)) for n in budget["shared"]
                if n in ("epsilon", "delta")}  # fmt: skip
        poor = budget | {"shared": budget["shared"] | less}
        assert not told._replace(config=told.config | {"budget": poor}).rules().affordable()


def _more(real: Any) -> Any:
    return property(lambda self: replace(real.func(self), bound=99))


def _half(real: Any) -> Any:
    return property(lambda self: real.__get__(self) / 2)


def _easily(real: Any) -> Any:
    return lambda self, variance: real(self, variance) - tree.GRID


def _leaning(real: Any) -> Any:
    return lambda parent, left, right: real(parent, left + 2, right)


def _richer(real: Any) -> Any:
    return lambda shape, inherited, *more: real(shape, inherited + 1, *more)


MISTAKES = {
    "phdstream": [
        (phd.PHDStream, "absorb", first_twice),
        (phd.PHDStream, "traits", _more),
        (node_counters.SimpleCounter, "scale", _half),
        (privtree.Selection, "margin", lambda real: lambda *given: real(*given) + 100),
        (phd.ReleasedSelection, "threshold", _easily),
        (tree, "project", lambda real: lambda total, raw, child=None: raw),
        (
            phd,
            "estimates",
            lambda real: lambda shape, inherited, *more: real(shape, inherited + 1, *more),
        ),
    ],
}


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("kind", "where", "name", "wrong"),
    [(kind, *one) for kind, some in MISTAKES.items() for one in some],
)
def test_a_product_that_errs_is_found_out(
    kind: str, where: Any, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, wrong(getattr(where, name)))
    more = ", k = 4" * (kind == "privhp")
    assert judged(text(kind, f", bound = 2{more}", depth=3 if kind == "phdstream" else 7))[0] != []


@pytest.mark.parametrize("kind", MISTAKES)
def test_one_released_number_that_is_another_is_named(kind: str) -> None:
    made: Deployment = compile_config(loads(text(kind, ""), environ={}), {"events": 1})
    one = world(made, Random(2), events=200, users=40)
    ((releases, published),) = outcome(made, placed(one), one.clock)
    assert objections(releases, published) == []
    place = next(n for n, (_, value) in enumerate(published) if b'"values"' in value)
    key, value = published[place]
    for change in (
        lambda body: body["values"]["count"].update(value=body["values"]["count"]["value"] + 1),
        lambda body: body["box"].update(x=[0.0, 0.1]),
    ):
        body = json.loads(value)
        change(body)
        other = [*published[:place], (key, json.dumps(body).encode()), *published[place + 1 :]]
        (wrong,) = objections(releases, other)
        assert "differs in" in wrong
