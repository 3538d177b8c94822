"""Log lines: one a minute for each cause, with a name, and as JSON if configured."""

from __future__ import annotations

import io
import json
import logging

import hushstream.agents.worker.lines.log_lines as module
import pytest
from hushstream.agents.worker.lines.log_lines import TEXT, JsonFormatter, Lines
from hushstream.agents.worker.lines.redaction import Formatter


@pytest.fixture
def made(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module, "quoting", lambda: False)
    log, out = logging.Logger("hushstream.x"), io.StringIO()
    handler, lines = logging.StreamHandler(out), Lines()
    handler.addFilter(lines)
    handler.setFormatter(Formatter(TEXT))
    log.addHandler(handler)
    return log, out, lines, now, handler


def test_a_storm_is_one_line_a_minute_with_a_count(made):
    log, out, _, now, _ = made
    for n in range(57_000):
        log.error("unable to connect to %s", n)
    log.error("%s", "another cause")
    log.error("%s", "a third one")
    assert len(out.getvalue().splitlines()) == 3
    now[0] = 61
    log.error("unable to connect to %s", 7)
    assert (
        out.getvalue()
        .splitlines()[3]
        .endswith("unable to connect to 7 (and 56999 more like it since the last such line)")
    )
    log.info("what is no fault")
    log.info("what is no fault")
    assert len(out.getvalue().splitlines()) == 6


def test_a_line_names_its_worker(made):
    log, out, lines, _, _ = made
    lines.who = "host-1"
    log.warning("something")
    assert out.getvalue().endswith(" WARNING [host-1] something\n")


def test_json_lines_quote_no_record(made):
    log, out, lines, _, handler = made
    lines.who = "host-1"
    handler.setFormatter(JsonFormatter("%(message)s%(more)s"))
    log.error("failed: %s", ValueError("a record"))
    body = json.loads(out.getvalue())
    assert (body["level"], body["logger"], body["worker"]) == ("error", "hushstream.x", "host-1")
    assert body["message"].startswith("failed: ValueError") and "a record" not in out.getvalue()
    assert body["time"].endswith("+00:00")
