"""Raw partitions are added to a running deployment: the steps of `docs/operations.md`.

Covers: agents/deployment/cluster/growth.py, agents/clock/genesis.py, agents/stages/bound/stage.py
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from hushstream.agents.clock.genesis import read_ledger
from hushstream.agents.clock.ledger import FORMAT, GROWN
from hushstream.deploy.broker import Broker
from hushstream.deploy.process import Child
from hushstream.offline.replay import replay
from hushstream.topics.config.toml.values import format_instant
from hushstream.topics.records import Snapshot, WiderTrigger

from ..judge.topics import deployment as judgement
from .local import Local, local
from .test_growth import ORIGIN as FIRST_HOUR
from .test_growth import TOML as TRIMMED
from .test_growth import WALL, clock_of, hours, trimmed, typed
from .test_upgrade import HOUR, ORIGIN, TOML, sources

USERS = 300
PROPOSED = "run `hush topics --grow`"
OURS = TOML.replace('name = "up"', 'name = "grown"').replace(
    '"histogram"', '"histogram", budget = 1'
)
NEXT = OURS[OURS.index("[[pipeline]]") :].replace('"pages"', '"shops"')
SHARING = OURS.replace('name = "grown"\n', 'name = "grown"\nshared_topics = true\n') + NEXT

pytestmark = pytest.mark.broker


class Growing:
    """A deployment whose raw topic grows, and its releases for each group of users.

    Args:
        run: the deployment.
        pipelines: number of pipelines, all with the same triggers.
    """

    def __init__(self, run: Local, pipelines: int = 1) -> None:
        self.run, self.pipelines = run, pipelines
        self.triggers = 0

    def send(self, group: str, page: str, partition: int) -> None:
        """Send one record of each user of a group, for the open window."""
        at = ORIGIN + self.triggers * HOUR
        values = [{"user": f"{group}{n}", "page": page, "t": at} for n in range(USERS)]
        self.run.publish("events", values, partition)

    def fire(self) -> dict[str, float]:
        """Trigger; return the counts that it releases."""
        self.ask()
        self.run.wait_released(self.run.wait_triggers(self.triggers * self.pipelines))
        return {
            body["key"]["page"]: body["values"]["count"]["value"]
            for body in self.run.releases("pages")
            if "values" in body and body["trigger"] == self.triggers
        }

    def ask(self) -> None:
        """Request the next trigger."""
        self.triggers += 1
        self.run.trigger(ORIGIN + self.triggers * HOUR)

    def add(self, number: int) -> None:
        """Add partitions, as an operator does."""
        client = AdminClient({"bootstrap.servers": self.run.bootstrap, "log_level": 0})
        client.create_partitions([NewPartitions("events", number)])["events"].result(120)
        self.run.raw["events"] = number
        until = time.monotonic() + 60
        while self.run.cluster.partitions("events") < number:
            assert time.monotonic() < until
            time.sleep(0.1)

    def topics(self, *words: str) -> tuple[int, str]:
        """Run `hush topics`."""
        return typed("topics", "-c", str(self.run.toml), "--bootstrap", self.run.bootstrap, *words)

    def refused(self, words: str, code: int = 4) -> None:
        """Check that a worker that starts now ends and says why."""
        self.ended(self.run.start("late"), "late", words, code)

    def ended(self, child: Child, member: str, words: str, code: int = 4) -> None:
        """Check that a worker ends by itself."""
        self.run.workers.pop(member)
        assert child.wait(180), self.run.tail(member)
        said = [x for x in self.run.tail(member).splitlines() if x.startswith("hush:")][-1:]
        assert child.returncode == code and said and words in said[0], self.run.tail(member)

    def never_twice(self) -> None:
        """Check that no trigger released a key twice, nor a shard's manifest."""
        bodies = self.run.releases("pages")
        labels = Counter(
            (body["schema"], body["trigger"], body.get("shard"), json.dumps(body.get("key")))
            for body in bodies
        )
        assert labels and max(labels.values()) == 1, labels

    def compare(self) -> None:
        """Check that replay and judge agree with every released byte."""
        outcome = replay(self.run.config())
        assert outcome.agrees and outcome.compared, outcome.problems
        judged = judgement(self.run.bootstrap, self.run.toml, self.run.secret)
        assert (judged["pages"].triggers, judged["pages"].objections) == (self.triggers, [])


@pytest.fixture
def growing(empty_broker: Broker, tmp_path: Path) -> Iterator[Growing]:
    with local(tmp_path / "run", empty_broker.bootstrap, OURS, {"events": 2}) as run:
        yield Growing(run)


def near(counts: dict[str, float], wanted: dict[str, int]) -> None:
    assert counts.keys() <= wanted.keys(), counts
    for page, count in wanted.items():
        assert abs(counts.get(page, 0.0) - count) < 60, (page, counts)


@pytest.mark.thorough
def test_added_partitions_count_from_the_next_trigger_on(growing: Growing) -> None:
    run = growing.run
    worker = run.start("w")
    for partition in (0, 1):
        growing.send(f"old{partition}", "old", partition)
    near(growing.fire(), {"old": 2 * USERS})

    growing.add(4)
    growing.ended(worker, "w", PROPOSED)
    growing.send("between", "new", 2)
    growing.send("old0", "again", 3)  # their units have used up the bound of this epoch
    code, said = growing.topics()
    assert code == 4 and PROPOSED in said and "has 4 partitions, the ledger pinned 2" in said
    growing.refused(PROPOSED)
    assert read_ledger(run.cluster, "grown").format == FORMAT

    code, said = growing.topics("--grow")
    assert code == 0, said
    ledger = read_ledger(run.cluster, "grown")
    assert ledger.format == GROWN and [r.kind for r in ledger.records[-2:]] == ["format", "grown"]
    assert ledger.joined("pages") == (0, 0, 1, 1)
    assert growing.topics("--grow")[0] == 0
    assert len(read_ledger(run.cluster, "grown").records) == len(ledger.records)  # written once

    run.start("w")
    growing.send("after", "new", 3)
    growing.ask()
    run.wait_triggers(growing.triggers)
    run.kill("w")  # while the trigger passes through the stages
    worker = run.start("w")
    run.wait_released(run.triggers())
    growing.send("last", "new", 2)
    near(growing.fire(), {"old": 2 * USERS, "new": 3 * USERS, "again": 0})
    assert [type(t) is WiderTrigger for t in run.triggers()] == [False, True, True]
    assert [len(t.offsets["events"]) for t in run.triggers()] == [2, 4, 4]

    worker.send(signal.SIGSTOP)  # it does not see the growth while it happens
    growing.add(5)
    growing.send("second", "new", 4)
    growing.ask()
    code, said = growing.topics("--grow")
    assert code == 0, said
    worker.send(signal.SIGCONT)
    growing.ended(worker, "w", "partitions")
    assert len(run.triggers()) == 3  # the trigger was requested but not fired
    run.start("w")
    run.wait_released(run.wait_triggers(4))
    near(growing.fire(), {"old": 2 * USERS, "new": 4 * USERS, "again": 0})
    assert run.stop("w") == 0
    ledger = read_ledger(run.cluster, "grown")
    assert ledger.joined("pages") == (0, 0, 1, 1, 3) and len(ledger.charges) == 1
    growing.compare()


@pytest.mark.thorough
def test_pipelines_that_share_topics_grow_together_and_keep_their_seats(
    empty_broker: Broker, tmp_path: Path
) -> None:
    with local(tmp_path, empty_broker.bootstrap, SHARING, {"events": 2}) as run:
        growing, seats = Growing(run, 2), run.names.seats
        worker = run.start("w")
        growing.send("old", "old", 0)
        near(growing.fire(), {"old": USERS})
        growing.add(4)
        growing.ended(worker, "w", PROPOSED)
        growing.send("between", "new", 2)
        growing.send("old", "again", 3)  # their units have used up the bound of this epoch
        growing.refused(PROPOSED)
        code, said = growing.topics("--grow")
        assert code == 0, said
        ledger = read_ledger(run.cluster, "grown")
        assert {name: ledger.joined(name) for name in ("pages", "shops")} == {
            "pages": (0, 0, 1, 1),
            "shops": (0, 0, 1, 1),
        }
        assert run.names.seats == seats  # no seat moves
        run.start("w")
        growing.ask()
        run.wait_triggers(4)
        run.kill("w")  # while the triggers pass through the stages
        run.start("w")
        growing.send("after", "new", 3)
        near(growing.fire(), {"old": USERS, "new": 2 * USERS, "again": 0})
        assert run.stop("w") == 0
        # A pipeline that is declared later gets the next seat and counts all partitions.
        run.toml.write_text(run.toml.read_text() + NEXT.replace('"shops"', '"later"'))
        code, said = growing.topics()
        assert code == 0, said
        assert {**run.names.seats, **seats} == run.names.seats != seats
        run.start("w")
        run.trigger(ORIGIN + growing.triggers * HOUR)
        run.wait_released(run.wait_triggers(3 * growing.triggers))
        assert run.stop("w") == 0
        growing.never_twice()
        outcome = replay(run.config())
        assert outcome.agrees and outcome.compared, outcome.problems


@pytest.mark.thorough
def test_an_earlier_version_that_runs_at_the_growth_ends_and_is_refused(
    growing: Growing, tmp_path: Path
) -> None:
    other, run = sources(tmp_path / "earlier"), growing.run
    if other is None:
        pytest.skip("the history of this copy does not reach back to an earlier version")
    run.environ = lambda member: {"PYTHONPATH": str(other)}
    worker = run.start("w")
    growing.send("old", "old", 0)
    near(growing.fire(), {"old": USERS})
    worker.send(signal.SIGSTOP)
    growing.add(3)
    growing.send("between", "new", 2)
    growing.send("more", "old", 1)
    growing.ask()
    code, said = growing.topics("--grow")
    assert code == 0, said
    worker.send(signal.SIGCONT)
    growing.ended(worker, "w", "")
    growing.refused("")  # because of the format, or of the partitions if it knows no format
    run.environ = lambda member: {}
    if len(run.triggers()) > 1:  # it took the clock again before it saw the growth
        growing.refused("and by the ledger 3 count", code=3)
        growing.never_twice()
        return
    run.start("w")
    run.wait_released(run.wait_triggers(2))
    near(growing.fire(), {"old": 2 * USERS, "new": USERS})
    assert run.stop("w") == 0
    growing.never_twice()
    growing.compare()


@pytest.fixture
def name(unique: Callable[[str], str]) -> str:
    return unique("grown")


@pytest.mark.thorough
def test_added_partitions_open_from_a_snapshot(broker: Broker, tmp_path: Path, name: str) -> None:
    with local(tmp_path, broker.bootstrap, TRIMMED.format(name=name), {f"{name}-raw": 2}) as run:
        run.start("one")
        run.wait_ready(["one"])
        hours(run, 0, 72)
        trimmed(run, 0)
        assert run.stop("one") == 0
        begin, records = clock_of(run)
        assert begin > 0 and isinstance(records[0], Snapshot)
        topic = f"{name}-raw"
        client = AdminClient({"bootstrap.servers": run.bootstrap, "log_level": 0})
        client.create_partitions([NewPartitions(topic, 3)])[topic].result(120)
        run.raw[topic] = 3
        common = ("-c", str(run.toml), "--bootstrap", run.bootstrap)
        until = time.monotonic() + 60
        while run.cluster.partitions(topic) < 3:
            assert time.monotonic() < until
        code, said = typed("topics", *common, "--grow")
        assert code == 0, said
        before = len(run.manifests()) // 2
        at = FIRST_HOUR + before * HOUR
        run.publish(topic, [{"user": f"v{n}", "page": "added", "t": at} for n in range(USERS)], 2)
        run.settings["engine.keep_clock"] = "1h"  # so that it has all triggers since then
        run.start("one")
        run.wait_ready(["one"])
        hours(run, before, before + 72)
        assert run.stop("one") == 0
        last = read_ledger(run.cluster, name).joined(f"{name}-p")[-1]
        ordinals = [t.ordinal for t in run.triggers() if isinstance(t, WiderTrigger)]
        assert last == before and ordinals == list(range(before + 1, before + 73))
        start = format_instant(at // (24 * HOUR) * 24 * HOUR)
        counts = [
            body["values"]["count"]["value"]
            for body in run.releases(f"{name}-p")
            if "values" in body
            and body["key"]["page"] == "added"
            and body["window"]["start"] == start
        ]
        assert counts and abs(counts[-1] - USERS) < 100, counts
        assert typed("check", *common)[0] == 0
        assert typed("ledger", "verify", *common)[0] == 0


@pytest.mark.thorough
def test_a_replay_that_begins_at_a_snapshot_goes_through_a_growth(
    broker: Broker, tmp_path: Path, name: str
) -> None:
    topic = f"{name}-raw"
    with local(tmp_path, broker.bootstrap, WALL.format(name=name), {topic: 1}) as run:
        run.start("one")
        run.wait_ready(["one"])
        feed(run, topic, 1, lambda: clock_of(run)[0] > 0)
        fired = latest(run)
        feed(run, topic, 1, lambda: latest(run) >= fired + 8)
        assert run.stop("one") == 0
        client = AdminClient({"bootstrap.servers": run.bootstrap, "log_level": 0})
        client.create_partitions([NewPartitions(topic, 3)])[topic].result(120)
        run.raw[topic] = 3
        until = time.monotonic() + 60
        while run.cluster.partitions(topic) < 3:
            assert time.monotonic() < until
        common = ("-c", str(run.toml), "--bootstrap", run.bootstrap)
        code, said = typed("topics", *common, "--grow")
        assert code == 0, said
        last = read_ledger(run.cluster, name).joined(f"{name}-p")[-1]
        run.settings["engine.keep_clock"] = "1h"  # nothing more is trimmed
        run.start("one")
        feed(run, topic, 3, lambda: latest(run) >= last + 8)
        run.wait_released(run.triggers())
        assert run.stop("one") == 0
        assert isinstance(clock_of(run)[1][0], Snapshot)
        wide = {t.ordinal: len(t.offsets[topic]) for t in run.triggers()}
        assert min(wide) <= last and all(n == (3 if o > last else 1) for o, n in wide.items())
        outcome = replay(run.config())
        assert outcome.agrees and outcome.compared > 10, outcome.problems


def latest(run: Local) -> int:
    """The number of the last trigger; earlier ones may be trimmed."""
    return max((t.ordinal for t in run.triggers()), default=0)


def feed(run: Local, topic: str, partitions: int, enough: Callable[[], object]) -> None:
    """Send current records on all partitions until ``enough`` is true."""
    producer, until = run.producer(), time.monotonic() + 600
    while not enough():
        assert time.monotonic() < until, run.errors("one")
        for _ in range(5):
            for n in range(50):
                body = {"user": f"u{n}", "page": "ab"[n % 2], "t": int(time.time() * 1e6)}
                producer.produce(topic, json.dumps(body), partition=n % partitions)
            producer.flush(120)
            time.sleep(0.1)
