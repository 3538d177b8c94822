"""Several processes of a worker: their options, and their end."""

from __future__ import annotations

import signal
from typing import Any

from hushstream.cli import worker as worker_module
from hushstream.cli.worker import _supervise, _without_processes
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
