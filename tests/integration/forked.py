"""Workers as forks of a process that has loaded the product, which saves two seconds for each.

A fork has its own session, log and environment. It ends with its server, which ends with the
process of the tests. Unlike a new process, it imports nothing, finds the compiled loops loaded, and
shares the hash seed with all other forks. So only the gate forks, and even there, processes that
`Local` does not start are new.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import inspect
import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from hushstream.deploy.process import Child

from ..tree import ROOT

NEW = [sys.executable, "-m", "hushstream"]
ENV = "/usr/bin/env"
SECONDS = 120.0  # until a server has imported everything, on a busy machine
TEXT = """
[deployment]
name = "any"
[[input]]
name = "events"
topic = "events"
unit = "user"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "p"
input = "events"
key = ["page"]
window = { length = "1d" }
triggers = { every = "1d" }
budget = { epsilon = 1.0, delta = 1e-4 }
mechanism = { kind = "histogram", budget = 1 }
"""


def started(command: Sequence[str], log: Path) -> Child | Forked:
    """Fork in place of a new process of the product; start any other command as it is.

    A command of the product may follow ``env`` with variables, which the fork gets. A test's script
    is run in the fork.
    """
    words, given = list(command), dict[str, str]()
    if words[:1] == [sys.executable] and words[1].endswith(".py"):
        return Forked(_server(), words[1:], log, given)
    if words[0] == ENV:
        del words[0]
        while "=" in words[0]:
            name, _, given[name] = words.pop(0).partition("=")
    if words[:3] != NEW:
        return Child(command, log)
    return Forked(_server(), ["hush", *words[3:]], log, given)


class Forked:
    """A forked command, with the interface of `Child`: the words are a program and arguments."""

    def __init__(
        self, server: Server, words: Sequence[str], log: Path, given: Mapping[str, str]
    ) -> None:
        self._server = server
        self.pid = server.fork(words, log, given)

    @property
    def returncode(self) -> int | None:
        """Exit status (negative: a signal), or ``None`` while it runs."""
        return self._server.code(self.pid)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds; return whether it has ended."""
        until = time.monotonic() + timeout
        while self.returncode is None and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))
        return self.returncode is not None


class Server:
    """The process that forks, from its parent's side."""

    def __init__(self) -> None:
        log = ROOT / ".build/forks.log"
        log.parent.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "hushstream.tests.integration.forked"]
        with (
            tempfile.TemporaryDirectory(prefix="forks-") as folder,
            socket.socket(socket.AF_UNIX) as listener,
        ):
            listener.bind(f"{folder}/socket")
            listener.listen()
            listener.settimeout(SECONDS)
            self._child = Child([*command, f"{folder}/socket"], log)
            self._line, _ = listener.accept()
        atexit.register(self._line.close)
        self._lock = threading.Lock()
        self._rest = b""
        self._begun: list[int] = []
        self._codes: dict[int, int] = {}

    def fork(self, words: Sequence[str], log: Path, given: Mapping[str, str]) -> int:
        """Start ``hush`` or a script, with further variables; return the process id."""
        environ = {name: value for name, value in os.environ.items() if name[:5] != "HUSH_"}
        log.touch()
        asked = json.dumps([list(words), environ | dict(given), os.getcwd(), str(log.absolute())])
        with self._lock:
            self._line.sendall(asked.encode() + b"\n")
            while not self._begun:
                self._take()
            pid = self._begun.pop()
            self._codes.pop(pid, None)  # the code of an earlier process with this id
            return pid

    def code(self, pid: int) -> int | None:
        """How a process has ended; None if it runs."""
        with self._lock:
            while select.select([self._line], [], [], 0)[0]:
                self._take()
            return self._codes.get(pid)

    def _take(self) -> None:
        more = self._line.recv(1 << 16)
        assert more, "the process that forks workers has ended: see .build/forks.log"
        *lines, self._rest = (self._rest + more).split(b"\n")
        for line in lines:
            pid, *code = map(int, line.split())
            if code:
                self._codes[pid] = code[0]
            else:
                self._begun.append(pid)


@cache
def _server() -> Server:
    return Server()


def serve(place: str) -> None:
    """Import what a worker imports, then fork one for each line; returns in each fork."""
    _load()
    line = socket.socket(socket.AF_UNIX)
    line.connect(place)
    ended, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    gc.freeze()
    rest = b""
    while True:
        ready, _, _ = select.select([line, ended], [], [])
        if ended in ready:
            os.read(ended, 1 << 10)
            _report(line)
        if line in ready:
            if not (more := line.recv(1 << 20)):
                os._exit(0)
            *asked, rest = (rest + more).split(b"\n")
            for one in asked:
                mine = os.getpid()
                if pid := os.fork():
                    line.sendall(b"%d\n" % pid)
                    continue
                signal.set_wakeup_fd(-1)
                for file in (line.detach(), ended, woken):
                    os.close(file)
                _become(mine, *json.loads(one))
                return


def _load() -> None:
    """Import what workers import, load the compiled loops, and find the files of all modules."""
    import hushstream.cli.group
    import hushstream.cli.worker  # noqa: F401
    from hushstream.agents.deployment.compile import compile_config
    from hushstream.agents.worker.startup import warm
    from hushstream.topics.config.load import loads

    with tempfile.TemporaryDirectory(prefix="forks-") as folder:
        warm(compile_config(loads(TEXT, environ={}), {"events": 1}), Path(folder))
    inspect.getmodule(inspect.currentframe())  # as Faust does when an agent is declared


def _report(line: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        line.sendall(b"%d %d\n" % (pid, os.waitstatus_to_exitcode(status)))


def _become(parent: int, words: list[str], environ: dict[str, str], folder: str, log: str) -> None:
    """Become what a new process of the product is."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    os.setsid()
    os.chdir(folder)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for file in (1, 2):
        os.dup2(output, file)
    os.close(output)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = words


if __name__ == "__main__":
    serve(sys.argv[1])
    if sys.argv[0].endswith(".py"):
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        from hushstream.cli.group import main

        main()
