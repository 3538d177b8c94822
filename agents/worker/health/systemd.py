"""Messages to systemd: the worker is ready, and a watchdog message as long as it makes progress.

The protocol of sd_notify(3): datagrams to the socket that ``NOTIFY_SOCKET`` names. A unit with
``Type=notify`` waits for the first, and with ``WatchdogSec`` restarts a worker that falls silent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Mapping

LOOK_SECONDS = 1.0


class Notifier:
    """Reports the worker's state to systemd.

    It runs in a thread of its own, so that it notices a blocked event loop.

    Args:
        environ: environment, where systemd puts the socket's name and the watchdog's time.
    """

    def __init__(
        self,
        ready: Callable[[], bool],
        live: Callable[[], bool],
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._ready = ready
        self._live = live
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._every = min(_watchdog(environ) / 3, LOOK_SECONDS)
        self._ended = threading.Event()
        self._last = threading.Lock()  # held while sending, so that no message follows the last one
        self._told = False

    def start(self) -> None:
        """Start the thread, if systemd has asked for messages."""
        if self._address:
            threading.Thread(target=self._run, name="systemd", daemon=True).start()

    def stop(self) -> None:
        """Tell systemd that the worker stops; no message follows."""
        with self._last:
            self._ended.set()
            self._tell("STOPPING=1")

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            if not self._told and self._ready():
                self._told = self._say("READY=1")
            if self._live():
                self._say("WATCHDOG=1")

    def _say(self, text: str) -> bool:
        """Send a message, unless the last one has been sent."""
        with self._last:
            return not self._ended.is_set() and self._tell(text)

    def _tell(self, text: str) -> bool:
        """Send a message; return whether it was sent."""
        if not self._address:
            return False
        # A lost message is harmless: the next one follows well within the watchdog's time. Waiting
        # for a listener that does not read would keep a worker from stopping.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto(text.encode(), self._address)
            return True
        return False


def _watchdog(environ: Mapping[str, str]) -> float:
    """Seconds after which systemd restarts a silent process; a short time if it never does."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 3 * LOOK_SECONDS
    return int(environ.get("WATCHDOG_USEC", "0")) / 1e6 or 3 * LOOK_SECONDS
