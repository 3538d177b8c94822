"""Snapshots of tables: a worker with an empty disk continues from an object store, or without."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay

from ..agents.snapshots.stores import Bucket, bucket
from .local import Local, local

ORIGIN = 1_577_836_800_000_000  # 2020-01-01
HOUR = 3_600_000_000
TOML = """
[deployment]
name = "{name}"
[engine]
units_partitions = 2
cells_partitions = 2
beat_interval = "20ms"
session_timeout = "3s"
snapshots = "{url}"
snapshot_interval = "10s"
[[input]]
name = "events"
topic = "{name}-raw"
unit = "user"
time = {{ field = "t", format = "epoch_us" }}
[[pipeline]]
name = "{name}-p"
input = "events"
key = ["page"]
schedule = "external"
window = {{ length = "1d", origin = "2020-01-01T00:00:00Z" }}
triggers = {{ every = "1h" }}
budget = {{ epsilon = 8.0, delta = 1e-4 }}
"""
MADE, TAKEN, REFUSED = "a snapshot of it is in", "goes on from its", "its snapshot is not used"
SHARDS = 6  # two of each stage


def hour(run: Local, name: str, number: int, users: int = 400) -> None:
    """Send an hour's records to both partitions, and release."""
    records(run, name, number, users)
    time.sleep(0.3)
    run.trigger(ORIGIN + number * HOUR)
    run.wait_released(run.wait_triggers(number))


def records(run: Local, name: str, number: int, users: int = 400) -> None:
    at = ORIGIN + (number - 1) * HOUR
    for partition in range(2):
        some = range(partition, users, 2)
        values = [{"user": f"u{n}", "page": f"p{n % 3}", "t": at + n} for n in some]
        run.publish(f"{name}-raw", values, partition)


def said(run: Local, member: str, text: str) -> set[str]:
    """Tables that a worker's log lines with this text name."""
    lines = run.log(member).read_text().splitlines()
    return {line.partition(": ")[0].split()[-1] for line in lines if text in line}


def first_snapshots(run: Local, name: str) -> int:
    """Release hours until each table of a worker has a snapshot; return their number."""
    for number in range(1, 20):
        hour(run, name, number)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            if len(said(run, "a", MADE)) == SHARDS:
                return number
            time.sleep(0.1)
    raise AssertionError(run.errors("a"))


def changed(store: Bucket) -> None:
    """Change a byte of each part."""
    for part in store.objects():
        if part.name != "head":
            data = bytearray(part.read_bytes())
            data[len(data) // 2] ^= 1
            part.write_bytes(data)


def headless(store: Bucket) -> None:
    """Leave only uploads that were killed before their end."""
    for head in store.objects():
        if head.name == "head":
            head.unlink()


@pytest.mark.parametrize(
    ("how", "taken", "refused"),
    [
        (lambda _: None, SHARDS, 0),
        pytest.param(changed, 0, SHARDS, marks=pytest.mark.thorough),
        pytest.param(headless, 0, 0, marks=pytest.mark.thorough),
    ],
    ids=["whole", "changed", "headless"],
)
def test_a_worker_with_an_empty_disk(
    broker: Broker,
    tmp_path: Path,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    how: Callable[[Bucket], None],
    taken: int,
    refused: int,
) -> None:
    name = unique("snap")
    with bucket(tmp_path / "server") as store:
        for variable, value in store.environ.items():
            monkeypatch.setenv(variable, value)
        text = TOML.format(name=name, url=store.url)
        with local(tmp_path / "run", broker.bootstrap, text, {f"{name}-raw": 2}) as run:
            run.start("a")
            run.wait_ready(["a"])
            last = first_snapshots(run, name)
            hour(run, name, last + 1)
            run.kill("a")
            shutil.rmtree(run.data("a"))
            how(store)
            records(run, name, last + 2)
            run.start("b")
            run.wait_ready(["b"])
            hour(run, name, last + 2)
            assert len(said(run, "b", TAKEN)) == taken, run.errors("b")
            assert len(said(run, "b", REFUSED)) == refused, run.errors("b")
            outcome = replay(run.config())
            assert outcome.agrees and outcome.compared, outcome.problems
            assert run.stop("b") == 0, run.errors("b")
    assert all(b"rocksdb" not in one.read_bytes() for one in store.objects())  # each part is sealed
