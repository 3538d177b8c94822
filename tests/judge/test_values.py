"""The judge against the product on streams of values, in memory: ToPS and PAK."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.mechanisms.pak import counter
from hushstream.mechanisms.pak import mechanism as pak
from hushstream.mechanisms.parts.trees import hierarchy
from hushstream.mechanisms.slots import relearning, slots
from hushstream.mechanisms.slots.stream import SlotStream
from hushstream.mechanisms.tops import blocks
from hushstream.mechanisms.tops import mechanism as tops
from hushstream.topics.config.load import loads

from .outcomes import outcome, restless, verdict
from .published import objections
from .worlds import INPUT, PIPELINE, first_twice, world

WINDOW = 'window = { length = "1d", origin = "2019-03-01T00:00:00Z" }\n'
AGGREGATE = 'aggregate = [{ kind = "sum", field = "spent", low = 0, high = 60, grid = "0.5" }]'


def text(kind: str, more: str, every: str = "2h", pipeline: str = "", delta: str = "0.001") -> str:
    """The configuration of a pipeline of values."""
    head = INPUT.format(units=2, cells=2, partitioner="none", unit='"user"')
    return head + PIPELINE.format(
        name="p", key="[]", window=f'{WINDOW}triggers = {{ every = "{every}" }}', epsilon=8,
        delta=delta, more=f"{AGGREGATE}\n{pipeline}", mechanism=more,
    ).replace('kind = "histogram"', f'kind = "{kind}"').replace("key = []\n", "")  # fmt: skip


TOPS = {
    "default": "",
    "fine": ", slots_per_trigger = 4, expected = 6, bound = 3",
    "published": ", warmup = 2, slots_per_trigger = 3, publish_warmup = true, expected = 30",
    "both": ", warmup = 2, slots_per_trigger = 2, publish_warmup = true, relearn = 4, skip = 2"
    ", fanout = 2, expected = 30",
    "paper": ", fanout = 2, height = 3, skip = 1, excess = 7.5, slots_per_trigger = 2",
    "infinite": ', stream = "infinite", fanout = 2, slots_per_trigger = 2, skip = 1',
    "anew": ", relearn = 3, watch = 0.1, slots_per_trigger = 4, expected = 5",
    "mean": ', smoother = "mean", skip = 1, fanout = 3, slots_per_trigger = 2, height = 3',
    "median": ', smoother = "median", history = 3, skip = 1, fanout = 2',
    "moving": ', smoother = "moving", history = 4, skip = 1, fanout = 2, slots_per_trigger = 3',
    "falling": ', smoother = "exponential", alpha = 0.3, skip = 2, fanout = 2, height = 4',
}  # fmt: skip

PAK = {
    "default": ", expected = 5",
    "some": ", slots_per_trigger = 2, bound = 3, expected = 5, watch = 0.1, warmup = 2",
    "tree": ', counter = "tree", sliding = 4, decay = 0.75, expected = 5, split = 0.4',
    "ranks": ', threshold = "noisy-max", expected = 5',
    "wide": ', counter = "hierarchy", sliding = 3, decay = 0.5, slots_per_trigger = 2',
    "matrix": ', counter = "matrix", sliding = 2, decay = 0.9, slots_per_trigger = 2, bound = 2',
    "anew": ', relearn = 2, counter = "hierarchy", sliding = 3, decay = 0.75, expected = 20',
    "anew-tree": ', relearn = 3, threshold = "noisy-max", counter = "tree", expected = 20',
    "anew-matrix": ', relearn = 3, counter = "matrix", slots_per_trigger = 2, expected = 20',
    "smooth": ', threshold = "smooth", expected = 60, warmup = 4, split = 0.3, beta = 0.2',
    "top": ', threshold = "top", counter = "tree"',
    "held": ', publish_warmup = false, expected = 5, tail = 0.05, safety = 0.8, factor = 1.5',
}  # fmt: skip


def judged(given: str, seed: int = 5, events: int = 300, opening: Any = restless) -> Any:
    made = compile_config(loads(given, environ={}), {"events": 2})
    one = world(made, Random(seed), events=events, users=40)
    return verdict(made, one.logs, one.clock, opening)


@pytest.mark.spread(3)
@pytest.mark.parametrize("case", TOPS)
def test_tops_releases_what_the_judge_says(case: str) -> None:
    found, rows = judged(text("tops", TOPS[case]))
    assert found == [] and rows > 20


@pytest.mark.spread(4)
@pytest.mark.parametrize("case", PAK)
def test_pak_releases_what_the_judge_says(case: str) -> None:
    found, rows = judged(text("pak", PAK[case]))
    assert found == [] and rows > 20


def _unnoised(real: Any) -> Any:
    return lambda self, noise, theta, block: 0


def _off(real: Any) -> Any:
    return lambda scores, *more: min(real(scores, *more) + 1, len(scores) - 1)


def _richer(real: Any) -> Any:
    return property(lambda self: replace(real.func(self), bound=99))


def _one_more(real: Any) -> Any:
    return lambda self, *given: real(self, *given) + 1


MISTAKES = {
    "tops": [
        (slots.Slots, "absorb", first_twice),
        (SlotStream, "traits", _richer),
        (slots.Slots, "clipped", lambda real: lambda self, entries, theta: entries.sum),
        (blocks.Blocks, "_noise", _unnoised),
        (blocks.Blocks, "_noise", _one_more),
        (tops, "noisy_max", _off),
        (hierarchy.Chunks, "scale", lambda real: lambda self, theta: real(self, theta) / 2),
        (SlotStream, "_watched", lambda real: lambda *given: {"clipped": np.zeros(1, np.int64)}),
        (SlotStream, "_warm_sum", _one_more),
        (tops.Tops, "predicted", _one_more),
    ],
    "pak": [
        (slots.Slots, "absorb", first_twice),
        (slots.Slots, "clipped", lambda real: lambda self, entries, theta: entries.sum),
        (counter.TreePrefix, "scale", lambda real: lambda self, theta: real(self, theta) / 2),
        (counter.TreePrefix, "noise", lambda real: lambda *given: [0] * len(given[3])),
        (relearning, "noisy_max", _off),
        (pak, "noisy_max", _off),
        (pak.RankQuantile, "scale", property(lambda self: 1 / self.epsilon)),
        (SlotStream, "_watched", lambda real: lambda *given: {"clipped": np.zeros(1, np.int64)}),
    ],
}  # fmt: skip


@pytest.mark.spread(4)
@pytest.mark.parametrize(
    ("kind", "where", "name", "wrong"),
    [(kind, *one) for kind, some in MISTAKES.items() for one in some],
)
def test_a_product_that_errs_is_found_out(
    kind: str, where: Any, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ', counter = "tree"' * (kind == "pak")
    more += ", skip = 1, fanout = 2" * (kind == "tops")  # so that slots are predicted
    more += ', threshold = "noisy-max"' * (where in (pak, pak.RankQuantile))
    given = text(kind, f", slots_per_trigger = 2, expected = 6, bound = 3, watch = 0.1{more}")
    made = wrong if isinstance(wrong, property) else wrong(getattr(where, name))
    monkeypatch.setattr(where, name, made)
    assert judged(given)[0] != []


@pytest.mark.parametrize("kind", MISTAKES)
def test_one_released_number_that_is_another_is_named(kind: str) -> None:
    made = compile_config(loads(text(kind, ", bound = 2"), environ={}), {"events": 1})
    one = world(made, Random(2), events=200, users=40)
    ((releases, published),) = outcome(made, one.logs, one.clock)
    assert objections(releases, published) == []
    row = next(n for n, (_, value) in enumerate(published) if b'"values"' in value)
    manifest = next(n for n, (_, value) in enumerate(published) if b'"threshold":[' in value)
    for place, change in ((row, _next_value), (manifest, _next_threshold)):
        key, value = published[place]
        other = [*published[:place], (key, change(json.loads(value))), *published[place + 1 :]]
        (wrong,) = objections(releases, other)
        assert "differs in ['values']" in wrong or "the manifest says" in wrong


def _next_value(body: dict[str, Any]) -> bytes:
    body["values"]["sum"]["value"] += 1 / 128
    return json.dumps(body).encode()


def _next_threshold(body: dict[str, Any]) -> bytes:
    body["public"]["threshold"][0] += 1
    return json.dumps(body).encode()
