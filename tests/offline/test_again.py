"""Dead letters sent again on a real broker: none twice, whatever ends a run or runs beside it.

Covers: agents/kafka/set_aside.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from hushstream.agents.kafka import cluster
from hushstream.agents.kafka.logs import PartitionLog
from hushstream.agents.kafka.set_aside import letters, mark, marked, tried
from hushstream.agents.stages.ingest.dead_letters import failure_headers
from hushstream.agents.stages.step import Out
from hushstream.deploy.broker import Broker
from hushstream.errors import EngineError
from hushstream.formats.events.decode import RawRecord
from hushstream.offline import again
from hushstream.offline.again import Again, Unsent
from hushstream.offline.compare import ReplayOutcome, compare_dead_letters

from ..integration.local import Local, local
from ..integration.test_desk import TWO
from ..integration.test_outage import ORIGIN

pytestmark = pytest.mark.broker

DEAD = {"p": "hush.p.dlq", "q": "hush.q.dlq"}
REPLAY = (
    "import sys; from hushstream.offline import again; again.CHUNK = 3\n"
    "from hushstream.cli.group import main; main(sys.argv[1:])"
)


@pytest.fixture
def run(empty_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Local]:
    monkeypatch.setattr(again, "CHUNK", 3)
    with local(tmp_path, empty_broker.bootstrap, TWO, {"events": 4}) as deployment:
        yield deployment


def record(offset: int, **fields: str) -> RawRecord:
    row = {"user": f"user-{offset}", "page": "a", "shop": "b", "t": ORIGIN} | fields
    kept = {name: value for name, value in row.items() if value}
    return RawRecord(offset, ORIGIN // 1_000, b"key", json.dumps(kept).encode())


def lay(run: Local, records: list[RawRecord], pipelines: str = "pq", **options: str) -> Producer:
    """Write dead letters of records, for the reason of a wrong partition."""
    producer = run.cluster.producer(acks="all", **options)
    if options:
        producer.init_transactions(60)
        producer.begin_transaction()
    for p in (p for p in run.deployment.pipelines if p.name in pipelines):
        for one in records:
            headers = list(failure_headers(("events", 0), one, "wrong_partition", p.told))
            topic = p.dlq_topic or ""
            producer.produce(topic, one.value, key=one.key, partition=0, headers=headers)
    assert producer.flush(60) == 0
    return producer


def sender(run: Local) -> Again:
    return Again(run.cluster, run.deployment.inputs[0], run.names)


def sent(run: Local) -> list[str]:
    """Users of the records in the raw topic, sorted."""
    rows = [json.loads(m.value()) for n in range(4) for m in run.cluster.each("events", n)]
    return sorted(row["user"] for row in rows)


def users(numbers: range) -> list[str]:
    return sorted(f"user-{n}" for n in numbers)


def test_a_record_that_one_pipeline_has_used_is_left_and_two_copies_of_one_are_one(run) -> None:
    lay(run, [record(n) for n in range(5)])
    lay(run, [record(n, page="") for n in range(5, 9)], "p")  # q has used them, and would again
    lay(run, [record(n, page="") for n in range(9, 11)])  # p still cannot; q had not either
    lay(run, [record(3), record(4)], "p")
    lay(run, [record(11, t="never")], "pq")
    wanted = Unsent(sent=7, used=6, unusable=1)
    assert sender(run).foreseen() == wanted and not sent(run)
    assert sender(run).send() == wanted
    assert sent(run) == sorted(users(range(5)) + users(range(9, 11)))
    assert sender(run).send() == Unsent()


def test_a_position_that_kafka_forgot_or_another_deployment_reached_is_known(run) -> None:
    """Kafka forgets offsets of a group without members after a week."""
    lay(run, [record(n) for n in range(5)])
    assert sender(run).send().sent == 5
    client = AdminClient({"bootstrap.servers": run.bootstrap, "log_level": 0})
    client.delete_consumer_groups([sender(run).group])[sender(run).group].result(60)
    assert sender(run).send() == Unsent()
    other = Again(run.cluster, run.deployment.inputs[0], run.names._replace(genesis="0" * 10))
    lay(run, [record(n) for n in range(7)])  # the next deployment read them too
    assert other.send() == Unsent(sent=2, used=5)
    assert sent(run) == users(range(7))


def test_a_position_behind_an_open_transaction_of_a_worker_is_known(
    run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "OPEN_SECONDS", 0.5)
    lay(run, [record(n) for n in range(3)])
    open_ = lay(
        run, [record(9)], "p", **{"transactional.id": "w", "transaction.timeout.ms": "60000"}
    )
    assert sender(run).send().sent == 3
    assert tried(run.cluster, DEAD["p"])[0] == 0  # the mark is after the open transaction
    assert sender(run).send() == Unsent()
    open_.abort_transaction(60)
    assert tried(run.cluster, DEAD["p"])[0] == 3


class Killed(BaseException):
    pass


@pytest.mark.parametrize("after", [False, True])
def test_what_ends_a_run_before_or_after_a_commit_neither_doubles_nor_loses(
    run, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    lay(run, [record(n) for n in range(8)])
    commit, calls = Again._commit, []

    def dying(self, producer, *more):
        calls.append(0)
        if len(calls) == 2:
            if after:
                commit(self, producer, *more)
            raise Killed
        commit(self, producer, *more)

    monkeypatch.setattr(Again, "_commit", dying)
    with pytest.raises(Killed):
        sender(run).send()
    assert sender(run).send().sent == (2 if after else 5)
    assert sent(run) == users(range(8))


def test_a_second_run_ends_the_first_which_says_so(run) -> None:
    lay(run, [record(n) for n in range(9)])
    seen: list[int] = []

    def told(number: int) -> None:
        seen.append(number)
        if len(seen) == 1:
            assert sender(run).send().sent == 6

    with pytest.raises(EngineError, match="another"):
        sender(run).send(told)
    assert sent(run) == users(range(9))


def test_what_was_foreseen_and_then_sent_by_another_is_not_sent(run) -> None:
    lay(run, [record(n) for n in range(4)])
    first = sender(run)
    assert first.foreseen().sent == sender(run).send().sent == 4
    assert first.send() == Unsent()
    assert sent(run) == users(range(4))


@pytest.mark.thorough
def test_processes_beside_each_other_and_killed_send_each_record_once(run) -> None:
    lay(run, [record(n) for n in range(90)])
    command = [sys.executable, "-c", REPLAY, "dead-letters", "p", "--replay", "--json"]
    command += ["-c", str(run.toml), "--bootstrap", run.bootstrap]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 120
        while sum(run.cluster.offsets.ends("events", 4)) < 30:
            assert time.monotonic() < until and first.poll() is None
    finally:
        first.kill()
        first.wait()
    pair = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)]  # fmt: skip
    said = [(one.communicate(timeout=240), one.returncode) for one in pair]
    assert {code for _, code in said} <= {0, 4} and 0 in {code for _, code in said}, said
    assert sent(run) == users(range(90))


def test_what_no_window_can_count_is_not_sent(run) -> None:
    run.toml.write_text(TWO.replace('schedule = "external"\n', ""))
    timed = sender(run)
    assert not timed._open(ORIGIN) and timed._open(time.time_ns() // 1_000)
    lay(run, [record(0)])
    assert timed.send() == Unsent(closed=1) and not sent(run)


def test_no_header_of_a_producer_makes_a_mark_and_a_replay_passes_marks_over(run) -> None:
    one = record(3)
    headers = [*mark(77), *failure_headers(("events", 0), one, "wrong_partition")]
    assert marked(headers) == -1 and marked(mark(77)) == 77
    producer = run.cluster.producer()
    producer.produce(DEAD["p"], one.value, key=one.key, headers=headers)
    producer.produce(DEAD["p"], None, headers=mark(1))
    assert producer.flush(60) == 0
    assert tried(run.cluster, DEAD["p"]) == (1, {("events", 0, 3)})
    assert len(list(letters(run.cluster, DEAD["p"]))) == 1
    outcome = ReplayOutcome()
    log = PartitionLog(0, [RawRecord(0, -1, None, None, tuple(mark(1)))])
    compare_dead_letters("t", [], log, outcome)
    assert not outcome.problems


def test_pipelines_that_share_a_topic_have_dead_letters_of_their_own(
    empty_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(again, "CHUNK", 3)
    text = TWO.replace("[deployment]\n", "[deployment]\nshared_topics = true\n")
    with local(tmp_path, empty_broker.bootstrap, text, {"events": 4}) as run:
        lay(run, [record(n) for n in range(5)])
        lay(run, [record(n, page="") for n in range(5, 9)], "p")
        p, q = run.deployment.pipelines
        topic = p.dlq_topic or ""
        assert topic == q.dlq_topic and topic.endswith(".events.dlq")
        found = [list(letters(run.cluster, topic, whose=one.told)) for one in (p, q)]
        assert [len(each) for each in found] == [9, 5]
        assert tried(run.cluster, topic, 6, "q")[1] == {("events", 0, 0)}
        assert sender(run).send() == Unsent(sent=5, used=4)
        assert sent(run) == users(range(5))
        lay(run, [record(11)], "q")  # p has used it
        assert sender(run).send() == Unsent() and sent(run) == users(range(5))


def test_a_replay_of_some_pipelines_passes_over_dead_letters_of_others() -> None:
    one, outcome = record(3), ReplayOutcome()
    mine, other = (
        one._replace(headers=failure_headers(("events", 0), one, "malformed", name))
        for name in ("p", "q")
    )
    outs = [Out("t", 0, mine.key, mine.value, None, mine.headers)]
    log = PartitionLog(0, [mine, other])
    compare_dead_letters("t", outs, log, outcome, whose="p")
    assert outcome.compared == 1 and not outcome.problems
    compare_dead_letters("t", outs, log, outcome)
    assert outcome.differing == 1
