"""Drills of the operations page: a leaked key, and what is left of a unit after its window.

Covers: agents/worker/admission.py, agents/clock/genesis.py
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hushstream.agents.clock.genesis import read_ledger
from hushstream.agents.state.layout import UNIT
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay

from .local import Local, local
from .test_growth import HOUR, ORIGIN, TOML, hours, live, rows, typed, waited, written

pytestmark = pytest.mark.broker

FINAL = TOML.replace("[engine]", '[engine]\nkeep_units = false\ntrim_interval = "1s"')


def units(run: Local) -> list[bytes]:
    """The keys of all unit rows that were ever written."""
    changelog = run.names.changelog("bound", f"{run.config().deployment.name}-p")
    return [r.key for r in written(run, changelog) if r.key and r.key[:1] == UNIT]


def key_made(run: Local) -> None:
    path = run.folder / "hush.key"
    assert path.exists()
    path.write_text(secrets.token_hex(32))


def refused(run: Local, member: str) -> str:
    child = run.start(member)
    assert child.wait(150) and child.returncode == 3  # `LedgerError`
    return run.errors(member)


def renamed(run: Local, old: str, new: str) -> None:
    """The same pipelines and raw topic in another deployment with its own names."""
    text = run.toml.read_text().replace(f'"{old}-p"', f'"{new}-p"')
    run.toml.write_text(text.replace(f'name = "{old}"', f'name = "{new}"'))


@pytest.mark.thorough
def test_after_a_leak_another_key_serves_a_new_deployment_and_the_old_topics_go(
    broker: Broker, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    old, new = unique("leaked"), unique("fresh")
    with local(tmp_path / old, broker.bootstrap, TOML.format(name=old), {f"{old}-raw": 2}) as run:
        run.start("one")
        run.wait_ready(["one"])
        hours(run, 0, 24)
        assert run.stop("one") == 0
        copy = tmp_path / "old.jsonl"
        copy.write_bytes(b"\n".join(r.value or b"" for r in written(run, f"{old}.ledger.v1")))
        before, base = units(run), run.names.base
        head = read_ledger(run.cluster, old).head

        key_made(run)
        assert "noise key" in refused(run, "two")  # the old deployment with the new key
        run.workers.pop("two")
        renamed(run, old, new)
        shutil.rmtree(run.folder / "state")
        run.begin()
        run.start("three")
        run.trigger(ORIGIN + 24 * HOUR)
        waited(lambda: len(run.manifests()) >= 48, "nothing is released", run)
        assert run.stop("three") == 0
        assert replay(run.config()).agrees
        after = units(run)
        assert before and after and not set(before) & set(after)  # the same users, other digests

        common = ("-c", str(run.toml), "--bootstrap", run.bootstrap)
        code, said = typed("ledger", "sum", "--json", *common, str(copy), new)
        assert code == 0
        (total,) = json.loads(said)["sums"]
        assert total["epsilon"] == 16.0  # one epoch of 8 in each deployment
        gone = [topic for topic in run.cluster.topics() if topic.startswith(f"{base}.")]
        assert len(gone) >= 6
        run.cluster.delete(gone)
        run.start("four")
        run.wait_ready(["four"])
        assert run.stop("four") == 0
        assert read_ledger(run.cluster, old).head == head  # the audit trail stays


def test_of_a_unit_nothing_is_left_once_its_window_was_released_to_its_end(
    broker: Broker, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    name = unique("erased")
    with local(tmp_path, broker.bootstrap, FINAL.format(name=name), {f"{name}-raw": 2}) as run:
        run.start("one")
        run.wait_ready(["one"])
        hours(run, 0, 12, batch=12)
        changelog, topic = run.names.changelog("bound", f"{name}-p"), run.names.units(f"{name}-p")
        assert live(run, changelog)
        hours(run, 12, 24, batch=12)
        waited(lambda: not live(run, changelog), "rows are left in the changelog", run)
        waited(lambda: not written(run, topic), "records are left in the units topic", run)
        assert run.stop("one") == 0
        tables = sorted((run.data("one") / run.names.genesis).glob("*/[0-9]*"))
        assert tables and all(UNIT not in rows(table) for table in tables)
