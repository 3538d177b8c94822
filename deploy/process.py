"""Child processes that never outlive their parent, and processes identified by their id.

A child is tied to its parent in one of two ways. On Linux the kernel kills it when the *thread*
that started it ends, so that thread is kept as long as the child runs. Elsewhere a small shell
holds a pipe whose other end closes with the parent, however the parent ends. Only the second tie
can be undone, for a child that outlives its parent once it is known to work.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from ..errors import needs

with needs("local"):
    import psutil

KERNEL = sys.platform == "linux"

# A bare interpreter runs this and then becomes the child: it asks the kernel to kill it when the
# parent dies, and exits if the parent is already dead.
_TIE = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class Child:
    """A running child in its own process group, so that Ctrl-C reaches only the parent.

    Args:
        command: program (a full path) and arguments.
        log: file to which both output streams are appended.
        kernel: tie it by the kernel (Linux) for good, not by a pipe, which `untie` can close.
    """

    def __init__(self, command: Sequence[str], log: Path, *, kernel: bool = KERNEL) -> None:
        launcher = [sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid())] if kernel else []
        self._process = _start_in_keeper([*launcher, *command], log)
        self._guard = None if kernel else _guard(self._process.pid)

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit status (negative: a signal), or ``None`` while it runs."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the child has already ended."""
        self._process.send_signal(number)

    def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds; return whether the child has ended."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        self.untie()
        return True

    def untie(self) -> None:
        """Release a child tied by a pipe, so that it outlives this process."""
        if self._guard is not None:
            self._guard.kill()  # before its pipe closes: by then the child's id may be reused
            self._guard.communicate()
            self._guard = None


def _popen(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # A server does not need our settings, least of all the noise key.
            env={name: value for name, value in os.environ.items() if name[:5] != "HUSH_"},
        )


def _start_in_keeper(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start ``command`` from a thread that lives until the child ends; errors are raised here."""
    started: Future[subprocess.Popen[bytes]] = Future()

    def keep() -> None:
        try:
            process = _popen(command, log)
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()

    threading.Thread(target=keep, name="child-keeper", daemon=True).start()
    return started.result()


def _guard(pid: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", f"read _; kill -KILL {pid}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def command_of(pid: int) -> str:
    """Return the command line of a process; empty if it does not exist or is a zombie."""
    with contextlib.suppress(psutil.Error):
        return " ".join(psutil.Process(pid).cmdline())
    return ""


def end_process(pid: int, mark: str, timeout: float) -> bool:
    """End a process, finally by SIGKILL; False if its command line does not contain ``mark``."""
    with contextlib.suppress(psutil.NoSuchProcess):
        # psutil checks the start time, so a later process with the same id is never signalled.
        process = psutil.Process(pid)
        if mark not in " ".join(process.cmdline()):
            return False
        for send in (process.terminate, process.kill):
            send()
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(timeout)
                break
        return True
    return False
