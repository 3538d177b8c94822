"""A deployment that charged nothing is deleted; another one only with its name; none that runs.

Covers: agents/clock/reset.py
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hushstream.agents.clock.reset import remains
from hushstream.agents.deployment.topic_specs import TopicSpec
from hushstream.deploy.broker import Broker
from hushstream.topics.names import OWNERS

from ..integration.local import Local, local
from ..integration.test_outage import DAY, ORIGIN, TOML, publish
from ..servers.connect import wait_for
from .bench import typed

pytestmark = pytest.mark.broker


def _place(run: Local) -> list[str]:
    return ["-c", str(run.toml), "--bootstrap", run.bootstrap]


def _reset(run: Local, *words: str) -> tuple[int, str, str]:
    return typed("reset", *_place(run), *words)


def _topics(run: Local) -> set[str]:
    return {name for name in run.cluster.topics() if not name.startswith("__")}


def test_a_deployment_is_deleted_and_begins_anew(empty_broker: Broker, tmp_path: Path) -> None:
    with local(tmp_path / "hush", empty_broker.bootstrap, TOML, {"events": 1}) as run:
        there = _topics(run)
        other = "another.releases.v1"
        run.cluster.create([TopicSpec(other, 1, {}, False, "of another one")], 1)
        code, out, err = _reset(run, "--dry-run")
        assert code == 0 and "charges: 0" in out, err
        assert _topics(run) == there | {other}
        publish(run, 0)
        run.start("w")
        run.wait_ready(["w"])
        code, _, err = _reset(run)
        assert code == 4 and "1 worker in the group" in err and _topics(run) == there | {other}
        run.trigger(ORIGIN + DAY)
        run.wait_released(run.wait_triggers(2))
        assert run.stop("w") == 0
        group = run.names.group
        wait_for(lambda: not run.cluster.groups.members(group), "its end", lambda: run.tail("w"))
        for words in ((), ("--name", "wrong")):
            code, _, err = _reset(run, *words)
            assert code == 2 and "nothing was deleted" in err and _topics(run) == there | {other}
        code, out, err = _reset(run, "--name", run.deployment.name, "--json")
        assert code == 0, err
        body = json.loads(out)
        assert body["charges"] == 1 and body["deleted"][-1].endswith(".ledger.v1")
        assert set(body["deleted"]) == there - {"events", OWNERS}
        assert _topics(run) == {"events", OWNERS, other}
        code, _, err = _reset(run)
        assert code == 3 and "ledger" in err
        code, out, err = typed("topics", *_place(run))
        assert code == 0, err
        found = remains(run.cluster, run.deployment.name)
        run.cluster.delete(found.topics[:3])  # as if an earlier one had been killed
        code, out, err = _reset(run, "--json")  # nothing was charged: no name
        assert code == 0 and json.loads(out)["charges"] == 0, err
        assert _topics(run) == {"events", OWNERS, other}
