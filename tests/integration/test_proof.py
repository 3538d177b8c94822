"""A signed deployment with killed workers: the public topics prove it, and expose a forgery.

Covers: cli/verify.py, reading/public_topics.py
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hushstream.agents.kafka.logs import read_topic
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay

from ..cli.bench import typed
from ..judge.topics import deployment as judgement
from .local import Local, local

HOUR = 3_600_000_000
ORIGIN = 17956 * 24 * HOUR  # 2019-03-01
TOML = """
[deployment]
name = "{name}"
[secret]
signing_key_file = "hush-signing.key"
[engine]
cells_partitions = 3
release_partitions = 2
publish_delay = "2s"
[[input]]
name = "events"
topic = "{name}"
unit = "user"
time = {{ field = "t", format = "epoch_us" }}
[[pipeline]]
name = "{name}-pages"
input = "events"
key = ["page"]
window = {{ length = "2h", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "1h" }}
schedule = "external"
budget = {{ epsilon = 8.0, delta = 1e-4 }}
mechanism = {{ kind = "histogram", adaptive_weight = 0 }}
"""

pytestmark = pytest.mark.broker


def proved(run: Local, *words: str) -> tuple[int, dict[str, object]]:
    """Prove what a reader can who knows only an address and the deployment's name."""
    words = ("verify", "--json", "--wait", "0", *words, "--bootstrap", run.bootstrap)
    empty = run.folder / "reader"
    empty.mkdir(exist_ok=True)
    with contextlib.chdir(empty):
        code, out, err = typed(*words, "--deployment", run.names.deployment)
    assert out, err
    return code, json.loads(out)


@pytest.mark.thorough
def test_what_killed_workers_leave_is_proved_and_what_a_stranger_adds_is_not(
    broker: Broker, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    name = unique("signed")
    with local(tmp_path, broker.bootstrap, TOML.format(name=name), {name: 2}) as run:
        run.start("a")
        run.start("b")
        run.wait_ready(["a", "b"])
        for n in range(1, 5):
            at = ORIGIN + (n - 1) * HOUR
            for p in range(2):
                users = [f"u{p}-{n}-{i}" for i in range(300)]
                run.publish(name, [{"user": u, "page": u[-1], "t": at} for u in users], p)
            run.trigger(ORIGIN + n * HOUR)
            fired = run.wait_triggers(n)
            if n in (1, 3):  # between the charge and the publication, which waits two seconds
                run.kill("a" if n == 1 else "b")
                run.start("c" if n == 1 else "d")
            run.wait_released(fired)
        checkpoint = tmp_path / "seen.json"
        code, told = proved(run, "--checkpoint", str(checkpoint))
        assert (code, told["proved"], told["fault"]) == (0, True, ""), told
        assert told["releases"] == {f"{name}-pages": 4} and told["charges"] == 2
        code, again = proved(
            run, "--checkpoint", str(checkpoint), "--public-key", str(told["public_key"])
        )
        assert (code, again) == (0, told)
        outcome = replay(run.config())
        assert outcome.agrees and outcome.compared > 12, outcome.problems
        ((_, judged),) = judgement(run.bootstrap, run.toml, run.secret).items()
        assert judged.objections == [] and judged.rows > 20
        for member in list(run.workers):
            run.stop(member)
        _forged(run, f"hush.{name}-pages.releases.v1")


def _forged(run: Local, topic: str) -> None:
    """Publish a released row a second time."""
    (first, *_) = read_topic(run.config().kafka, topic, 2)
    row = next(r for r in first.records if r.headers[0][0] == "hush-row")
    producer = run.producer()
    producer.produce(
        topic, row.value, key=row.key, partition=0, timestamp=row.timestamp,
        headers=list(row.headers),
    )  # fmt: skip
    assert producer.flush(60) == 0
    code, told = proved(run)
    assert code == 3 and "out of its order" in str(told["fault"]), told
    assert f"{topic}-0, offset " in str(told["fault"])
    outcome = replay(run.config())
    assert outcome.doubled == 1
