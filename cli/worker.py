"""``hush worker``: run the engine."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import click

from ..agents.worker.health.http import serve_operator, serve_public
from ..agents.worker.health.systemd import Notifier
from ..agents.worker.health.together import Together
from ..agents.worker.lines.log_lines import name_lines
from ..agents.worker.lines.redaction import quoting
from ..agents.worker.startup import run_worker
from ..topics.config.model import Engine
from .options import Flags, config_options, member_option, read_config

log = logging.getLogger("hushstream")

PARENT_SECONDS = 1.0  # between two looks whether the parent is there


@click.command()
@config_options
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Workers on this machine.",
)
@member_option("Stable name of this worker; a quick restart then moves no partitions.")
@click.option("--pages", type=click.Path(path_type=Path), hidden=True)  # given by `_supervise`
@click.option("--parent", type=int, hidden=True)  # likewise
def worker(
    flags: Flags, processes: int, member: str, pages: Path | None, parent: int | None
) -> None:
    """Run a worker; any number of workers, on any machines, form one group."""
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), name="parent", daemon=True).start()
    config = read_config(flags, tables=False)
    if not quoting():  # -v logs more than any configured level
        logging.getLogger("hushstream").setLevel(config.engine.log_level.upper())
    # The last logger is that of Faust services which classes here extend.
    for chatty in ("faust", "mode", "aiokafka", "hushstream.agents"):
        logging.getLogger(chatty).setLevel(logging.ERROR)
    name_lines(member)
    if processes > 1:
        with tempfile.TemporaryDirectory(prefix="hush-") as folder:  # for this user alone
            sys.exit(_supervise(config.engine, processes, member, Path(folder)))
    run_worker(config, member, pages, partial(read_config, flags) if config.lookup else None)


def _supervise(engine: Engine, processes: int, member: str, folder: Path) -> int:
    """Run one child per process; if one ends by itself, stop all and return its exit code.

    This process serves the engine's pages for all of them, and tells systemd how they are. Raises
    `EngineError` if an address is taken.
    """
    arguments = _without_processes(sys.argv[1:])
    sockets = [folder / str(number) for number in range(processes)]
    together = Together(sockets)
    if engine.public_port:
        serve_public(engine, together.public())
    if engine.operator_port:
        serve_operator(engine, together.operator())
    children: list[subprocess.Popen[bytes]] = []
    asked = False

    def stop(*_: object) -> None:
        nonlocal asked
        asked = True
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    # systemd listens to this process alone, which answers for its children.
    environ = {k: v for k, v in os.environ.items() if k != "NOTIFY_SOCKET"}
    names = [f"{member or os.uname().nodename}-{number}" for number in range(processes)]
    for number, pages in enumerate(sockets):
        if asked:
            break
        own = ["--member", names[number], "--pages", str(pages), "--parent", str(os.getpid())]
        command = [sys.executable, "-m", "hushstream", *arguments, *own]
        children.append(subprocess.Popen(command, env=environ))
    if asked:
        stop()  # the last child may have started after the signal
    notifier = Notifier(together.ready, together.live)
    notifier.start()
    try:
        return _first_to_end(dict(zip(names, children, strict=False)), stop, lambda: asked)
    finally:
        notifier.stop()


def _end_after(parent: int) -> None:
    """Stop this process, as by SIGTERM, once its parent is gone, which may have been killed.

    Nobody would serve its pages, and the next start would find its folder in use.
    """
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    log.warning("process %d, which started this one, is gone: stopping", parent)
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGTERM)  # wakes it from any wait


def _first_to_end(
    children: Mapping[str, subprocess.Popen[bytes]],
    stop: Callable[[], None],
    asked: Callable[[], bool],
) -> int:
    """Wait until a child ends, and stop the others; its exit code, or 0 without one.

    Args:
        children: processes by name.
    """
    while children and all(child.poll() is None for child in children.values()):
        time.sleep(0.2)
    code = 0
    for number, (name, child) in enumerate(children.items()):
        if not code and child.returncode is not None:
            code = child.returncode
            if asked() and code == -signal.SIGTERM:  # it had not installed its handler yet
                code = 0
            elif code < 0:
                log.error("process %d (%s) was ended by signal %d", number, name, -code)
                code = 128 - code  # as shells have it: no exit code is negative
    stop()
    for child in children.values():
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
