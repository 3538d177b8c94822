"""Children die with their parent, by the kernel or by a pipe, and commands identify them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hushstream.deploy.process import KERNEL, Child, command_of, end_process

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


def _gone(pid: int, mark: str) -> bool:
    deadline = time.monotonic() + 150
    while mark in command_of(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return mark not in command_of(pid)


@pytest.mark.parametrize("kernel", sorted({KERNEL, False}))
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_child_dies_with_its_parent(kernel: bool, number: int, tmp_path: Path) -> None:
    script = (
        "import pathlib, sys, time; from hushstream.deploy.process import Child;"
        f"c = Child({SLEEPER!r}, pathlib.Path(sys.argv[1]), kernel={kernel});"
        "print(c.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "log")], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(parent.pid, number)
        parent.wait(150)
    assert _gone(pid, "time.sleep(600)")


@pytest.mark.parametrize("kernel", sorted({KERNEL, False}))
def test_a_child_outlives_the_thread_that_started_it(kernel: bool, tmp_path: Path) -> None:
    import threading

    children: list[Child] = []
    thread = threading.Thread(
        target=lambda: children.append(Child(SLEEPER, tmp_path / "log", kernel=kernel))
    )
    thread.start()
    thread.join()
    assert not children[0].wait(0.3)
    children[0].send(signal.SIGTERM)
    assert children[0].wait(150)
    assert children[0].returncode == -signal.SIGTERM


def test_an_untied_child_runs_on(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys; from hushstream.deploy.process import Child;"
        f"c = Child({SLEEPER!r}, pathlib.Path(sys.argv[1]), kernel=False);"
        "c.untie(); print(c.pid)"
    )
    command = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "log")]
    pid = int(subprocess.run(command, capture_output=True, check=True).stdout)
    assert "time.sleep(600)" in command_of(pid)
    assert not end_process(pid, "another program", 1)
    assert end_process(pid, "time.sleep(600)", 120)
    assert _gone(pid, "time.sleep(600)")


def test_a_program_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Child(["/no/such/program"], tmp_path / "log", kernel=False)


def test_output_is_appended_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for _ in range(2):
        assert Child(["/bin/echo", "said"], log).wait(150)
    assert log.read_text() == "said\nsaid\n"


def test_secrets_in_the_environment_are_not_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUSH_NOISE_KEY", "canary")
    assert Child(["/usr/bin/env"], tmp_path / "log").wait(150)
    text = (tmp_path / "log").read_text()
    assert "PATH=" in text
    assert "canary" not in text
