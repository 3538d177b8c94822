"""Disaster recovery, drilled: clusters, ledgers and folders restored to an earlier state.

Covers: agents/clock/begins.py, agents/clock/paid.py, agents/clock/start.py, agents/clock/witness.py
Covers: agents/worker/tables/evidence.py, agents/worker/admission.py
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from hushstream.agents.clock.genesis import read_ledger
from hushstream.agents.deployment.cluster.topic_specs import public_topics
from hushstream.agents.worker.admission import prepare
from hushstream.deploy.broker import Broker
from hushstream.errors import EngineError, LedgerError, OutageError, RewoundError
from hushstream.offline.replay import replay

from ..agents.worker.test_admission import typed
from .local import BROKER, Local, local
from .test_integration import ASKED, HEAD, ORIGIN, PIPELINE, SECOND, ended, raw_topic

pytestmark = pytest.mark.broker

SIX_HOURS = 21_600 * SECOND


def text(name: str, more: str = "") -> str:
    shape = HEAD + PIPELINE + ASKED
    field = ', field = "t"'
    made = shape.format(name=name, kind="p", time="epoch_us", field=field, more="", limit="")
    return made.replace("[engine]", f"[engine]\n{more}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose disk can be copied while it is stopped."""
    broker = Broker(tmp_path / "broker", quiet=True, overrides=BROKER)
    try:
        yield broker.start()
    finally:
        broker.stop()


def saved(broker: Broker, backup: Path) -> None:
    broker.stop()
    shutil.copytree(broker.data / "kafka", backup)
    broker.start()


def restored(broker: Broker, backup: Path) -> None:
    broker.kill()
    shutil.rmtree(broker.data / "kafka")
    shutil.copytree(backup, broker.data / "kafka")
    broker.start()


def led(read: Callable[[], Any]) -> Any:
    """Read once the partitions of a broker that has just started have leaders."""
    until = time.monotonic() + 150
    while True:
        try:
            return read()
        except (KafkaException, OutageError):
            assert time.monotonic() < until
            time.sleep(0.2)


def serve(run: Local, index: int, users: int = 40) -> None:
    """Send events and release the trigger with that index."""
    events = [{"user": f"{index}-{n}", "page": "xy"[n % 2], "t": ORIGIN} for n in range(users)]
    run.publish(raw_topic(run), events)
    time.sleep(1)  # so that a beat covers them
    run.trigger(ORIGIN + index * SIX_HOURS)
    run.wait_released(run.wait_triggers(index))


@pytest.mark.thorough
def test_a_cluster_that_was_restored_from_its_disk_is_refused_with_evidence(disk, unique, tmp_path):
    """Otherwise the same trigger would be released again with other contents."""
    name, witness = unique("i"), tmp_path / "witness" / "seen"
    witness.parent.mkdir()
    toml = text(name, f'witness = "{witness}"')
    with local(tmp_path / name, disk.bootstrap, toml, {f"{name}-raw": 1}) as run:
        run.start("one")
        serve(run, 1)
        assert run.stop("one") == 0
        seen = json.loads(witness.read_text())
        assert (witness.stat().st_mode & 0o777, seen["genesis"]) == (0o600, run.names.genesis)
        saved(disk, tmp_path / "backup")
        run.start("one")
        serve(run, 2)
        assert run.stop("one") == 0
        released = len(run.releases(f"{name}-p"))
        prepare(run.config(), "one")  # everything is in order

        restored(disk, tmp_path / "backup")
        assert len(led(lambda: run.releases(f"{name}-p"))) < released
        # 1. The worker's folder is ahead of the changelogs; this suffices without a witness.
        alone = run.config(**{"engine.witness": ""})
        with pytest.raises(RewoundError, match="what the table of it here has read"):
            prepare(alone, "one")
        assert (tmp_path / name / "state" / "one").is_dir()  # the evidence is kept
        # 2. The folder is gone. The cluster shows nothing, but the witness does.
        shutil.rmtree(tmp_path / name / "state")
        prepare(alone, "one")
        with pytest.raises(RewoundError, match="lacks a trigger"):
            prepare(run.config(), "one")
        run.start("one")
        assert ended(run, "one") == 4
        assert "restored, copied or rewound" in run.tail("one")
        assert len(run.triggers()) == 1
        run.workers.pop("one")
        # 3. The same, although the log has grown past that position meanwhile.
        run.publish(
            run.names.clock, [b'{"type":"start","pipeline":"other","window":0,"time":1}'] * 99
        )
        with pytest.raises(RewoundError, match="lacks a trigger"):
            prepare(run.config(), "one")
        # 4. The remedy: a new deployment with its own pipelines, charges and witness.
        begin_anew(run, name, unique, disk)


def begin_anew(run: Local, name: str, unique: Callable[[str], str], disk: Broker) -> None:
    other = unique("j")
    changed = run.toml.read_text().replace(f'name = "{name}"', f'name = "{other}"')
    run.toml.write_text(changed)
    with pytest.raises(EngineError, match="give the pipeline another name"):
        run.begin()
    run.toml.write_text(changed.replace(f'"{name}-p"', f'"{other}-p"').replace("/seen", "/other"))
    run.begin()
    run.start("two")
    run.trigger(ORIGIN + SIX_HOURS)
    run.wait_released(run.wait_triggers(1))
    assert run.stop("two") == 0
    assert replay(run.config()).agrees
    (charge,) = read_ledger(run.cluster, other).charges.values()
    assert charge.hash() != read_ledger(run.cluster, name).head


def counts(run: Local, trigger: int) -> dict[str, int]:
    """The counts that one trigger released, by page."""
    bodies = run.releases(f"{run.deployment.name}-p")
    mine = (body for body in bodies if "key" in body and body["trigger"] == trigger)
    return {body["key"]["page"]: body["values"]["count"]["value"] for body in mine}


def nonces(run: Local, trigger: int) -> set[str]:
    bodies = run.releases(f"{run.deployment.name}-p")
    return {body["nonce"] for body in bodies if "nonce" in body and body["trigger"] == trigger}


@pytest.mark.thorough
def test_a_trigger_that_is_released_again_has_other_noise(disk, unique, tmp_path):
    """All evidence is gone and one more user came: the releases differ by noise."""
    name = unique("i")
    toml = text(name).replace("epsilon = 4.0", "epsilon = 0.00001")
    with local(tmp_path / name, disk.bootstrap, toml, {f"{name}-raw": 1}) as run:
        run.start("one")
        serve(run, 1)
        assert run.stop("one") == 0
        saved(disk, tmp_path / "backup")
        run.start("one")
        serve(run, 2)
        assert run.stop("one") == 0
        before, old = counts(run, 2), nonces(run, 2)
        head = read_ledger(run.cluster, name).head

        restored(disk, tmp_path / "backup")
        shutil.rmtree(tmp_path / name / "state")
        assert not led(lambda: counts(run, 2))
        assert led(lambda: read_ledger(run.cluster, name)).head == head
        run.publish(raw_topic(run), [{"user": "victim", "page": "x", "t": ORIGIN}])
        run.start("one")
        serve(run, 2)
        assert run.stop("one") == 0
        after, new = counts(run, 2), nonces(run, 2)
        assert before.keys() == after.keys() == {"x", "y"} and not old & new
        # With equal noise, the differences would be 1 and 0. σ is above 250,000, so one of the
        # differences has that value by chance in two of a million runs.
        assert after["x"] - before["x"] != 1 and after["y"] - before["y"] != 0
        assert replay(run.config()).agrees  # with the nonces in the current manifests


@pytest.mark.thorough
def test_a_worker_that_waits_while_its_cluster_is_restored_stops(disk, unique, tmp_path):
    """It has read more of the clock log than there is now."""
    name = unique("i")
    with local(tmp_path / name, disk.bootstrap, text(name), {f"{name}-raw": 1}) as run:
        run.start("one")
        serve(run, 1)
        assert run.stop("one") == 0
        saved(disk, tmp_path / "backup")
        run.start("one")
        serve(run, 2)
        restored(disk, tmp_path / "backup")
        assert ended(run, "one") == 4
        assert "restored, copied or rewound" in run.errors("one"), run.tail("one")
        assert len(led(run.triggers)) == 1
        run.workers.pop("one")


@pytest.mark.thorough
def test_an_older_copy_of_the_ledger_is_refused_and_the_newest_one_is_not(disk, unique, tmp_path):
    """Otherwise the same window would continue under a second charge."""
    name = unique("i")
    with local(tmp_path / name, disk.bootstrap, text(name), {f"{name}-raw": 1}) as run:
        backup = lines(run)
        run.start("one")
        serve(run, 1)
        assert run.stop("one") == 0
        newest = lines(run)
        assert len(newest) == len(backup) + 1
        replaced(run, backup)
        with pytest.raises(LedgerError, match="never charged by this ledger"):
            prepare(run.config(), "one")
        run.start("one")
        assert ended(run, "one") == 3
        run.workers.pop("one")
        assert lines(run) == backup  # nothing was charged
        common = ["-c", str(run.toml), "--bootstrap", run.bootstrap]
        for command in (["ledger", "verify"], ["check"]):
            code, said = typed(*command, *common)
            assert code == 3 and "restore the newest one" in said
        replaced(run, newest)
        assert typed("ledger", "verify", *common)[0] == 0
        run.start("one")
        serve(run, 2)
        assert run.stop("one") == 0
        assert len(read_ledger(run.cluster, name).charges) == 1
        assert replay(run.config()).agrees


def lines(run: Local) -> list[bytes]:
    return [m.value() for m in run.cluster.read(run.names.ledger)]


def replaced(run: Local, values: list[bytes]) -> None:
    """Restore the ledger as `docs/operations.md` describes."""
    deployment = run.deployment
    topic = f"{deployment.name}.ledger.v1"
    client = AdminClient({"bootstrap.servers": run.bootstrap})
    client.delete_topics([topic])[topic].result(120)
    until = time.monotonic() + 150
    while topic in run.cluster.topics():
        assert time.monotonic() < until
        time.sleep(0.1)
    run.cluster.create([s for s in public_topics(deployment) if s.name == topic], 1)
    run.publish(topic, values)
