"""A container's limit of memory for a process: a cgroup of Linux, of version 2 or 1."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PATIENCE = 10.0  # seconds in which a killed process leaves its cgroup


class Cage:
    """A cgroup whose processes share ``limit`` bytes of memory; the kernel kills one beyond that.

    Args:
        folder: folder of the cgroup, which exists.
        unified: whether it is of version 2.
    """

    def __init__(self, folder: Path, unified: bool) -> None:
        self.folder = folder
        self._events = folder / ("memory.events" if unified else "memory.oom_control")

    def prefix(self) -> list[str]:
        """Prefix of a command line that runs it, and its children, inside."""
        script = 'echo $$ > "$0" && exec "$@"'
        return ["/bin/sh", "-c", script, str(self.folder / "cgroup.procs")]

    @property
    def killed(self) -> int:
        """Processes that the kernel has killed for lack of memory; 0 if it does not count them."""
        words = dict(line.split() for line in self._events.read_text().splitlines())
        return int(words.get("oom_kill", 0))


@contextlib.contextmanager
def cage(limit: int) -> Iterator[Cage | None]:
    """Make a cgroup of ``limit`` bytes without swap; None if this process may not."""
    made = _made(limit)
    try:
        yield made
    finally:
        if made is not None:
            _remove(made.folder)


def _made(limit: int) -> Cage | None:
    for folder, unified in _places():
        with contextlib.suppress(OSError):
            folder.mkdir()
            try:
                _limit(folder, unified, limit)
                return Cage(folder, unified)
            except OSError:
                _remove(folder)
    return None


def _places() -> Iterator[tuple[Path, bool]]:
    """Folders to try for a cgroup: first below this process's own, so that its limits hold too."""
    name = f"hush-floods-{os.getpid()}"
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        root = ROOT / "memory" if kinds else ROOT
        for parent in dict.fromkeys((root / path.lstrip("/"), root)):
            if (parent / "cgroup.procs").exists():
                yield parent / name, not kinds


def _limit(folder: Path, unified: bool, limit: int) -> None:
    names = ("memory.max", "memory.swap.max") if unified else ("memory.limit_in_bytes", None)
    (folder / names[0]).write_text(str(limit))
    with contextlib.suppress(OSError):  # the file is missing without swap accounting
        if unified:
            (folder / "memory.swap.max").write_text("0")
        else:
            (folder / "memory.memsw.limit_in_bytes").write_text(str(limit))


def _remove(folder: Path) -> None:
    until = time.monotonic() + PATIENCE
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > until:
                return
            time.sleep(0.1)
