"""Liveness of workers, as an orchestrator sees it: a worker that falls silent is restarted.

Workers notify systemd by datagrams; here a thread takes systemd's place. That needs no port, and a
worker whose `/live` fails also falls silent here.
"""

from __future__ import annotations

import contextlib
import selectors
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path

STALL = 90.0  # seconds without progress after which a worker's task counts as hanging
SILENCE = 30.0  # seconds; a live worker sends a notification every second
START = 300.0  # seconds until its first notification
GAP = 5.0  # seconds; after a longer sleep of this process, silence proves nothing
TOLD = "has made no progress"  # logged by a worker about a hanging task


class Watch:
    """Listens to the workers of one deployment.

    Args:
        silence: seconds without a notification after which a worker counts as unwell.
        start: seconds allowed until the first notification.
    """

    def __init__(self, silence: float = SILENCE, start: float = START) -> None:
        self._silence, self._start = silence, start
        self._folder = Path(tempfile.mkdtemp(prefix="hush-"))  # the name of a socket must be short
        self._selector = selectors.DefaultSelector()
        self._ears: dict[str, socket.socket] = {}
        self._due: dict[str, float] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="watch", daemon=True)
        self._thread.start()

    def began(self, member: str) -> dict[str, str]:
        """Expect a worker's first notification; returns its environment."""
        with self._lock:
            ear = self._ears.get(member) or self._open(member)
            self._take(member)  # discard notifications of its last life
            self._due[member] = time.monotonic() + self._start
        watchdog = str(int(self._silence * 1e6))
        return {"NOTIFY_SOCKET": ear.getsockname(), "WATCHDOG_USEC": watchdog}

    def _open(self, member: str) -> socket.socket:
        ear = self._ears[member] = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ear.setblocking(False)
        ear.bind(str(self._folder / str(len(self._ears))))
        self._selector.register(ear, selectors.EVENT_READ, member)
        return ear

    def unwell(self, member: str) -> bool:
        """Whether a notification of a worker is overdue."""
        with self._lock:
            return time.monotonic() > self._due.get(member, float("inf"))

    def excuse(self, member: str) -> None:
        """Restart the timer of a worker that was paused."""
        with self._lock:
            self._hear(member)

    def _hear(self, member: str) -> None:
        self._due[member] = max(self._due.get(member, 0.0), time.monotonic() + self._silence)

    def _listen(self) -> None:
        looked = time.monotonic()
        while not self._closed.is_set():
            ready = self._selector.select(0.5)
            now = time.monotonic()
            slept, looked = now - looked > GAP, now
            with self._lock:
                for member in self._ears if slept else ():  # perhaps they slept, too
                    self._hear(member)
                for key, _ in ready:
                    self._take(key.data)

    def _take(self, member: str) -> None:
        with contextlib.suppress(BlockingIOError):
            while said := self._ears[member].recv(4096):
                if said == b"WATCHDOG=1":
                    self._due[member] = time.monotonic() + self._silence

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        self._thread.join()
        self._selector.close()
        for ear in self._ears.values():
            ear.close()
        shutil.rmtree(self._folder, ignore_errors=True)
