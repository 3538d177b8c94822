"""A bound is learned on the real broker: two pipelines share a charge, and a third one follows."""

from __future__ import annotations

import json
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hushstream.agents.clock import genesis as admin
from hushstream.cli.group import hush
from hushstream.deploy.broker import Broker
from hushstream.errors import EngineError
from hushstream.offline.replay import replay
from hushstream.topics.config.toml.values import format_instant

from .local import Local, local

LENGTH = 20_000_000  # of a window, which is an epoch
TEXT = """
[deployment]
name = "learn"
[engine]
cells_partitions = 2
units_partitions = 2
session_timeout = "3s"
transaction_timeout = "10s"
max_future_skew = "0s"
[[input]]
name = "events"
topic = "events"
unit = "user"
time = {{ field = "t", format = "epoch_us" }}
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
window = {{ length = "20s" }}
triggers = {{ every = "10s" }}
budget = {{ epsilon = 8.0, delta = 1e-4 }}
learn = {{ {learn} }}
"""
USERS = 300

pytestmark = [pytest.mark.broker, pytest.mark.thorough]  # it depends on the wall clock


def visits(begin: int) -> list[dict[str, object]]:
    """One visit of each user."""
    return [{"user": f"u{n}", "page": f"p{n % 3}", "t": begin + n} for n in range(USERS)]


def learnt(run: Local) -> Any:
    words = ["learn", "-c", str(run.toml), "--bootstrap", run.bootstrap, "--json"]
    return json.loads(CliRunner().invoke(hush, words, catch_exceptions=False).stdout)["pipelines"]


def wait_learnt(run: Local) -> dict[str, Any]:
    until = time.monotonic() + 240
    while (found := learnt(run)["pages"]) is None:
        assert time.monotonic() < until, run.tail("w")
        time.sleep(1)
    told: dict[str, Any] = found
    return told


def test_one_bound_is_learnt_whatever_dies_and_holds_from_a_boundary(
    empty_broker: Broker, tmp_path: Path
) -> None:
    with local(tmp_path, empty_broker.bootstrap, TEXT.format(learn=""), {"events": 1}) as run:
        run.start("w")
        run.wait_ready(["w"])
        run.wait_triggers(1)
        # On any machine, some of these are in a window that is released completely.
        first = int(time.time() * 1e6) // LENGTH * LENGTH
        for n in range(3):
            run.publish("events", visits(first + n * LENGTH))
            time.sleep(max((first + (n + 1) * LENGTH) / 1e6 - time.time(), 0))
        told = wait_learnt(run)
        run.kill("w")  # between the release and the change
        again = learnt(run)["pages"]
        assert (again["budget"], again["window"]) == (told["budget"], told["window"])
        assert told["budget"] <= 2 < told["stated"] == 12
        run.start("w")
        run.wait_ready(["w"])
        at = (int(time.time() * 1e6) // LENGTH + 4) * LENGTH
        line = f"budget = {told['budget']:g}, at = {format_instant(at)}"
        run.toml.write_text(TEXT.format(learn=line))
        run.begin()
        assert time.time() * 1e6 < at, "this machine is too slow for these windows"
        run.kill("w")
        other = f"budget = 24, at = {format_instant(at)}"
        run.toml.write_text(TEXT.format(learn=other))
        with pytest.raises(EngineError):  # a second bound is refused
            run.begin()
        run.toml.write_text(TEXT.format(learn=line))
        run.start("w")
        run.wait_ready(["w"])
        run.publish("events", visits(at))
        wait_follower(run)
        assert run.stop("w") == 0
        check(run, told["budget"], at)


def wait_follower(run: Local) -> None:
    until = time.monotonic() + 300
    while not (found := [t for t in run.triggers() if t.pipeline == "pages-learnt" and t.final]):
        assert time.monotonic() < until, run.tail("w")
        time.sleep(0.5)
    run.wait_released(found[:1])


def check(run: Local, budget: float, at: int) -> None:
    outcome = replay(run.config())
    assert outcome.agrees and outcome.compared, outcome.problems
    ledger = admin.read_ledger(run.cluster, "learn")
    end = at // LENGTH
    for name in ("pages", "pages-activity"):
        assert ledger.retired[name]["epoch"] == end
    epochs = {name: {e for n, e in ledger.charges if n == name} for name in ledger.pipelines}
    assert epochs["pages"] & epochs["pages-activity"]
    assert max(epochs["pages"] | epochs["pages-activity"]) < end and 0 in epochs["pages-learnt"]
    both = [ledger.spent(name) for name in ("pages", "pages-activity")]
    share = both[1].joint.mu2 / both[1].epochs / sum(one.joint.mu2 / one.epochs for one in both)
    assert Fraction(4, 100) < share < Fraction(6, 100)
    bounds = {
        body["pipeline"]: body["bounds"]["budget"]
        for body in run.releases("pages")
        if body["schema"].startswith("hush.manifest")
    }
    assert bounds == {"pages": 12, "pages-learnt": budget}
