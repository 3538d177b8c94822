"""Topics, disks and tables that change while a worker runs: it ends with one line, or repairs."""

from __future__ import annotations

import json
import resource
import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from hushstream.agents.stages.aggregate.partial_sums import SortedRuns
from hushstream.agents.state.layout import MARKER, POSITION
from hushstream.agents.state.rocks import RocksStore
from hushstream.deploy.broker import Broker
from hushstream.errors import DamagedError, HushError
from hushstream.offline.replay import replay

from .local import Local, local
from .test_outage import DAY, ORIGIN, TOML, publish

pytestmark = pytest.mark.broker

SECONDS = 150.0  # limit for a worker to end, on any machine: it looks every five seconds


def ended(run: Local, words: str) -> str:
    """The worker ends by itself; return the lines that name the reason."""
    child = run.workers["w"]
    assert child.wait(SECONDS), run.tail("w")
    assert child.returncode == 4, run.errors("w")
    lines = [line for line in run.log("w").read_text().splitlines() if words in line]
    assert lines, run.errors("w")
    return lines[-1]


def admin(run: Local) -> AdminClient:
    return AdminClient({"bootstrap.servers": run.bootstrap, "log_level": 0})


OTHERS = ("cells", "changelog", "ledger", "releases", "view", "rows of a view")
VIEW = """
[[view]]
name = "{0}-v"
source = "{0}"
limit = 3
order = [{{ by = "count", descending = true }}]
"""


@pytest.mark.parametrize(
    "which", ["raw", *(pytest.param(one, marks=pytest.mark.thorough) for one in OTHERS)]
)
def test_a_topic_that_is_deleted_stops_the_worker_within_seconds(tmp_path, broker, unique, which):
    name = unique("gone")
    text = TOML.replace('"away"', f'"{name}"').replace('"p"', f'"{name}"')
    text = text.replace('topic = "events"', f'topic = "{name}-raw"')
    text += VIEW.format(name) if "view" in which else ""
    with local(tmp_path, broker.bootstrap, text, {f"{name}-raw": 1}) as run:
        run.start("w")
        run.wait_ready(["w"])
        run.publish(f"{name}-raw", [{"user": "u", "page": "a", "t": ORIGIN}])
        names = run.names
        topic = {
            "cells": names.cells(name),
            "changelog": names.changelog("aggregate", name),
            "raw": f"{name}-raw",
            "ledger": names.ledger,
            "releases": run.deployment.pipelines[0].release_topic,
            "view": names.changelog("view", name),
            "rows of a view": f"hush.{name}-v.releases.v1",
        }[which]
        client = admin(run)
        client.delete_topics([topic])[topic].result(120)
        line = ended(run, f"topic {topic}")
        public = which in ("releases", "rows of a view")  # no state of a unit lies there
        advice = "run `hush topics`" if public else "begin a new deployment"
        assert advice in line and (" is gone" in line or "was deleted" in line)


@pytest.mark.thorough
def test_partitions_that_are_added_stop_it_with_what_to_do(tmp_path, broker, unique):
    name = unique("more")
    text = TOML.replace('"away"', f'"{name}"').replace('"p"', f'"{name}"')
    text = text.replace('topic = "events"', f'topic = "{name}-raw"')
    with local(tmp_path, broker.bootstrap, text, {f"{name}-raw": 1}) as run:
        run.start("w")
        run.wait_ready(["w"])
        client = admin(run)
        client.create_partitions([NewPartitions(f"{name}-raw", 3)])[f"{name}-raw"].result(120)
        line = ended(run, "has 3 partitions, the ledger pinned 1")
        assert "run `hush topics --grow`" in line and "start the workers again" in line


@pytest.mark.thorough
def test_a_full_disk_is_named(empty_broker: Broker, tmp_path):
    with local(tmp_path, empty_broker.bootstrap, TOML, {"events": 1}) as run:
        child = run.start("w")
        run.wait_ready(["w"])
        size = run.log("w").stat().st_size
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (size + (1 << 20),) * 2)
        rows = [{"user": f"u{n}", "page": f"p{n}", "t": ORIGIN} for n in range(60_000)]
        run.publish("events", [json.dumps(row).encode() for row in rows])
        line = ended(run, "hush: ")  # some rows are held for half a minute
        assert "cannot be written: File too large" in line and "restart the worker" in line
        run.start("w")  # with enough room it continues
        run.trigger(ORIGIN + DAY // 2)
        run.wait_released(run.wait_triggers(1))
        assert run.stop("w") == 0
        assert replay(run.config()).agrees


@pytest.mark.thorough
def test_a_folder_that_is_deleted_is_missed(empty_broker: Broker, tmp_path):
    with local(tmp_path, empty_broker.bootstrap, TOML, {"events": 1}) as run:
        run.start("w")
        run.wait_ready(["w"])
        shutil.rmtree(run.data("w"))
        assert "restart the worker" in ended(run, "was deleted while its worker runs")
        run.start("w")
        run.trigger(ORIGIN + DAY // 2)
        run.wait_released(run.wait_triggers(1))
        assert run.stop("w") == 0


# A slow machine writes more files, and a start does not read all of them, so each one is harmed.


def cut(files: list[Path]) -> None:
    for file in files:
        file.write_bytes(file.read_bytes()[:-50])


def flip(files: list[Path]) -> None:
    for file in files:
        data = bytearray(file.read_bytes())
        data[20] ^= 0xFF
        file.write_bytes(data)


def drop(files: list[Path]) -> None:
    (files[0].parent / "CURRENT").unlink()


@pytest.mark.thorough
def test_damaged_tables_are_set_aside_and_restored(empty_broker: Broker, tmp_path):
    with local(tmp_path, empty_broker.bootstrap, TOML, {"events": 1}) as run:
        for at, harm in enumerate((None, cut, flip, drop), start=1):
            mark = run.log("w").stat().st_size if at > 1 else 0
            run.start("w")
            publish(run, 50 * at)
            run.trigger(ORIGIN + at * DAY // 2)
            run.wait_released(run.wait_triggers(at))
            said = run.log("w").read_text()[mark:]
            assert ("is set aside as" in said) == (at > 2), said[-3000:]
            assert run.stop("w") == 0
            if harm is not None:
                folder = run.data("w") / run.names.genesis / run.names.changelog("aggregate", "p")
                until = time.monotonic() + 150
                while not (files := sorted((folder / "0").glob("*.sst"))):
                    assert time.monotonic() < until
                harm(files)
        run.start("w")
        run.trigger(ORIGIN + 5 * DAY // 2)
        run.wait_released(run.wait_triggers(5))
        assert run.stop("w") == 0
        assert (run.data("w") / run.names.genesis / run.names.changelog("aggregate", "p")
                / "damaged-0").is_dir()  # fmt: skip
        assert replay(run.config()).agrees


def harmed(table: Path, scratch: Path) -> None:
    """Flip a byte in a block that only the stage reads, when it opens."""
    for file in sorted(table.glob("*.sst")):
        whole = file.read_bytes()
        for place in range(0, len(whole), 1024):
            data = bytearray(whole)
            data[place] ^= 0xFF
            file.write_bytes(data)
            if met_by_the_stage_alone(table, scratch):
                return
        file.write_bytes(whole)
    pytest.fail("no such block")


def met_by_the_stage_alone(table: Path, scratch: Path) -> bool:
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(table, scratch)
    try:
        store = RocksStore(scratch, None, 1 << 20)
    except HushError:
        return False
    try:
        store.get_many([POSITION, MARKER])
    except DamagedError:
        store.abandon()
        return False
    try:
        SortedRuns.load(store)
    except DamagedError:
        return True
    finally:
        store.abandon()
    return False


@pytest.mark.thorough
def test_a_damage_that_a_stage_meets_as_it_opens_is_set_aside_too(empty_broker: Broker, tmp_path):
    """Rows that are due at every trigger fill blocks between the table's position and the sums."""
    pages = [f"a page with a long name, number {n:05}" for n in range(1200)]
    known = TOML.replace('key = ["page"]', f'key = ["page"]\npublic_keys = {json.dumps(pages)}')
    with local(tmp_path, empty_broker.bootstrap, known, {"events": 1}) as run:
        run.start("w")
        rows = [{"user": f"u{n}", "page": page, "t": ORIGIN} for n, page in enumerate(pages)]
        run.publish("events", rows)
        run.wait_ready(["w"])
        time.sleep(1)  # so that a beat covers them
        run.trigger(ORIGIN + DAY // 2)
        run.wait_released(run.wait_triggers(1))
        assert run.stop("w") == 0
        table = run.data("w") / run.names.genesis / run.names.changelog("aggregate", "p") / "0"
        RocksStore(table, None, 1 << 20).close()  # its write-ahead log becomes a table file
        harmed(table, tmp_path / "scratch")
        mark = run.log("w").stat().st_size
        run.start("w")
        run.trigger(ORIGIN + DAY)
        run.wait_released(run.wait_triggers(2))
        assert "is set aside as" in run.log("w").read_text()[mark:]
        assert run.stop("w") == 0
        assert (table.parent / "damaged-0").is_dir()
        assert replay(run.config()).agrees
