"""Two small HTTP servers: public metrics and health, and the operator's metrics."""

from __future__ import annotations

import logging
import socketserver
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from ....errors import EngineError
from ..lines.redaction import told

Page = Callable[[], tuple[int, bytes]]
log = logging.getLogger("hushstream")
CONTENT = "text/plain; version=0.0.4; charset=utf-8"


def metrics_page(registry: CollectorRegistry) -> Page:
    """Make a page with all metrics of one registry."""
    return lambda: (200, generate_latest(registry))


def health_page(healthy: Callable[[], bool]) -> Page:
    """Make a page that answers 200 if healthy, else 503, and says nothing else."""
    return lambda: (200, b"ok\n") if healthy() else (503, b"not yet\n")


def serve(host: str, port: int, pages: dict[str, Page]) -> ThreadingHTTPServer:
    """Serve pages in a thread of their own.

    Args:
        host: address to listen at.
        port: to listen at; 0: one that is free.
        pages: by path; each is called in a thread of the server.

    Returns:
        The server; shut it down to end the thread.

    Raises:
        EngineError: the address is taken.
    """

    try:
        server = ProbeServer((host, port), _handler(pages))
    except OSError as error:
        raise EngineError(
            f"metrics cannot be served on {host}:{port} ({error.strerror}): "
            "set another port, or 0 for none, in [engine]"
        ) from None
    Thread(target=server.serve_forever, name=f"web {port}", daemon=True).start()
    return server


class _Quiet(socketserver.BaseServer):
    """Prints no traceback: mostly a client has hung up, and a text may quote records."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of an error that is not the client's."""
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError | TimeoutError):
            log.error("a page could not be served: %s", told(error))


class ProbeServer(_Quiet, ThreadingHTTPServer):
    """Serves pages at an address."""

    daemon_threads = True


class LocalServer(_Quiet, socketserver.ThreadingUnixStreamServer):
    """Serves pages to the processes of one machine that may open its socket."""

    daemon_threads = True


def serve_local(path: Path, pages: dict[str, Page]) -> LocalServer:
    """Serve pages at a socket in the file system, in a thread of their own.

    Args:
        path: of the socket, in a folder that nobody else may enter.
        pages: by path; each is called in a thread of the server.

    Returns:
        The server; shut it down to end the thread.
    """
    server = LocalServer(str(path), _handler(pages))
    Thread(target=server.serve_forever, name=f"web {path.name}", daemon=True).start()
    return server


def _handler(pages: dict[str, Page]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = "hush"
        sys_version = ""

        def do_GET(self) -> None:
            page = pages.get(self.path.split("?")[0])
            status, body = page() if page else (404, b"not found\n")
            self.send_response(status)
            self.send_header("Content-Type", CONTENT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not logged."""

    return Handler
