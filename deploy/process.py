"""Child processes that never outlive their parent, and processes found again by their id.

A child is tied to its parent in one of two ways. On Linux the kernel kills it when the *thread*
that started it ends, hence that thread is kept for as long as the child runs. Elsewhere a small
shell holds a pipe whose other end closes with the parent, however the parent ends. Only the second
tie can be undone: for a child that is to run on once it is known to work.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from ..errors import needs

with needs("local"):
    import psutil

KERNEL = sys.platform == "linux"

# Run by a bare interpreter that then becomes the child: asks the kernel for SIGKILL at the
# parent's death, and gives up if that has already happened.
_TIE = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class Child:
    """A running child in a process group of its own, so that Ctrl-C reaches the parent alone.

    Args:
        command: program (a full path) and arguments.
        log: file that both output streams are appended to.
        kernel: tie by the kernel (Linux), for good, rather than by a pipe, which `untie` closes.
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
        """Exit status (negative: the signal), or ``None`` while it runs."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal; a child that has ended already is left alone."""
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
        """Let a child that is tied by a pipe run on when this process ends."""
        if self._guard is not None:
            self._guard.kill()  # before its pipe closes: the child's id may be another's by then
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
            # A server needs none of our settings, least of all the noise key.
            env={name: value for name, value in os.environ.items() if name[:5] != "HUSH_"},
        )


def _start_in_keeper(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start ``command`` from a thread that lives until it ends and collects its exit status.

    What the start raises is raised here.
    """
    started = threading.Event()
    outcome: list[subprocess.Popen[bytes] | BaseException] = []

    def keep() -> None:
        try:
            process = _popen(command, log)
        except BaseException as error:
            outcome.append(error)
            return
        else:
            outcome.append(process)
        finally:
            started.set()
        process.wait()

    threading.Thread(target=keep, name="child-keeper", daemon=True).start()
    started.wait()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _guard(pid: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", f"read _; kill -KILL {pid}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def command_of(pid: int) -> str:
    """Return the command line of a process, or an empty string if there is none (or a zombie)."""
    with contextlib.suppress(psutil.Error):
        return " ".join(psutil.Process(pid).cmdline())
    return ""


def end_process(pid: int, mark: str, timeout: float) -> bool:
    """End process ``pid`` if its command line contains ``mark``: SIGTERM, at last SIGKILL.

    Returns whether such a process was found.
    """
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)  # knows when it began: never signals a later holder of the id
        if mark not in " ".join(process.cmdline()):
            return False
        for send in (process.terminate, process.kill):
            send()
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(timeout)
                break
        return True
    return False
