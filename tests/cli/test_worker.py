"""Several processes of a worker: their options, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

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
