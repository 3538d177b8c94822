"""Forks of one process that has imported the simulation: imports take longer than most schedules.

The simulation replaces libraries in a whole process, so each share of a campaign has its own. The
order of sets influences a schedule: the forking process has `PYTHONHASHSEED=0`, and its forks
inherit it.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
NAME = "tests.schedules.forks"  # under any import name
MOST = 1 << 16  # bytes in a command line


class Fork:
    """A module's `main` in a fork, with the interface of `subprocess.Popen`.

    Args:
        module: full name of a module.
        words: words of its command line.

    Attributes:
        stdout: its standard output.
        cpu: processor time in seconds, after it has ended.
    """

    def __init__(self, module: str, words: Sequence[str]) -> None:
        (source, sink), (ended, told) = os.pipe(), os.pipe()
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - `close` closes it
        asked = json.dumps([module, *words]).encode()
        assert len(asked) < MOST
        socket.send_fds(_server(), [asked], [sink, self._errors.fileno(), told])
        self.stdout, self._ended = os.fdopen(source, encoding="utf-8"), os.fdopen(ended)
        self._pid = int(self._ended.readline())  # so the next fork is requested after this one
        os.close(sink)
        os.close(told)
        self._code: int | None = None
        self.cpu = 0.0

    def wait(self) -> int:
        """Wait for the end; return the exit status, negative for a signal."""
        if self._code is None:
            code, cpu = self._ended.readline().split()
            self._code, self.cpu = int(code), float(cpu)
        return self._code

    def kill(self) -> None:
        """Kill it, unless its guardian has reported its end."""
        if self._code is None and not select.select([self._ended], [], [], 0)[0]:
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.kill(self._pid, signal.SIGKILL)

    def errors(self) -> str:
        """Its standard error output."""
        self._errors.seek(0)
        return self._errors.read()

    def close(self) -> None:
        """Wait for its end and close its files."""
        self.wait()
        for file in (self.stdout, self._ended, self._errors):
            file.close()


def run(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a module's `main` to its end."""
    fork = Fork(module, words)
    printed, code = fork.stdout.read(), fork.wait()
    done = subprocess.CompletedProcess([module, *words], code, printed, fork.errors())
    fork.close()
    return done


@cache
def _server() -> socket.socket:
    """The connection to this process's server, which ends with the process."""
    mine, its = socket.socketpair()
    environ = dict(os.environ, PYTHONHASHSEED="0", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    command = [sys.executable, "-m", NAME, str(its.fileno())]
    server = subprocess.Popen(command, cwd=ROOT, env=environ, pass_fds=[its.fileno()])
    its.close()
    atexit.register(lambda: (mine.close(), server.wait()))
    return mine


def serve(line: socket.socket) -> None:
    """Fork for each line, until the connection ends."""
    from . import prepared  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no need to wait for guardians
    while True:
        asked, files, _, _ = socket.recv_fds(line, MOST, 3)
        if not asked:
            return
        if not os.fork():
            line.close()
            _guard(json.loads(asked), *files)
        for file in files:
            os.close(file)


def _guard(words: list[str], output: int, errors: int, told: int) -> None:
    """Fork once more; report that process's id and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if not pid:
        os.close(told)
        _become(words, output, errors)
    os.close(output)
    os.write(told, b"%d\n" % pid)
    _, status, used = os.wait4(pid, 0)
    cpu = used.ru_utime + used.ru_stime
    os.write(told, b"%d %.3f\n" % (os.waitstatus_to_exitcode(status), cpu))
    os._exit(0)


def _become(words: list[str], output: int, errors: int) -> None:
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.close(output)
    os.close(errors)
    sys.argv = words
    code = 1
    try:
        importlib.import_module(words[0]).main()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
