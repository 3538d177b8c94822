"""Servers that anyone may connect to: places, patience, and the requested host.

Covers: agents/worker/health/http.py
"""

from __future__ import annotations

import http.client
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hushstream.agents.worker.health import guarded
from hushstream.agents.worker.health.guarded import Connections, answers_for, loopback, places
from hushstream.agents.worker.health.http import ProbeServer, serve, serve_operator, serve_public
from hushstream.topics.config.model import Engine

PAGES = {"/live": lambda: (200, b"ok\n"), "/internal/metrics": lambda: (200, b"exact 7\n")}


@pytest.fixture
def server() -> Iterator[ProbeServer]:
    made = serve("127.0.0.1", 0, PAGES)
    assert isinstance(made, ProbeServer)
    yield made
    made.shutdown()
    made.server_close()


def asked(port: int, path: str = "/live", host: str | None = None) -> int:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    client.request("GET", path, headers={} if host is None else {"Host": host})
    answer = client.getresponse()
    answer.read()
    client.close()
    return answer.status


def silent(port: int, number: int, stack: ExitStack) -> list[socket.socket]:
    made = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(number)]
    for one in made:
        stack.callback(one.close)
    return made


# A process with few file descriptors; many connections would exhaust a worker's too.
FLOODED = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from hushstream.agents.worker.health.http import serve
server = serve("127.0.0.1", 0, {"/live": lambda: (200, b"ok")})
print(server.server_address[1], flush=True)
sys.stdin.readline()
files = [open("/dev/null") for _ in range(200)]
print(len(server.connections), flush=True)
"""


def test_silent_connections_cost_a_process_none_of_the_files_that_it_needs():
    environ = os.environ | {"PYTHONUNBUFFERED": "1"}
    running = subprocess.Popen(
        [sys.executable, "-c", FLOODED], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env=environ,
    )  # fmt: skip
    assert running.stdout is not None
    port = int(running.stdout.readline())
    with ExitStack() as stack:
        silent(port, 600, stack)
        assert asked(port) == 200
        out, _ = running.communicate("\n", timeout=60)
    assert running.returncode == 0 and int(out) <= 16


def test_whoever_waits_longest_makes_room_and_honest_probes_are_answered(server):
    server.patience = server.connections._patience = 1000.0  # no connection ends only for waiting
    with ExitStack() as stack:
        first, *_ = silent(server.server_address[1], 200, stack)
        first.settimeout(10)
        assert [asked(server.server_address[1]) for _ in range(20)] == [200] * 20
        assert len(server.connections) <= server.connections.most == 32
        assert first.recv(1) == b""  # the server closed it


def test_a_request_that_never_ends_is_ended(server):
    server.connections._patience = 0.5
    with socket.create_connection(("127.0.0.1", server.server_address[1]), 60) as client:
        client.sendall(b"GET /live HTTP/1.1\r\n")
        began = time.monotonic()
        with pytest.raises(OSError):
            while True:  # single bytes, so that no single wait is long
                client.sendall(b"x")
                time.sleep(0.05)
        assert time.monotonic() - began < 20


def test_a_connection_that_is_being_answered_is_not_ended():
    mine, other = socket.socketpair()
    late, end = socket.socketpair()
    with mine, other, late, end:
        places_ = Connections(1, 0.0)
        assert places_.enter(mine)
        places_.answers(mine)
        places_.sweep()
        assert not places_.enter(late)
        other.settimeout(0.1)
        with pytest.raises(TimeoutError):
            other.recv(1)
        places_.waits(mine)
        places_.sweep()
        other.settimeout(60)
        assert other.recv(1) == b""


def test_a_head_without_end_is_not_held_in_memory(server):
    sent = 0
    with (
        socket.create_connection(("127.0.0.1", server.server_address[1]), 60) as client,
        pytest.raises(OSError),
    ):
        client.sendall(b"GET /live HTTP/1.1\r\n")
        while sent < 64 << 20:
            client.sendall(b"X: " + b"a" * 60_000 + b"\r\n")
            sent += 60_000
    assert sent < 64 << 20 and asked(server.server_address[1]) == 200


def test_no_file_left_for_a_connection_is_waited_for_without_spinning(server, monkeypatch):
    tried: list[float] = []
    accept = socket.socket.accept

    def exhausted(self: socket.socket) -> object:
        tried.append(time.monotonic())
        if tried[-1] - tried[0] < 0.5:
            raise OSError(24, "Too many open files")
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", exhausted)
    assert asked(server.server_address[1]) == 200
    assert 2 < len(tried) < 20


def test_places_are_far_below_the_files_of_the_process(monkeypatch):
    for soft, most in ((1024, 32), (256, 16), (16, 2), (resource.RLIM_INFINITY, 32)):
        monkeypatch.setattr(guarded.resource, "getrlimit", lambda _, n=soft: (n, n))
        assert places(32, 16) == most


LITERAL = ["127.0.0.1", "127.0.0.1:9465", "10.1.2.3:80", "[::1]", "[::1]:9465", "LOCALHOST:1"]
NAMED = [
    "attacker.example", "attacker.example:9465", "localhost.attacker.example", "127.0.0.1.nip.io",
    "::1", "[::1", "[::1]x", "127.0.0.1:", "127.0.0.1:80a", "2130706433", "", "[127.0.0.1]",
]  # fmt: skip


@pytest.mark.parametrize("host", LITERAL)
def test_an_address_is_answered(server, host):
    assert asked(server.server_address[1], "/internal/metrics", host) == 200


@pytest.mark.parametrize("host", NAMED)
def test_a_name_that_a_browser_was_led_by_is_not(server, host):
    assert asked(server.server_address[1], "/internal/metrics", host) == 421
    assert not answers_for(host)


def test_two_hosts_are_not_answered_for_the_better_one(server):
    client = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    client.putrequest("GET", "/live")
    client.putheader("Host", "attacker.example")
    client.endheaders()
    assert client.getresponse().status == 421
    client.close()


def engine(host: str, *names: str) -> Engine:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    return Engine(public_host=host, operator_host=host, public_port=port, operator_port=port,
                  page_names=names)  # fmt: skip


@pytest.mark.parametrize(
    ("made", "host", "public", "operator"),
    [
        ("127.0.0.1", "prometheus.example", 421, 421),
        ("0.0.0.0", "prometheus.example", 200, 421),  # public pages are served under any name
        ("0.0.0.0", "10.1.2.3:9465", 200, 200),  # Prometheus finds pods by address
        ("0.0.0.0", "worker.shop.example:9465", 200, 200),
        ("127.0.0.1", "Worker.Shop.Example", 200, 200),
    ],
)
def test_private_pages_are_asked_for_by_address_or_by_a_declared_name(made, host, public, operator):
    for start, status in ((serve_public, public), (serve_operator, operator)):
        settings = engine(made, "worker.shop.example")
        running = start(settings, PAGES)
        try:
            assert asked(settings.public_port, "/internal/metrics", host) == status
        finally:
            running.shutdown()
            running.server_close()


def test_whether_an_address_is_this_machine_alone():
    for address, alone in (("127.0.0.1", True), ("127.8.0.1", True), ("::1", True),
                           ("::ffff:127.0.0.1", True), ("0.0.0.0", False), ("::", False),
                           ("10.0.0.1", False), ("localhost", False)):  # fmt: skip
        assert loopback(address) is alone


def test_many_at_once_never_take_more_places_than_there_are(server):
    most: list[int] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.001):
            most.append(len(server.connections))

    watching = threading.Thread(target=look)
    watching.start()
    try:
        with ExitStack() as stack:
            for _ in range(10):
                silent(server.server_address[1], 50, stack)
    finally:
        ended.set()
        watching.join()
    assert max(most) <= 32
