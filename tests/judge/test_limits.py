"""Judge and product at the limit of 64 bits: values count so often that few records reach it."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.rounds.mechanism import Rounds
from hushstream.topics.config.load import loads

from .histogram import Judge
from .outcomes import outcome, verdict
from .worlds import HORIZONS, INPUT, PIPELINE, world

COUNT = '{ kind = "count" }, '
SUM = '{ kind = "sum", field = "spent", low = -5, high = 5, grid = "0.5" }'


def larger(part, times):
    """A part with its values multiplied."""
    sums = [[count, *(times * one for one in values)] for count, *values in part.sums.tolist()]
    assert max((abs(x) for row in sums for x in row), default=0) < 1 << 63
    return part._replace(sums=np.array(sums, np.int64).reshape(part.sums.shape))


def enlarge(monkeypatch, times: int) -> None:
    """Multiply every value, in the product and in the judge."""
    for kind in (Histogram, Rounds):
        before = kind._part
        monkeypatch.setattr(kind, "_part", lambda *a, before=before: larger(before(*a), times))

    def add(judge, content, event, lane) -> None:
        rules = judge.rules
        blank = [[0] * (1 + len(rules.columns)) for _ in rules.weights]
        sums = content.setdefault(event.key, blank)[lane]
        sums[0] += event.sign
        (value,), ((low, high),) = event.values, rules.limits
        sums[1] += times * event.sign * (min(max(value, low), high) - rules.middle[0])

    monkeypatch.setattr(Judge, "add", add)


CASES = [
    ("", "", "", 54),
    (COUNT, 'sign = "gone"', "", 56),
    (COUNT, "", ", debias = true, debias_cap = 20", 54),
    ("", 'sign = "gone"', ", debias = true, debias_cap = 20", 56),
    (COUNT, 'sign = "gone"', ', selection = "rounds", min_users = 1', 56),
]


@pytest.mark.spread(2)
@pytest.mark.parametrize(("count", "sign", "more", "bits"), CASES)
def test_sums_that_64_bits_do_not_hold_are_released_alike(monkeypatch, count, sign, more, bits):
    enlarge(monkeypatch, 1 << bits)
    text = INPUT.format(units=1, cells=2, partitioner="none", unit='"user"')
    text += PIPELINE.format(
        name="p", key='["page"]', window=HORIZONS[4], epsilon=8, delta="0.01",
        more=f"aggregate = [{count}{SUM}]\n{sign}", mechanism=f", budget = 60{more}",
    )  # fmt: skip
    made = compile_config(loads(text, environ={}), {"events": 2})
    one = world(made, Random(5), events=900, users=150)
    assert verdict(made, one.logs, one.clock)[0] == []
    ((releases, _),) = outcome(made, one.logs, one.clock)
    sums = [row["values"]["sum_spent"]["value"] for release in releases
            for row in release.rows.values()]  # fmt: skip
    assert max(map(abs, sums)) == (1 << 62) // 2  # some sums reach the limit; they count half steps
