"""Views on the real broker: exactly once through kills, and the same bytes in every replay.

Covers: offline/replay_views.py
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import pytest
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay
from hushstream.topics.config.toml.values import parse_instant

from ..judge.topics import deployment as judgement
from .local import Local, local

DAY, HOUR = 86_400_000_000, 3_600_000_000
BEGIN = parse_instant("2019-03-01T00:00:00Z")
TOML = """
[deployment]
name = "views"
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
key = ["page", "land"]
window = { length = "1d", origin = 2019-03-01T00:00:00Z }
triggers = { every = "12h" }
schedule = "external"
budget = { epsilon = 8.0, delta = 1e-4 }
aggregate = [{ kind = "count" }, { kind = "sum", field = "x", low = 0, high = 10 }]
[[view]]
name = "lands"
source = "pages"
key = ["land"]
values = [
  { of = "count" },
  { kind = "ratio", of = "sum_x", over = "count", name = "mean" },
  { kind = "change", of = "count" },
  { kind = "running", of = "count" },
]
"""
LATER = """
[[view]]
name = "top"
source = "pages"
having = [{ field = "count", above = 30 }]
order = [{ by = "count", descending = true }]
limit = 3
"""
USERS = 400

pytestmark = pytest.mark.broker


def publish(run: Local, day: int) -> None:
    events = [
        {"user": f"{day} {n}", "page": "abc"[n % 3], "land": "xy"[n % 5 > 2], "x": n % 10,
         "t": BEGIN + day * DAY + n * HOUR // 100}
        for n in range(USERS)
    ]  # fmt: skip
    run.publish("events", events)


def by_release(bodies: list[dict[str, Any]]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Rows by window and trigger, in order; releases without rows have an empty list."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for body in bodies:
        rows = found[body["window"]["start"], body["trigger"]]
        rows.extend([body] if "key" in body else [])
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("days", [2, 3])
def test_views_are_released_once_whatever_is_killed_and_one_may_come_later(
    empty_broker: Broker, tmp_path, days: int
):
    with local(tmp_path, empty_broker.bootstrap, TOML, {"events": 2}) as run:
        run.start("w0")
        run.wait_ready(["w0"])
        fired = 0
        for day in range(days):
            publish(run, day)
            for part in (1, 2):
                fired += 1
                run.trigger(BEGIN + day * DAY + part * DAY // 2)
                run.wait_triggers(fired)
                run.kill(f"w{fired - 1}")  # SIGKILL at an arbitrary time
                run.start(f"w{fired}")
                run.wait_ready([f"w{fired}"])
                run.wait_released(run.triggers())
        spent = len(replay(run.config()).problems)
        run.stop(f"w{fired}")
        run.toml.write_text(TOML + LATER)
        run.begin()  # `hush topics` again makes no charge and no other hash
        run.start("late")
        run.wait_ready(["late"])
        run.wait_released(run.triggers())  # the later view has everything released before it
        outcome = replay(run.config())
        assert outcome.agrees and outcome.compared and not spent, outcome.problems
        found = judgement(run.bootstrap, run.toml, run.secret)
        assert {n: (one.triggers, one.objections) for n, one in found.items()} == dict.fromkeys(
            ("pages", "lands", "top"), (2 * days, [])
        )
        source, lands, top = (by_release(run.releases(n)) for n in ("pages", "lands", "top"))
        bodies = run.releases("lands")
        names = [(b["window"]["start"], b["trigger"], str(b.get("key"))) for b in bodies]
        assert len(set(names)) == len(names) and source.keys() == lands.keys() == top.keys()
    assert len(source) == 2 * days
    for at, rows in source.items():
        check_sums(rows, lands[at])
        check_past(at, source, lands)
        wanted = [r for r in rows if r["values"]["count"]["value"] > 30]
        wanted.sort(key=lambda r: list(r["key"].values()))
        wanted.sort(key=lambda r: -r["values"]["count"]["value"])
        assert [r["key"] for r in top[at]] == [r["key"] for r in wanted[:3]]
        assert [r["values"] for r in top[at]] == [r["values"] for r in wanted[:3]]


def summed(rows: list[dict[str, Any]], land: str, name: str) -> tuple[float, float]:
    """Value and variance of a sum over pages."""
    parts = [r["values"][name] for r in rows if r["key"]["land"] == land]
    return sum(p["value"] for p in parts), sum(p["stddev"] ** 2 for p in parts)


def check_sums(rows: list[dict[str, Any]], made: list[dict[str, Any]]) -> None:
    assert [r["key"]["land"] for r in made] == sorted({r["key"]["land"] for r in rows})
    for row in made:
        value, variance = summed(rows, row["key"]["land"], "count")
        total, _ = summed(rows, row["key"]["land"], "sum_x")
        told = row["values"]["count"]
        assert told["value"] == value
        assert math.isclose(told["stddev"], variance**0.5, rel_tol=1e-5)
        mean = row["values"]["mean"]
        assert math.isclose(mean["value"], total / value, rel_tol=1e-4)
        assert mean["low"] < mean["value"] < mean["high"]


def check_past(
    at: tuple[str, int],
    source: dict[tuple[str, int], list[dict[str, Any]]],
    lands: dict[tuple[str, int], list[dict[str, Any]]],
) -> None:
    """Check changes and running sums, from the last releases of earlier windows."""
    before = sorted({start for start, _ in source if start < at[0]})
    for row in lands[at]:
        land = row["key"]["land"]
        now = summed(source[at], land, "count")
        past = [summed(source[start, 2], land, "count") for start in before]
        running, change = row["values"]["running_count"], row["values"]["change_count"]
        assert running["value"] == now[0] + sum(value for value, _ in past)
        variance = now[1] + sum(one for _, one in past)
        assert math.isclose(running["stddev"], variance**0.5, rel_tol=1e-5)
        assert (change is None) == (not past)
        if change is not None:
            assert change["value"] == now[0] - past[-1][0]
