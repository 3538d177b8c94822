"""Returns free memory that a process holds to the system.

Tables of unit rows are replaced by larger ones, hundreds of megabytes at a time, and steps allocate
and free as much. The C library keeps freed blocks in per-thread arenas, and gaps between live
blocks: together up to as much again as is in use.
"""

from __future__ import annotations

import ctypes
import threading
from mmap import PAGESIZE
from pathlib import Path
from typing import Any

SECONDS = 10.0  # between two looks; more often, pages would be returned that are soon needed again
GROWN = 48 << 20  # bytes of growth that make a scan of all free blocks worthwhile
ARENAS = 2  # arenas of the C library; its default is eight for each core
_ARENA_MAX = -8  # of `mallopt`, in GNU's malloc.h
_STATM = Path("/proc/self/statm")


class Resident:
    """Returns free blocks to the system whenever the process has grown.

    Args:
        library: the C library.
        grown: bytes of growth, see `GROWN`.
    """

    def __init__(self, library: Any, grown: int = GROWN) -> None:
        self._trim, self._grown = library.malloc_trim, grown
        self._least = resident()

    def look(self) -> bool:
        """Give free memory back if the process has grown since the last time; whether it had."""
        now = resident()
        if now < self._least + self._grown:
            self._least = min(self._least, now)
            return False
        self._trim(0)  # blocks other threads only for the arena that is being trimmed
        self._least = resident()
        return True

    def run(self, ended: threading.Event, seconds: float = SECONDS) -> None:
        """Look again and again, until the event is set."""
        while not ended.wait(seconds):
            self.look()


def resident() -> int:
    """Resident memory of this process, in bytes."""
    return int(_STATM.read_text().split()[1]) * PAGESIZE


def watch() -> threading.Event:
    """Make threads share arenas, and start a thread that returns free memory.

    Set the event to end that thread. Where the C library is not GNU's, or the system is not Linux,
    nothing is done.
    """
    ended, library = threading.Event(), ctypes.CDLL(None)
    if hasattr(library, "malloc_trim") and _STATM.exists():
        library.mallopt(_ARENA_MAX, ARENAS)
        watching = Resident(library).run
        threading.Thread(target=watching, args=(ended,), name="resident", daemon=True).start()
    return ended
