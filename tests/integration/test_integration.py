"""Whole deployments on the real broker: schedules, requests, stalls, and workers that must stop.

Covers: cli/ledger.py, cli/replay.py, agents/kafka/cluster.py, agents/kafka/logs.py
Covers: agents/worker/agents.py, agents/worker/startup.py, agents/worker/upkeep.py
Covers: agents/worker/worker.py, agents/worker/shards/maker.py
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from hushstream.agents.clock.genesis import read_ledger
from hushstream.agents.clock.owner import ClockOwner
from hushstream.agents.kafka.logs import read_topic
from hushstream.agents.worker.admission import prepare
from hushstream.agents.worker.worker import Worker
from hushstream.cli.group import hush
from hushstream.deploy.broker import Broker
from hushstream.errors import LedgerError
from hushstream.offline.replay import replay
from hushstream.topics.records import TriggerRequest, encode

from ..support import messages
from .local import Local, local

SECOND = 1_000_000
ORIGIN = 17956 * 86_400 * SECOND  # 2019-03-01

HEAD = """
[deployment]
name = "{name}"
[engine]
units_partitions = 1
cells_partitions = 2
session_timeout = "3s"
transaction_timeout = "10s"
[[input]]
name = "events"
topic = "{name}-raw"
unit = "user"
time = {{ format = "{time}"{field} }}
{more}
"""
PIPELINE = """
[[pipeline]]
name = "{name}-{kind}"
input = "events"
key = ["page"]
public_keys = ["x", "y"]
budget = {{ epsilon = 4.0, delta = 1e-6{limit} }}
"""
WALL = 'window = {{ length = "2s" }}\ntriggers = {{ every = "1s" }}\n'
ASKED = (
    'window = {{ length = "1d", origin = "2019-03-01T00:00:00Z" }}\n'
    'triggers = {{ every = "6h" }}\nschedule = "external"\n'
)


Begin = Callable[..., Local]


@pytest.fixture
def begin(broker: Broker, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Begin]:
    """Begin a deployment, whose workers end with the test."""
    opened: list[Any] = []

    def make(pipeline: str, time_: str = "record", more: str = "", limit: str = "") -> Local:
        name = unique("i")
        field = ', field = "t"' if time_ != "record" else ""
        text = HEAD + PIPELINE + pipeline
        text = text.format(name=name, kind="p", time=time_, field=field, more=more, limit=limit)
        block = local(tmp_path / name, broker.bootstrap, text, {f"{name}-raw": 1})
        opened.append(block)
        run: Local = block.__enter__()
        return run

    yield make
    for block in opened:
        block.__exit__(None, None, None)


def raw_topic(run: Local) -> str:
    return next(iter(run.raw))


def ended(run: Local, member: str, seconds: float = 180) -> int | None:
    """The exit code of a worker that should end by itself."""
    child = run.workers[member]
    assert child.wait(seconds), run.tail(member)
    return child.returncode


pytestmark = pytest.mark.broker


def test_releases_appear_on_schedule_although_nothing_ever_arrives(begin):
    run = begin(WALL)
    run.start("one")
    triggers = run.wait_triggers(4)
    run.wait_released(triggers)
    (pipeline,) = run.deployment.pipelines
    bodies = [b for b in run.releases(pipeline.name) if b["schema"] == "hush.release/2"]
    for t in triggers:
        assert t.scheduled in pipeline.windows.times(t.window)
        assert 0 <= t.time - t.scheduled < 120 * SECOND
        assert sum(b["trigger"] == t.index for b in bodies) >= 2  # both public keys
    times = {
        r.timestamp * 1000
        for r in read_topic(run.config().kafka, pipeline.release_topic, 1)[0].records
    }
    assert times <= {t.scheduled for t in run.triggers()}  # never the time of publication
    assert run.stop("one") == 0
    assert replay(run.config()).agrees


@pytest.mark.thorough
def test_windows_of_so_many_triggers_take_events_as_they_arrive(begin):
    """At any times of the events; each window has its charge, and a replay agrees."""
    run = begin('window = {{ horizon = 2 }}\ntriggers = {{ every = "2s" }}\n', "epoch_us")
    topic = raw_topic(run)
    run.start("one")
    run.wait_ready(["one"])
    for n in range(6):
        times = (0, ORIGIN, ORIGIN + 10**15)
        sent = [{"user": f"u{n}-{k}", "page": "x", "t": times[k % 3]} for k in range(99)]
        run.publish(topic, sent)
        time.sleep(1)
    until = time.monotonic() + 150

    def over() -> bool:
        """Four windows have ended, and the last one has all records."""
        final = [t for t in run.triggers() if t.final]
        return len(final) >= 4 and final[-1].offsets[topic] == [6 * 99]

    while not over():
        assert time.monotonic() < until
        time.sleep(0.3)
    run.wait_released(run.triggers())
    assert run.stop("one") == 0
    triggers = run.triggers()
    ledger = read_ledger(run.cluster, run.config().deployment.name)
    assert {epoch for _, epoch in ledger.charges} == {t.window for t in triggers}
    outcome = replay(run.config())
    assert outcome.agrees and outcome.routed == 6 * 99  # none was late or in the future
    bodies = [b for b in run.releases(run.deployment.pipelines[0].name) if "values" in b]
    last = {b["window"]["start"]: b["values"]["count"] for b in bodies
            if b["final"] and b["key"]["page"] == "x"}  # fmt: skip
    spread = sum(c["stddev"] ** 2 for c in last.values()) ** 0.5
    assert abs(sum(c["value"] for c in last.values()) - 6 * 99) < 6 * spread


def test_an_exhausted_budget_is_refused_on_the_ledger_and_nothing_is_released(begin):
    run = begin(WALL, limit=", limit_epsilon = 4.0")
    run.start("one")
    until = time.monotonic() + 150
    while not (ledger := read_ledger(run.cluster, run.config().deployment.name)).refused:
        assert time.monotonic() < until
        time.sleep(0.3)
    time.sleep(2.5)  # another window passes
    run.stop("one")
    ledger = read_ledger(run.cluster, run.config().deployment.name)
    assert len(ledger.charges) == 1 and len(ledger.refused) >= 1
    assert {t.epoch for t in run.triggers()} == {next(iter(ledger.charges))[1]}
    assert replay(run.config()).agrees


def test_requests_fire_once_whatever_is_repeated_and_an_open_transaction_stalls_nothing(begin):
    run = begin(ASKED, "epoch_us")
    topic = raw_topic(run)
    options = {"transactional.id": f"{topic}-hanging", "transaction.timeout.ms": 900_000}
    hanging = Producer({"bootstrap.servers": run.bootstrap} | options)
    hanging.init_transactions(120)
    run.publish(topic, [{"user": f"u{n}", "page": "x", "t": ORIGIN} for n in range(50)])
    hanging.begin_transaction()
    hanging.produce(topic, json.dumps({"user": "open", "page": "x", "t": ORIGIN}).encode())
    hanging.flush(120)
    run.start("one")
    producer = run.producer()
    for identity in ("a", "a", "b"):
        request = encode(TriggerRequest(identity, ORIGIN + 43_200 * SECOND))
        producer.produce(run.names.requests, request, partition=0)
    producer.produce(run.names.requests, b"{not a request", partition=0)
    producer.flush(120)
    triggers = run.wait_triggers(2)
    run.wait_released(triggers)  # although the last offset is still undecided
    assert {tuple(t.offsets[topic]) for t in triggers} == {(50,)}
    hanging.commit_transaction(120)
    until = time.monotonic() + 150
    while run.cluster.offsets.ends(topic, 1) == [50]:  # a commit returns before readers see it
        assert time.monotonic() < until
        time.sleep(0.05)
    run.trigger(ORIGIN + 86_400 * SECOND)
    triggers = run.wait_triggers(4)
    run.wait_released(triggers)
    time.sleep(1)
    assert [t.index for t in run.triggers()] == [1, 2, 3, 4]
    assert triggers[-1].offsets[topic][0] > 50
    assert len(read_ledger(run.cluster, run.config().deployment.name).charges) == 1
    run.stop("one")
    outcome = replay(run.config())
    assert outcome.agrees and outcome.routed == 51 and outcome.pending == 0


def test_a_bad_record_stops_the_worker_where_the_input_says_so(begin):
    """A record that fails is never acknowledged: exit code and message, again after a restart."""
    run = begin(ASKED, "epoch_us", more='on_error = "fail"')
    run.publish(raw_topic(run), [{"user": "u", "page": "x", "t": ORIGIN}, b"{bad"])
    for _ in range(2):
        run.start("one")
        assert ended(run, "one") == 4
        said = run.tail("one")
        assert "a bad record (malformed)" in said and "mend the producer" in said
        assert "Traceback" not in said


class Name(str):
    """A header name that is sent as bytes that are not UTF-8."""

    def encode(self, *_: Any, **__: Any) -> bytes:
        return b"\xff\xfe name"


async def produce_batch(run: Local, topic: str, records: list[tuple[bytes, list[Any]]]) -> None:
    """Send one batch, like a client that allows any bytes in a name."""
    producer = AIOKafkaProducer(bootstrap_servers=run.bootstrap)
    await producer.start()
    try:
        batch = producer.create_batch()
        batch._builder = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, 0, 100_000)
        for value, headers in records:
            batch.append(timestamp=None, key=None, value=value, headers=headers)
        batch.close()
        await (await producer.send_batch(batch, topic, partition=0))
    finally:
        await producer.stop()


def test_names_of_headers_that_are_no_text_stop_nothing(begin):
    """Such a record counts like any other; otherwise every restart would fail at it again."""
    run = begin(ASKED, "epoch_us")
    topic = raw_topic(run)
    good = [json.dumps({"user": f"u{n}", "page": "x", "t": ORIGIN}).encode() for n in range(9)]
    odd = [("fine", b"1"), (Name("x"), b"2")]
    records = [(value, odd if n % 2 else []) for n, value in enumerate(good)]
    records += [(b"{bad", odd), (b"{bad too", [("fine", b"1"), ("cut\0off", b"2")])]
    records *= 40  # readers may treat the first few differently
    asyncio.run(produce_batch(run, topic, records))
    run.publish(topic, [json.loads(good[0])])
    run.start("one")
    run.trigger(ORIGIN + 21_600 * SECOND)
    triggers = run.wait_triggers(1)
    run.wait_released(triggers)
    assert triggers[0].offsets[topic] == [441]
    assert run.stop("one") == 0
    outcome = replay(run.config())
    assert outcome.agrees and outcome.routed == 361
    (dead,) = read_topic(run.config().kafka, f"hush.{run.deployment.pipelines[0].name}.dlq", 1)
    assert [r.value for r in dead.records] == [b"{bad", b"{bad too"] * 40
    kept = [[name for name, _ in r.headers if "__streams" not in name] for r in dead.records]
    assert kept == [[], ["fine", "cut"]] * 40


def test_records_deleted_before_they_were_applied_stop_the_worker(begin):
    run = begin(ASKED, "epoch_us")
    topic = raw_topic(run)
    run.publish(topic, [{"user": "u", "page": "x", "t": ORIGIN}] * 9)
    client = AdminClient({"bootstrap.servers": run.bootstrap})
    for future in client.delete_records([TopicPartition(topic, 0, 5)]).values():
        future.result(120)
    run.start("one")
    assert ended(run, "one") == 4
    assert "-0 were deleted before they were used" in run.tail("one")
    assert run.triggers() == []


@pytest.mark.thorough
def test_a_broker_that_dies_while_a_worker_starts_is_waited_for(own_broker, unique, tmp_path):
    name = unique("i")
    text = (HEAD + PIPELINE + WALL).format(
        name=name, kind="p", time="record", field="", more="", limit=""
    )
    text = text.replace('session_timeout = "3s"', 'session_timeout = "6s"')
    with local(tmp_path / name, own_broker.bootstrap, text, {f"{name}-raw": 1}) as run:
        worker = Worker(prepare(run.config()))
        own_broker.kill()

        async def served() -> None:
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(3)  # a start without a broker would fail after two seconds
            assert not running.done()
            await asyncio.to_thread(own_broker.start)
            until = time.monotonic() + 150
            while not worker.health.ready():
                assert time.monotonic() < until and not running.done()
                await asyncio.sleep(0.1)
            worker.stopped.set()
            await running

        asyncio.run(served())


def test_a_clock_that_cannot_be_opened_stops_the_worker_and_leaves_no_other_error(
    begin, monkeypatch, caplog
):
    async def broken(_: object) -> None:
        raise LedgerError("the ledger is broken")

    monkeypatch.setattr(ClockOwner, "open", broken)
    run = begin(ASKED, "epoch_us")
    with pytest.raises(LedgerError, match="the ledger is broken"):
        asyncio.run(Worker(prepare(run.config())).run())
    assert messages(caplog.records, logging.ERROR) == ["the ledger is broken"]


def test_a_replay_that_disagrees_exits_with_an_error(begin, capsys, monkeypatch):
    """A forged record in a release topic: the command names it and exits with 4."""
    run = begin(ASKED, "epoch_us")
    run.publish(raw_topic(run), [{"user": f"u{n}", "page": "x", "t": ORIGIN} for n in range(9)])
    run.start("one")
    run.trigger(ORIGIN + 21_600 * SECOND)
    run.wait_released(run.wait_triggers(1))
    run.stop("one")
    command = ["replay", "-c", str(run.toml), "--bootstrap", run.bootstrap, "--json"]
    hush.main(command, standalone_mode=False)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    # Two rows, two manifests, and both rows again in the latest topic.
    assert figures["agrees"] and figures["compared"] == 6
    (pipeline,) = run.deployment.pipelines
    (log,) = read_topic(run.config().kafka, pipeline.release_topic, 1)
    producer = run.producer()
    record = log.records[0]
    forged = (record.value or b"").replace(b'"final":false', b'"final":true')
    assert forged != record.value
    producer.produce(pipeline.release_topic, forged, record.key, timestamp=record.timestamp)
    producer.produce(pipeline.latest_topic, None, record.key, timestamp=record.timestamp)
    producer.flush(120)
    assert hush.main(command, standalone_mode=False) == 4
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (figures["differing"], figures["doubled"]) == (2, 1)
    assert any("trigger 1" in problem for problem in figures["problems"])
    assert any(pipeline.latest_topic in problem for problem in figures["problems"])
