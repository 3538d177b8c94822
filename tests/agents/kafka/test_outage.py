"""An outage takes two lines of the log, however many clients try to reach the broker."""

from __future__ import annotations

import inspect
import io
import logging
from collections.abc import Iterator

import hushstream.agents.kafka.outage as module
import hushstream.agents.worker.lines.log_lines as lines
import pytest
from aiokafka import client
from aiokafka.consumer import fetcher, group_coordinator
from hushstream.agents.kafka.outage import Outage, is_noise, is_sign
from hushstream.agents.worker.lines.log_lines import TEXT, Lines
from hushstream.agents.worker.lines.redaction import Formatter
from mode import threads

STORM = [
    ("aiokafka.client", "Unable connect to node with id %s: %s", 1, OSError("secret")),
    ("aiokafka", "Unable to update metadata from %s", [1]),
    ("aiokafka.consumer.fetcher", "Failed fetch messages from %s: %s", 1, OSError("secret")),
    ("aiokafka.consumer.group_coordinator", "Group Coordinator Request failed: %s", OSError()),
    ("aiokafka.consumer.group_coordinator", "Heartbeat send request failed: %s. Will retry.", ""),
    ("aiokafka", "Error sending %s to node %s [%s] -- marking coordinator dead", "H", 1, OSError()),
    ("mode.threads", "[^--ConsumerThread]: Thread keepalive is not responding..."),
]


class Made:
    """A log in memory, with a clock that stands still."""

    def __init__(self) -> None:
        self.now = 100.0
        self.out = io.StringIO()
        self.outage = Outage()
        self.handler = logging.StreamHandler(self.out)
        self.handler.addFilter(Lines())
        self.handler.setFormatter(Formatter(TEXT, "%H:%M:%S"))

    @property
    def said(self) -> list[str]:
        return [line.split(maxsplit=2)[2] for line in self.out.getvalue().splitlines()]

    def storm(self, seconds: int) -> None:
        """Fail many times a second."""
        for _ in range(seconds):
            self.now += 1
            for name, *words in STORM * 10:
                self.handler.handle(logging.makeLogRecord({
                    "name": name, "msg": words[0], "args": tuple(words[1:]),
                    "levelno": logging.ERROR, "levelname": "ERROR",
                }))  # fmt: skip


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    found = Made()
    monkeypatch.setattr(module.time, "monotonic", lambda: found.now)
    monkeypatch.setattr(lines, "OUTAGE", found.outage)
    monkeypatch.setattr(lines, "quoting", lambda: False)
    logger = logging.getLogger("hushstream.kafka")
    logger.addHandler(found.handler)
    yield found
    logger.removeHandler(found.handler)


def test_a_minute_of_outage_is_two_lines_with_its_length(made: Made) -> None:
    made.storm(61)
    made.now += 4
    made.outage.answered()  # some brokers answer while others are away
    assert made.said == ["a broker does not answer (OSError): waiting for it"]
    made.now += 6
    made.outage.answered()
    made.outage.answered()
    assert made.said[1:] == ["the brokers answer again, after 60 s"]


def test_the_next_outage_is_told_too_although_it_begins_within_a_minute(made: Made) -> None:
    for n in range(3):
        made.storm(2)
        made.now += 6
        made.outage.answered()
        assert len(made.said) == 2 * (n + 1)


def test_our_own_clients_give_signs_and_no_lines(made: Made) -> None:
    made.outage.sign("TimeoutError")
    made.storm(3)
    assert made.said == ["a broker does not answer (TimeoutError): waiting for it"]
    Outage().answered()  # without an outage, an answer is no news
    assert len(made.said) == 1


def test_all_other_lines_of_libraries_are_written(made: Made) -> None:
    words = "Topic %s is not authorized for this client"
    record = {"name": "aiokafka", "msg": words, "args": ("t",), "levelno": 40, "levelname": "ERROR"}
    made.handler.handle(logging.makeLogRecord(record))
    assert made.said == ["Topic t is not authorized for this client"]


def test_lines_of_others_are_no_signs() -> None:
    ours = logging.makeLogRecord({"name": "hushstream.shard", "msg": "Unable connect to x"})
    assert not is_sign(ours) and not is_noise(ours)


def test_at_level_debug_every_line_is_written(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "quoting", lambda: True)
    made.storm(1)
    assert len(made.said) == 10 * len(STORM) + 1


def test_signs_are_what_the_library_writes() -> None:
    """Another version may word its lines differently."""
    texts = "".join(map(inspect.getsource, (client, fetcher, group_coordinator)))
    for part in (
        "Unable connect to", "Unable to update metadata", "Unable to request metadata",
        "Failed fetch messages from", "Group Coordinator Request failed",
        "marking coordinator dead", "Heartbeat send request failed",
    ):  # fmt: skip
        assert part in texts and module.SIGNS.search(part) is not None
    assert module.STALLED in inspect.getsource(threads)
