"""A cap for each unit on the real broker, over several epochs, kills and other workers' tables."""

from __future__ import annotations

from collections import Counter

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Pipeline
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay
from hushstream.topics.config.load import loads

from ..judge.topics import deployment as judgement
from .local import Local, local

DAY = 86_400_000_000
ORIGIN = 17956 * DAY  # 2019-03-01
TOML = """
[deployment]
name = "caps"
[engine]
cells_partitions = 1
units_partitions = 2
session_timeout = "3s"
transaction_timeout = "10s"
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "{partitioner}"
time = {{ field = "t", format = "epoch_us" }}
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
public_keys = ["a", "b"]
window = {{ length = "1d", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "1d" }}
schedule = "external"
budget = {{ epsilon = 8.0, delta = 1e-4, per_unit = {{ epsilon = 12, delta = 2e-4{period} }} }}
mechanism = {{ kind = "histogram", budget = 4 }}
"""
USERS, EPOCHS = 300, 5

pytestmark = pytest.mark.broker


def sent(epoch: int) -> list[dict[str, object]]:
    """One record of each user for each page; ten new users come every day."""
    users = [f"u{n}" for n in range(USERS)] + [f"new {epoch} {n}" for n in range(10)]
    time = ORIGIN + epoch * DAY
    return [{"user": user, "page": page, "t": time} for user in users for page in "ab"]


def counts(run: Local) -> dict[int, float]:
    """The released count of page a by window."""
    rows = [body for body in run.releases("pages") if body.get("key") == {"page": "a"}]
    starts = sorted({row["window"]["start"] for row in rows})
    return {starts.index(row["window"]["start"]): row["values"]["count"]["value"] for row in rows}


def play(run: Local, kills: dict[int, str]) -> None:
    """Play one epoch after the other; in some, the worker is killed and another one continues.

    Args:
        run: the deployment.
        kills: by epoch, the next worker's name; a known name has its table, a new one has none.
    """
    worker = "w"
    run.start(worker)
    run.wait_ready([worker])
    for epoch in range(EPOCHS):
        records = sent(epoch)
        half = len(records) // 2
        run.publish("events", records[:half])
        if epoch in kills:
            run.kill(worker)
            worker = kills[epoch]
            run.start(worker)
            run.wait_ready([worker])
        run.publish("events", records[half:])
        run.trigger(ORIGIN + (epoch + 1) * DAY)
        run.wait_released(run.wait_triggers(epoch + 1), 300)
    assert run.stop(worker) == 0


def check(run: Local, period: int, purse: int) -> None:
    """Replay and judge agree, and users of every day ran out of budget.

    Args:
        run: the deployment.
        period: number of epochs in a period.
        purse: records that a unit may have in a period; each day takes two.
    """
    outcome = replay(run.config())
    assert outcome.agrees and outcome.compared, outcome.problems
    (judged,) = judgement(run.bootstrap, run.toml, run.secret).values()
    assert judged.triggers == EPOCHS and not judged.objections, judged
    found = counts(run)
    for epoch in range(EPOCHS):
        full = epoch % period < purse // 2
        assert abs(found[epoch] - (USERS + 10 if full else 10)) < 40, found
    told = [one for one in run.releases("pages") if one["schema"].startswith("hush.manifest")]
    assert Counter("per_unit_epsilon" in one["privacy"] for one in told) == {True: EPOCHS}
    assert all(f"spends at most {purse} of that" in one["bounds"]["in_words"] for one in told)


def test_a_purse_outlives_a_kill_and_a_table(empty_broker: Broker, tmp_path):
    text = TOML.format(partitioner="none", period="")
    with local(tmp_path, empty_broker.bootstrap, text, {"events": 1}) as run:
        play(run, {2: "x"})  # another worker, which must restore every purse
        check(run, EPOCHS, 8)


@pytest.mark.thorough
@pytest.mark.parametrize("partitioner", ["none", "murmur2"])
def test_a_period_begins_with_full_purses(empty_broker: Broker, tmp_path, partitioner: str):
    text = TOML.format(partitioner=partitioner, period=', period = "3d"').replace(
        "epsilon = 12, delta = 2e-4", "epsilon = 8.5, delta = 1.2e-4"
    )
    with local(tmp_path, empty_broker.bootstrap, text, {"events": 1}) as run:
        play(run, {0: "x", 1: "x", 3: "w", 4: "w"})  # earlier tables, and none
        check(run, 3, 4)


SHARED = """
[[budget]]
name = "people"
members = {{ pages = 1, more = 3 }}
epsilon = 8.0
delta = 1e-4
per_unit = {{ epsilon = 12, delta = 2e-4 }}
"""


@pytest.mark.thorough
def test_pipelines_that_share_a_cap_drop_what_both_together_cannot_pay_for(
    empty_broker: Broker, tmp_path
):
    head, _, one = TOML.partition("[[pipeline]]")
    one = "".join(line for line in one.splitlines(True) if not line.startswith("budget ="))
    both = f"[[pipeline]]{one}[[pipeline]]{one.replace('pages', 'more')}"
    text = (head + both + SHARED).format(partitioner="none", period="")
    with local(tmp_path, empty_broker.bootstrap, text, {"events": 1}) as run:
        alone = TOML.format(partitioner="none", period="")
        caps = [p.lifetime.cap.most for t in (text, alone) for p in compiled(t) if p.lifetime]
        assert caps[0] == caps[1] == caps[2] == 8 and EPOCHS * 2 > 8
        run.start("w")
        run.wait_ready(["w"])
        for epoch in range(EPOCHS):
            run.publish("events", sent(epoch))
            run.trigger(ORIGIN + (epoch + 1) * DAY)
            run.wait_released(run.wait_triggers(2 * (epoch + 1)), 300)
        assert run.stop("w") == 0
        for names in ((), ("pages",), ("more",)):  # one pipeline alone has what both have left
            outcome = replay(run.config(), names)
            assert outcome.agrees and outcome.compared, outcome.problems
        for judged in judgement(run.bootstrap, run.toml, run.secret).values():
            assert judged.triggers == EPOCHS and not judged.objections, judged
        for name in ("pages", "more"):
            rows = [body for body in run.releases(name) if body.get("key") == {"page": "a"}]
            counts = [row["values"]["count"]["value"] for row in rows]
            assert min(counts[:4]) > USERS - 100 > 100 > counts[4]


def compiled(text: str) -> tuple[Pipeline, ...]:
    return compile_config(loads(text, environ={})).pipelines
