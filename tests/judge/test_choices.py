"""Numbers chosen among several: the judge agrees with the product, and all are clipped.

*Statement.* A record adds one value of the column's clipping interval to a sum, for any number of
cases with any constants and fields. So the sensitivity is that of a column with a single field.
"""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.errors import ConfigError
from hushstream.formats.events import decode
from hushstream.formats.events.raw import RawRecord
from hushstream.topics.config.load import loads

from .outcomes import verdict
from .worlds import HORIZONS, INPUT, PIPELINE, world

SOME = 'name = "some", where = [{ field = "page", one_of = ["p1", "p2"] }]'
CASES = """derive.v = { cases = [
  { where = [{ field = "page", equals = "p0" }], then = 2 },
  { where = [{ field = "page", equals = "p1" }], field = "spent" },
  { where = [{ field = "spent", above = 10 }], then = 0.5 },
], OTHER }"""
SUMMED = """aggregate = [{ kind = "count" }, { kind = "sum", field = "v", ENDS },
  { kind = "mean", field = "v", ENDS }, { kind = "sum", field = "v", ENDS, SOME }]"""
ENDS = "low = -1, high = 30, grid = 0.5"


def text(
    other: str = "otherwise = -1", more: str = SUMMED, partitioner: str = "none", cases: str = CASES
) -> str:
    more = f"{cases.replace('OTHER', other)}\n{more.replace('ENDS', ENDS).replace('SOME', SOME)}"
    head = INPUT.format(units=2, cells=2, partitioner=partitioner, unit='"user"')
    return head + PIPELINE.format(
        name="p", key='["page"]', window=HORIZONS[4], epsilon=8, delta="0.01", more=more,
        mechanism="",
    )  # fmt: skip


@pytest.mark.spread(2)
@pytest.mark.parametrize("partitioner", ["none", "murmur2"])
@pytest.mark.parametrize("other", ["otherwise = -1", 'field = "spent"'])
def test_the_product_and_the_judge_agree_on_chosen_numbers(other: str, partitioner: str):
    made = compile_config(loads(text(other, partitioner=partitioner), environ={}), {"events": 2})
    one = world(made, Random(other), 1200, users=60)
    found, rows = verdict(made, one.logs, one.clock)
    assert found == [] and rows > 10


def test_whole_numbers_alone_are_judged_too():
    whole = CASES.replace("0.5", "7").replace('field = "spent" }', "then = 4 }")
    made = compile_config(loads(text(cases=whole), environ={}), {"events": 1})
    one = world(made, Random(2), 800, users=60)
    found, rows = verdict(made, one.logs, one.clock)
    assert found == [] and rows > 4


@pytest.mark.parametrize("least", [0, 10**9], ids=["loops", "objects"])
def test_no_case_leaves_the_clipping_interval(monkeypatch: pytest.MonkeyPatch, least: int):
    monkeypatch.setattr(decode, "LEAST", least)
    far = CASES.replace("then = 2", "then = 1_000_000").replace("0.5", "-1_000_000.5")
    made = compile_config(loads(text("otherwise = 99", cases=far), environ={}))
    (source,) = made.streams
    bodies = [
        {"user": "u", "page": page, "t": 1_551_398_400_000_000, "spent": spent}
        for page in ("p0", "p1", "p2", "p3") for spent in (-1e300, -3, 0, 2.25, 12, 1e300)
    ] * 4  # fmt: skip
    records = [RawRecord(n, 0, b"u", json.dumps(one).encode()) for n, one in enumerate(bodies)]
    (view,) = source.decoder.decode(records, {}).views
    values = np.asarray(view.value)
    assert len(view.rows) == len(bodies)
    low, high = made.pipelines[0].fields.columns[0].reach
    assert values.min() == low and values.max() == high
    expected = {"p0": 60, "p1": None, "p2": None, "p3": None}
    first = values[:, 0] if values.ndim == 2 else values
    for body, value in zip(bodies, first, strict=True):
        wanted = expected[body["page"]]
        if body["page"] == "p1":
            wanted = round(min(max(body["spent"], -1), 30) / 0.5)
        elif wanted is None:
            wanted = -2 if body["spent"] > 10 else 60
        assert value == wanted, body


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (text().replace("then = 2", 'then = "two"'), "must all be numbers"),
        (text().replace('key = ["page"]', 'key = ["page", "v"]'), "of a key are texts"),
        (text().replace('field = "v"', 'field = "w"'), "no field of an aggregate"),
        (text("otherwise = 1, field = \"spent\""), "exclude each other"),
        (text().replace("then = 2", 'then = 2, field = "x"'), "one of then and field"),
        (text().replace('equals = "p0"', "equals = 3"), "a field has one type"),
        (text(cases='derive.v = { field = "spent", bucket = 10 }'), "is no number to sum"),
    ],
)  # fmt: skip
def test_other_columns_are_refused(settings: str, words: str):
    with pytest.raises(ConfigError, match=words):
        loads(settings, environ={})
