"""Windows of the calendar on the real broker, across the end of a month and of summer time."""

from __future__ import annotations

import pytest
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay
from hushstream.topics.config.toml.values import parse_instant

from ..judge.topics import deployment as judgement
from .local import Local, local

HOUR = 3_600_000_000
TOML = """
[deployment]
name = "months"
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
public_keys = ["a", "b"]
window = { length = "1 month", zone = "Europe/Berlin", origin = 2019-01-31T23:00:00Z }
triggers = { every = "2 weeks" }
epoch = "2 months"
schedule = "external"
budget = { epsilon = 8.0, delta = 1e-4 }
mechanism = { kind = "histogram", budget = 4 }
"""
# February has two triggers out of three at most; March ends an hour earlier by UTC than it began.
MONTHS = {
    "2019-01-31T23:00:00Z": ("2019-02-14T23:00:00Z", "2019-02-28T23:00:00Z"),
    "2019-02-28T23:00:00Z": (
        "2019-03-14T23:00:00Z",
        "2019-03-28T23:00:00Z",
        "2019-03-31T22:00:00Z",
    ),
    "2019-03-31T22:00:00Z": ("2019-04-14T22:00:00Z",),
}  # fmt: skip
USERS = 200

pytestmark = [pytest.mark.broker, pytest.mark.thorough]


def publish(run: Local, month: int, time: int) -> None:
    """Send one record of each user of a month, half of them for each page."""
    events = [{"user": f"{month} {n}", "page": "ab"[n % 2], "t": time} for n in range(USERS)]
    run.publish("events", events)


def test_months_end_where_the_zone_says_whatever_is_killed(empty_broker: Broker, tmp_path):
    """A worker is killed before the last trigger of each month, while records are on the way."""
    with local(tmp_path, empty_broker.bootstrap, TOML, {"events": 2}) as run:
        run.start("w0")
        run.wait_ready(["w0"])
        fired = 0
        for month, (begin, times) in enumerate(MONTHS.items()):
            for index, at in enumerate(map(parse_instant, times), 1):
                if index == 1:
                    publish(run, month, parse_instant(begin))  # the first microsecond
                if index == len(times):
                    publish(run, month + 100, at - 1)
                    run.kill(f"w{fired}")  # SIGKILL
                    run.start(f"w{fired + 1}")
                    run.wait_ready([f"w{fired + 1}"])
                else:
                    run.workers[f"w{fired + 1}"] = run.workers.pop(f"w{fired}")
                fired += 1
                run.trigger(at)
                run.wait_released(run.wait_triggers(fired), 300)
        outcome = replay(run.config())
        assert outcome.agrees and outcome.compared, outcome.problems
        (judged,) = judgement(run.bootstrap, run.toml, run.secret).values()
        assert judged.triggers == fired and not judged.objections, judged
        rows = run.releases("pages")
        manifests = [row for row in rows if "key" not in row]
        edges = [*MONTHS, "2019-04-30T22:00:00Z"]
        told = {(row["window"]["start"], row["window"]["end"], row["trigger"], row["triggers"],
                 row["final"]) for row in manifests}  # fmt: skip
        counts = (2, 3, 3)
        assert told == {
            (edges[n], edges[n + 1], t, counts[n], t == counts[n])
            for n, times in enumerate(MONTHS.values())
            for t in range(1, len(times) + 1)
        }
        for n, month in enumerate(edges[:2]):
            final = [r for r in rows if "key" in r and r["final"] and r["window"]["start"] == month]
            total = sum(row["values"]["count"]["value"] for row in final)
            assert abs(total - 2 * USERS) < USERS / 2, (n, total)
