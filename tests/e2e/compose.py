"""One Compose project, made from the shipped file, and what a run must know about it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..tree import ROOT
from .engine import EngineError, docker, inspect

PROJECT = "hush-e2e"  # not the file's name, which may be in use
SERVICES = ("worker", "prometheus")  # and all their dependencies
PORTS = (9090, 9092, 9464)
PATIENCE = 180.0


def until(true: Callable[[], object], what: str, patience: float = PATIENCE) -> float:
    """Wait until a condition holds; return the number of seconds.

    Raises:
        EngineError: it did not within `patience` seconds.
    """
    begin = time.monotonic()
    while not true():
        if time.monotonic() > begin + patience:
            raise EngineError(f"after {patience:.0f} s: not yet: {what}")
        time.sleep(0.5)
    return time.monotonic() - begin


def taken_ports() -> list[int]:
    """Ports that the file publishes and another program on this machine has."""
    found = []
    for port in PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                found.append(port)
    return found


class Compose:
    """The project of one run.

    Args:
        key: file with the noise key.
        config: file with the deployment.
        log: file for the commands' output.
    """

    def __init__(self, key: Path, config: Path, log: Path) -> None:
        self._log = log
        self._environ = {
            **os.environ,
            "HUSH_KEY_FILE": str(key),
            "HUSH_KEY_GROUP": str(key.stat().st_gid),
            "HUSH_CONFIG": str(config),
            "COMPOSE_PROGRESS": "plain",
        }

    def do(self, *words: str, timeout: float = 600) -> str:
        """Run one Compose command on the shipped file."""
        file = ["-f", str(ROOT / "docker-compose.yml"), "--profile", "observability"]
        return docker(
            "compose", "-p", PROJECT, *file, *words,
            timeout=timeout, log=self._log, environ=self._environ,
        )  # fmt: skip

    def up(self, workers: int) -> None:
        """Start everything that can run, with so many workers."""
        self.do("up", "-d", "--no-build", "--scale", f"worker={workers}", *SERVICES)

    def containers(self, service: str = "") -> list[dict[str, Any]]:
        """The engine's information about containers of one service or all, ended ones included."""
        ids = self.do("ps", "-a", "-q", *filter(None, [service])).split()
        return inspect(ids)

    def healthy(self, service: str, count: int) -> bool:
        """Tell whether a service has exactly so many containers, all of them healthy."""
        found = self.containers(service)
        return len(found) == count and all(health(one) == "healthy" for one in found)

    def left(self) -> list[str]:
        """Containers, volumes and networks of the project that are still there."""
        label = f"label=com.docker.compose.project={PROJECT}"
        kinds = (["ps", "-a", "-q"], ["volume", "ls", "-q"], ["network", "ls", "-q"])
        return [name for kind in kinds for name in docker(*kind, "--filter", label).split()]

    def down(self) -> None:
        """Remove containers, volumes and networks."""
        self.do("down", "--volumes", "--remove-orphans", "--timeout", "45")

    def logs(self, service: str, lines: int = 15) -> str:
        """The last lines that a service has logged."""
        return self.do("logs", "--no-color", "--tail", str(lines), service)


def health(container: dict[str, Any]) -> str:
    """State of a container's health check; empty if it has none."""
    return str(container["State"].get("Health", {}).get("Status", ""))


def crash(container: dict[str, Any]) -> bool:
    """End a container's process like a crash; return whether the engine may restart it.

    An engine does not restart a container that it was asked to kill. So this kills the process
    without the engine, which needs root and an engine on this machine; otherwise it asks the
    engine.
    """
    number = container["State"]["Pid"]
    here = Path(f"/proc/{number}/cgroup")
    if os.geteuid() == 0 and here.is_file() and container["Id"] in here.read_text():
        subprocess.run(["kill", "-9", str(number)], check=True)
        return True
    docker("kill", container["Id"])
    return False


def names(value: Any) -> str:
    """Everything that the engine reports, as one text, to search for forbidden words."""
    return json.dumps(value, ensure_ascii=False)
