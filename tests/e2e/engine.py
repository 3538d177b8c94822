"""A container engine by its command line, and what a machine needs to have one."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ASK = 60  # seconds for a question that an engine can answer at once


class EngineError(Exception):
    """A command of the engine failed, or a step of the run found a fault."""


def missing() -> str | None:
    """What this machine lacks for a run, and what to install; None: nothing."""
    if shutil.which("docker") is None:
        return "no `docker` command: install Docker Engine 20.10 or later, with its Compose plugin"
    if _fails("compose", "version"):
        return (
            "no `docker compose`: install the plugin docker-compose-plugin (Compose 2.20 or later)"
        )
    if _fails("version", "--format", "{{.Server.Version}}"):
        return "no engine answers: start it (`systemctl start docker`), and see that you may use it"
    return None


def docker(
    *words: str,
    timeout: float = ASK,
    log: Path | None = None,
    environ: Mapping[str, str] | None = None,
    stdin: str | None = None,
) -> str:
    """Run one command of `docker` and return what it printed.

    Args:
        words: command line without its first word.
        timeout: seconds before it is given up.
        log: file for its output, for verbose commands.
        environ: its whole environment; default: this process's.
        stdin: text for its standard input.

    Raises:
        EngineError: it failed or hung; the message ends with what it said.
    """
    command = ["docker", *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=environ, input=stdin
        )
    except subprocess.TimeoutExpired:
        raise EngineError(f"`{' '.join(command)}` has not ended after {timeout:.0f} s") from None
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}\n")
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-2000:]
        raise EngineError(f"`{' '.join(command)}` ended with {done.returncode}:\n{said}")
    return done.stdout


def inspect(names: Sequence[str]) -> list[dict[str, Any]]:
    """Everything that the engine reports about containers."""
    found: list[dict[str, Any]] = json.loads(docker("inspect", *names)) if names else []
    return found


def has_image(name: str) -> bool:
    """Tell whether the engine has an image of this name."""
    return not _fails("image", "inspect", "--format", "{{.Id}}", name)


def _fails(*words: str) -> bool:
    try:
        docker(*words)
    except (EngineError, OSError):
        return True
    return False
