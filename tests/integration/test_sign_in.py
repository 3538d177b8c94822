"""Every way to sign in, with both clients and a worker, on a broker with TLS; and the messages.

Covers: agents/kafka/access/tokens.py, agents/kafka/access/refusals.py
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import NewTopic
from hushstream.agents.kafka.access.tokens import client_options
from hushstream.agents.kafka.clients import read_to_end
from hushstream.agents.kafka.cluster import Cluster
from hushstream.errors import EngineError
from hushstream.topics.config.load import load

from ..cli.bench import typed
from ..servers.secured import PASSWORD, Granted, Secured, secured
from ..servers.tokens import Issuer, issuing
from .local import process

SECRET = "a-client-secret"
DEPLOYMENT = """
[deployment]
name = "signed"
[engine]
units_partitions = 1
cells_partitions = 1
public_port = 0
operator_port = 0
[secret]
key = {{ command = ["{python}", "-c", "print('{key}')"] }}
[[input]]
name = "trips"
topic = "signed-trips"
unit = "user"
time = {{ field = "t", format = "epoch_us" }}
[[pipeline]]
name = "signed-pages"
input = "trips"
key = ["page"]
window = {{ length = "1d", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "1d" }}
schedule = "external"
budget = {{ epsilon = 8.0, delta = 1e-4 }}
"""
WAYS = ("token", "certificate", "plain", "scram")


class Entrance:
    """A secured broker, an identity provider, and a configuration for each way to sign in."""

    def __init__(self, room: Secured, issuer: Issuer, folder: Path) -> None:
        self.room, self.issuer, self.folder = room, issuer, folder
        self.deployment = DEPLOYMENT.format(python=sys.executable, key=secrets.token_hex(32))
        room.add("scram")
        room.grant(right for user in WAYS for right in _everything(user))
        cert, key = room.authority.issue("certificate")
        self.tls = f'ssl_cafile = "{room.authority.cafile}"\noutage_timeout = "60s"\n'
        self.mutual = f'ssl_certfile = "{cert}"\nssl_keyfile = "{key}"\n'
        for future in room.admin.create_topics([NewTopic("signed-trips", 1, 1)]).values():
            future.result()

    def table(self, way: str, *, password: str = "") -> str:
        """The ``[kafka]`` table for a way to sign in."""
        if way == "certificate":
            head = f'bootstrap = "{self.room.bootstrap("mutual")}"\nsecurity_protocol = "SSL"\n'
            return f"[kafka]\n{head}{self.tls}"
        kind = {"token": "OAUTHBEARER", "plain": "PLAIN", "scram": "SCRAM-SHA-512"}[way]
        own = SECRET if way == "token" else PASSWORD
        file = self.folder / f"{way}{len(password)}.password"
        file.write_text(password or own)
        more = f'sasl_token_url = "{self.issuer.url}"\n' if way == "token" else ""
        return (
            f'[kafka]\nbootstrap = "{self.room.bootstrap()}"\nsecurity_protocol = "SASL_SSL"\n'
            f'sasl_mechanism = "{kind}"\nsasl_username = "{way}"\n'
            f'sasl_password_file = "{file}"\n{more}{self.tls}'
        )

    def toml(self, way: str) -> Path:
        """The configuration of a client that may sign in."""
        path = self.folder / f"{way}.toml"
        own = self.mutual if way == "certificate" else ""
        path.write_text(self.table(way) + own + self.deployment)
        return path

    def wrong(self, table: str) -> Cluster:
        """A client that may not sign in."""
        path = self.folder / f"wrong-{secrets.token_hex(4)}.toml"
        path.write_text(table + self.deployment)
        return Cluster(load(path).kafka)


def _everything(user: str) -> Iterator[Granted]:
    for kind, name in (("topic", "*"), ("group", "*"), ("transactional-id", "*")):
        yield user, kind, name, False, "ALL"


@pytest.fixture(scope="module")
def entrance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entrance]:
    folder = tmp_path_factory.mktemp("entrance")
    with secured(folder) as room, issuing({"token": SECRET}) as issuer:
        yield Entrance(room, issuer, folder)


pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("broker-test_sign_in")]


@pytest.mark.parametrize("way", WAYS)
def test_both_clients_are_let_in(entrance: Entrance, way: str) -> None:
    kafka = load(entrance.toml(way)).kafka
    cluster = Cluster(kafka)
    cluster.wait()
    assert "signed-trips" in cluster.topics()

    async def written_and_read() -> list[bytes]:
        producer = AIOKafkaProducer(**client_options(kafka))
        await producer.start()
        try:
            await producer.send_and_wait("signed-trips", way.encode(), partition=0)
        finally:
            await producer.stop()
        found = []
        async for records, _, _ in read_to_end(kafka, "signed-trips", 0, 0):
            found += [record.value for record in records]
        return found

    assert way.encode() in asyncio.run(written_and_read())


def test_workers_serve_signed_in_by_token_and_by_certificate(entrance: Entrance) -> None:
    code, _, err = typed("topics", "-c", str(entrance.toml("scram")))
    assert code == 0, err
    running = []
    try:
        for way in ("token", "certificate"):
            words = ["worker", "-c", str(entrance.toml(way)), "--member", way]
            log = entrance.folder / f"{way}.log"
            running.append((process([sys.executable, "-m", "hushstream", *words], log), log))
        end = time.monotonic() + 300  # loops may have to be compiled first
        for child, log in running:
            while "ready:" not in log.read_text():
                assert child.returncode is None and time.monotonic() < end, log.read_text()
                time.sleep(0.2)
    finally:
        for child, _ in running:
            child.send(signal.SIGKILL)
            child.wait(150)


@pytest.mark.thorough
def test_whoever_is_not_let_in_is_told_why_in_one_line(entrance: Entrance) -> None:
    cases = {
        entrance.table("plain", password="wrong"): ("'plain'", "Invalid username or password"),
        entrance.table("scram", password="wrong"): ("'scram'", "invalid credentials"),
        entrance.table("token", password="wrong"): (
            "'token'",
            'token: {"error": "invalid_client"}',
        ),
        entrance.table("certificate"): ("does not sign in", "set ssl_certfile and ssl_keyfile"),
    }

    def said(table: str) -> str:
        with pytest.raises(EngineError, match="does not let") as error:
            entrance.wrong(table).wait()
        return str(error.value)

    with ThreadPoolExecutor(len(cases)) as pool:
        for told, parts in zip(pool.map(said, cases), cases.values(), strict=True):
            assert len(told.splitlines()) == 1 and "wrong" not in told
            assert all(part in told for part in parts), told
