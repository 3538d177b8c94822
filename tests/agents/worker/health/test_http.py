"""The two small servers: pages, health, and an address that is in use."""

from __future__ import annotations

import http.client
import socket
import struct
import time
from collections.abc import Iterator

import pytest
from hushstream.agents.worker.health.http import CONTENT, health_page, metrics_page, serve
from hushstream.agents.worker.metrics import PublicMetrics
from hushstream.errors import EngineError

from ....support import messages, written


@pytest.fixture
def port() -> Iterator[int]:
    metrics = PublicMetrics()
    metrics.ready.set(1)
    server = serve(
        "127.0.0.1", 0,
        {"/metrics": metrics_page(metrics.series), "/live": health_page(lambda: True)},
    )  # fmt: skip
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def ask(port: int, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    client.request(method, path)
    answer = client.getresponse()
    body = answer.read()
    client.close()
    return answer.status, dict(answer.getheaders()), body


def test_metrics_are_served_in_the_text_format_with_or_without_a_query(port):
    for path in ("/metrics", "/metrics?x=1"):
        status, headers, body = ask(port, "GET", path)
        assert status == 200 and headers["Content-Type"] == CONTENT
        assert int(headers["Content-Length"]) == len(body)
        assert b"hush_ready 1.0\n" in body and b"hush_build_info{" in body
        assert "Python" not in headers["Server"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_written(port, method):
    assert ask(port, method, "/metrics")[0] == 501


def test_an_address_that_is_taken_is_refused_with_what_to_do(port):
    with pytest.raises(EngineError, match=r"another port, or 0 for none"):
        serve("127.0.0.1", port, {})


def test_a_client_that_hangs_up_leaves_no_traceback(port, capfd, caplog):
    """A scraper that gives up resets its connection before or while the page is written."""
    for asked in (b"", b"GET /met", b"GET /metrics HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(asked)
    assert ask(port, "GET", "/metrics")[0] == 200
    time.sleep(0.2)
    assert written(capfd.readouterr().err) == "" and messages(caplog.records) == []


def test_a_page_that_fails_is_told_without_its_text(capfd, caplog):
    def page() -> tuple[int, bytes]:
        raise ValueError("a record of u1")

    server = serve("127.0.0.1", 0, {"/metrics": page})
    try:
        with pytest.raises(http.client.RemoteDisconnected):
            ask(server.server_address[1], "GET", "/metrics")
    finally:
        server.shutdown()
        server.server_close()
    assert "u1" not in capfd.readouterr().err + caplog.text
    assert "a page could not be served: unexpected error: ValueError at" in caplog.text
