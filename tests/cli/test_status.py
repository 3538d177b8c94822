"""``hush status`` on a broker without a worker: what it exits with, and how it is watched."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from hushstream.deploy.broker import Broker
from hushstream.reading.live.status import _ready

from ..integration.local import local
from ..integration.test_outage import TOML
from .bench import interrupted, typed


def test_what_is_wrong_ends_in_4_and_an_interrupted_watch_in_one_line(
    empty_broker: Broker, tmp_path: Path
) -> None:
    with local(tmp_path, empty_broker.bootstrap, TOML, {"events": 1}) as run:
        words = ["status", "-c", str(run.toml), "--bootstrap", run.bootstrap]
        code, out, _ = typed(*words, "--json")
        assert code == 4 and "No worker runs" in json.loads(out)["wrong"][0]
        code, out, _ = typed(*words)
        assert code == 4 and "No worker runs" in out
        watch = subprocess.Popen(
            [sys.executable, "-m", "hushstream", *words, "--watch", "--every", "1"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(8)
        assert interrupted(watch) == 130
        said, err = watch.communicate()
        assert said.count("No worker runs") >= 2 and err.split() == ["interrupted"]


class _Page(BaseHTTPRequestHandler):
    code = 200

    def do_GET(self) -> None:
        self.send_response(self.code)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("code,ready", [(200, True), (503, False), (404, None)])
def test_a_worker_with_an_address_of_ipv6_is_asked_too(
    code: int, ready: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java writes such an address in full; a proxy of the desk is not asked."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    class Six(HTTPServer):
        address_family = socket.AF_INET6

    page = type("Page", (_Page,), {"code": code})
    with Six(("::1", 0), page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        assert _ready("0:0:0:0:0:0:0:1", server.server_port) is ready
        server.shutdown()
    assert _ready("::1", server.server_port) is None
