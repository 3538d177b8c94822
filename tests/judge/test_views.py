"""The judge against the product on views: rows, error bars, order and manifests."""

from __future__ import annotations

import json
import tomllib
from random import Random
from typing import Any

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.stages.view import computation, history, records, stage
from hushstream.topics.config.load import loads
from hypothesis import given, settings
from hypothesis import strategies as st

from .encodings import plain
from .outcomes import numbered, public, ran
from .test_histogram import COUNT, SUM
from .views import about_view
from .worlds import HORIZONS, INPUT, PIPELINE, world

TWO = SUM.replace("-5", "0").replace("50", "2")  # the middle of its limits is 1
VALUES = (
    '{ of = "count" }',
    '{ of = "sum_spent", name = "sum" }',
    '{ kind = "ratio", of = "sum_spent", over = "count", name = "each" }',
    '{ kind = "ratio", of = "count", over = "sum_spent" }',
    '{ kind = "lag", of = "count" }',
    '{ kind = "lag", of = "sum_spent", windows = 2 }',
    '{ kind = "change", of = "count" }',
    '{ kind = "change", of = "sum_spent", windows = 2 }',
    '{ kind = "running", of = "count" }',
    '{ kind = "running", of = "sum_spent", windows = 2 }',
)
WHERE = (
    '{ field = "count_low", above = 0 }',
    '{ any = [{ field = "page", like = "p%0" }, { field = "sum_spent", at_most = 100.5 }] }',
    '{ field = "page", text = [{ case = "upper" }], none_of = ["P1"] }',
)
HAVING = (
    '{ field = "count", at_least = 3, below = 900 }',
    '{ field = "sum_spent_stddev", present = true }',
    '{ all = [{ field = "count_high", above = 2 }, { field = "count", none_of = [1, 2] }] }',
)
ORDER = ('{ by = "count", descending = true }', '{ by = "sum_spent_low" }', '{ by = "shop" }')


@st.composite
def views(draw: st.DrawFn) -> str:
    """One view of a pipeline with two columns of a key."""
    values = draw(st.lists(st.sampled_from(VALUES), min_size=1, unique=True))
    text = f'[[view]]\nname = "v"\nsource = "p"\nvalues = [{", ".join(values)}]\n'
    key = draw(st.sampled_from([None, '["page"]', '["shop"]', "[]"]))
    text += f"key = {key}\n" if key else ""
    text += f"where = [{draw(st.sampled_from(WHERE))}]\n" if draw(st.booleans()) else ""
    text += f"having = [{draw(st.sampled_from(HAVING))}]\n" if draw(st.booleans()) else ""
    if draw(st.booleans()):
        order = ORDER[: 3 if key in (None, '["shop"]') else 2]
        steps = draw(st.lists(st.sampled_from(order), max_size=2, unique=True))
        text += f"order = [{', '.join(steps)}]\nlimit = {draw(st.integers(1, 4))}\n"
    return text


BOTH = f"aggregate = [{COUNT}, {SUM}]"
PAIRS = ", ".join(f'["p{n}", {shop}]' for n in range(4) for shop in ('"a"', 7))
LISTED = f"public_keys = [{PAIRS}]"


def source(horizon: int = 4, more: str = BOTH) -> str:
    """A pipeline whose key has two columns, one with texts, one with texts and numbers."""
    return INPUT.format(units=2, cells=2, partitioner="none", unit='"user"') + PIPELINE.format(
        name="p", key='["page", "shop"]', window=HORIZONS[horizon], more=more, epsilon=12,
        delta=0.01, mechanism=", budget = 12",
    )  # fmt: skip


def objected(text: str, seed: int = 5, events: int = 300) -> tuple[list[str], int]:
    """Objections to the views of a deployment, and the number of their rows."""
    made, texts = numbered(compile_config(loads(text, environ={}), {"events": 1}))
    one = world(made, Random(seed), events, windows=4, users=40)
    outs = ran(made, one.logs, one.clock)
    (entry,) = made.inputs
    found, rows = list[str](), 0
    for view in tomllib.loads(text)["view"]:
        (p,) = (p for p in entry.pipelines if p.name == view["source"])
        told = [(o.key or b"", plain(o.value, texts)) for o in outs[p.release_topic]]
        mine = [(o.key or b"", o.value or b"") for o in outs[f"hush.{view['name']}.releases.v1"]]
        found += about_view(view, public(entry, p).rules(), told, mine)
        rows += sum("values" in json.loads(value) for _, value in mine)
    return found, rows


some = given(
    views(), st.sampled_from([1, 3, 4]),
    st.sampled_from([BOTH, f"aggregate = [{TWO}, {COUNT}]", f"{BOTH}\n{LISTED}"]),
    st.sampled_from(["", '\nrelease = { display = "non-negative" }']), st.integers(0, 2**32),
)  # fmt: skip


@settings(max_examples=6)
@some
def test_random_views_are_what_the_judge_says(view, horizon, more, shown, seed):
    assert objected(source(horizon, more + shown) + view, seed, 150)[0] == []


@pytest.mark.thorough
@settings(max_examples=60)
@some
def test_many_random_views_are_what_the_judge_says(view, horizon, more, shown, seed):
    assert objected(source(horizon, more + shown) + view, seed, 150)[0] == []


EVERY = f"""[[view]]
name = "v"
source = "p"
key = ["page"]
values = [{", ".join(VALUES)}]
where = [{{ field = "count_high", above = 0 }}]
having = [{{ field = "count", at_least = -5 }}]
order = [{{ by = "each", descending = true }}]
limit = 3
"""


def test_a_sum_around_one_before_the_count_has_the_count_s_noise_in_it():
    """The sum shares the count's noise; taken for the count, it would have error 0."""
    text = source(4, f"aggregate = [{TWO}, {COUNT}]\n{LISTED}") + EVERY
    found, rows = objected(text)
    assert found == [] and rows > 20


def _less(real: Any) -> Any:
    return lambda self, name, key, back: real(self, name, key, back + 1)


def _unsorted(real: Any) -> Any:
    return lambda self, places, cells: places


def _none(real: Any) -> Any:
    return lambda self, one, numbers: 0.0


def _one_less(real: Any) -> Any:
    return lambda view, of, rows: real(view, of, rows[1:])


@pytest.mark.spread(3)
@pytest.mark.parametrize(
    ("where", "name", "wrong"),
    [
        (computation, "total", lambda real: lambda parts: real(list(parts)[:1])),
        (computation, "difference", lambda real: lambda one, other: one),
        (computation.Arithmetic, "_sorted", _unsorted),
        (computation.Arithmetic, "_covariance", _none),
        (computation, "fulfilling", lambda real: lambda condition, asked, n: list(range(n))),
        (history.Lookback, "before", _less),
        (history.Lookback, "sum_before", lambda real: lambda self, name, key: None),
        (stage, "records", _one_less),
        (records, "_manifest", lambda real: lambda view, of, rows: real(view, of, rows + 1)),
    ],
)
def test_a_view_that_errs_is_found_out(where, name, wrong, monkeypatch):
    monkeypatch.setattr(where, name, wrong(getattr(where, name)))
    assert objected(source(more=f"{BOTH}\n{LISTED}") + EVERY, events=150)[0]
