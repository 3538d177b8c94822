"""Figures read from workers' pages, and a status's words on late records that are not kept."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from hushstream.agents.kafka.groups import Member
from hushstream.agents.worker.health.namesake import Identity
from hushstream.agents.worker.metrics import OperatorMetrics
from hushstream.cli.status import _aside
from hushstream.reading.live.asked import Losses, losses, page_of, ready, together
from hushstream.reading.live.status import Aside, Status, aside, lost
from hushstream.topics.config.model import Engine
from prometheus_client import generate_latest

LATE = {"late": 1_990_000, "future": 10_000, "seen": 3}


def _page(late: Mapping[str, int], alarm: bool) -> bytes:
    """An operator's page as a worker makes it."""
    metrics = OperatorMetrics()
    for outcome, records in late.items():
        metrics.count({("fares", outcome): records})
    metrics.loss.labels(pipeline="fares", cause="late").set(alarm)
    return bytes(generate_latest(metrics.series))


@contextmanager
def _served(body: bytes, code: int = 200, family: int = socket.AF_INET) -> Iterator[list[int]]:
    """Serve one page; yield the port and the number of requests."""
    asked = [0, 0]

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked[1] += 1
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = type("Server", (HTTPServer,), {"address_family": family})
    host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    with server((host, 0), Page) as made:
        Thread(target=made.serve_forever, daemon=True).start()
        asked[0] = made.server_port
        yield asked
        made.shutdown()


def _status(found: Losses | None, aside: Aside) -> Status:
    one: dict[str, Any] = {"name": "fares", "health": {"state": "good", "words": ""},
                           "budget": {"total": 1.0, "refused": 0}}  # fmt: skip
    return Status("taxis", 0, {"good": True}, None, found, {}, [one], {"fares": aside},
                  {"fares": "trips"}, {"fares": None})  # fmt: skip


def test_late_records_that_are_dropped_are_told_and_are_wrong() -> None:
    seen = _status(Losses.read(_page(LATE, True).decode()), Aside())
    assert seen.late("fares") == 2_000_000
    (said,) = seen.wrong
    assert said.startswith("fares: too many of its newest records were late") and "clocks" in said
    body = seen.body()
    assert body["pipelines"][0]["late"] == 2_000_000
    assert body["lost"]["alarms"] == [["fares", "late"]]


def test_a_few_late_records_are_told_and_are_well() -> None:
    seen = _status(Losses.read(_page({"late": 5, "seen": 900}, False).decode()), Aside())
    assert seen.late("fares") == 5 and not seen.wrong


@pytest.mark.parametrize("aside,late", [(Aside(), None), (Aside(late=7), 7)])
def test_without_a_page_late_records_are_known_where_they_are_kept(
    aside: Aside, late: int | None
) -> None:
    assert _status(None, aside).late("fares") == late


def test_processes_of_one_worker_share_a_page_and_workers_add_up() -> None:
    with _served(_page(LATE, True)) as asked:
        engine = Engine(operator_port=asked[0])
        found = lost([Member(f"c{n}", None, "127.0.0.1", 1) for n in range(3)], engine)
    assert asked[1] == 1 and found is not None
    assert found.late == {"fares": 2_000_000}
    few = Losses(frozenset({("tips", "cut")}), {"fares": 1, "tips": 2})
    both = together([found, few])
    assert both.late == {"fares": 2_000_001, "tips": 2}
    assert both.alarms == {("fares", "late"), ("tips", "cut")}


@pytest.mark.parametrize("body", [b"not metrics {", b"hush_loss_alarm 1\n", b"\xff"])
def test_what_is_no_page_of_a_worker_says_nothing(body: bytes) -> None:
    with _served(body) as asked:
        assert losses(("127.0.0.1", asked[0])) is None
    assert losses(("127.0.0.1", asked[0])) is None  # no server


def test_a_worker_of_this_machine_is_asked_where_its_page_listens() -> None:
    """The broker sees another address of it, at which a local page does not answer."""
    here = Identity(1, "1-a", os.uname().nodename)
    assert page_of(here, "10.0.0.1", Engine()) == ("127.0.0.1", 9465)
    assert page_of(here._replace(host="other"), "10.0.0.1", Engine()) == ("10.0.0.1", 9465)
    assert page_of(None, "10.0.0.1", Engine()) == ("10.0.0.1", 9465)
    assert page_of(here, "10.0.0.1", Engine(operator_host="0.0.0.0"))[0] == "10.0.0.1"  # type: ignore[index]
    assert page_of(here, "10.0.0.1", Engine(operator_port=0)) is None


@pytest.mark.parametrize("code,good", [(200, True), (503, False), (404, None)])
def test_a_worker_with_an_address_of_ipv6_is_asked_too(
    code: int, good: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java writes such an address in full; no configured proxy is used."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with _served(b"", code, socket.AF_INET6) as asked:
        assert ready("0:0:0:0:0:0:0:1", asked[0]) is good
    assert ready("::1", asked[0]) is None


@pytest.mark.parametrize("end,whole", [(50_007, True), (50_008, False)])
def test_what_was_set_aside_is_counted_up_to_a_limit_and_the_rest_is_not_denied(
    end: int, whole: bool
) -> None:
    """Offsets of markers hold no record, so the number of those that were read tells nothing."""
    offsets = SimpleNamespace(begins=lambda topic, n: [7], ends=lambda topic, n: [end])
    cluster: Any = SimpleNamespace(
        partitions=lambda topic, right: 1, offsets=offsets, each=lambda topic, n, first: iter(())
    )
    pipeline: Any = SimpleNamespace(dlq_topic="d", late_topic="l", told="")
    found = aside(cluster, pipeline, {})
    assert (found.whole, found.whole_late) == (whole, whole)
    least = "" if whole else "at least "
    assert _aside(found, found.late) == f"{least}0 dead, {least}0 late"
