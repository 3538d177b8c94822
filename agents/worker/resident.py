"""Memory that a process keeps for nothing, given back to the system.

Rows of units grow and are replaced by the hundred megabytes, and steps take and free as much. The
C library keeps what is freed for later, in a part of its own for each thread, and holes between
blocks that stay: up to as much again as is in use. Nor are the pages of the compiler needed once
the loops are there.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from mmap import PAGESIZE
from pathlib import Path
from typing import Any

SECONDS = 10.0  # between two looks: pages that are used again cost more than they are worth
GROWN = 48 << 20  # bytes of growth after which it is worth a look at all free blocks
_DONT_NEED = 4  # of `madvise`, in Linux's mman-common.h
_STATM, _MAPS = Path("/proc/self/statm"), Path("/proc/self/smaps")


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
    """Start a thread that gives memory back; set the event to end it.

    Where the C library is not GNU's, or the system is not Linux, nothing is done.
    """
    ended, library = threading.Event(), ctypes.CDLL(None)
    if hasattr(library, "malloc_trim") and _STATM.exists():
        watching = Resident(library).run
        threading.Thread(target=watching, args=(ended,), name="resident", daemon=True).start()
    return ended


def drop_code() -> int:
    """Forget the pages of code that is mapped from files; return how many bytes they were.

    What runs again is read again, from the system's cache of files. The compiler's is most of it,
    and loops that are in the cache need it no more. Pages that were written are left alone: the
    file does not have them.
    """
    library, found = ctypes.CDLL(None), 0
    if not (_MAPS.exists() and hasattr(library, "madvise")):
        return 0
    for begin, end, there in _code(_MAPS.read_text()):
        size = ctypes.c_size_t(end - begin)
        if library.madvise(ctypes.c_void_p(begin), size, _DONT_NEED) == 0:
            found += there
    return found


def _code(maps: str) -> Iterator[tuple[int, int, int]]:
    """List begin, end and bytes in memory of code that is as in its file."""
    begin = end = there = 0
    for line in maps.splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):  # the head of another mapping
            code = rest[0] == "r-xp" and rest[-1].startswith("/")
            begin, end = (int(one, 16) for one in first.split("-")) if code else (0, 0)
        elif first == "Rss:":
            there = int(rest[0]) << 10
        elif first == "Anonymous:" and end and rest[0] == "0":  # written pages are its own
            yield begin, end, there
