"""Distinct values on the real broker: each counts once through crashes and a wiped table.

Covers: agents/stages/aggregate/first_sightings.py
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay

from ..judge.topics import deployment as judgement
from .local import Local, local

HOUR = 3_600_000_000
ORIGIN = 17956 * 24 * HOUR  # 2019-03-01
TOML = """
[deployment]
name = "values"
[engine]
cells_partitions = 2
units_partitions = 2
session_timeout = "3s"
transaction_timeout = "10s"
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "none"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
window = { length = "4h", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "1h" }
schedule = "external"
budget = { epsilon = 16.0, delta = 1e-3 }
aggregate = [{ kind = "distinct", field = "product" }]
mechanism = { kind = "histogram", budget = 4, adaptive_weight = 0 }
"""
EACH = 3
MANY = 40_000, 40_000, 40_000, 40_000  # users in each hour
FEWER = 4_000, 40_000, 4_000

pytestmark = pytest.mark.broker


def sent(users: Sequence[int], hour: int) -> list[dict[str, object]]:
    """For each user three of many products, on one of two pages; some were shown an hour before.

    In a large hour, the first page has more new pairs than one step takes.
    """
    time, base = ORIGIN + hour * HOUR, 0
    for before, now in pairwise(users[: hour + 1]):
        base += EACH * (before - min(before, now) // 2)
    return [
        {"user": f"u{hour} {n}", "page": "ab"[n % 8 == 0], "t": time, "product": f"p {base + i}"}
        for n in range(users[hour])
        for i in range(n * EACH, (n + 1) * EACH)
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("users", [FEWER, MANY], ids=len)
def test_each_value_counts_once_through_kills_and_a_lost_table(
    empty_broker: Broker, tmp_path, users: Sequence[int]
):
    with local(tmp_path, empty_broker.bootstrap, TOML, {"events": 2}) as run:
        worker, exact = "w", {"a": set[object](), "b": set[object]()}
        run.start(worker)
        run.wait_ready([worker])
        for hour in range(len(users)):
            records = sent(users, hour)
            half = len(records) // 2
            for place, some in enumerate((records[:half], records[half:])):
                run.publish("events", some, place)
            if hour in (1, 2):
                run.trigger(ORIGIN + (hour + 1) * HOUR)
                run.kill(worker)  # during a micro-batch, or while its pairs are counted
                worker = "w" if hour == 1 else "x"  # with its tables, or without any
                run.start(worker)
                run.wait_ready([worker])
            else:
                run.trigger(ORIGIN + (hour + 1) * HOUR)
            run.wait_released(run.wait_triggers(hour + 1), 300)
            for record in records:
                exact[str(record["page"])].add(record["product"])
            check(run, hour + 1, {page: len(values) for page, values in exact.items()})
        assert run.stop(worker) == 0
        outcome = replay(run.config())
        assert outcome.agrees and outcome.compared, outcome.problems
        (judged,) = judgement(run.bootstrap, run.toml, run.secret).values()
        assert judged.triggers == len(users) and not judged.objections, judged.objections[:2]


def check(run: Local, trigger: int, exact: dict[str, int]) -> None:
    """Released numbers are near the exact ones; a bound of 4 lets two thirds of these through."""
    rows = [
        body for body in run.releases("pages") if body.get("trigger") == trigger and "key" in body
    ]
    found = {row["key"]["page"]: row["values"]["distinct_product"] for row in rows}
    assert set(found) == {"a", "b"}
    for page, one in found.items():
        assert abs(one["value"] - exact[page] * 2 / 3) < exact[page] * 0.02 + 8 * one["stddev"]
