"""The base of all our HTTP servers: few connections, short time-outs, and a check of the host.

Anyone can connect to a public port and send nothing. So a server has a fixed number of places, far
fewer than the files that its process may open, and when all are taken, the connection that has
waited longest without a whole request is closed. A web page can also point its own host name at a
port on the reader's machine (DNS rebinding); the browser then lets the page read the answers. Such
a request carries the page's host name, where an honest one has an address, `localhost` or a
declared name.
"""

from __future__ import annotations

import errno
import ipaddress
import resource
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any

HEAD_BYTES = 16_384  # most of a request's line and headers together
ROOM_SECONDS = 1.0  # for which a new connection waits for a place
PAUSE_SECONDS = 0.1  # of pause after an accept that found no free file handle
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
WRONG_HOST = "this server does not answer for the host that was asked for"


def places(most: int, share: int) -> int:
    """Number of connections that one server may hold.

    Args:
        most: upper limit, however many files the process may open.
        share: divisor: the server takes at most one in ``share`` of the files that this process may
            open.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(min(most, soft // share), 2)


def loopback(address: str) -> bool:
    """Whether an address is on the loopback interface; a host name never is."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def answers_for(host: str, names: Iterable[str] = ()) -> bool:
    """Whether a ``Host`` header, with or without a port, shows that the address itself was asked.

    >>> [answers_for(one) for one in ("127.0.0.1:9465", "[::1]", "localhost", "attacker.example")]
    [True, True, True, False]
    """
    text, port = host.strip().casefold(), ""
    if text.startswith("["):
        text, bracket, port = text[1:].partition("]")
        literal = bool(bracket) and _literal(text, ipaddress.IPv6Address)
    else:
        text, colon, port = text.partition(":")
        port = colon + port
        known = {"localhost", *(name.casefold() for name in names)}
        literal = text in known or _literal(text, ipaddress.IPv4Address)
    return literal and (port == "" or (port[0] == ":" and port[1:].isdecimal()))


def _literal(text: str, kind: Callable[[str], object]) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


class Connections:
    """Open connections of one server, in the order of their age.

    Args:
        patience: seconds in which a connection must bring a whole request.
    """

    def __init__(self, most: int, patience: float) -> None:
        self.most = most
        self._patience = patience
        self._changed = threading.Condition()
        self._since: dict[socket.socket, float | None] = {}  # waits since; None: being answered

    def enter(self, one: socket.socket) -> bool:
        """Take a place for a new connection; False if none becomes free in time."""
        with self._changed:
            if len(self._since) >= self.most:
                waiting = [(at, other) for other, at in self._since.items() if at is not None]
                if waiting:
                    _end(min(waiting, key=lambda found: found[0])[1])
                if not self._changed.wait_for(lambda: len(self._since) < self.most, ROOM_SECONDS):
                    return False
            self._since[one] = time.monotonic()
            return True

    def waits(self, one: socket.socket) -> None:
        """Note that a connection may bring its next request."""
        self._note(one, time.monotonic())

    def answers(self, one: socket.socket) -> None:
        """Note that a whole request has come: the connection is not ended before its answer."""
        self._note(one, None)

    def _note(self, one: socket.socket, since: float | None) -> None:
        with self._changed:
            if one in self._since:
                self._since[one] = since

    def leave(self, one: socket.socket) -> None:
        """Free the place of a closed connection."""
        with self._changed:
            self._since.pop(one, None)
            self._changed.notify_all()

    def sweep(self) -> None:
        """End every connection whose request took too long, even one that kept sending bytes."""
        until = time.monotonic() - self._patience
        with self._changed:
            for one, since in self._since.items():
                if since is not None and since < until:
                    _end(one)

    def __len__(self) -> int:
        return len(self._since)


def _end(one: socket.socket) -> None:
    """Shut a connection down; its thread notices and closes it."""
    with suppress(OSError):  # gone already
        one.shutdown(socket.SHUT_RDWR)


class Guarded(socketserver.ThreadingMixIn, socketserver.BaseServer):
    """A server with `places`; mix it in before the kind of server.

    Attributes:
        most, share: arguments of `places`.
        patience: seconds for a request, and for a client to take each part of its answer.
        names: host names that it answers to, besides addresses and ``localhost``; None: any.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64
    most = 32
    share = 16
    patience = 5.0
    names: frozenset[str] | None = None

    def __init__(
        self, address: Any, handler: Callable[..., socketserver.BaseRequestHandler]
    ) -> None:
        self.connections = Connections(places(self.most, self.share), self.patience)
        super().__init__(address, handler)

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; pause, rather than spin, while no file handle is free."""
        try:
            accepted: tuple[Any, Any] = super().get_request()
        except OSError as error:
            if error.errno in EXHAUSTED:
                time.sleep(PAUSE_SECONDS)
            raise
        return accepted

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, if there is a place."""
        if self.connections.enter(request):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def close_request(self, request: Any) -> None:
        """Close a connection, and only then give its place to another."""
        super().close_request(request)
        self.connections.leave(request)

    def service_actions(self) -> None:
        """Sweep waiting connections; called twice a second."""
        super().service_actions()
        self.connections.sweep()


class _Head:
    """The stream of requests, which reads at most `HEAD_BYTES` of each."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.left = HEAD_BYTES

    def readline(self, limit: int = -1) -> bytes:
        """Read a line."""
        line: bytes = self._stream.readline(
            min(limit, self.left + 1) if limit > 0 else self.left + 1
        )
        self.left -= len(line)
        if self.left < 0:
            raise ConnectionAbortedError("the head of a request is too long")
        return line

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


class GuardedHandler(BaseHTTPRequestHandler):
    """Reads the requests of a `Guarded` server; a subclass adds the answers."""

    server: Guarded
    server_version = "hush"
    sys_version = ""
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(explain)s\n"

    def setup(self) -> None:
        """Prepare the streams."""
        super().setup()
        self.connection.settimeout(self.server.patience)
        self._head = _Head(self.rfile)
        self.rfile: Any = self._head

    def handle_one_request(self) -> None:
        """Read a request and answer it."""
        self._head.left = HEAD_BYTES
        self.server.connections.waits(self.connection)
        super().handle_one_request()

    def parse_request(self) -> bool:
        """Read the headers; answer 421 to a request for a foreign host name."""
        if not super().parse_request():
            return False
        self.server.connections.answers(self.connection)
        names = self.server.names
        hosts = self.headers.get_all("Host", [])  # a browser always sends one
        if names is None or all(answers_for(host, names) for host in hosts):
            return True
        self.send_error(421, explain=f"{WRONG_HOST}: {self._remedy()}")
        return False

    def _remedy(self) -> str:
        return "ask for its address"

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""
