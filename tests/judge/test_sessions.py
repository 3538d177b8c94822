"""The judge agrees with the product on sessions, for various windows, epochs, bounds and caps."""

from __future__ import annotations

from random import Random

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.topics.config.load import loads

from .outcomes import verdict
from .worlds import HORIZONS, INPUT, PIPELINE, world

COUNT = '{ kind = "count" }'
EVENTS = '{ kind = "sum", field = "session_events", low = 0, high = 9 }'
LENGTH = '{ kind = "mean", field = "session_length", low = 0, high = 9000, grid = 1 }'
SHORT = '{ kind = "count", name = "short", where = [{ field = "session_length", below = 60 }] }'
LONG = SHORT.replace("short", "long").replace("below", "at_least")
PUBLIC = 'public_keys = ["p0", "p1", "p3", "nobody"]'
CAP = ', per_unit = { epsilon = 12, delta = 0.1, period = "4d" }'
CASES = {
    "found": (f"aggregate = [{COUNT}, {EVENTS}]", "", "0.01"),
    "public": (f"aggregate = [{COUNT}, {LENGTH}, {SHORT}, {LONG}]\n{PUBLIC}", ", budget = 6",
               "0.01"),
    "long-epoch": (f'aggregate = [{COUNT}, {EVENTS}]\nepoch = "2d"', ", debias = true", "0.01"),
    "capped": (f"aggregate = [{COUNT}]", ", budget = 4", f"0.01{CAP}"),
}  # fmt: skip


def text(case: str, units: int, partitioner: str = "none") -> str:
    more, mechanism, delta = CASES[case]
    head = INPUT.format(units=units, cells=2, partitioner=partitioner, unit='"user"')
    return head + PIPELINE.format(
        name="p", key='["page"]', window=HORIZONS[4], epsilon=8, delta=delta,
        more=f'session = "2h"\nlateness = "2h"\n{more}', mechanism=mechanism,
    )  # fmt: skip


@pytest.mark.spread(2)
@pytest.mark.parametrize("case", CASES)
def test_the_product_and_the_judge_agree_on_sessions(case: str):
    made = compile_config(loads(text(case, 2), environ={}), {"events": 2})
    one = world(made, Random(case), 1500, windows=4, users=100)
    found, rows = verdict(made, one.logs, one.clock)
    assert found == [] and rows > 10


def test_quantiles_of_sessions_are_judged_too():
    quantile = (
        text("capped", 1, "murmur2")
        .replace(f"aggregate = [{COUNT}]", 'inputs = { value = "session_length" }')
        .replace('kind = "histogram"', 'kind = "quantile", low = 0, high = 7200, bands = 64')
        .replace(CAP, "")
    )
    made = compile_config(loads(quantile, environ={}), {"events": 2})
    one = world(made, Random(3), 500, windows=3, users=12)
    found, rows = verdict(made, one.logs, one.clock)
    assert found == [] and rows > 0
