"""A pipeline changes at the boundary of an epoch on the real broker: it ends, another follows."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from hushstream.agents.clock import genesis as admin
from hushstream.agents.clock.ledger import totals
from hushstream.agents.deployment.compiling.lineage import generations
from hushstream.agents.worker.admission import prepare
from hushstream.cli.ledger import over_generations
from hushstream.deploy.broker import Broker
from hushstream.errors import ConfigError, EngineError
from hushstream.offline.replay import replay
from hushstream.reading.client import read_releases
from hushstream.reading.joint import joint
from hushstream.topics.config.toml.values import format_instant

from ..judge.topics import deployment as judgement
from .local import Local, local

SECOND = 1_000_000
LENGTH = 12 * SECOND  # of a window and an epoch of the first generation
HEAD = """
[deployment]
name = "gen"
[engine]
cells_partitions = 2
units_partitions = 2
session_timeout = "3s"
transaction_timeout = "10s"
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "{partitioner}"
time = {{ field = "t", format = "epoch_us" }}
"""
OLD = """
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
window = {{ length = "12s" }}
triggers = {{ every = "6s" }}
budget = {{ epsilon = 8.0, delta = 1e-4 }}
mechanism = {{ kind = "histogram", budget = 4 }}
{until}
"""
NEW = """
[[pipeline]]
name = "pages-2"
follows = "pages"
input = "events"
key = ["page"]
public_keys = [["x"], ["y"]]
window = {{ length = "6s"{origin} }}
triggers = {{ every = "3s" }}
budget = {{ epsilon = 2.0, delta = 1e-4 }}
mechanism = {{ kind = "histogram", budget = 1 }}
release = {{ display = "raw"{topic} }}
"""
USERS = 200

pytestmark = pytest.mark.broker


def sent(window: int, page: str) -> list[dict[str, object]]:
    return [{"user": f"{page}{n}", "page": page, "t": window + n} for n in range(USERS)]


def kept(run: Local) -> list[object]:
    """Triggers of the first two windows of the second generation."""
    return [t for t in run.triggers() if t.pipeline == "pages-2" and t.window < 2]


def wait(run: Local, seconds: float, count: int) -> None:
    until = time.monotonic() + seconds
    while len(kept(run)) < count:
        assert time.monotonic() < until, run.tail("w")
        time.sleep(0.5)


@pytest.mark.parametrize(
    "partitioner, own",
    [
        ("murmur2", 'noise_key_file = "second.key"'),
        pytest.param("none", "", marks=pytest.mark.thorough),
    ],
)
def test_a_pipeline_ends_at_a_boundary_and_another_one_goes_on(
    empty_broker: Broker, tmp_path: Path, partitioner: str, own: str
):
    head, new = HEAD.format(partitioner=partitioner), NEW + own + "\n"
    written(tmp_path / "second.key")
    with local(tmp_path, empty_broker.bootstrap, head + OLD.format(until=""), {"events": 1}) as run:
        began = time.monotonic()
        run.start("w")
        run.wait_ready(["w"])
        took = time.monotonic() - began  # on this machine, which may be slow
        run.wait_triggers(1)
        least = time.time() + 20 + 6 * took
        until = (int(least * 1e6) // LENGTH + 1) * LENGTH
        instant = f'until = "{format_instant(until)}"'
        changed = head + OLD.format(until=instant) + new.format(origin="", topic="")
        run.toml.write_text(changed)
        with pytest.raises(EngineError, match="hush topics"):
            prepare(run.config())
        run.begin()  # the worker still has its old configuration, and obeys
        run.publish("events", sent(until - LENGTH, "a") + sent(until, "x"))
        assert run.stop("w") == 0
        run.start("w")
        run.wait_ready(["w"])
        run.publish("events", [*sent(until - LENGTH, "b"), *sent(until + LENGTH // 2, "y")])
        time.sleep(max(until / 1e6 - time.time() - 1, 0))
        assert time.time() * 1e6 < until, "this machine is too slow for these windows"
        run.kill("w")  # it comes back after the boundary
        run.start("w")
        wait(run, 300, 1)
        run.kill("w")
        run.start("w")
        wait(run, 300, 4)
        triggers = [t for t in run.triggers() if t.pipeline == "pages" or t in kept(run)]
        run.wait_released(triggers)
        assert run.stop("w") == 0
        check(run, until)

        # An end is never moved or withdrawn.
        later = instant.replace(format_instant(until), format_instant(until + LENGTH))
        for text in (
            OLD.format(until=""),
            OLD.format(until=later) + new.format(origin="", topic=""),
        ):
            run.toml.write_text(head + text)
            with pytest.raises(ConfigError, match="cannot be moved or taken back"):
                prepare(run.config())
            with pytest.raises(ConfigError, match="cannot be moved or taken back"):
                run.begin()
        # The first generation may be removed from the file, and the second continues.
        origin = f', origin = "{format_instant(until)}"'
        alone = new.format(origin=origin, topic=', topic = "hush.pages.releases.v1"')
        if own:
            refused(run, head + alone)
        run.toml.write_text(head + alone)
        assert prepare(run.config()).deployment.pipelines[0].lineage == ("pages",)
        run.start("w")
        run.wait_triggers(len(run.triggers()) + 1)
        assert run.stop("w") == 0
        outcome = replay(run.config())
        assert outcome.agrees and outcome.compared, outcome.problems


def written(path: Path) -> None:
    path.write_text(secrets.token_hex(32))
    path.chmod(0o600)


def refused(run: Local, text: str) -> None:
    """The second generation keeps the key of its declaration."""
    written(run.folder / "third.key")
    for other in (text.replace("second.key", "third.key"), text.replace("noise_key_file", "# ")):
        run.toml.write_text(other)
        with pytest.raises(EngineError, match="its own noise key"):
            prepare(run.config())
        with pytest.raises(EngineError, match="its own noise key"):
            run.begin()


def check(run: Local, until: int) -> None:
    outcome = replay(run.config())
    assert outcome.agrees and outcome.compared, outcome.problems
    judged = judgement(run.bootstrap, run.toml, run.secret)  # by a program that shares no code
    assert set(judged) == {"pages", "pages-2"}
    assert all(one.triggers and not one.objections for one in judged.values()), judged
    ledger = admin.read_ledger(run.cluster, "gen")
    end = until // LENGTH
    assert ledger.retired["pages"]["epoch"] == end
    epochs = {(name, epoch) for name, epoch in ledger.charges}
    assert max(epoch for name, epoch in epochs if name == "pages") == end - 1
    assert {0, 1} <= {epoch for name, epoch in epochs if name == "pages-2"}
    (whole,) = joint({"gen": ledger}).sums
    number = Counter(name for name, _ in epochs)
    assert whole.epsilon == Fraction(8) * number["pages"] + Fraction(2) * number["pages-2"]
    keys = {name: r.body["key_fingerprint"] for (name, _), r in ledger.charges.items()}
    rotated = "noise_key_file" in run.toml.read_text()
    assert (keys["pages"] != keys["pages-2"]) == rotated
    (chain,) = generations(ledger.pipelines)
    said = over_generations(chain, totals(ledger, chain), ledger)
    assert chain == ("pages", "pages-2") and f"the sum, ε={float(whole.epsilon):g}, " in said

    bodies = run.releases("pages")  # both have one topic
    ids = Counter(b["release_id"] for b in bodies if "release_id" in b)
    assert set(ids.values()) == {1}
    told = [b for b in bodies if b["schema"].startswith("hush.manifest")]
    assert {(b["pipeline"], b["privacy"]["epsilon"]) for b in told} == {
        ("pages", 8),
        ("pages-2", 2),
    }
    assert {tuple(b.get("follows", ())) for b in told} == {(), ("pages",)}
    assert max(Counter((b["pipeline"], b["window"]["start"], b["trigger"], b["shard"])
                       for b in told).values()) == 1  # fmt: skip

    table = read_releases(run.config().kafka, "pages", which="latest").to_pylist()
    begin = min(r["window_start"] for r in table if r["pipeline"] == "pages-2")
    assert begin.timestamp() * 1e6 == until
    assert max(r["window_end"] for r in table if r["pipeline"] == "pages") <= begin
    last = {(r["window_start"].timestamp() * 1e6, r["page"]): r["count"] for r in table}
    # The records, each in the window and under the terms of its own time.
    for place in ((until - LENGTH, "a"), (until - LENGTH, "b"), (until, "x"),
                  (until + LENGTH // 2, "y")):  # fmt: skip
        assert abs(last[place] - USERS) < USERS / 2, (place, last)
    assert abs(last[until, "y"]) < USERS / 2 and {p for t, p in last if t >= until} == {"x", "y"}
    own = read_releases(run.config().kafka, "pages-2", topic="hush.pages.releases.v1").to_pylist()
    assert own and all(r["window_start"] >= begin for r in own)
