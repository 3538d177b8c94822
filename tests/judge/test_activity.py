"""The judge against the product on activity of units, alone and beside a bound to be learned."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.mechanisms.activity import settings as activity_settings
from hushstream.mechanisms.parts.unit_profile import UnitProfile
from hushstream.topics.config.load import loads
from hypothesis import given, settings
from hypothesis import strategies as st

from .outcomes import verdict
from .test_histogram import CONDITIONS, COUNT, ENCODINGS, HERE, KEYS
from .worlds import HORIZONS, INPUT, PIPELINE, world


@st.composite
def configurations(draw: st.DrawFn) -> str:
    """Activity alone, by key or of all records, or beside a histogram that learns its bound."""
    text = INPUT.format(units=draw(st.integers(1, 2)), cells=draw(st.integers(1, 2)),
                        partitioner="none", unit='"user"')  # fmt: skip
    more = ['sign = "gone"'] * draw(st.integers(0, 1))
    more += [f"where = [{draw(st.sampled_from(CONDITIONS))}]"] * draw(st.integers(0, 1))
    display = 'display = "non-negative", ' * draw(st.integers(0, 1))
    learnt = draw(st.booleans())
    if learnt:
        more += [f"aggregate = [{COUNT}]", "learn = { share = 0.2 }"]
    more.append(f'release = {{ {display}encoding = "{draw(st.sampled_from(ENCODINGS))}" }}')
    more += [KEYS] * draw(st.integers(0, 1))
    most = draw(st.sampled_from([2, 8, 64]))
    key = '["page"]' if learnt or KEYS in more or draw(st.booleans()) else "[]"
    text += PIPELINE.format(
        name="p", key=key, window=HORIZONS[4 if learnt else 1], more="\n".join(more),
        epsilon=draw(st.sampled_from([1, 8])), delta=draw(st.sampled_from(["1e-4", "0.01"])),
        mechanism="" if learnt else f", most = {most}",
    )  # fmt: skip
    if learnt:  # then triggers follow the clock
        text = text.replace('schedule = "external"\n', "")
    else:
        text = text.replace('kind = "histogram"', 'kind = "activity"').replace("key = []\n", "")
    return f'{text}\n[registry]\nurl = "http://localhost:1"\n'


some = given(configurations(), st.integers(1, 2), st.integers(0, 2**32),
             st.sampled_from(((30, 5), (120, 10), (400, 100))))  # fmt: skip


@settings(max_examples=6)
@some
def test_random_activity_is_released_as_the_judge_says(text, partitions, seed, size):
    agreed(text, partitions, seed, size)


@pytest.mark.thorough
@settings(max_examples=50)
@some
def test_much_random_activity_is_released_as_the_judge_says(text, partitions, seed, size):
    agreed(text, partitions, seed, size)


def agreed(text: str, partitions: int, seed: int, size: tuple[int, int]) -> None:
    made = compile_config(loads(text, environ={}, folder=HERE), {"events": partitions})
    one = world(made, Random(seed), events=size[0], users=size[1])
    assert verdict(made, one.logs, one.clock)[0] == []


ONE = INPUT.format(units=2, cells=2, partitioner="none", unit='"user"') + PIPELINE.format(
    name="p", key='["page"]', window=HORIZONS[1], more='sign = "gone"', epsilon=8, delta=0.01,
    mechanism=", most = 8",
).replace('kind = "histogram"', 'kind = "activity"')  # fmt: skip


def judged() -> tuple[list[str], int]:
    made = compile_config(loads(ONE, environ={}), {"events": 1})
    one = world(made, Random(5), events=300, users=60)
    return verdict(made, one.logs, one.clock)


def test_the_product_as_it_is_has_nothing_to_object_to():
    found, rows = judged()
    assert found == [] and rows >= 20


def _signless(real: Any) -> Any:
    return lambda self, units, batch: real(self, units, batch._replace(sign=abs(batch.sign)))


def _repeats(real: Any) -> Any:
    return lambda self, records, squares: real(self, records, np.maximum(squares, records + 1))


def _unnoised(real: Any) -> Any:
    return lambda self, totals, *rest: real(self, totals, *rest) // 64 * 64


@pytest.mark.parametrize(
    ("where", "name", "wrong"),
    [
        (UnitProfile, "absorb", _signless),
        (UnitProfile, "place", _repeats),
        (UnitProfile, "release", _unnoised),
        (UnitProfile, "need", lambda real: staticmethod(lambda share: real(share / 2))),
        (activity_settings, "fit", lambda real: lambda *some: real(*some[:2], 9, some[3])),
    ],
)
def test_a_product_that_errs_is_found_out(where, name, wrong, monkeypatch):
    real = getattr(where, name)
    monkeypatch.setattr(where, name, wrong(real))
    assert judged()[0]
