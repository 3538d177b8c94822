"""Pipelines that share topics: workers are killed, and releases equal those with separate topics.

The replay uses no shared topic: it recomputes each pipeline from separate topics in memory. If it
agrees byte for byte, nothing of another pipeline has counted.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay

from .local import Local, local

EXAMPLE = Path(__file__).parents[2] / "examples" / "taxis" / "hush.toml"
HOUR = 3_600_000_000
ORIGIN = 17956 * 24 * HOUR  # 2019-03-01
PARTITIONS = 2
ENGINE = """
[engine]
units_partitions = 2
cells_partitions = 2
session_timeout = "3s"
transaction_timeout = "10s"
"""
DAY = 'window = { length = "1d", origin = "2019-03-01T00:00:00Z" }'
SIXTH = f"""
[[pipeline]]
name = "means"
input = "trips"
unit_name = "rider"
key = ["zone"]
{DAY}
triggers = {{ every = "6h" }}
schedule = "external"
budget = {{ epsilon = 8.0, delta = 1e-4 }}
"""

pytestmark = pytest.mark.broker


def text() -> str:
    """The example with smaller topics, and with triggers that the test requests."""
    found = EXAMPLE.read_text("utf-8").replace("\n[[input]]", f"{ENGINE}\n[[input]]", 1)
    found = found.replace('window = { length = "1d" }', DAY)
    return found.replace("triggers = {", 'schedule = "external"\ntriggers = {')


def trips(seed: int, hour: int, number: int) -> list[Any]:
    """Trips of riders within six hours, some of them unreadable."""
    choose = random.Random(seed)
    # A pipeline that is added has no dead letters of earlier records.
    found: list[Any] = [b"{", b'{"rider": 7}'] if hour < 24 else []
    for _ in range(number):
        time = f"2019-03-0{1 + hour // 24}T{hour % 24 + choose.randrange(6):02}:10:00Z"
        place = {"lon": choose.uniform(-74.3, -73.7), "lat": choose.uniform(40.4, 41.0)}
        found.append({
            "rider": f"r{choose.randrange(400)}", "time": time, "zone": f"z{choose.randrange(4)}",
            "payment": choose.choice(["cash", "card"]), "fare": choose.expovariate(0.1),
            "at": place,
        })  # fmt: skip
    return found


def publish(run: Local, round_: int) -> None:
    for partition in range(PARTITIONS):
        run.publish("trips", trips(10 * round_ + partition, 6 * round_, 300), partition)


def agrees(run: Local, compared: int) -> None:
    """Stop all workers, and compare every byte with a replay on separate topics."""
    for member in list(run.workers):
        run.stop(member)
    outcome = replay(run.config())
    assert (outcome.lost, outcome.doubled, outcome.differing) == (0, 0, 0), outcome.problems
    assert outcome.compared > compared


@pytest.mark.thorough
def test_five_pipelines_share_topics_through_kills_and_release_what_others_would(
    empty_broker: Broker, tmp_path: Path
) -> None:
    with local(tmp_path, empty_broker.bootstrap, text(), {"trips": PARTITIONS}) as run:
        own = set(run.cluster.topics()) - {"trips", "__consumer_offsets", "__transaction_state"}
        assert len(own) == 20
        run.start("a")
        run.start("b")
        run.wait_ready(["a", "b"])
        for round_ in range(4):  # one window
            publish(run, round_)
            run.trigger(ORIGIN + 6 * (round_ + 1) * HOUR)
            run.kill("ab"[round_ % 2])  # while releases are made
            run.start("ab"[round_ % 2])
        run.wait_released(run.wait_triggers(4 * 4 + 1))
        agrees(run, 200)
        # A removed pipeline leaves its seat, and a new one gets the next seat.
        head, *blocks = run.toml.read_text().split("\n[[pipeline]]")
        kept = [block for block in blocks if 'name = "fares"' not in block]
        run.toml.write_text("\n[[pipeline]]".join([head, *kept]) + SIXTH)
        run.begin()
        run.start("c")
        for round_ in (4, 5):
            publish(run, round_)
            run.trigger(ORIGIN + 6 * (round_ + 1) * HOUR)
        found = run.wait_triggers(17 + 3 * 2 + 6)
        run.wait_released([one for one in found if one.pipeline != "fares"])
        assert "are of pipelines that are not in this" in run.log("c").read_text()
        agrees(run, 300)
