"""Sessions on the real broker: workers are killed while sessions are open, and while they close.

Covers: agents/stages/bound/sessions.py
"""

from __future__ import annotations

import pytest
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay

from ..judge.topics import deployment as judgement
from .local import Local, local

HOUR = 3_600_000_000
MINUTE = HOUR // 60
ORIGIN = 17956 * 24 * HOUR  # 2019-03-01
TOML = """
[deployment]
name = "visits"
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
session = "10m"
lateness = "10m"
window = { length = "2h", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "1h" }
schedule = "external"
budget = { epsilon = 16.0, delta = 1e-3 }
mechanism = { kind = "histogram", budget = 16, adaptive_weight = 0 }
[[pipeline.aggregate]]
kind = "count"
[[pipeline.aggregate]]
kind = "sum"
field = "session_events"
low = 0
high = 10
"""
USERS, TRIGGERS = 600, 2

pytestmark = pytest.mark.broker


def sent(hour: int) -> list[list[dict[str, object]]]:
    """Two sessions of each user in an hour, with two and three records, over both partitions."""
    begin = ORIGIN + hour * HOUR
    minutes = (2, 8, 30, 36, 40)
    records = [
        {"user": f"u{n}", "page": "ab"[n % 3 == 0], "t": begin + minute * MINUTE + n}
        for minute in minutes for n in range(USERS)
    ]  # fmt: skip
    return [records[::2], records[1::2]]


@pytest.mark.thorough
def test_sessions_count_once_through_kills_and_a_lost_table(empty_broker: Broker, tmp_path):
    with local(tmp_path, empty_broker.bootstrap, TOML, {"events": 2}) as run:
        worker = "w"
        run.start(worker)
        run.wait_ready([worker])
        for hour in range(TRIGGERS):
            parts = sent(hour)
            for place, some in enumerate(parts):
                run.publish("events", some[: len(some) // 2], place)
            run.kill(worker)  # while sessions are open
            worker = "w" if hour == 0 else "x"  # with its tables, or without any
            run.start(worker)
            run.wait_ready([worker])
            for place, some in enumerate(parts):
                run.publish("events", some[len(some) // 2 :], place)
            run.trigger(ORIGIN + (hour + 1) * HOUR + 10 * MINUTE)
            if hour == 0:
                run.kill(worker)  # while they close
                run.start(worker)
                run.wait_ready([worker])
            run.wait_released(run.wait_triggers(hour + 1), 300)
            check(run, hour + 1)
        assert run.stop(worker) == 0
        outcome = replay(run.config())
        assert outcome.agrees and outcome.compared, outcome.problems
        (judged,) = judgement(run.bootstrap, run.toml, run.secret).values()
        assert judged.triggers == TRIGGERS and not judged.objections, judged.objections[:2]


def check(run: Local, trigger: int) -> None:
    """Two sessions of each user in an hour with five records together; the bound cuts none."""
    rows = [
        body for body in run.releases("pages") if body.get("trigger") == trigger and "key" in body
    ]
    found = {row["key"]["page"]: row["values"] for row in rows}
    assert set(found) == {"a", "b"}
    for page, users in (("a", USERS * 2 // 3), ("b", USERS // 3)):
        for name, each in (("count", 2), ("sum_session_events", 5)):
            one = found[page][name]
            assert abs(one["value"] - users * each * trigger) < 8 * one["stddev"], (page, name)
