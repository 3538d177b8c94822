"""One function decides whether a worker may start: `hush check` reports what `hush worker` does.

Covers: agents/clock/start.py
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import click
import hushstream.agents.clock.start as clock_start
import hushstream.agents.kafka.offsets as offsets
import hushstream.agents.worker.admission as admission
import hushstream.agents.worker.startup as startup
import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from hushstream.agents.kafka.access.owners import Claim
from hushstream.agents.state.layout import MARKER, POSITION
from hushstream.agents.state.rocks import RocksStore
from hushstream.cli.group import main
from hushstream.errors import HushError, LedgerError, RewoundError, RightError
from hushstream.topics.config.load import Config
from hushstream.topics.names import OWNERS, ledger_topic
from hushstream.topics.records import Beat, Marker, Start, Trigger, encode

from ..clock.deployed import SECOND, Deployed, made, topic_of

__all__ = ["made"]  # a fixture

MEMBER = "mine"
Spoil = Callable[[Deployed], Any]


def alter(run: Deployed, topic: str, setting: str, value: str) -> None:
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    run.client.incremental_alter_configs([resource])[resource].result(120)
    run.settle(lambda _: run.cluster.settings([topic])[topic][setting] == value)


def release_topic(run: Deployed) -> str:
    return run.deployment.pipelines[0].release_topic


def fired(run: Deployed, ordinal: int, index: int) -> bytes:
    """A trigger for an epoch that this ledger has not charged."""
    p = run.deployment.pipelines[0]
    offsets = {f"{run.name}-raw": [0, 0]}
    return encode(
        Trigger(
            1, offsets, p.name, ordinal, 0, index, False, 1, 0, 2, "ab" * 32, p.config_hash, "1"
        )
    )


def fire(run: Deployed, ordinal: int, index: int) -> None:
    start = encode(Start(f"{run.name}-p", 0, 1))
    run.write(run.names.clock, start, fired(run, ordinal, index))


def take_over(run: Deployed) -> None:
    """Recreate the release topic and let another deployment claim it."""
    topic = release_topic(run)
    run.recreate(topic, 1)
    identity = run.cluster.ids([topic])[topic]
    run.write(OWNERS, encode(Claim(topic, identity, "another")))


def forget(run: Deployed) -> None:
    place = TopicPartition(run.names.begins, 0, -1)
    for future in run.client.delete_records([place]).values():
        future.result(120)


def state(run: Deployed) -> None:
    (run.folder / "state" / MEMBER).mkdir(parents=True)
    (run.folder / "state" / MEMBER / "table").write_text("")
    run.delete(ledger_topic(run.name))


def lead(run: Deployed) -> None:
    """Make a table of this worker that has read beyond the end of its changelog."""
    changelog = topic_of(run, "changelog")
    path = run.folder / "state" / MEMBER / run.names.genesis / changelog / "0"
    path.parent.mkdir(parents=True)
    store = RocksStore(path, None, 1 << 20)
    position = json.dumps({"offset": 10_000, "time": time.time()}).encode()
    store.write({MARKER: encode(Marker(run.names.genesis, 1)), POSITION: position})
    store.close()


CASES: dict[str, tuple[Spoil, int, str]] = {
    "no key": (lambda run: (run.folder / "hush.key").unlink(), 2, "hush.key"),
    "another key": (
        lambda run: (run.folder / "hush.key").write_text(bytes(range(32)).hex()), 3, "use that key",
    ),
    "another key, charged": (lambda run: run.charge("0123456789abcdef"), 3, "use that key"),
    "compacted input": (
        lambda run: alter(run, topic_of(run, "raw"), "cleanup.policy", "compact"),
        4, "is compacted",
    ),
    "no input": (lambda run: run.delete(topic_of(run, "raw")), 4, "is gone, and one of this name"),
    "compacted log": (
        lambda run: alter(run, topic_of(run, "cells"), "cleanup.policy", "compact"),
        4, "must have delete",
    ),
    "state that expires": (
        lambda run: alter(run, topic_of(run, "changelog"), "cleanup.policy", "compact,delete"),
        4, "must have compact",
    ),
    "ledger that expires": (
        lambda run: alter(run, ledger_topic(run.name), "retention.ms", "1000"), 4, "must have -1",
    ),
    "clock of its own time": (
        lambda run: alter(run, run.names.clock, "message.timestamp.type", "CreateTime"),
        4, "must have LogAppendTime",
    ),
    "releases of the broker's time": (
        lambda run: alter(run, release_topic(run), "message.timestamp.type", "LogAppendTime"),
        4, "must have CreateTime",
    ),
    "ledger of the broker's time": (
        lambda run: alter(run, ledger_topic(run.name), "message.timestamp.type", "LogAppendTime"),
        4, "must have CreateTime",
    ),
    "table ahead of the cluster": (lead, 4, "restored, copied or rewound"),
    "recreated": (lambda run: run.recreate(topic_of(run, "cells"), 2), 4, "created again"),
    "partitions": (lambda run: run.grow(topic_of(run, "units"), 3), 4, "3 partitions"),
    "partitioner": (
        lambda run: run.edit('unit = "user"', 'unit = "user"\npartitioner = "crc32"'),
        4, "partitioner is 'crc32' here",
    ),
    "configuration": (lambda run: run.edit("epsilon = 1.0", "epsilon = 2.0"), 4, "epsilon differs"),
    "undeclared": (
        lambda run: run.toml.write_text(run.toml.read_text() + SECOND.format(name=run.name)),
        4, "not declared",
    ),
    "nonsense": (lambda run: run.edit("epsilon = 1.0", "epsilon = -1.0"), 2, "epsilon"),
    "unowned": (lambda run: run.recreate(release_topic(run), 1), 4, "run it, so that"),
    "another's": (take_over, 4, "written by deployment 'another'"),
    "broken ledger": (
        lambda run: run.write(ledger_topic(run.name), b"{}"), 3, "is not a ledger record",
    ),
    "lost ledger": (lambda run: run.delete(ledger_topic(run.name)), 3, "had begun"),
    "lost ledger beside state": (state, 3, "had begun"),
    "a folder that is a file": (
        lambda run: (run.folder / "state").write_text(""), 2, "cannot be made",
    ),
    "lost beginnings": (forget, 3, "as the ledger sealed it"),
    "unpaid trigger": (lambda run: fire(run, 1, 1), 3, "never charged by this ledger"),
    "gap in the clock": (lambda run: fire(run, 2, 2), 4, "has a gap"),
    "rewound input": (
        lambda run: run.write(run.names.clock, encode(Beat(1, {f"{run.name}-raw": [0, 7]}))),
        4, "ends before what the clock log has covered",
    ),
}  # fmt: skip


def typed(*words: str) -> tuple[int, str]:
    """The exit code and the whole output of one command line."""
    out = CliRunner().invoke(click.Command("x", callback=lambda: main(list(words))), [])
    if out.exception is not None and not isinstance(out.exception, SystemExit):
        raise out.exception
    return out.exit_code, out.output


def refusal(output: str) -> str:
    """The reason for a refusal, which a command prints last."""
    return re.split("hush: |FAIL ", output)[-1].strip()


@pytest.mark.spread(9)
@pytest.mark.parametrize("case", CASES)
def test_check_and_worker_refuse_alike(case, made, monkeypatch):
    def started(plan: object) -> None:
        raise AssertionError("the worker has started")

    monkeypatch.setattr(startup, "Worker", started)
    monkeypatch.setattr(offsets, "CONFIRM_SECONDS", 0.3)
    spoil, code, said = CASES[case]
    common = ("-c", str(made.toml), "--bootstrap", made.bootstrap)
    common += ("--set", f"engine.data_dir={made.folder / 'state'}", "--member", MEMBER)
    assert typed("check", *common)[0] == 0
    spoil(made)
    ended, output = typed("worker", *common)
    message = refusal(output)
    assert (ended, said in message) == (code, True), output
    checked, output = typed("check", *common)
    assert (checked, refusal(output)) == (code, message)


def test_check_names_everything_it_has_found_before(made):
    common = ("-c", str(made.toml), "--bootstrap", made.bootstrap)
    code, output = typed("check", *common)
    assert code == 0 and "FAIL" not in output
    for word in ("noise key", "cluster at", "input topics", "ledger: 0 charges", "warn "):
        assert word in output


def test_what_a_start_would_charge_is_said_before_it_does(made):
    """The clock had no owner for ten days, so all these epochs are due, even empty ones."""
    common = ("-c", str(made.toml), "--bootstrap", made.bootstrap)
    assert "charges: none is due" in typed("check", *common)[1]
    day = 86_400_000_000
    began = int(time.time() * 1e6) // day - 10
    made.write(made.names.clock, encode(Start(f"{made.name}-p", began, 1)))
    code, said = typed("check", *common)
    whole = re.search(r"a start now charges (\d+) epochs", said)
    assert code == 0 and whole is not None, said
    assert int(whole[1]) in (10, 11) and f"({made.name}-p: {whole[1]})" in said


def test_topics_with_other_segments_are_reported_and_set_right(made):
    """A deployment of an earlier version has segments of a gigabyte, or of a week."""
    common = ("-c", str(made.toml), "--bootstrap", made.bootstrap)
    changelog = topic_of(made, "changelog")
    alter(made, changelog, "segment.bytes", "1073741824")
    code, said = typed("check", *common)
    assert (code, f"{changelog}: segment.bytes" in said) == (0, True), said
    code, said = typed("topics", *common)
    assert code == 0 and f"{changelog}: segments and compaction set" in said
    assert made.cluster.settings([changelog])[changelog]["segment.bytes"] == str(64 << 20)
    code, said = typed("check", *common)
    assert code == 0 and "segment.bytes" not in said
    assert "set as they" not in typed("topics", *common)[1]


class Looks:
    """A cluster with some brokers, and the results of successive looks at it."""

    def __init__(self, brokers: int, *found: HushError | str) -> None:
        self.number, self.found = brokers, list(found)
        self.slept: list[float] = []

    def __call__(self, *_: object) -> Looks:
        return self

    def wait(self, told: object) -> None:
        """Answer at once."""

    def brokers(self) -> int:
        return self.number

    def admit(self, config: object, cluster: object, member: str, told: Any, role: str) -> str:
        told(f"{len(self.found)} looks left")
        one = self.found.pop(0)
        if isinstance(one, HushError):
            raise one
        return one


def looked(monkeypatch: pytest.MonkeyPatch, looks: Looks, told: list[str]) -> object:
    monkeypatch.setattr(admission, "Cluster", looks)
    monkeypatch.setattr(admission, "admit", looks.admit)
    monkeypatch.setattr(admission.time, "sleep", looks.slept.append)
    return admission.prepare(Config(), told=told.append)


def test_a_start_that_asks_a_leader_of_before_looks_again(monkeypatch):
    told: list[str] = []
    looks = Looks(3, LedgerError("pipelines p are not declared: run `hush topics`"), "a setup")
    assert looked(monkeypatch, looks, told) == "a setup"
    assert looks.slept == [admission.CONFIRM_SECONDS] and told == ["1 looks left"]


def test_a_start_that_is_refused_twice_names_a_broker_that_is_cut_off(monkeypatch):
    told: list[str] = []
    with pytest.raises(RewoundError, match=r"ends early.*; a broker that is cut off from "):
        looked(monkeypatch, Looks(3, LedgerError("a"), RewoundError("ends early"), "never"), told)
    assert told == ["2 looks left"]


@pytest.mark.parametrize("brokers", [1, 3])
def test_what_another_look_cannot_mend_is_said_at_once(monkeypatch, brokers: int):
    error = RightError([("READ", "topic", "t")], "me") if brokers > 1 else LedgerError("lacks one")
    looks = Looks(brokers, error)
    with pytest.raises(type(error)) as raised:
        looked(monkeypatch, looks, [])
    assert looks.slept == [] and "cut off" not in str(raised.value)


@pytest.mark.parametrize("ends", [True, False])
def test_a_start_waits_for_a_transaction_that_brokers_have_not_ended_in_the_ledger(
    monkeypatch, ends: bool
):
    """Brokers end a transaction in one log before the other."""
    reads, missing = list[str](), LedgerError("never charged")

    def check(ledger: str) -> None:
        if ledger != "whole":
            raise missing

    def read_ledger(*_: object) -> str:
        reads.append("whole" if ends and len(reads) == 3 else "short")
        return reads[-1]

    offsets = SimpleNamespace(open=lambda topic: topic == "l")
    cluster: Any = SimpleNamespace(kafka=SimpleNamespace(outage_timeout=300_000), offsets=offsets)
    log: Any = SimpleNamespace(check_paid=check)
    monkeypatch.setattr(clock_start, "read_ledger", read_ledger)

    def paid() -> Any:
        names: Any = SimpleNamespace(ledger="l", deployment="d")
        return clock_start.check_paid(cluster, log, "short", names)  # type: ignore[arg-type]

    if ends:
        assert paid() == "whole" and len(reads) == 4
        return
    with pytest.raises(LedgerError):
        paid()
    assert len(reads) > 4
    reads.clear()
    offsets.open = lambda topic: False  # the charge is missing
    with pytest.raises(LedgerError):
        paid()
    assert len(reads) == 1
