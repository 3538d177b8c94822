"""The web server of the live page: fixed files, two JSON documents and a stream of events.

It answers only GET and sets no cookie. Pages may load nothing from elsewhere, run only the two
scripts beside the page, and not be framed.
"""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Iterator
from http.server import HTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ...agents.worker.health.guarded import Guarded, GuardedHandler, loopback
from ...errors import EngineError, LedgerError, ParameterError
from .board import Board
from .views import Wish

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json; charset=utf-8",
}
NAMED = ("page.css", "page.js", "panel.js", "charts.js", "map.js", "text.js", "icon.svg")
PAGES = {"/": "index.html"} | {f"/{name}": name for name in NAMED}
MOST_LISTENERS = 200
IDLE_SECONDS = 15.0
SMALL = 1_000  # bytes; smaller answers are not worth compressing


class PageServer(Guarded, HTTPServer):
    """Server of one board at a host and port.

    On the loopback interface it accepts only addresses and `localhost` as Host; elsewhere any name,
    since everything it shows is public.
    """

    most = 256
    share = 2
    patience = 30.0

    def __init__(self, address: tuple[str, int], board: Board) -> None:
        self.board = board
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        folder = files(__package__).joinpath("page")
        self.files = {path: folder.joinpath(name).read_bytes() for path, name in PAGES.items()}
        super().__init__(address, _Visit)
        self.seats = threading.Semaphore(min(MOST_LISTENERS, self.connections.most * 3 // 4))
        if loopback(str(self.server_address[0])):
            self.names = frozenset()

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        named = host.decode() if isinstance(host, bytes) else str(host)
        return f"http://{f'[{named}]' if ':' in named else named}:{port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing when a browser disconnects in the middle of an answer."""


class _Visit(GuardedHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path in self.server.files:
            self._answer(200, PAGES[url.path].rsplit(".", 1)[1], self.server.files[url.path])
        elif url.path == "/events":
            self._events()
        elif url.path == "/summary.json":
            self._summary()
        elif url.path == "/view.json":
            self._view(url.query)
        else:
            self._json(404, {"error": "there is no such page"})

    do_HEAD = do_GET

    def _summary(self) -> None:
        try:
            self._json(200, self.server.board.summary())
        except LedgerError as error:
            self._json(500, {"error": str(error)})

    def _view(self, query: str) -> None:
        given = {name: values[-1] for name, values in parse_qs(query, True).items()}
        try:
            body = self.server.board.view(given.pop("name", ""), asked(given))
        except ParameterError as error:
            self._json(400, {"error": str(error)})
            return
        self._json(200, body) if body else self._json(404, {"error": "there is no such pipeline"})

    def _json(self, status: int, body: Any) -> None:
        data = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        self._answer(status, "json", data.encode("utf-8", "replace"))

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        more = {"Content-Type": KINDS[kind]}
        if len(body) > SMALL and "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, 5, mtime=0)
            more["Content-Encoding"] = "gzip"
        self.send_response(status)
        for name, value in (HEADERS | more | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def _events(self) -> None:
        if not self.server.seats.acquire(blocking=False):
            self._json(503, {"error": "too many pages follow already"})
            return
        try:
            self.close_connection = True
            self.send_response(200)
            for name, value in (HEADERS | {"Content-Type": "text/event-stream"}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "GET":
                return
            for line in self._lines():
                self.wfile.write(line)
                self.wfile.flush()
        except OSError:
            pass  # the browser went away
        finally:
            self.server.seats.release()

    def _lines(self) -> Iterator[bytes]:
        """A line now, a line at each change, and occasional ones to show that the server lives."""
        board, version = self.server.board, -1
        yield b"retry: 1000\n\n"
        while not board.ended:
            now = board.wait(version, IDLE_SECONDS)
            yield b": alive\n\n" if now == version else b"event: change\ndata: %d\n\n" % now
            version = now


def asked(given: dict[str, str]) -> Wish:
    """Read a viewer's choice from query fields; a wrong field is a `ParameterError`."""
    found: dict[str, Any] = {}
    for name, text in given.items():
        if name in ("value", "search", "key"):
            found[name] = text
        elif name in ("window", "trigger", "page", "size"):
            if not text.removeprefix("-").isdecimal() or len(text) > 18:
                raise ParameterError(name, text[:40], "must be a whole number")
            found[name] = int(text)
        else:
            raise ParameterError("query", name[:40], "has a field that is unknown")
    return Wish(**found)


def serve(board: Board, host: str, port: int) -> PageServer:
    """Serve the page of a board in a separate thread, until the server is shut down.

    Port 0 takes a free one. Raises `EngineError` if the address cannot be used.
    """
    try:
        server = PageServer((host, port), board)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise EngineError(
            f"the page cannot be served on {host}:{port} ({reason}): name another with --port "
            "or --bind"
        ) from None
    threading.Thread(target=server.serve_forever, name="live page", daemon=True).start()
    return server
