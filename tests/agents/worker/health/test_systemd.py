"""What systemd is told: once that the worker serves, and that it is alive only while it is."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hushstream.agents.worker.health.systemd import Notifier


@pytest.fixture
def heard(tmp_path: Path):
    server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    server.bind(str(tmp_path / "notify"))
    server.settimeout(0.0)
    said: list[str] = []

    def listen() -> list[str]:
        try:
            while True:
                said.append(server.recv(100).decode())
        except BlockingIOError:
            return said

    yield str(tmp_path / "notify"), listen
    server.close()


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_ready_once_alive_while_live_and_stopping_at_the_end(heard):
    address, listen = heard
    state = {"ready": False, "live": True}
    made = Notifier(
        lambda: state["ready"], lambda: state["live"],
        {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "60000"},
    )  # fmt: skip
    made.start()
    until(lambda: listen().count("WATCHDOG=1") > 2)
    assert "READY=1" not in listen()
    state["ready"] = True
    until(lambda: "READY=1" in listen())
    state["live"] = False

    def silent() -> bool:
        """Whether nothing arrives for five intervals."""
        before = len(listen())
        time.sleep(0.3)
        return len(listen()) == before

    until(silent)  # systemd hears nothing from a worker that has stalled
    made.stop()
    until(lambda: "STOPPING=1" in listen())
    assert listen().count("READY=1") == 1 and listen()[-1] == "STOPPING=1"


def test_a_worker_that_stops_as_it_is_asked_how_it_is_says_nothing_more(heard):
    """Otherwise systemd would take a worker that has left for a live one."""
    address, listen = heard
    looked: list[bool] = []

    def live() -> bool:
        if not looked:
            made.stop()
        looked.append(True)
        return True

    made = Notifier(lambda: False, live, {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "60000"})
    made._run()  # it ends like the thread
    assert looked == [True] and listen() == ["STOPPING=1"]


def test_without_systemd_nothing_is_said():
    made = Notifier(lambda: True, lambda: True, {})
    made.start()
    made.stop()
    assert not made._told


def test_a_listener_that_does_not_listen_holds_up_nobody(heard):
    address, listen = heard
    state = {"ready": False}
    made = Notifier(lambda: state["ready"], lambda: True, {"NOTIFY_SOCKET": address})
    said = 0
    while made._tell("WATCHDOG=1"):  # until the buffer is full
        said += 1
    assert said > 0
    made.stop()  # a blocking send would wait for ever
    assert "STOPPING=1" not in listen()
