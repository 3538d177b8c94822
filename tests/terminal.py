"""A terminal of a given size that runs a command as for a person."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>()][A-Z0-9]?|\r")
HUSH = (sys.executable, "-m", "hushstream")


class Terminal:
    """A running command, whose output is collected as text.

    Attributes:
        raw: everything written to it.
    """

    def __init__(self, words: Sequence[str], columns: int, folder: Path, lines: int = 40) -> None:
        self.raw = ""
        self._left = b""
        self._pid, self._fd = pty.fork()
        if self._pid == 0:  # the command
            os.chdir(folder)
            gone = ("COLUMNS", "LINES", "NO_COLOR")
            kept = {k: v for k, v in os.environ.items() if k not in gone}
            os.execvpe(words[0], list(words), kept | {"TERM": "xterm-256color"})
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    @property
    def text(self) -> str:
        """The output without colours and cursor movements."""
        return CONTROL.sub("", self.raw)

    def read(self, seconds: float) -> bool:
        """Read what comes within some time; False once the command has closed the terminal."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if not select.select([self._fd], [], [], left)[0]:
                break
            try:
                found = os.read(self._fd, 65536)
            except OSError:  # on Linux, this means that no process has it open
                return False
            if not found:
                return False
            self._left += found
            whole = self._left.decode("utf-8", "ignore")  # a character may have come in part
            if len(whole.encode()) == len(self._left):
                self.raw, self._left = self.raw + whole, b""
        return True

    def until(self, words: str, patience: float = 180) -> None:
        """Read until the output has some words."""
        until = time.monotonic() + patience
        while words not in self.text:
            open_ = self.read(0.3)
            assert words in self.text or (open_ and time.monotonic() < until), self.text[-4000:]

    def interrupt(self) -> None:
        """Type Ctrl-C."""
        os.write(self._fd, b"\x03")

    def end(self, patience: float = 300) -> int:
        """Wait for the command's end; return its exit code, negative for a signal."""
        until = time.monotonic() + patience
        while self.read(1.0):
            if time.monotonic() > until:
                os.kill(self._pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        os.close(self._fd)
        assert time.monotonic() <= until, f"did not end:\n{self.text[-4000:]}"
        return code


def hush(words: Sequence[str], columns: int, folder: Path) -> tuple[int, str]:
    """Run `hush` with these words to its end; return its exit code and text."""
    terminal = Terminal([*HUSH, *words], columns, folder)
    return terminal.end(), terminal.text
