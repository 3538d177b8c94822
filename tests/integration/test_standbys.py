"""Standbys: the shards of a killed worker continue from copies, and replay agrees with releases.

So do the shards of a stopped worker, which hands them over first.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay

from .local import Local, local

ORIGIN = 1_577_836_800_000_000  # 2020-01-01
HOUR = 3_600_000_000
TOML = """
[deployment]
name = "{name}"
[engine]
units_partitions = 2
cells_partitions = 2
beat_interval = "20ms"
session_timeout = "3s"
standbys = {standbys}
[[input]]
name = "events"
topic = "{name}-raw"
unit = "user"
time = {{ field = "t", format = "epoch_us" }}
[[pipeline]]
name = "{name}-p"
input = "events"
key = ["page"]
schedule = "external"
window = {{ length = "1d", origin = "2020-01-01T00:00:00Z" }}
triggers = {{ every = "1h" }}
budget = {{ epsilon = 8.0, delta = 1e-4 }}
"""
READY = re.compile(r"ready: (\d+) shards")
TAKEN = "goes on from the copy that stood by here"
SHARDS = 6  # two of each stage


def hour(run: Local, name: str, number: int, users: int = 400) -> None:
    """Send an hour's records to both partitions, and release."""
    at = ORIGIN + (number - 1) * HOUR
    for partition in range(2):
        some = range(partition, users, 2)
        values = [{"user": f"u{n}", "page": f"p{n % 3}", "t": at + n} for n in some]
        run.publish(f"{name}-raw", values, partition)
    time.sleep(0.3)
    run.trigger(ORIGIN + number * HOUR)
    run.wait_released(run.wait_triggers(number))


def until(true: Callable[[], bool], what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def shards(run: Local, member: str) -> int:
    """The number of a worker's shards when it was last ready."""
    found = READY.findall(run.log(member).read_text())
    return int(found[-1]) if found else 0


@pytest.mark.parametrize("standbys", [1, 0])
def test_shards_of_a_killed_worker_go_on_from_copies(
    broker: Broker, tmp_path: Path, unique: Callable[[str], str], standbys: int
) -> None:
    name = unique("stand")
    text = TOML.format(name=name, standbys=standbys)
    with local(tmp_path, broker.bootstrap, text, {f"{name}-raw": 2}) as run:
        for member in ("a", "b"):
            run.start(member)
        until(lambda: shards(run, "a") + shards(run, "b") == SHARDS, run.errors("a"))
        hour(run, name, 1)
        until(lambda: shards(run, "b") == SHARDS // 2, run.errors("b"))
        time.sleep(2)  # copies are up to half a second behind
        run.kill("a")
        hour(run, name, 2)
        assert shards(run, "b") == SHARDS, run.errors("b")
        taken = run.log("b").read_text().count(TAKEN)
        assert taken == (SHARDS // 2 if standbys else 0), run.errors("b")
        run.start("a")
        until(lambda: shards(run, "b") == SHARDS // 2, run.errors("b"))
        hour(run, name, 3)
        begun = time.monotonic()
        assert run.stop("a") == 0, run.errors("a")
        # The session lasts three seconds; a worker that stays in its group waits until it ends.
        until(lambda: shards(run, "b") == SHARDS, run.errors("b"))
        handed = time.monotonic() - begun
        assert ("others take over" in run.log("a").read_text()) is (standbys > 0)
        taken = run.log("b").read_text().count(TAKEN) - taken
        assert taken == (SHARDS // 2 if standbys else 0), run.errors("b")
        print(f"{handed:.1f} s from the signal until all shards are open elsewhere")
        hour(run, name, 4)
        outcome = replay(run.config())
        assert outcome.agrees and outcome.compared, outcome.problems
        assert run.stop("b") == 0, run.errors("b")
        assert "others take over" not in run.log("b").read_text()  # there are no other workers
