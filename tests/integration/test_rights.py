"""Roles on a secured broker: the printed rights of each role suffice, and nothing else is allowed.

The broker has TLS, SCRAM and Kafka's own authorizer, which denies everything that was not granted.
Each user gets what `hush topics --format kafka-acls` prints for a role.

Covers: agents/deployment/cluster/rights.py, agents/kafka/access/refusals.py
"""

from __future__ import annotations

import argparse
import json
import secrets
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from hushstream.reading.live.board import Board
from hushstream.topics.config.access.clients import librdkafka_options
from hushstream.topics.config.load import load
from hushstream.topics.cut_share import in_words

from ..cli.bench import typed
from ..servers.secured import Granted, Secured, secured
from .local import Process, process

ORIGIN = 1_551_398_400_000_000  # 2019-03-01
PIPELINE = """
[[pipeline]]
name = "{name}"
input = "trips"
window = {{ length = "1d", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "12h" }}
schedule = "external"
budget = {{ epsilon = 8.0, delta = 1e-4 }}
"""
KEYED = 'key = ["page"]\nmechanism = { kind = "histogram", budget = 4 }\n'
TOML = (
    """
[deployment]
name = "shop"
[engine]
units_partitions = 1
cells_partitions = 1
public_port = 0
operator_port = 0
trim_interval = "1s"
session_timeout = "6s"
[[input]]
name = "trips"
topic = "trips"
unit = "user"
time = { field = "t", format = "epoch_us" }
late = "topic"
"""
    + PIPELINE.format(name="pages")
    + KEYED
    + PIPELINE.format(name="places")
    + 'inputs = { x = "x", y = "y" }\n[pipeline.mechanism]\nkind = "phdstream"\n'
    + '[pipeline.mechanism.domain]\ndepth = 3\nsplit = "all"\n'
    + 'axes = [{ name = "x", low = 0, high = 1 }, { name = "y", low = 0, high = 1 }]\n'
)
ROLES = (
    "administrator", "remover", "worker", "auditor", "mender", "verifier", "reader", "producer"
)  # fmt: skip


class Place:
    """A deployment on a secured broker, with a user and a configuration for each role."""

    def __init__(self, room: Secured, folder: Path) -> None:
        self.room, self.folder = room, folder
        key = folder / "hush.key"
        key.write_text(secrets.token_hex(32))
        key.chmod(0o600)
        self.genesis = ""
        room.add(*ROLES, "nobody")
        for user in (*ROLES, "nobody"):
            self.toml(user).write_text(room.toml(user) + TOML)
        new = [NewTopic("trips", 2, 1, config={"message.timestamp.after.max.ms": str(2**63 - 1)})]
        for future in room.admin.create_topics(new).values():
            future.result()

    def toml(self, user: str) -> Path:
        return self.folder / f"{user}.toml"

    def hush(self, user: str, *words: str) -> tuple[int, str, str]:
        """Run a command as a user."""
        return typed(*words, "-c", str(self.toml(user)))

    def begin(self) -> dict[str, Any]:
        """Create topics and ledger as the administrator, or find them."""
        code, out, err = self.hush("administrator", "topics", "--json")
        assert code == 0, err
        body: dict[str, Any] = json.loads(out)
        self.genesis = body["genesis"]
        return body

    def printed(self, role: str) -> list[Granted]:
        """The rights of a role, as granted by the commands that are printed for it."""
        words = ["--format", "kafka-acls", "--role", role, "--user", f"{role}={role}"]
        words += ["--genesis", self.genesis] if self.genesis else []
        code, out, err = self.hush("nobody", "topics", "--print", *words)
        assert code == 0, err
        return granted(out)

    def grant(self, role: str) -> None:
        self.room.grant(self.printed(role))

    def publish(self, user: str) -> None:
        told: list[object] = []
        producer = Producer(librdkafka_options(load(self.toml(user)).kafka))
        for n in range(400):
            row = {"user": f"u{n}", "page": "ab"[n % 2], "x": 0.3, "y": 0.3, "t": ORIGIN + n}
            producer.produce("trips", json.dumps(row).encode(), partition=n % 2,
                             on_delivery=lambda error, _: told.append(error))  # fmt: skip
        producer.produce("trips", b"{", on_delivery=lambda error, _: told.append(error))
        assert producer.flush(120) == 0 and told == [None] * 401

    def worker(self, member: str) -> Process:
        command = [sys.executable, "-m", "hushstream", "worker", "-c", str(self.toml("worker"))]
        return process([*command, "--member", member], self.folder / f"{member}.log")

    def log(self, member: str) -> str:
        return (self.folder / f"{member}.log").read_text()


def granted(text: str) -> list[Granted]:
    """The rights that commands of `kafka-acls` grant, by that tool's rules for options."""
    parser = argparse.ArgumentParser()
    for name in ("bootstrap-server", "command-config", "allow-principal"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("operation", "topic", "group", "transactional-id"):
        parser.add_argument(f"--{name}", action="append", default=[])
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--resource-pattern-type", choices=["literal", "prefixed"],
                        default="literal")  # fmt: skip
    found: list[Granted] = []
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        tool, *words = shlex.split(line)
        assert tool == "kafka-acls.sh"
        one = parser.parse_args(words)
        user = one.allow_principal.removeprefix("User:")
        prefixed = one.resource_pattern_type == "prefixed"
        named = [("topic", n) for n in one.topic] + [("group", n) for n in one.group]
        named += [("transactional-id", n) for n in one.transactional_id]
        for operation in one.operation:
            word = "".join(f"_{c}" if c.isupper() else c for c in operation).strip("_").upper()
            found += [(user, kind, name, prefixed, word) for kind, name in named]
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("rights")
    with secured(folder) as room:
        made = Place(room, folder)
        made.grant("administrator")
        made.grant("producer")
        yield made


pytestmark = pytest.mark.broker


def test_the_administrator_makes_everything_with_what_is_printed(place: Place) -> None:
    place.publish("producer")
    first = place.begin()
    assert len(first["created"]) > 15 and first["refused"] == []
    again = place.begin()
    assert again["created"] == [] and again["genesis"] == first["genesis"]


def test_a_worker_releases_with_what_is_printed(place: Place) -> None:
    for role in ("worker", "reader", "verifier", "auditor", "mender", "remover"):
        place.grant(role)
    code, out, err = place.hush("worker", "check")
    assert code == 0, out + err
    worker = place.worker("w")
    until = time.monotonic() + 400  # loops may have to be compiled first

    def wait(done: Callable[[], bool]) -> None:
        while not done():
            assert worker.returncode is None and time.monotonic() < until, place.log("w")
            time.sleep(0.2)

    try:
        wait(lambda: "ready:" in place.log("w"))
        code, _, err = place.hush("administrator", "trigger", "--at", "2019-03-02", "--yes")
        assert code == 0, err
        for pipeline in ("pages", "places"):
            final = ("releases", pipeline, "--final", "--json")
            wait(lambda words=final: bool(place.hush("reader", *words)[1]))  # type: ignore[misc]
        time.sleep(2.5)  # two rounds of trimming
        assert "trimmed" not in place.log("w") and "refuse" not in place.log("w")
        place.publish("producer")  # so that there is something to write
        place.room.revoke([("worker", "topic", f"shop.{place.genesis}.", True, "WRITE")])
        place.publish("producer")
        # Revoking a right stops the worker at once, with the same message.
        assert worker.wait(150) and worker.returncode == 4, place.log("w")
        assert "no right WRITE on topic 'shop." in place.log("w").splitlines()[-1], place.log("w")
    finally:
        worker.send(signal.SIGKILL)
        worker.wait(150)


READS = [
    ("reader", "releases", "pages"),
    ("reader", "map", "places", "--format", "csv"),
    ("reader", "points", "places", "--number", "3"),
    ("verifier", "releases", "pages"),
    ("verifier", "ledger", "show"),
    ("auditor", "ledger", "verify"),
    ("auditor", "dead-letters", "pages"),
    ("auditor", "replay"),
]


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_what_a_role_is_for_works_with_what_is_printed(
    place: Place, words: tuple[str, ...]
) -> None:
    code, out, err = place.hush(*words)
    told = in_words(None) if "map" in words else ""  # its bound cut an unknown share
    assert code == 0 and out and err.strip() == told, err


def test_the_live_page_shows_verifiers_everything(place: Place) -> None:
    config = load(place.toml("verifier"))
    board = Board(config.kafka, "shop")
    board.start()
    try:
        until = time.monotonic() + 150
        while not (told := board.summary())["link"]["good"] or not all(
            p["windows"] for p in told["pipelines"]
        ):
            assert time.monotonic() < until, told
            time.sleep(0.2)
        assert len(told["pipelines"]) == 2
    finally:
        board.end()


RAW, OUT = "topic 'trips'", "topic 'hush.pages.releases.v1'"
DENIED = [
    (("verifier", "replay"), "READ", RAW, "auditor"),
    (("reader", "topics"), "DESCRIBE", RAW, "administrator"),
    (("verifier", "trigger", "--at", "2019-03-03"), "READ", "topic 'shop.GENESIS.clock'",
     "administrator"),
    (("producer", "releases", "pages"), "READ", OUT, "reader"),
    (("producer", "points", "places"), "READ", "topic 'hush.places.releases.v1'", "reader"),
    (("producer", "live", "--port", "0"), "READ", "topic 'shop.ledger.v1'", "verifier"),
    (("reader", "live", "--port", "0"), "READ", "topic 'shop.ledger.v1'", "verifier"),
    (("reader", "verify"), "READ", "topic 'shop.ledger.v1'", "verifier"),
    (("reader", "ledger", "show"), "READ", "topic 'shop.ledger.v1'", "verifier"),
    (("auditor", "dead-letters", "pages", "--replay"), "WRITE", RAW, "mender"),
    (("administrator", "reset", "--name", "shop"), "DESCRIBE", "group 'shop.GENESIS'", "remover"),
    (("auditor", "worker"), "WRITE", "topic 'shop.ledger.v1'", "worker"),
    (("auditor", "trigger", "--at", "2019-03-03"), "WRITE", "topic 'shop.GENESIS.requests'",
     "administrator"),
    (("worker", "replay"), "READ", "topic 'hush.pages.dlq'", "auditor"),
    (("worker-more", "topics"), "DESCRIBE", "topic 'hush.more.", "administrator"),
    (("administrator", "releases", "pages"), "READ", OUT, "reader"),
    (("administrator", "worker"), "READ", RAW, "worker"),
    (("nobody", "ledger", "show"), "READ", "topic 'shop.ledger.v1'", "verifier"),
]  # fmt: skip


@pytest.mark.parametrize("case", DENIED, ids=lambda case: " ".join(case[0]))
def test_what_is_not_a_roles_own_is_refused_in_one_line(
    place: Place, case: tuple[tuple[str, ...], str, str, str]
) -> None:
    words, operation, resource, role = case
    more = place.toml("worker").read_text() + PIPELINE.format(name="more")
    place.toml("worker-more").write_text(more + KEYED)
    code, _, err = place.hush(*words)
    assert code == 4, err
    assert len(err.strip().splitlines()) == 1
    user = words[0].partition("-")[0]
    for part in (operation, resource.replace("GENESIS", place.genesis), repr(user), role):
        assert part in err, (part, err)


def test_check_names_every_right_that_a_worker_lacks(place: Place) -> None:
    code, out, err = place.hush("auditor", "check")
    assert code == 4 and err == ""
    last = out.splitlines()[-1]
    assert last.startswith("FAIL no right WRITE on topic 'shop.ledger.v1'; WRITE on topic")
    assert "and more on" in last and "user 'auditor', who acts as worker" in last


def test_a_mender_tries_dead_letters_with_what_is_printed(place: Place) -> None:
    words = ("dead-letters", "pages", "--replay", "--yes", "--json")
    for unusable in (True, False):  # each is tried once, so rights suffice to remember that
        code, out, err = place.hush("mender", *words)
        assert code == 0 and err == "", err
        told = json.loads(out)
        assert told["sent"] == 0 and bool(told["unusable"]) == unusable


def test_accepting_losses_is_the_administrators_and_finds_none(place: Place) -> None:
    code, _, err = place.hush("administrator", "accept-loss")
    assert code == 4 and "nothing is lost" in err, err


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["group", "transactional-id"])
def test_a_worker_without_group_or_transactional_ids_says_so_and_ends(
    place: Place, kind: str
) -> None:
    place.begin()
    place.grant("worker")
    base = f"shop.{place.genesis}"
    own = ("worker", kind, base, False, "READ")
    right = own if kind == "group" else ("worker", kind, f"{base}.", True, "WRITE")
    place.room.revoke([right])
    worker = place.worker(kind)
    try:
        assert worker.wait(150) and worker.returncode == 4, place.log(kind)
        last = place.log(kind).splitlines()[-1]
        assert f"no right {right[4]} on {kind.replace('-', ' ')} '{base}" in last, last
    finally:
        worker.send(signal.SIGKILL)
        worker.wait(150)
        place.room.grant([right])


def test_the_remover_deletes_everything_but_the_input_with_what_is_printed(place: Place) -> None:
    code, _, err = place.hush("remover", "reset", "--name", "shop")
    assert code == 0, err
    until = time.monotonic() + 60

    def left() -> list[str]:
        found = place.room.admin.list_topics(timeout=30).topics
        return sorted(topic for topic in found if not topic.startswith("__"))

    while left() != ["hush.owners.v1", "trips"]:  # a deleted topic may be listed for a moment
        assert time.monotonic() < until, left()
        time.sleep(0.2)
