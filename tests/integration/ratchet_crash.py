"""``hush`` that kills itself at the n-th system call of a ratchet's step: ``python … N hush …``.

A start removes what the last crash left behind; the calls for this count as well.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Callable
from typing import Any

CALLS = ("open", "write", "fchmod", "fsync", "link", "replace", "unlink")


class Fatal:
    """The module ``os``, except that its n-th call ends this process."""

    def __init__(self, at: int) -> None:
        self._left = at

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._counted(real) if name in CALLS else real

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **named)

        return call


def main() -> None:
    """Run the command under its own name, with the fault."""
    at, command = int(sys.argv[1]), sys.argv[2:]
    from hushstream.topics.config.access import escrow, ratchet_file

    fatal: Any = Fatal(at)
    ratchet_file.os = escrow.os = fatal  # type: ignore[attr-defined]
    sys.argv = ["hush", *command[command.index("hushstream") + 1 :]]
    runpy.run_module("hushstream", run_name="__main__")


if __name__ == "__main__":
    main()
