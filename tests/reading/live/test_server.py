"""The server: answers, refusals, and what it forbids browsers."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from hushstream.errors import EngineError, ParameterError
from hushstream.reading.live.board import Board, Watched
from hushstream.reading.live.server import PAGES, POLICY, PageServer, asked, serve
from hushstream.topics.config.model import Kafka

from .test_views import known


def filled(*cases: str) -> Board:
    """A board without Kafka that holds recorded releases."""
    board = Board(Kafka(bootstrap="127.0.0.1:1"), "recorded")
    for case in cases:
        pipeline, history = known(case)
        board._panels[case] = Watched(pipeline, history=history)
    return board


@pytest.fixture
def server() -> Iterator[PageServer]:
    board = filled("histogram-sums", "phdstream")
    made = serve(board, "127.0.0.1", 0)
    yield made
    board.end()
    made.shutdown()
    made.server_close()


def ask(
    server: PageServer, path: str, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=120)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("path", PAGES)
def test_files_come_as_they_are_under_a_strict_policy(server: PageServer, path: str) -> None:
    answer, body = ask(server, path)
    folder = files("hushstream.reading.live").joinpath("page")
    assert (answer.status, body) == (200, folder.joinpath(PAGES[path]).read_bytes())
    assert answer.getheader("Content-Security-Policy") == POLICY
    assert answer.getheader("X-Content-Type-Options") == "nosniff"
    assert answer.getheader("Set-Cookie") is None
    text = body.decode()
    for word in ("://", "style=", 'onclick="', "innerHTML", "eval("):
        assert word not in text.replace("http://www.w3.org/2000/svg", ""), (path, word)


def test_the_policy_allows_nothing_from_elsewhere_and_nothing_inline() -> None:
    rules = dict(rule.strip().split(" ", 1) for rule in POLICY.split(";"))
    assert rules.pop("default-src") == "'none'"
    assert set(rules.values()) == {"'self'", "'none'"}
    assert rules["script-src"] == rules["style-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"


def test_summary_and_view_are_json(server: PageServer) -> None:
    answer, body = ask(server, "/summary.json")
    told = json.loads(body)
    assert answer.getheader("Content-Type") == "application/json; charset=utf-8"
    assert [p["name"] for p in told["pipelines"]] == ["histogram-sums", "phdstream"]
    answer, body = ask(server, "/view.json?name=phdstream", **{"Accept-Encoding": "gzip"})
    assert answer.getheader("Content-Encoding") == "gzip"
    assert json.loads(gzip.decompress(body))["cells"]
    _, body = ask(server, "/view.json?name=histogram-sums&search=Z1&value=mean_fare&size=1")
    assert [row["key"] for row in json.loads(body)["rows"]] == ["z1"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/view.json", 404),
        ("/view.json?name=nobody", 404),
        ("/view.json?name=phdstream&value=%3Cscript%3E", 400),
        ("/view.json?name=phdstream&window=now", 400),
        ("/view.json?name=phdstream&window=" + "9" * 40, 400),
        ("/view.json?name=phdstream&size=100000", 400),
        ("/view.json?name=phdstream&page=-1", 400),
        ("/view.json?name=phdstream&hack=1", 400),
        ("/view.json?name=histogram-sums&key=z1", 400),
        ("/view.json?name=histogram-sums&key=5", 400),
        ("/view.json?name=histogram-sums&key=" + "[" * 10_000, 400),
        ("/../server.py", 404),
        ("/page/../../server.py", 404),
        ("/index.html", 404),
        ("/hush.toml", 404),
    ],
)
def test_nonsense_is_refused_as_json(server: PageServer, path: str, status: int) -> None:
    answer, body = ask(server, path)
    assert answer.status == status and "error" in json.loads(body)
    assert answer.getheader("Content-Type") == "application/json; charset=utf-8"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_written(server: PageServer, method: str) -> None:
    assert ask(server, "/", method)[0].status == 501


@pytest.mark.parametrize("path", ["/", "/events"])
def test_head_has_no_body(server: PageServer, path: str) -> None:
    """HEAD gets neither the text of an answer nor a stream that would keep the connection open."""
    with socket.create_connection(server.server_address[:2], 60) as client:
        client.sendall(f"HEAD {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
        found = b"".join(iter(lambda: client.recv(65536), b""))
    assert found.startswith(b"HTTP/1.1 200") and found.endswith(b"\r\n\r\n")


def test_no_other_site_is_let_in(server: PageServer) -> None:
    """No answer allows another site's script to read it."""
    for path in ("/", "/summary.json", "/view.json?name=phdstream", "/nothing"):
        answer, _ = ask(server, path, Origin="https://attacker.example")
        names = {name.lower() for name, _ in answer.getheaders()}
        assert not [name for name in names if name.startswith("access-control-")]
        assert answer.getheader("Cross-Origin-Resource-Policy") == "same-origin"


PUBLIC = {
    "name", "mechanism", "form", "unit", "measured", "local", "version", "health", "budget",
    "windows",
}  # fmt: skip
SHOWN = {
    "name", "version", "start", "end", "trigger", "triggers", "released", "final", "value",
    "values", "confidence", "key_names", "number", "total", "hops", "beyond", "cut", "form", "most",
    "trend",
}  # fmt: skip
FIGURES = {
    "histogram-sums": {"rows", "matching", "page", "size", "ordered"},
    "phdstream": {"axes", "hidden_axes", "rings", "cells"},
}


def test_what_leaves_is_listed_here_and_follows_from_releases_and_ledger(
    server: PageServer,
) -> None:
    """An added field fails this test, so that someone checks that it follows from releases."""
    summary = json.loads(ask(server, "/summary.json")[1])
    assert set(summary) == {"now", "deployment", "link", "pipelines"}
    for told in summary["pipelines"]:
        assert set(told) == PUBLIC
        assert set(told["health"]) == {"state", "words", "last", "due"}
        window = {"start", "end", "final", "rows", "trigger", "triggers", "releases"}
        assert all(set(one) == window for one in told["windows"])
        seen = json.loads(ask(server, f"/view.json?name={told['name']}")[1])
        assert set(seen) == SHOWN | FIGURES[told["name"]]


def events(server: PageServer) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=120)
    connection.request("GET", "/events")
    return connection, connection.getresponse()


def test_a_change_is_an_event(server: PageServer) -> None:
    connection, answer = events(server)
    assert answer.getheader("Content-Type") == "text/event-stream"
    lines = [answer.readline() for _ in range(5)]
    assert lines[0] == b"retry: 1000\n" and lines[2] == b"event: change\n"
    server.board._say()
    assert [answer.readline() for _ in range(3)] == [b"event: change\n", b"data: 1\n", b"\n"]
    connection.close()


def test_too_many_listeners_are_sent_away(server: PageServer) -> None:
    server.seats = threading.Semaphore(1)
    connection, answer = events(server)
    answer.readline()
    other, refused = events(server)
    assert refused.status == 503
    connection.close()
    other.close()


@pytest.mark.parametrize("path", ["/", "/summary.json", "/view.json?name=phdstream", "/events"])
def test_a_page_on_the_web_that_calls_this_machine_its_own_gets_no_answer(
    server: PageServer, path: str
) -> None:
    answer, body = ask(server, path, Host="attacker.example:8437")
    assert answer.status == 421 and b"attacker" not in body and b"phdstream" not in body
    for host in ("localhost:8437", "[::1]:8437", "127.0.0.1"):
        assert ask(server, "/summary.json", Host=host)[0].status == 200


def test_a_page_that_is_bound_elsewhere_is_for_anyone() -> None:
    made = serve(filled("phdstream"), "0.0.0.0", 0)
    try:
        assert ask(made, "/summary.json", Host="live.shop.example")[0].status == 200
    finally:
        made.shutdown()
        made.server_close()


def test_silent_connections_keep_nobody_from_the_page(
    server: PageServer,
) -> None:
    server.connections.most = 8
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            client = socket.create_connection(server.server_address[:2], 60)
            stack.callback(client.close)
        assert ask(server, "/summary.json")[0].status == 200
        assert len(server.connections) <= 8


def test_an_address_that_is_taken_is_named(server: PageServer) -> None:
    port = server.server_address[1]
    with pytest.raises(EngineError, match=f"127.0.0.1:{port}.*--port"):
        serve(server.board, "127.0.0.1", port)
    with pytest.raises(EngineError, match="--bind"):
        serve(server.board, "no such host", 0)


def test_a_choice_is_read_from_the_query() -> None:
    found = asked({"window": "-5", "page": "3", "search": "a b", "key": '["x"]'})
    assert (found.window, found.page, found.search, found.key) == (-5, 3, "a b", '["x"]')
    given: dict[str, Any] = {"page": "²"}
    with pytest.raises(ParameterError, match="whole number"):
        asked(given)
