"""Memory that a process keeps for nothing, given back to the system.

Rows of units grow and are replaced by the hundred megabytes, and steps take and free as much. The
C library keeps what is freed for later, in a part of its own for each thread, and holes between
blocks that stay: up to as much again as is in use.
"""

from __future__ import annotations

import ctypes
import threading
from mmap import PAGESIZE
from pathlib import Path
from typing import Any

SECONDS = 10.0  # between two looks: pages that are used again cost more than they are worth
GROWN = 48 << 20  # bytes of growth after which it is worth a look at all free blocks
ARENAS = 2  # parts in which the C library keeps what is free; by default eight for each core
_ARENA_MAX = -8  # of `mallopt`, in GNU's malloc.h
_STATM = Path("/proc/self/statm")


class Resident:
    """Gives free blocks back whenever the process has grown.

    Args:
        library: the C library.
        grown: bytes of growth, see `GROWN`.
    """

    def __init__(self, library: Any, grown: int = GROWN) -> None:
        self._trim, self._grown = library.malloc_trim, grown
        self._least = resident()

    def look(self) -> bool:
        """Give back what is free, if the process has grown since it did last; whether it has."""
        now = resident()
        if now < self._least + self._grown:
            self._least = min(self._least, now)
            return False
        self._trim(0)  # other threads go on meanwhile, but for the part that is looked at
        self._least = resident()
        return True

    def run(self, ended: threading.Event, seconds: float = SECONDS) -> None:
        """Look again and again, until the event is set."""
        while not ended.wait(seconds):
            self.look()


def resident() -> int:
    """Bytes of memory that this process keeps."""
    return int(_STATM.read_text().split()[1]) * PAGESIZE


def watch() -> threading.Event:
    """Let threads share what is free, and start a thread that gives it back.

    Set the event to end that thread. Where the C library is not GNU's, or the system is not Linux,
    nothing is done.
    """
    ended, library = threading.Event(), ctypes.CDLL(None)
    if hasattr(library, "malloc_trim") and _STATM.exists():
        library.mallopt(_ARENA_MAX, ARENAS)
        watching = Resident(library).run
        threading.Thread(target=watching, args=(ended,), name="resident", daemon=True).start()
    return ended
