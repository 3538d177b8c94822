"""The judge agrees with the product on attributes of units, for various keys and partitions."""

from __future__ import annotations

import json
from random import Random

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.topics.config.load import loads

from .outcomes import ran, verdict
from .worlds import HORIZONS, INPUT, PIPELINE, world

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
KIND = """derive.kind = { of_unit = true, otherwise = "rest", cases = [
    { where = [{ field = "country", equals = "DE" }, { field = "more", above = 0 }], then = "a" },
    { where = [{ any = [{ field = "country", present = false },
                        { field = "more", none_of = ["y"] }] }], then = true },
    { where = [{ field = "country", at_most = 7 }], then = 3 },
] }"""
CASES = {
    "found": ('["country", "page"]', "", "", 2),
    "behind": ('["page", "country"]', 'epoch = "2d"', ", debias = true", 2),
    "alone": ('["country"]', "", ", budget = 9", 3),
    "cases": ('["page", "kind"]', KIND, ", min_users = 2", 2),
    "natural": ('["kind"]', f'{KIND}\npublic_keys = "natural"', "", 1),
    "public": ('["country", "page"]', PUBLIC, "", 1),
}  # fmt: skip


def text(case: str, partitioner: str) -> str:
    key, more, mechanism, _ = CASES[case]
    head = INPUT.format(units=1, cells=2, partitioner=partitioner, unit='"user"')
    return head + USERS.format(partitioner=partitioner) + PIPELINE.format(
        name="p", key=key, window=HORIZONS[4], epsilon=8, delta="0.01",
        more=more if KIND in more else f"{more}\n{COUNTRY}", mechanism=mechanism,
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


QUERY = """
[[pipeline]]
name = "p"
query = '''SELECT CASE WHEN u.country = 'DE' THEN 'home' WHEN u.country IS NULL THEN 'unknown'
ELSE 'abroad' END AS origin, page, COUNT(*) FROM events AS e LEFT JOIN users AS u ON e.user = u.id
GROUP BY origin, page'''
unit_name = "user"
schedule = "external"
budget = {{ epsilon = 8, delta = 0.01 }}
mechanism = {{ kind = "histogram" }}
{}
"""


def test_a_choice_by_attributes_runs_from_sql_to_its_release():
    head = INPUT.format(units=1, cells=2, partitioner="murmur2", unit='"user"')
    config = head + USERS.format(partitioner="murmur2") + QUERY.format(HORIZONS[4])
    made = compile_config(loads(config, environ={}), {"events": 2, "users": 2})
    one = world(made, Random("sql"), 1200, users=40)
    (pipeline,) = made.pipelines
    outs = ran(made, one.logs, one.clock, beside=one.beside)[pipeline.release_topic]
    bodies = [json.loads(out.value) for out in outs if out.value is not None]
    origins = {body["key"]["origin"] for body in bodies if "key" in body}
    assert origins == {"home", "abroad", "unknown"}
    assert verdict(made, one.logs, one.clock, beside=one.beside)[0] == []
