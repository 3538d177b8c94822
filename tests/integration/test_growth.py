"""What grows and what does not: the clock log is trimmed, and everything can open from a snapshot.

Covers: agents/clock/snapshots.py, agents/kafka/markers.py, offline/replay_reach.py
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click import Command
from click.testing import CliRunner
from confluent_kafka import TopicPartition
from hushstream.agents.kafka.logs import read_topic
from hushstream.agents.state.layout import MARKER, NONCE, UNIT
from hushstream.agents.state.rocks import RocksStore
from hushstream.agents.worker.admission import prepare
from hushstream.cli.group import main
from hushstream.deploy.broker import Broker
from hushstream.errors import EngineError, HushError
from hushstream.formats.events.decode import RawRecord
from hushstream.offline.replay import replay
from hushstream.topics.records import Skipped, Snapshot, Trigger, decode_clock

from .local import Local, local

HOUR = 3_600_000_000
ORIGIN = 1_577_836_800_000_000  # 2020-01-01
TOML = """
[deployment]
name = "{name}"
[engine]
units_partitions = 1
cells_partitions = 2
beat_interval = "20ms"
keep_clock = "0s"
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


def hours(run: Local, begin: int, end: int, batch: int = 24) -> None:
    """Send data for each hour, request its trigger, and wait for all releases."""
    name = f"{run.config().deployment.name}-raw"
    for first in range(begin, end, batch):
        last = min(first + batch, end)
        for hour in range(first, last):
            values = [
                {"user": f"u{n}", "page": "a", "t": ORIGIN + hour * HOUR + n} for n in range(40)
            ]
            run.publish(name, values, hour % 2)
        time.sleep(0.3)
        run.trigger(ORIGIN + last * HOUR)
        until = time.monotonic() + 150
        while released(run) < last * 2:
            assert time.monotonic() < until, f"{released(run)} of {2 * last}\n" + run.errors("one")
            time.sleep(0.2)


def released(run: Local) -> int:
    return len(run.manifests())


def clock_of(run: Local) -> tuple[int, list]:
    log = read_topic(run.config().kafka, run.names.clock, 1)[0]
    return log.begin, [decode_clock(r.value or b"") for r in log.records]


def trimmed(run: Local, above: int) -> None:
    until = time.monotonic() + 900
    while clock_of(run)[0] <= above:
        assert time.monotonic() < until, "the clock log was not trimmed\n" + run.errors("one")
        hours(run, released(run) // 2, released(run) // 2 + 24)


def begins(run: Local, topic: str) -> int:
    """The first offset that the broker still has."""
    return read_topic(run.config().kafka, topic, 1)[0].begin


def typed(*words: str) -> tuple[int, str]:
    out = CliRunner().invoke(Command("x", callback=lambda: main(list(words))), [])
    return out.exit_code, out.output


@pytest.fixture
def name(unique: Callable[[str], str]) -> str:
    return unique("grow")


@pytest.mark.thorough
def test_the_clock_log_is_trimmed_and_everything_opens_from_a_snapshot(
    broker: Broker, tmp_path: Path, name: str
) -> None:
    with local(tmp_path, broker.bootstrap, TOML.format(name=name), {f"{name}-raw": 2}) as run:
        run.start("one")
        run.wait_ready(["one"])
        hours(run, 0, 72)
        trimmed(run, 0)
        begin, records = clock_of(run)
        assert isinstance(records[0], Snapshot) and begin > 100
        assert any(isinstance(r, Trigger) for r in records)  # the witness needs the last one
        last = [r for r in records if isinstance(r, Snapshot)][-1]
        requests = begins(run, run.names.requests)
        assert 0 < requests <= last.requests  # below what a snapshot has read, and no further
        assert begins(run, run.names.selected(f"{name}-p")) > 0
        common = ("-c", str(run.toml), "--bootstrap", run.bootstrap)
        assert typed("check", *common)[0] == 0
        assert typed("ledger", "verify", *common)[0] == 0
        # A new worker without any state: shards, clock and follower open from the snapshot.
        run.kill("one")
        shutil.rmtree(run.data("one"))
        run.start("one")
        run.wait_ready(["one"])
        before = released(run) // 2
        hours(run, before, before + 24)
        trimmed(run, begin)
        assert run.stop("one") == 0
        ordinals = [r.ordinal for r in clock_of(run)[1] if isinstance(r, Trigger)]
        assert ordinals == list(range(ordinals[0], ordinals[0] + len(ordinals)))
        charges = [r for r in prepare(run.config()).ledger.records if r.kind == "charge"]
        assert len(charges) == -(-released(run) // 48)  # one charge a day, never a second one
        _nothing_is_doubled(run, name)


def _nothing_is_doubled(run: Local, name: str) -> None:
    bodies = [json.dumps([b["window"], b["trigger"], b["schema"], b.get("key"), b.get("shard")])
              for b in run.releases(f"{name}-p")]  # fmt: skip
    assert len(bodies) == len(set(bodies))


@pytest.mark.thorough
def test_a_clock_log_that_somebody_else_has_trimmed_is_refused(
    broker: Broker, tmp_path: Path, name: str
) -> None:
    with local(tmp_path, broker.bootstrap, TOML.format(name=name), {f"{name}-raw": 2}) as run:
        run.start("one")
        run.wait_ready(["one"])
        hours(run, 0, 24)
        assert run.stop("one") == 0
        log = read_topic(run.config().kafka, run.names.clock, 1)[0]
        place = next(r.offset for r in log.records if b'"trigger"' in (r.value or b"")) + 1
        from confluent_kafka.admin import AdminClient

        client = AdminClient({"bootstrap.servers": run.bootstrap})
        for future in client.delete_records([TopicPartition(run.names.clock, 0, place)]).values():
            future.result(120)
        with pytest.raises(HushError, match="does not begin with a snapshot"):
            prepare(run.config())


WALL = (
    TOML.replace('schedule = "external"\n', "")
    .replace('window = {{ length = "1d", origin = "2020-01-01T00:00:00Z" }}',
             'window = {{ length = "2s" }}')
    .replace('triggers = {{ every = "1h" }}', 'triggers = {{ every = "1s" }}')
    .replace('keep_clock = "0s"', 'keep_clock = "0s"\nmax_future_skew = "0s"')
)  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("partitioner", ["none", "murmur2"])
def test_what_began_after_the_oldest_snapshot_is_replayed(
    broker: Broker, tmp_path: Path, name: str, partitioner: str
) -> None:
    toml = WALL.format(name=name).replace(
        'unit = "user"', f'unit = "user"\npartitioner = "{partitioner}"'
    )
    with local(tmp_path, broker.bootstrap, toml, {f"{name}-raw": 1}) as run:
        run.start("one")
        run.wait_ready(["one"])
        producer, until = run.producer(), time.monotonic() + 600
        sent = 0
        trimmed_at = None
        while trimmed_at is None or time.monotonic() < trimmed_at + 12:
            assert time.monotonic() < until, run.errors("one")
            for n in range(50):
                now = int(time.time() * 1e6)
                body = json.dumps({"user": f"u{n}", "page": "ab"[n % 2], "t": now})
                producer.produce(f"{name}-raw", body, key=f"u{n}", partition=0)
                sent += 1
            producer.flush(120)
            if trimmed_at is None and sent % 500 == 0 and clock_of(run)[0] > 0:
                trimmed_at = time.monotonic()
            time.sleep(0.1)
        run.wait_released(run.triggers())  # also those of the last seconds, on any machine
        assert run.stop("one") == 0
        if partitioner == "none":  # topics that no replay needs are trimmed, though units are kept
            assert begins(run, run.names.units(f"{name}-p")) > 0
        assert begins(run, run.names.selected(f"{name}-p")) > 0
        outcome = replay(run.config())
        assert outcome.agrees, outcome.problems
        assert outcome.compared > 10 and (outcome.routed > 0) == (partitioner == "none")
        with pytest.raises(EngineError, match="before the snapshot"):
            replay(run.config(), windows={0})


@pytest.mark.parametrize(
    "partitioner", ["none", pytest.param("murmur2", marks=pytest.mark.thorough)]
)
def test_rows_of_a_refused_window_are_deleted_from_tables_and_changelogs(
    broker: Broker, tmp_path: Path, name: str, partitioner: str
) -> None:
    """Records of a window arrive before the clock finds that the budget does not pay for it."""
    text = TOML.replace('unit = "user"', f'unit = "user"\npartitioner = "{partitioner}"')
    text = text.replace("delta = 1e-4", "delta = 1e-4, limit_epsilon = 9.0")
    with local(tmp_path, broker.bootstrap, text.format(name=name), {f"{name}-raw": 2}) as run:
        run.start("one")
        run.wait_ready(["one"])
        hours(run, 0, 24)
        day = [{"user": f"u{n}", "page": "b", "t": ORIGIN + 24 * HOUR + n} for n in range(3000)]
        producer = run.producer(partitioner="murmur2_random")
        for value in day:
            producer.produce(f"{name}-raw", json.dumps(value), key=value["user"])
        producer.flush(120)
        kept = "bound" if partitioner == "none" else "ingest"
        whose = f"{name}-p" if kept == "bound" else "events"
        changelog = run.names.changelog(kept, whose)
        waited(lambda: len(live(run, changelog)) >= 3000, "no unit has a row", run)
        run.trigger(ORIGIN + 25 * HOUR)
        waited(lambda: any(isinstance(r, Skipped) for r in clock_of(run)[1]), "not refused", run)
        waited(lambda: not live(run, changelog), "rows are left in the changelog", run)
        gone = {r.key for r in written(run, changelog) if r.value is None}
        assert len([key for key in gone if key[:1] == UNIT]) >= 3000  # tombstones
        assert run.stop("one") == 0
        tables = sorted((run.data("one") / run.names.genesis).glob("*/[0-9]*"))
        assert len(tables) == (5 if partitioner == "none" else 4)
        for table in tables:
            assert rows(table) <= {MARKER[:1], NONCE}, table


def waited(done: Callable[[], bool], what: str, run: Local) -> None:
    until = time.monotonic() + 150
    while not done():
        assert time.monotonic() < until, f"{what}\n{run.errors('one')}"
        time.sleep(0.3)


def written(run: Local, topic: str) -> list[RawRecord]:
    logs = read_topic(run.config().kafka, topic, run.cluster.topics()[topic])
    return [record for log in logs for record in log.records]


def live(run: Local, changelog: str) -> set[bytes]:
    """The units that have a row by the changelog."""
    last = {r.key: r.value for r in written(run, changelog)}
    return {key for key, value in last.items() if value is not None and key[:1] == UNIT}


def rows(table: Path) -> set[bytes]:
    """The tags of all rows of a table."""
    store = RocksStore(table, None, 1 << 20)
    try:
        return {key[:1] for key, _ in store.scan(b"", b"\xff" * 40)}
    finally:
        store.close()


@pytest.mark.thorough
def test_a_witness_that_is_older_than_the_clock_log_is_refused_until_it_is_removed(
    broker: Broker, tmp_path: Path, name: str
) -> None:
    seen = tmp_path / "seen"
    text = TOML.format(name=name).replace("[engine]", f'[engine]\nwitness = "{seen}"')
    with local(tmp_path, broker.bootstrap, text, {f"{name}-raw": 2}) as run:
        run.start("one")
        run.wait_ready(["one"])
        hours(run, 0, 24)
        old = seen.read_bytes()
        hours(run, 24, 72)
        trimmed(run, json.loads(old)["offset"])
        assert run.stop("one") == 0
        newest = seen.read_bytes()
        common = ("-c", str(run.toml), "--bootstrap", run.bootstrap)
        assert typed("check", *common)[0] == 0
        seen.write_bytes(old)
        words = "the file is older than the clock log"
        for command in (("check",), ("ledger", "verify")):
            code, said = typed(*command, *common)
            assert code == 4 and words in said and "remove it" in said
        child = run.start("one")
        assert child.wait(150) and child.returncode == 4 and words in run.errors("one")
        assert seen.read_bytes() == old  # the evidence stays
        seen.unlink()
        run.log("one").unlink()
        run.start("one")
        run.wait_ready(["one"])
        before = released(run) // 2
        hours(run, before, before + 24)
        assert json.loads(seen.read_text())["offset"] > json.loads(newest)["offset"]
        assert run.stop("one") == 0
