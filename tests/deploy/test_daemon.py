"""`hush broker`: start, status and stop of a detached broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from hushstream.deploy import daemon
from hushstream.deploy.process import command_of
from hushstream.deploy.settings import free_port
from hushstream.errors import BrokerError


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "broker"
    daemon.stop(tmp_path / "broker")


@pytest.mark.broker
def test_start_status_stop(folder: Path) -> None:
    assert daemon.status(folder).state == "stopped"
    started = daemon.start(folder, port := free_port())
    assert started.state == "running"
    assert started.bootstrap == f"127.0.0.1:{port}"
    assert daemon.start(folder) == started
    with pytest.raises(BrokerError, match="stop it first"):
        daemon.start(folder, port + 1)
    assert daemon.stop(folder)
    assert started.pid is not None
    assert command_of(started.pid) == ""
    assert daemon.status(folder).state == "stopped"
    assert not daemon.stop(folder)
    assert daemon.start(folder).bootstrap == started.bootstrap
    daemon.remove(folder)
    assert not folder.exists()


def test_a_foreign_process_with_the_recorded_id_is_left_alone(folder: Path) -> None:
    folder.mkdir()
    (folder / "broker.json").write_bytes(msgspec.json.encode({"pid": os.getpid(), "port": 1}))
    assert daemon.status(folder).state == "stopped"
    assert not daemon.stop(folder)


def test_a_torn_record_counts_as_none(folder: Path) -> None:
    folder.mkdir()
    (folder / "broker.json").write_bytes(b'{"pid":')
    assert daemon.status(folder).state == "stopped"


def test_a_folder_that_is_no_broker_is_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(BrokerError, match="not deleted"):
        daemon.remove(tmp_path)
    assert (tmp_path / "precious").exists()


def test_a_taken_port_is_named(folder: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(BrokerError, match=f"port {port}.*--port"):
            daemon.start(folder, port)


@pytest.mark.broker
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.thorough)]
)
def test_a_start_that_is_cut_short_leaves_no_server(folder: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "hushstream", "broker", "start", "--data", str(folder)]
    for _ in range(10):
        start = subprocess.Popen([*command, "--port", str(free_port())])
        assert _soon(lambda: bool(_servers(folder)))
        start.send_signal(number)
        if start.wait(150) == 0:  # it had already finished
            assert daemon.stop(folder)
            continue
        assert start.returncode == -number
        assert _soon(lambda: not _servers(folder))
        return
    pytest.fail("no start was cut short")


def _servers(folder: Path) -> list[int]:
    """Kafka servers of the folder, without the process that formats it."""
    found = psutil.process_iter(["pid", "cmdline"])
    lines = {p.info["pid"]: " ".join(p.info["cmdline"] or ()) for p in found}
    return [pid for pid, line in lines.items() if "kafka.Kafka " in line and str(folder) in line]


def _soon(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 150
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()
