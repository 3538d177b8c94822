"""Raw partitions are added between two deployments: the steps of `docs/operations.md`."""

from __future__ import annotations

import json
import time
from fractions import Fraction
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from hushstream.agents.clock import genesis as admin
from hushstream.agents.worker.admission import prepare
from hushstream.deploy.broker import Broker
from hushstream.errors import HushError
from hushstream.offline.replay import replay
from hushstream.topics.config.toml.values import format_instant

from ..judge.topics import deployment as judgement
from .local import Local, local
from .test_growth import typed

LENGTH = 20_000_000  # of the old windows, in microseconds
USERS = 200
TOML = """
[deployment]
name = "{name}"
[engine]
cells_partitions = 2
units_partitions = 2
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "none"
time = {{ field = "t", format = "epoch_us" }}
[[pipeline]]
name = "{pipeline}"
input = "events"
key = ["page"]
public_keys = [["before"], ["between"], ["after"]]
window = {{ {window} }}
triggers = {{ every = "{every}" }}
budget = {{ epsilon = {epsilon}, delta = 1e-4 }}
mechanism = {{ kind = "histogram", budget = 1 }}
release = {{ display = "raw" }}
{until}
"""
OLD = {
    "name": "old",
    "pipeline": "pages",
    "window": 'length = "20s"',
    "epsilon": "8.0",
    "every": "10s",
}
# Its first window begins where the old ones end, and is long enough for any machine.
NEW = {"name": "new", "pipeline": "views", "epsilon": "4.0", "every": "30s"}
WINDOW = 'length = "10m", origin = "{}"'

pytestmark = pytest.mark.broker


def sent(time_: int, page: str) -> list[dict[str, object]]:
    return [{"user": f"{page}{n}", "page": page, "t": time_ + n} for n in range(USERS)]


def counts(run: Local, pipeline: str, window: int) -> dict[str, float]:
    """The last count of each page that a window has released."""
    found: dict[str, tuple[int, float]] = {}
    for body in run.releases(pipeline):
        if "values" in body and body["window"]["start"] == format_instant(window):
            page = body["key"]["page"]
            told = body["trigger"], body["values"]["count"]["value"]
            found[page] = max(found.get(page, told), told)
    return {page: count for page, (_, count) in found.items()}


def ended(run: Local) -> int:
    """Retire the old pipeline at a coming boundary; return it once its last release is out."""
    until = (int(time.time() * 1e6) // LENGTH + 3) * LENGTH
    run.toml.write_text(TOML.format(**OLD, until=f'until = "{format_instant(until)}"'))
    run.begin()
    run.publish("events", sent(until - LENGTH, "before") + sent(until, "between"))
    run.start("w")
    last = until // LENGTH - 1
    deadline = time.monotonic() + 180
    while not (fired := [t for t in run.triggers() if t.window == last and t.final]):
        assert time.monotonic() < deadline, run.tail("w")
        time.sleep(0.5)
    run.wait_released(fired)
    assert run.stop("w") == 0
    return until


@pytest.mark.thorough
def test_the_next_deployment_loses_nothing_and_pays_for_no_epoch_twice(
    empty_broker: Broker, tmp_path: Path
) -> None:
    with local(
        tmp_path, empty_broker.bootstrap, TOML.format(**OLD, until=""), {"events": 1}
    ) as run:
        until = ended(run)
        released = counts(run, "pages", until - LENGTH)
        outcome = replay(run.config())
        assert outcome.agrees and outcome.compared, outcome.problems

        client = AdminClient({"bootstrap.servers": run.bootstrap, "log_level": 0})
        client.create_partitions([NewPartitions("events", 3)])["events"].result(120)
        run.raw["events"] = 3
        with pytest.raises(HushError, match="hush topics --grow"):  # growth, or a new deployment
            prepare(run.config())

        window = WINDOW.format(format_instant(until))
        run.toml.write_text(TOML.format(**NEW, window=window, until=""))
        run.begin()
        run.start("w")
        run.publish("events", sent(until + 1, "after"), partition=2)
        deadline = time.monotonic() + 180
        while any(counts(run, "views", until).get(p, 0) < 100 for p in ("between", "after")):
            assert time.monotonic() < deadline, (run.tail("w"), counts(run, "views", until))
            time.sleep(0.5)
        assert run.stop("w") == 0
        once = counts(run, "views", until)
        outcome = replay(run.config())
        assert outcome.agrees and outcome.compared, outcome.problems
        judged = judgement(run.bootstrap, run.toml, run.secret)
        assert [(n, bool(one.triggers), one.objections) for n, one in judged.items()] == [
            ("views", True, [])
        ]
        ledgers = [admin.read_ledger(run.cluster, name) for name in ("old", "new")]
        common = ("-c", str(run.toml), "--bootstrap", run.bootstrap)
        code, said = typed("ledger", "sum", "--json", *common, "old", "new")
    # Each record counts in the window of its time: in one of the two deployments, under one charge.
    assert abs(released["before"] - USERS) < 50 and abs(once["before"]) < 50
    assert abs(once["between"] - USERS) < 50 and abs(once["after"] - USERS) < 50
    old, new = (sorted(epoch for _, epoch in ledger.charges) for ledger in ledgers)
    assert max(old) == until // LENGTH - 1 and new == [0]
    assert code == 0, said
    (whole,) = json.loads(said)["sums"]
    assert Fraction(whole["epsilon"]) == 8 * len(old) + 4
