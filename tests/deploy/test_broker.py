"""The local broker: real starts, crashes, restarts and parents that die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream.deploy import broker as module
from hushstream.deploy.broker import Broker, serves
from hushstream.deploy.process import command_of
from hushstream.deploy.settings import free_port
from hushstream.errors import BrokerError

from ..servers.formatted import FORMAT


def _create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(120)


def _produce(bootstrap: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-writer"})
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce(topic, value)
    producer.commit_transaction(120)


def _read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        return [m.value() or b"" for m in consumer.consume(count, timeout=120)]
    finally:
        consumer.close()


def _soon(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 150
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def test_serves_transactions_and_refuses_unknown_topics(
    broker: Broker, unique: Callable[[str], str]
) -> None:
    topic = unique("written")
    _create(broker.bootstrap, topic)
    _produce(broker.bootstrap, topic, b"one")
    assert _read(broker.bootstrap, topic, 1) == [b"one"]
    assert broker.status == "running"
    metadata = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=120)
    assert unique("never-created") not in metadata.topics


@pytest.mark.thorough
def test_survives_sigkill_on_the_same_data_and_port(
    own_broker: Broker, unique: Callable[[str], str]
) -> None:
    topic, before = unique("kept"), own_broker.bootstrap
    _create(before, topic)
    _produce(before, topic, b"before")
    own_broker.kill()
    assert own_broker.status == "stopped"
    assert not serves(before, timeout=0.2)
    own_broker.start()
    assert own_broker.bootstrap == before
    _produce(before, topic, b"after")
    assert _read(before, topic, 2) == [b"before", b"after"]


@pytest.mark.broker
def test_an_unasked_end_is_a_failure_and_stop_removes_temporary_data() -> None:
    with Broker(quiet=True) as running:
        data, pid = running.data, running.pid
        assert pid is not None
        assert str(data) in command_of(pid)
        os.kill(pid, signal.SIGKILL)
        assert _soon(lambda: running.status == "failed")
    assert not data.exists()
    assert running.status == "stopped"


def test_wrong_settings_end_with_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broker, "_format", FORMAT)
    wrong = Broker(tmp_path, overrides={"num.io.threads": "many"}, quiet=True)
    with pytest.raises(BrokerError, match=r"(?s)formatting.*num\.io\.threads"):
        wrong.start()
    assert wrong.status == "stopped"


@pytest.mark.thorough
def test_a_port_that_somebody_takes_before_it_is_used_is_chosen_anew(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also, another listener at the port is not taken for the broker."""
    assert serves(broker.bootstrap) and not serves(broker.bootstrap, cluster="another")
    ports = iter([broker.port])
    monkeypatch.setattr(module, "port_is_free", lambda port: True)  # as it was a moment ago
    monkeypatch.setattr(module, "free_port", lambda: next(ports, None) or free_port())
    with Broker(quiet=True) as other:
        assert other.port != broker.port and other.status == "running"
        clusters = [AdminClient({"bootstrap.servers": one.bootstrap}).list_topics(timeout=60)
                    for one in (broker, other)]  # fmt: skip
        assert len({one.cluster_id for one in clusters}) == 2


def test_a_taken_port_is_refused(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="is in use"):
        Broker(tmp_path, broker.port, quiet=True).start()


@pytest.mark.broker
def test_dies_with_its_parent(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys, time; from hushstream.deploy.broker import Broker;"
        "b = Broker(pathlib.Path(sys.argv[1]), quiet=True).start();"
        "print(b.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert str(tmp_path) in command_of(pid)
        parent.kill()
        parent.wait(150)
    assert _soon(lambda: str(tmp_path) not in command_of(pid))


def test_nobody_serves_on_a_closed_port() -> None:
    assert not serves("127.0.0.1:9", timeout=0.2)
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": "127.0.0.1:9"}).list_topics(timeout=0.2)
