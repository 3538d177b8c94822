"""Large releases on the real broker: what offsets reveal, and kills between transactions."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median

import pytest
from confluent_kafka import TopicPartition
from hushstream.agents.kafka.logs import consumer, read_topic
from hushstream.deploy.broker import Broker
from hushstream.deploy.process import Child
from hushstream.offline.replay import replay
from hushstream.offline.replay_logs import spans
from hushstream.topics.records import Trigger

from .faulty import RELEASED
from .local import Local, local

DAY = 86_400_000_000
ORIGIN = 17956 * DAY  # 2019-03-01
PAGES = 12

TOML = """
[deployment]
name = "large"
[engine]
cells_partitions = 1
session_timeout = "3s"
transaction_timeout = "10s"
"""
ONE = """
[[input]]
name = "{0}"
topic = "{0}"
unit = "user"
partitioner = "murmur2"
time = {{ field = "t", format = "epoch_us" }}
[[pipeline]]
name = "{0}"
input = "{0}"
key = ["page"]
window = {{ length = "1d", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "12h" }}
schedule = "external"
budget = {{ epsilon = 8.0, delta = 1e-4 }}
mechanism = {{ kind = "histogram", budget = 4{1} }}
"""
HIDDEN = {"few": 0, "many": 150}

pytestmark = pytest.mark.broker


def events(hidden: int) -> list[dict[str, object]]:
    found = [(f"u{i}", f"page {i // 60}") for i in range(60 * PAGES)]
    found += [(f"h{i}", f"hidden {i}") for i in range(hidden)]
    return [{"user": user, "page": page, "t": ORIGIN} for user, page in found]


def seen(run: Local, names: list[str], trigger: int) -> dict[str, list[float]]:
    """When a reader of committed data sees each manifest of a trigger, by pipeline and shard."""
    client = consumer(run.config().kafka, True, {"fetch.wait.max.ms": 5})
    client.assign([TopicPartition(f"hush.{name}.releases.v1", 0, 0) for name in names])
    found = {name: [0.0] * SHARDS for name in names}
    left, until = len(names) * SHARDS, time.monotonic() + 6 * PAUSE
    while left:
        assert time.monotonic() < until, found
        message = client.poll(0.5)
        if message is None or message.error():
            continue
        body = json.loads(message.value())
        if body["schema"] == "hush.manifest/2" and body["trigger"] == trigger:
            found[body["pipeline"]][body["shard"]] = time.time()
            left -= 1
    client.close()
    return found


def bounded(run: Local) -> None:
    """Wait until the bound stages send nothing more."""
    before, since = -1, time.monotonic()
    while time.monotonic() < since + 3:
        logs = [spans(run.config().kafka, run.names.cells(name), SHARDS) for name in HIDDEN]
        ends = sum(span.end for log in logs for span in log)
        if ends != before:
            before, since = ends, time.monotonic()
        time.sleep(0.2)


HEAVY = 50_000
LIGHT = 10
PAUSE = 60  # seconds: the remaining work must be done within this time, on any machine
STEP = PAUSE * 1_000_000 // 8
SHARDS = 3
MEASURES = 8  # at most: a busy machine delays some publications, in either pipeline


@pytest.mark.thorough
def test_the_time_of_publication_does_not_tell_how_many_keys_are_hidden(
    empty_broker: Broker, tmp_path
):
    """Ten or fifty thousand hidden keys: the three shards of each are seen at the same times."""
    toml = TOML.replace("[engine]", f'[engine]\npublish_delay = "{PAUSE}s"')
    toml = toml.replace("cells_partitions = 1", f"cells_partitions = {SHARDS}")
    text = "".join(ONE.replace("12h", "3h").format(name, "") for name in HIDDEN)
    raw, hidden = dict.fromkeys(HIDDEN, 1), {"few": LIGHT, "many": HEAVY}
    with local(tmp_path, empty_broker.bootstrap, toml + text, raw) as run:
        start(run)
        run.wait_ready(["w"])
        late: dict[tuple[str, int], float] = {}
        for index in range(1, MEASURES + 1):
            for name, number in hidden.items():
                users = ((f"u {index} {n}", f"hidden {index} {n}") for n in range(number))
                sent = [{"user": user, "page": page, "t": ORIGIN} for user, page in users]
                run.publish(name, [*(events(0) if index == 1 else ()), *sent])
            bounded(run)  # so that only the release is left to do at the trigger
            run.trigger(ORIGIN + index * DAY // 8)
            found = seen(run, list(HIDDEN), index)
            fired = {t.pipeline: t for t in run.wait_triggers(2 * index) if t.index == index}
            for name in HIDDEN:
                for shard, moment in enumerate(found[name]):
                    one = moment - public(fired[name], shard) / 1e6
                    assert one >= 0  # never before its public time
                    late[name, shard] = min(one, late.get((name, shard), one))
            print(json.dumps({str(place): round(one, 4) for place, one in late.items()}))
            if alike(late):
                break
        assert alike(late), late
        assert run.stop("w") == 0
        shapes = [offsets(run, name, 1) for name in HIDDEN]
        assert shapes[0] == shapes[1]  # as many records in as many transactions, in the same order
        charges = [m for m in run.cluster.read(run.names.ledger) if b'"kind":"charge"' in m.value()]
    assert len(charges) == len(HIDDEN)
    for charge in charges:  # charges are public and reveal only a minute
        moment = json.loads(charge.value())["time"]
        assert moment % 60_000_000 == 0 and charge.timestamp()[1] * 1000 == moment


def alike(late: dict[tuple[str, int], float]) -> bool:
    """Whether both pipelines are equally late, measured at the least disturbed shards."""
    few, many = (sorted(v for place, v in late.items() if place[0] == name) for name in HIDDEN)
    return abs(few[0] - many[0]) < 0.15 and abs(median(few) - median(many)) < 0.3


def public(one: Trigger, shard: int) -> int:
    """The time from which a shard may publish, in whole steps after the scheduled time."""
    ready = one.time + PAUSE * 1_000_000
    return ready - (ready - one.scheduled) % STEP + STEP + shard * STEP // SHARDS


def start(run: Local, fault: str = "") -> None:
    """Start the same worker with another fault."""
    script = str(Path(__file__).with_name("faulty.py"))
    command = [sys.executable, script, fault, "-v", "worker", "-c", str(run.toml), "--member", "w"]
    command += ["--bootstrap", run.bootstrap]
    settings = {"data_dir": str(run.folder / "state"), "public_port": "0", "operator_port": "0"}
    command += [w for name, value in settings.items() for w in ("--set", f"engine.{name}={value}")]
    run.workers["w"] = Child(command, run.log("w"))


def offsets(run: Local, name: str, trigger: int) -> list[int]:
    """The offsets of one trigger's records in the release topic."""
    log = read_topic(run.config().kafka, f"hush.{name}.releases.v1", 1)[0].records
    return [r.offset for r in log if json.loads(r.value or b"{}")["trigger"] == trigger]


@pytest.mark.thorough
def test_offsets_follow_what_is_released_and_kills_between_chunks_change_no_byte(
    empty_broker: Broker, tmp_path
):
    text = TOML + ONE.format("few", "") + ONE.format("many", ", adaptive_weight = 0")
    raw = dict.fromkeys(HIDDEN, 1)
    with local(tmp_path, empty_broker.bootstrap, text, raw) as run:
        for name, hidden in HIDDEN.items():
            run.publish(name, events(hidden))
        start(run)
        run.wait_ready(["w"])
        time.sleep(1)  # so that a beat passes them
        run.trigger(ORIGIN + DAY // 2)
        run.wait_released(run.wait_triggers(2))
        # A hundred and fifty more keys were read, but no offset shows it: there is a marker after
        # every fifth row and after the manifest.
        rows = [n + n // RELEASED for n in range(PAGES + 1)]
        assert offsets(run, "few", 1) == offsets(run, "many", 1) == rows

        # The second trigger, by workers that die repeatedly.
        assert run.stop("w") == 0
        run.trigger(ORIGIN + DAY)
        for fault in ("before 1", "after 1", "before 2"):
            start(run, fault)
            assert run.workers.pop("w").wait(150), run.tail("w")
        start(run)
        run.wait_released(run.wait_triggers(4))
        outcome = replay(run.config())
        assert outcome.agrees, outcome.problems
        # Rows and manifests of two triggers, and the newest row of each key in the latest topic.
        assert outcome.compared == 2 * 2 * (PAGES + 1) + 2 * PAGES and outcome.pending == 0
        assert outcome.aborted >= 2  # records of workers that were killed before their commit
        ids = Counter(b["release_id"] for n in HIDDEN for b in run.releases(n) if "key" in b)
        assert len(ids) == 2 * 2 * PAGES and set(ids.values()) == {1}
