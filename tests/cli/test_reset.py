"""`hush reset` deletes a deployment without charges, others only by name, and no running one.

Covers: agents/clock/reset.py
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hushstream.agents.clock import reset
from hushstream.agents.clock.reset import remains
from hushstream.agents.deployment.cluster.topic_specs import TopicSpec
from hushstream.cli import reset as command
from hushstream.deploy.broker import Broker
from hushstream.errors import EngineError, SnapshotError
from hushstream.topics.names import OWNERS, Names, ledger_topic

from ..integration.local import Local, local
from ..integration.test_outage import DAY, ORIGIN, TOML, publish
from ..servers.connect import wait_for
from .bench import CONFIG, typed


def _place(run: Local) -> list[str]:
    return ["-c", str(run.toml), "--bootstrap", run.bootstrap]


def _reset(run: Local, *words: str) -> tuple[int, str, str]:
    return typed("reset", *_place(run), *words)


def _topics(run: Local) -> set[str]:
    return {name for name in run.cluster.topics() if not name.startswith("__")}


class Groups:
    """A group that empties: its number of members at each look."""

    def __init__(self, *looks: int) -> None:
        self.looks = list(looks)

    def members(self, group: str) -> list[str]:
        return ["w"] * (self.looks.pop(0) if len(self.looks) > 1 else self.looks[0])


def _fake(monkeypatch: pytest.MonkeyPatch, *looks: int) -> SimpleNamespace:
    """A cluster with a deployment `d` that has charged two epochs."""
    ledger = SimpleNamespace(names=lambda name: Names(name, "0f" * 5), charges=[1, 2])
    names = ("events", f"d.{'0f' * 5}.clock", f"d.{'0f' * 5}.x.units", f"d.{'1f' * 5}.clock")
    monkeypatch.setattr(reset, "read_ledger", lambda cluster, name: ledger)
    monkeypatch.setattr(reset, "owned", lambda cluster, name: [ledger_topic(name), "hush.p.dlq"])
    monkeypatch.setattr(reset, "LOOK_SECONDS", 0.01)
    deleted: list[str] = []
    return SimpleNamespace(
        groups=Groups(*looks), topics=lambda: names, delete=deleted.extend, deleted=deleted
    )


def test_the_ledger_goes_last_and_nothing_of_another_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _fake(monkeypatch, 0)
    found = remains(cluster, "d")
    mine = f"d.{'0f' * 5}"
    assert found.topics == ["hush.p.dlq", f"{mine}.clock", f"{mine}.x.units", ledger_topic("d")]
    assert found.charged == 2


def test_a_worker_that_has_ended_is_waited_for_and_one_that_runs_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    found = remains(_fake(monkeypatch, 2, 1, 0), "d", 60.0, told.append)
    assert found.charged == 2
    assert len(told) == 1 and "2 workers in the group" in told[0] and "60 s: waiting" in told[0]
    for wait, said in ((False, "0.05 s$"), (True, "0.05 s, now over$")):
        with pytest.raises(EngineError, match=f"1 worker in the group .*: end them first.*{said}"):
            remains(_fake(monkeypatch, 1), "d", 0.05, wait=wait)


def test_a_dry_run_does_not_wait_and_says_how_long_a_worker_may_stay(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = _fake(monkeypatch, 1)
    monkeypatch.setattr(command, "cluster_of", lambda config, role: cluster)
    (folder / "hush.toml").write_text(f'{CONFIG}[engine]\nsession_timeout = "600s"\n')
    begun = time.monotonic()
    code, _, err = typed("reset", "--dry-run")
    assert code == 4 and "stays in it for engine.session_timeout, 600 s" in err
    assert time.monotonic() - begun < 300


def test_charges_are_forgotten_by_name_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _fake(monkeypatch, 0)
    monkeypatch.setattr(command, "cluster_of", lambda config, role: cluster)
    (folder / "hush.toml").write_text(f'{CONFIG}[deployment]\nname = "d"\n')
    for words in ((), ("--name", "e"), ("--name", ""), ("--dry-run",)):
        code, _, err = typed("reset", *words)
        assert code == (0 if words == ("--dry-run",) else 2) and not cluster.deleted, err
    assert typed("reset", "--name", "d")[0] == 0 and cluster.deleted[-1] == ledger_topic("d")


def test_snapshots_go_with_it_or_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, store = _fake(monkeypatch, 0), folder / "store"
    monkeypatch.setattr(command, "cluster_of", lambda config, role: cluster)
    where = f'[engine]\nsnapshots = "file://{store}"\n'
    (folder / "hush.toml").write_text(f'{CONFIG}[deployment]\nname = "d"\n{where}')
    kept, gone = (store / f"{genesis * 5}" / "log" / "0" / "head" for genesis in ("1f", "0f"))
    for one in (kept, gone):
        one.parent.mkdir(parents=True)
        one.write_bytes(b"sealed")
    code, out, _ = typed("reset", "--dry-run")
    assert code == 0 and f"all snapshots in file://{store}, folder {'0f' * 5}" in out
    code, out, _ = typed("reset", "--dry-run", "--json")
    told = json.loads(out)
    assert code == 0 and told["would_delete_snapshots"] == [f"{'0f' * 5}/log/0/head"]
    assert told["deleted"] == [] and len(told["would_delete"]) == 4
    assert gone.exists() and typed("reset", "--name", "e")[0] == 2 and gone.exists()
    code, out, _ = typed("reset", "--name", "d", "--json")
    assert code == 0 and json.loads(out)["snapshots"] == 1
    assert kept.exists() and not gone.exists()

    async def refused(*_: object) -> int:
        raise SnapshotError("an object cannot be deleted (Away)")

    monkeypatch.setattr(command, "delete_all", refused)
    code, _, err = typed("reset", "--name", "d")
    assert code == 0 and cluster.deleted[-1] == ledger_topic("d")  # topics are deleted nevertheless
    assert (
        f"snapshots stay (an object cannot be deleted (Away)): delete the folder {'0f' * 5}" in err
    )


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
        left = {"events", OWNERS, other}
        wait_for(lambda: _topics(run) == left, "the end of topics", lambda: str(_topics(run)))
        code, _, err = _reset(run)
        assert code == 3 and "ledger" in err
        code, out, err = typed("topics", *_place(run))
        assert code == 0, err
        found = remains(run.cluster, run.deployment.name)
        run.cluster.delete(found.topics[:3])  # as if an earlier reset had been killed
        code, out, err = _reset(run, "--json")  # without charges no name is needed
        assert code == 0 and json.loads(out)["charges"] == 0, err
        left = {"events", OWNERS, other}
        wait_for(lambda: _topics(run) == left, "the end of topics", lambda: str(_topics(run)))
