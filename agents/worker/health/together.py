"""The pages of several worker processes merged into one; each sample names its process.

Each process serves its pages at a socket of its own, in a folder that only this user may enter;
`hush worker --processes` asks all of them for each request.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from .http import Page, health_page

SECONDS = 5.0  # within which a process has to answer
LABEL = "process"
READY = "hush_ready"


class Together:
    """Asks the processes of one machine."""

    def __init__(self, sockets: Sequence[Path]) -> None:
        self._sockets = sockets
        self._pool = ThreadPoolExecutor(max(len(sockets), 1), thread_name_prefix="pages")

    def public(self) -> dict[str, Page]:
        """Health, and what anyone may scrape, by path."""
        return {
            "/live": health_page(self.live),
            "/ready": health_page(self.ready),
            "/metrics": lambda: (200, generate_latest(_Scrape(self._metrics("/metrics", True)))),
        }

    def operator(self) -> dict[str, Page]:
        """Functions of raw data, by path."""
        path = "/internal/metrics"
        return {path: lambda: (200, generate_latest(_Scrape(self._metrics(path, False))))}

    def live(self) -> bool:
        """Whether every process is live: one that hangs must not hide behind the others."""
        return self._good("/live")

    def ready(self) -> bool:
        """Whether every process serves."""
        return self._good("/ready")

    def _good(self, path: str) -> bool:
        return all(status == 200 for status, _ in self._ask(path))

    def _metrics(self, path: str, ready: bool) -> dict[str, Metric]:
        found: dict[str, Metric] = {}
        for number, (_, body) in enumerate(self._ask(path)):
            families = list(text_string_to_metric_families(body.decode()))
            if ready and not any(family.name == READY for family in families):
                families.append(_not_ready())
            for family in families:
                into = found.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    labels = {**sample.labels, LABEL: str(number)}
                    into.samples.append(sample._replace(labels=labels))
        return found

    def _ask(self, path: str) -> list[tuple[int, bytes]]:
        return list(self._pool.map(lambda one: _asked(one, path), self._sockets))


def _not_ready() -> Metric:
    """Make the metric of a process that does not answer, or has not begun."""
    made = Metric(READY, "Whether this worker serves.", "gauge")
    made.add_sample(READY, {}, 0.0)
    return made


class _Scrape:
    """The metrics of one scrape."""

    def __init__(self, found: dict[str, Metric]) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        return iter(self._found.values())


class _Connection(http.client.HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(SECONDS)
        self.sock.connect(str(self._path))


def _asked(place: Path, path: str) -> tuple[int, bytes]:
    """Ask one process; (503, empty) if it does not answer."""
    connection = _Connection(place)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 503, b""
    finally:
        connection.close()
