"""An identity provider on this machine: it gives tokens to clients that know their secret."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs


class Issuer:
    """The running provider.

    Args:
        secrets: clients' secrets by id.

    Attributes:
        url: address that issues tokens.
        asked: fields of each granted request.
        answer: answer in place of a token; None: a token.
        lasts: lifetime of a token in seconds.
    """

    def __init__(self, secrets: dict[str, str]) -> None:
        self.secrets = secrets
        self.asked: list[dict[str, list[str]]] = []
        self.answer: tuple[int, dict[str, str], bytes] | None = None
        self.lasts = 300.0
        self.url = ""

    def answered(self, login: str, body: str) -> tuple[int, dict[str, str], bytes]:
        """Answer a request: status, headers and body."""
        if self.answer is not None:
            return self.answer
        name, _, secret = base64.b64decode(login.removeprefix("Basic ")).decode().partition(":")
        if self.secrets.get(name) != secret:
            return 401, {}, b'{"error": "invalid_client"}'
        self.asked.append(parse_qs(body))
        made = {"access_token": self.token(name), "expires_in": self.lasts, "token_type": "Bearer"}
        return 200, {}, json.dumps(made).encode()

    def token(self, name: str) -> str:
        """An unsigned token, which the test's broker accepts."""
        now = time.time()
        claims = {"sub": name, "iat": now, "exp": now + self.lasts, "jti": len(self.asked)}
        return f"{_coded({'alg': 'none'})}.{_coded(claims)}."


def _coded(part: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


@contextmanager
def issuing(secrets: dict[str, str]) -> Iterator[Issuer]:
    """A provider that knows some clients, by id, until the end of the block."""
    issuer = Issuer(secrets)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, head, body = issuer.answered(self.headers.get("Authorization", ""), asked)
            self.send_response(status)
            for name, value in head.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    issuer.url = f"http://127.0.0.1:{server.server_port}/token"
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
