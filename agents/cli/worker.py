"""``hush worker``: run the engine."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time

import click

from ..worker.log_lines import name_lines
from ..worker.redaction import quoting
from ..worker.startup import run_worker
from .options import config_options, read_config


@click.command()
@config_options
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Workers on this machine.",
)
@click.option(
    "--member", default="", help="Stable name of this worker, which makes a restart cheap."
)
def worker(
    path: str, bootstrap: str | None, settings: tuple[str, ...], processes: int, member: str
) -> None:
    """Run a worker; any number of workers, on any machines, form one group."""
    config = read_config(path, bootstrap, settings)
    if not quoting():  # -v logs more than any configured level
        logging.getLogger("hushstream").setLevel(config.engine.log_level.upper())
    for chatty in ("faust", "mode", "aiokafka"):
        logging.getLogger(chatty).setLevel(logging.ERROR)
    name_lines(member)
    if processes > 1:
        sys.exit(_supervise(processes, member))
    run_worker(config, member)


def _supervise(processes: int, member: str) -> int:
    """Run one child per process; if one ends by itself, stop all and return its exit code."""
    arguments = _without_processes(sys.argv[1:])
    children = []
    # systemd waits for one process: this one, which does not know how the others are.
    environ = {k: v for k, v in os.environ.items() if k != "NOTIFY_SOCKET"}
    for number in range(processes):
        name = f"{member or os.uname().nodename}-{number}"
        ports = () if number == 0 else ("engine.public_port=0", "engine.operator_port=0")
        extra = [word for setting in ports for word in ("--set", setting)]
        command = [sys.executable, "-m", "hushstream", *arguments, "--member", name, *extra]
        children.append(subprocess.Popen(command, env=environ))

    def stop(*_: object) -> None:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    while all(child.poll() is None for child in children):
        time.sleep(0.2)
    code = next(child.returncode for child in children if child.returncode is not None)
    stop()
    for child in children:
        child.wait()
    return code


def _without_processes(words: list[str]) -> list[str]:
    kept = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in ("--processes", "--member"):
            skip = True
        elif not word.startswith(("--processes=", "--member=")):
            kept.append(word)
    return kept


COMMANDS: list[click.Command] = [worker]
