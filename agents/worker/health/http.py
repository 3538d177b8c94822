"""Two small HTTP servers: public metrics and health, and the operator's metrics."""

from __future__ import annotations

import logging
import socket
import socketserver
import sys
from collections.abc import Callable, Iterable
from http.server import HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from ....errors import EngineError
from ....topics.config.model import Engine
from ..lines.redaction import told
from .guarded import Guarded, GuardedHandler, loopback

Page = Callable[[], tuple[int, bytes]]
log = logging.getLogger("hushstream")
CONTENT = "text/plain; version=0.0.4; charset=utf-8"


def metrics_page(series: CollectorRegistry) -> Page:
    """Make a page with all metrics of one collector."""
    return lambda: (200, generate_latest(series))


def health_page(healthy: Callable[[], bool]) -> Page:
    """Make a page that answers 200 if healthy, else 503, and says nothing else."""
    return lambda: (200, b"ok\n") if healthy() else (503, b"not yet\n")


def serve(
    host: str, port: int, pages: dict[str, Page], names: Iterable[str] = (), private: bool = False
) -> HTTPServer:
    """Serve pages in a thread of their own, which ends when the server is shut down.

    On the loopback interface, pages are for this machine alone, so a request must name an address,
    `localhost` or one of ``names``. On other interfaces this holds for private pages only; the
    others answer under any host name.

    Args:
        port: port to listen at; 0: any free one.
        pages: pages by path, each called in a thread of the server.
        private: whether the pages are functions of raw data.

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
    if private or loopback(str(server.server_address[0])):
        server.names = frozenset(names)
    Thread(target=server.serve_forever, name=f"web {port}", daemon=True).start()
    return server


def serve_public(engine: Engine, pages: dict[str, Page]) -> HTTPServer:
    """Serve pages that anyone may read at the configured address; see `serve`.

    Raises:
        EngineError: the address is taken.
    """
    return serve(engine.public_host, engine.public_port, pages, engine.page_names)


def serve_operator(engine: Engine, pages: dict[str, Page]) -> HTTPServer:
    """Serve functions of raw data at the configured address; see `serve`.

    Raises:
        EngineError: the address is taken.
    """
    return serve(engine.operator_host, engine.operator_port, pages, engine.page_names, private=True)


class _Quiet(Guarded):
    """Prints no traceback: most errors are clients that hung up, and a text may quote records."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error that is not the client's."""
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError | TimeoutError):
            log.error("a page could not be served: %s", told(error))


class ProbeServer(_Quiet, HTTPServer):
    """Serves pages at an address."""

    def __init__(self, address: tuple[str, int], handler: type[GuardedHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)


class LocalServer(_Quiet, socketserver.UnixStreamServer):
    """Serves pages to the local processes that may open its socket."""


def serve_local(path: Path, pages: dict[str, Page]) -> LocalServer:
    """Serve pages at a socket in the file system, in a thread of their own.

    Args:
        path: path of the socket, in a folder that only this user may enter.
    """
    server = LocalServer(str(path), _handler(pages))
    Thread(target=server.serve_forever, name=f"web {path.name}", daemon=True).start()
    return server


def _handler(pages: dict[str, Page]) -> type[GuardedHandler]:
    class Handler(GuardedHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path.split("?")[0])
            status, body = page() if page else (404, b"not found\n")
            self.send_response(status)
            self.send_header("Content-Type", CONTENT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _remedy(self) -> str:
            return "ask for its address, or list the name in engine.page_names"

    return Handler
