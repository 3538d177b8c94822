"""Several processes of a worker: their options, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from hushstream.agents.worker.health.http import health_page, serve_local
from hushstream.cli import worker as worker_module
from hushstream.cli.worker import _first_to_end, _supervise, _without_processes
from hushstream.topics.config.model import Engine


def test_children_of_a_worker_get_its_options_but_not_its_number():
    words = [
        "worker",
        "--processes",
        "3",
        "-c",
        "x",
        "--member=m",
        "--processes=2",
        "--member",
        "n",
    ]
    assert _without_processes(words) == ["worker", "-c", "x"]


def test_a_signal_while_processes_are_started_stops_those_that_were(monkeypatch, tmp_path) -> None:
    started: list[Any] = []

    class Child:
        returncode: int | None = None

        def __init__(self, *_: Any, **__: Any) -> None:
            started.append(self)
            signal.raise_signal(signal.SIGTERM)  # before the parent knows this child

        def poll(self) -> int | None:
            return self.returncode

        wait = poll

        def send_signal(self, number: int) -> None:
            self.returncode = -number

    monkeypatch.setattr(worker_module.subprocess, "Popen", Child)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert _supervise(Engine(public_port=0, operator_port=0), 3, "m", tmp_path) == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert [child.returncode for child in started] == [-signal.SIGTERM]


def test_the_parent_tells_systemd_how_all_its_children_are(monkeypatch, tmp_path) -> None:
    ready, live = [True, False], [True, True]
    children: list[Any] = []

    class Child:
        returncode: int | None = None

        def __init__(self, command: list[str], env: dict[str, str]) -> None:
            assert "NOTIFY_SOCKET" not in env
            number = len(children)
            pages = {
                "/ready": health_page(lambda: ready[number]),
                "/live": health_page(lambda: live[number]),
            }
            self.server = serve_local(Path(command[command.index("--pages") + 1]), pages)
            children.append(self)

        def poll(self) -> int | None:
            return self.returncode

        wait = poll

        def send_signal(self, number: int) -> None:
            self.returncode = self.returncode or -number

    told: list[str] = []
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as systemd:
        systemd.bind(str(tmp_path / "notify"))

        def within(*stopping: str) -> None:
            """Note what is told until one of some messages has come."""
            systemd.settimeout(120)
            while not told or told[-1] not in stopping:
                told.append(systemd.recv(100).decode())

        def look() -> None:
            try:
                within("WATCHDOG=1")
                told.append("the last is ready")
                ready[1] = True
                within("READY=1")
                live[1] = False
                systemd.settimeout(1)  # ten intervals
                told.extend(systemd.recv(100).decode() for _ in range(200))
            except TimeoutError:
                told.append("silence")
            finally:
                children[1].returncode = 4

        monkeypatch.setattr(worker_module.subprocess, "Popen", Child)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "300000")
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        looking = threading.Thread(target=look)
        looking.start()
        try:
            assert _supervise(Engine(public_port=0, operator_port=0), 2, "m", tmp_path) == 4
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            looking.join(120)
            for child in children:
                child.server.shutdown()
                child.server.server_close()
        within("STOPPING=1")
    others = [word for word in told if word != "WATCHDOG=1"]
    assert others == ["the last is ready", "READY=1", "silence", "STOPPING=1"]
    assert told[-2:] == others[-2:]


def test_a_child_that_a_signal_ended_is_named_and_gives_the_code_of_shells(caplog) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    children = {f"shop-{number}": subprocess.Popen(sleep) for number in range(2)}
    children["shop-1"].kill()

    def stop() -> None:
        children["shop-0"].terminate()

    assert _first_to_end(children, stop, lambda: False) == 137
    assert caplog.messages == ["process 1 (shop-1) was ended by signal 9"]
    assert children["shop-0"].returncode == -signal.SIGTERM


def test_children_end_once_their_parent_was_killed(tmp_path: Path) -> None:
    (tmp_path / "hush.key").write_text("ab" * 32)
    (tmp_path / "hush.key").chmod(0o600)
    text = (Path(__file__).parents[2] / "topics" / "config" / "template.toml").read_text()
    (tmp_path / "hush.toml").write_text(text)
    command = [sys.executable, "-m", "hushstream", "worker", "-c", str(tmp_path / "hush.toml")]
    command += ["--bootstrap", "127.0.0.1:9", "--processes", "2"]  # no broker answers
    command += ["--set", "engine.public_port=0", "--set", "engine.operator_port=0"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True
    ) as parent:
        assert parent.stderr is not None
        try:
            waiting = 0
            while waiting < 2:
                line = parent.stderr.readline()
                assert line, "a worker has ended"
                waiting += "waiting for Kafka" in line
            parent.kill()
            _, rest = parent.communicate(timeout=60)  # until the last process has closed it
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)
    assert rest.count(f"process {parent.pid}, which started this one, is gone") == 2
    assert rest.count("stopped before the start") == 2
