"""Attributes of units, judged by a second specification: whichever keys, partitions and windows."""

from __future__ import annotations

from random import Random

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.topics.config.load import loads

from .worlds import HORIZONS, INPUT, PIPELINE, verdict, world

COUNTRY = 'derive.country = { attribute = "country", otherwise = "none" }'
USERS = """
[[input]]
name = "users"
topic = "users"
unit = "id"
attributes_of = "events"
partitioner = "{partitioner}"
time = {{ format = "record" }}
"""
PUBLIC = 'public_keys = [["DE", "p0"], [7, "p1"], ["none", "p0"], [true, "p0"], ["XX", "p0"]]'
CASES = {
    "found": ('["country", "page"]', "", "", 2),
    "behind": ('["page", "country"]', 'epoch = "2d"', ", debias = true", 2),
    "alone": ('["country"]', "", ", budget = 9", 3),
    "public": ('["country", "page"]', PUBLIC, "", 1),
}  # fmt: skip


def text(case: str, partitioner: str) -> str:
    key, more, mechanism, _ = CASES[case]
    head = INPUT.format(units=1, cells=2, partitioner=partitioner, unit='"user"')
    return head + USERS.format(partitioner=partitioner) + PIPELINE.format(
        name="p", key=key, window=HORIZONS[4], epsilon=8, delta="0.01",
        more=f"{more}\n{COUNTRY}", mechanism=mechanism,
    )  # fmt: skip


@pytest.mark.spread(3)
@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
@pytest.mark.parametrize("case", CASES)
def test_the_product_and_the_judge_agree_on_attributes(case: str, partitioner: str):
    numbers = dict.fromkeys(("events", "users"), CASES[case][3])
    made = compile_config(loads(text(case, partitioner), environ={}), numbers)
    one = world(made, Random(case), 1200, users=40)
    found, rows = verdict(made, one.logs, one.clock, beside=one.beside)
    assert found == [] and rows > 4
