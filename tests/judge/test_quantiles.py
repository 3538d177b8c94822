"""The judge against the product on pipelines of quantiles, in memory."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.mechanisms.quantile import bands, inversion, mechanism, tree
from hushstream.mechanisms.quantile import settings as quantile_settings
from hushstream.topics.config.load import loads
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from .outcomes import verdict
from .test_histogram import CONDITIONS, ENCODINGS, FACTORS, HERE, KEYS, caps
from .worlds import HORIZONS, INPUT, PIPELINE, world

RANGES = ("low = -5, high = 50", "low = 0, high = 15.5", 'low = 0.5, high = 60, spacing = "log"')
BOUNDS = ("", ", budget = 1", ", budget = 30", ', bound = "records", budget = 3',
          ', bound = "per-key", per_key = 2, budget = 5')  # fmt: skip


@st.composite
def configurations(draw: st.DrawFn) -> str:
    """One pipeline of quantiles: keys listed or not, every range, bound and kind of window."""
    text = INPUT.format(units=draw(st.integers(1, 2)), cells=draw(st.integers(1, 2)),
                        partitioner="none", unit='"user"')  # fmt: skip
    more = ['inputs = { value = "spent" }']
    natural = draw(st.integers(0, 3))
    key = "[]" if not natural else '["page"]'
    more += {0: ['public_keys = "natural"'], 1: [KEYS]}.get(natural, [])
    more += ['sign = "gone"'] * (draw(st.integers(0, 2)) == 0)
    if draw(st.integers(0, 3)) == 0:
        more.append(f"where = [{draw(st.sampled_from(CONDITIONS))}]")
    horizon = draw(st.sampled_from(list(HORIZONS)))
    if horizon != 3 and draw(st.booleans()):
        more.append('epoch = "2d"')
    display = 'display = "non-negative", ' if draw(st.booleans()) else ""
    more.append(
        f"release = {{ {display}confidence_level = 0.{draw(st.sampled_from([8, 95]))}, "
        f'encoding = "{draw(st.sampled_from(ENCODINGS))}" }}'
    )
    at = draw(st.sampled_from(["[0.5]", "[0.99, 0.25, 0.5]", "[0.001, 0.75]"]))
    mechanism = f", {draw(st.sampled_from(RANGES))}, at = {at}{draw(st.sampled_from(BOUNDS))}"
    mechanism += f", bands = {draw(st.sampled_from([16, 16, 64]))}"
    mechanism += f', factorization = "{draw(st.sampled_from(FACTORS))}"'
    mechanism += ", count_share = 0.3" * draw(st.booleans())
    delta = "0.01" + (f", {draw(caps(horizon != 3))}" if draw(st.booleans()) else "")
    text += PIPELINE.format(
        name="p", key=key, window=HORIZONS[horizon], more="\n".join(more),
        epsilon=draw(st.sampled_from([2, 12])), delta=delta, mechanism=mechanism,
    ).replace('kind = "histogram"', 'kind = "quantile"')  # fmt: skip
    return f'{text}\n[registry]\nurl = "http://localhost:1"\n'


worlds = given(configurations(), st.integers(1, 2), st.integers(0, 2**32), st.sampled_from(
    ((30, 5), (120, 10), (400, 30))
))  # fmt: skip


@settings(max_examples=10)
@worlds
def test_random_quantiles_are_released_as_the_judge_says(text, partitions, seed, size):
    agreed(text, partitions, seed, size)


@pytest.mark.thorough
@settings(max_examples=40)
@worlds
def test_many_random_quantiles_are_released_as_the_judge_says(text, partitions, seed, size):
    agreed(text, partitions, seed, size)


def agreed(text: str, partitions: int, seed: int, size: tuple[int, int]) -> None:
    made = compile_config(loads(text, environ={}, folder=HERE), {"events": partitions})
    one = world(made, Random(seed), events=size[0], users=size[1])
    found, rows = verdict(made, one.logs, one.clock)
    assert found == []
    assume(rows)


ONE = INPUT.format(units=2, cells=2, partitioner="none", unit='"user"') + PIPELINE.format(
    name="p", key='["page"]', window=HORIZONS[4], more='inputs = { value = "spent" }', epsilon=8,
    delta=0.01, mechanism=", low = -5, high = 50, at = [0.5, 0.9], bands = 16, budget = 4",
).replace('kind = "histogram"', 'kind = "quantile"')  # fmt: skip


def _lower(real: Any) -> Any:
    return lambda *given: tuple(bar - 1 for bar in real(*given))


def _left(real: Any) -> Any:
    return lambda self, steps: np.maximum(real(self, steps) - 1, 0)


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("where", "name", "wrong"),
    [
        (inversion, "NEARER", lambda real: 0.3),
        (inversion, "rising", lambda real: np.positive),
        (quantile_settings, "least_counts", _lower),
        (bands.Bands, "place", _left),
        (mechanism, "STEPS", lambda real: 512),
        (tree, "_nearest", lambda real: lambda four, total: four + total[..., None] / 4),
    ],
)
def test_a_product_that_errs_is_found_out(
    where: Any, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = compile_config(loads(ONE, environ={}), {"events": 1})
    one = world(made, Random(5), events=400, users=100)
    found, rows = verdict(made, one.logs, one.clock)
    assert found == [] and rows > 5
    monkeypatch.setattr(where, name, wrong(getattr(where, name)))
    made = compile_config(loads(ONE, environ={}), {"events": 1})
    assert verdict(made, one.logs, one.clock)[0]
