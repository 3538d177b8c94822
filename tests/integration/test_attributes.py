"""Attributes of units from a compacted topic, through kills, on the real broker.

Covers: agents/worker/attribute_reader.py
"""

from __future__ import annotations

import contextlib
import json
import time

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay

from ..judge.places import home
from ..judge.topics import deployment as judgement
from .local import Local, local

HOUR = 3_600_000_000
ORIGIN = 17956 * 24 * HOUR  # 2019-03-01
TOML = """
[deployment]
name = "visits"
[engine]
cells_partitions = 2
session_timeout = "3s"
transaction_timeout = "10s"
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "murmur2"
time = { field = "t", format = "epoch_us" }
[[input]]
name = "users"
topic = "users"
unit = "id"
attributes_of = "events"
partitioner = "murmur2"
time = { format = "record" }
[[pipeline]]
name = "countries"
input = "events"
key = ["country", "page"]
window = { length = "2h", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "1h" }
schedule = "external"
budget = { epsilon = 16.0, delta = 1e-3 }
mechanism = { kind = "histogram", budget = 16, adaptive_weight = 0 }
aggregate = [{ kind = "count" }]
derive.country = { attribute = "country", otherwise = "unknown" }
"""
USERS = 900
PARTITIONS = 2

pytestmark = pytest.mark.broker


def events(run: Local, hour: int, part: int) -> None:
    """Send one record of each user, or of every other user, by the partition of the user."""
    for place in range(PARTITIONS):
        mine = [n for n in range(part, USERS, 2) if at(n) == place]
        run.publish(
            "events",
            [{"user": f"u{n}", "page": "a", "t": ORIGIN + hour * HOUR + n} for n in mine],
            place,
        )


def at(number: int) -> int:
    return home((f"u{number}",), "murmur2", PARTITIONS)


def state(run: Local, told: dict[int, str | None]) -> None:
    """State attributes of some users; None deletes a user's statement."""
    producer = run.producer()
    for number, country in told.items():
        body = {"id": f"u{number}", "country": country}
        value = None if country is None else json.dumps(body).encode()
        producer.produce("users", value, key=f"u{number}".encode(), partition=at(number))
    producer.flush()


@pytest.mark.thorough
def test_attributes_count_as_of_the_clock_through_kills_and_a_lost_table(
    empty_broker: Broker, tmp_path
):
    admin = AdminClient({"bootstrap.servers": empty_broker.bootstrap, "log_level": 0})
    compacted = NewTopic("users", PARTITIONS, 1, config={"cleanup.policy": "compact"})
    with contextlib.suppress(KafkaException):  # a repeated request finds the topic
        admin.create_topics([compacted])["users"].result()
    while "users" not in admin.list_topics().topics:  # the other topic's creation checks this
        time.sleep(0.1)
    time.sleep(1)
    raw = {"events": PARTITIONS, "users": PARTITIONS}
    with local(tmp_path, empty_broker.bootstrap, TOML, raw) as run:
        state(run, {n: "DE" if n % 3 == 1 else "FR" for n in range(USERS) if n % 3})
        run.start("w")
        run.wait_ready(["w"])
        run.kill("w")  # while attributes are applied
        events(run, 0, 0)
        run.start("w")
        run.wait_ready(["w"])
        events(run, 0, 1)
        run.trigger(ORIGIN + HOUR)
        run.kill("w")  # while records meet them
        run.start("w")
        run.wait_ready(["w"])
        run.wait_released(run.wait_triggers(1), 300)
        check(run, 1, {"unknown": 300, "DE": 300, "FR": 300})
        state(run, {n: "FR" if n % 2 else None for n in range(USERS) if n % 3 == 1})
        run.kill("w")
        run.start("x")  # without any table
        run.wait_ready(["x"])
        for part in range(2):
            events(run, 1, part)
        run.trigger(ORIGIN + 2 * HOUR)
        run.wait_released(run.wait_triggers(2), 300)
        check(run, 2, {"unknown": 300 + 450, "DE": 300, "FR": 300 + 450})
        assert run.stop("x") == 0
        outcome = replay(run.config())
        assert outcome.agrees and outcome.compared, outcome.problems
        (judged,) = judgement(run.bootstrap, run.toml, run.secret).values()
        assert judged.triggers == 2 and not judged.objections, judged.objections[:2]


def check(run: Local, trigger: int, wanted: dict[str, int]) -> None:
    """Check how many records of each country count by a trigger."""
    rows = [
        body for body in run.releases("countries")
        if body.get("trigger") == trigger and "key" in body
    ]  # fmt: skip
    found = {row["key"]["country"]: row["values"]["count"] for row in rows}
    assert set(found) == set(wanted)
    for country, number in wanted.items():
        one = found[country]
        assert abs(one["value"] - number) < 8 * one["stddev"] < 100, (country, one)
