"""A real Prometheus scrapes a real deployment: every query of a panel and of an alert has data.

The deployment is two worker processes behind one page of each kind.

Covers: cli/worker.py, agents/worker/health/together.py
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hushstream.deploy import alerts, dashboards
from hushstream.deploy.broker import Broker
from hushstream.deploy.process import Child
from hushstream.deploy.settings import free_port

from ..servers.prometheus import PROGRAM, Prometheus
from .local import Local, local

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(
        PROGRAM is None, reason="prometheus is not installed: Debian has a package of that name"
    ),
]
DAY = 86_400_000_000
BEGIN = 1_551_398_400_000_000  # 2019-03-01
TOML = """
[deployment]
name = "watched"
[engine]
units_partitions = 2
cells_partitions = 2
beat_interval = "100ms"
[[input]]
name = "trips"
topic = "watched-trips"
unit = "user"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "p"
input = "trips"
key = ["page"]
window = { length = "1d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "6h" }
schedule = "external"
[pipeline.budget]
epsilon = 8.0
delta = 1e-4
limit_epsilon = 80
limit_delta = 1e-2
per_unit = { epsilon = 12, delta = 2e-4 }
"""
OF_COPIES = ("hush_standby_lag", "hush_snapshot_timestamp")  # this deployment has no copies
OF_RETIRED = "hush_final_release_timestamp_seconds"


def until(true: Callable[[], object], what: str, run: Local) -> None:
    end = time.monotonic() + 300
    while not true():
        assert time.monotonic() < end, f"{what}\n{run.tail('two')}"
        time.sleep(0.3)


@contextmanager
def watched(empty_broker: Broker, folder: Path) -> Iterator[tuple[Local, Prometheus]]:
    public, operator = free_port(), free_port()
    with local(folder, empty_broker.bootstrap, TOML, {"watched-trips": 2}) as run:
        words = [sys.executable, "-m", "hushstream", "worker", "-c", str(run.toml)]
        words += ["--bootstrap", run.bootstrap, "--processes", "2", "--member", "two"]
        words += ["--set", f"engine.public_port={public}"]
        words += ["--set", f"engine.operator_port={operator}"]
        words += ["--set", f"engine.data_dir={folder / 'state'}"]
        run.workers["two"] = Child(words, run.log("two"))
        watch = Prometheus(folder, public, operator, alerts.text({"p": 3600.0}))
        try:
            yield run, watch
        finally:
            watch.end()
            run.stop("two")


@pytest.mark.thorough
def test_every_panel_and_every_alert_has_data(empty_broker: Broker, tmp_path: Path) -> None:
    with watched(empty_broker, tmp_path) as (run, watch):
        until(lambda: watch.values("hush_ready") == [1, 1], "two processes are not ready", run)
        until(lambda: watch.values("sum(hush_dead_letters_total)") == [0], "dead letters", run)
        rows = [{"user": f"u{n}", "page": "a", "t": BEGIN + n} for n in range(400)]
        for partition in range(2):
            run.publish("watched-trips", [*rows, b"no record"], partition)
        run.trigger(BEGIN + DAY // 2)
        run.wait_released(run.wait_triggers(2))

        def finite(query: str) -> bool:
            return any(map(math.isfinite, watch.values(query)))

        for panel in (*dashboards.RELEASES, *dashboards.OPERATOR):
            for query in panel.queries.values():
                if any(name in query for name in OF_COPIES):
                    continue
                until(lambda q=query: finite(q), f"{panel.title}: {query}", run)  # type: ignore[misc]
        for group in alerts.rules({"p": 3600.0})["groups"]:
            for rule in group["rules"]:
                selectors = re.findall(r"(?:hush_\w+|\bup)(?:\{[^}]*\})?", rule["expr"])
                assert selectors, rule
                for one in selectors:
                    if one == OF_RETIRED:  # promtool's cases have some
                        continue
                    until(lambda q=one: watch.values(q), f"{rule['alert']}: {one}", run)  # type: ignore[misc]
        until(lambda: watch.values("sum(hush_dead_letters_total)") == [2], "dead letters", run)
        until(lambda: {rule["health"] for rule in watch.rules()} == {"ok"}, "a rule fails", run)
        assert [rule["name"] for rule in watch.rules() if rule["state"] == "firing"] == []
        # Both processes are labelled, and the public page says nothing about records.
        apart = "count(count by (process) (process_open_fds))"
        until(lambda: watch.values(apart) == [2], "processes are not told apart", run)
        assert watch.values('{job="hush-public",__name__=~"hush_events.*|process_.*"}') == []
