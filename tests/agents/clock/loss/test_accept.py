"""A loss in the ledger: sealed, in a fixed format, readable for every reader, written once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hushstream.agents.clock.loss.accept as accept_module
import pytest
from hushstream.agents.clock.appending import Line
from hushstream.agents.clock.ledger import FORMAT, LOST, Ledger
from hushstream.agents.clock.loss.accept import Acceptance, Lost, _span, read_accepted, resumed
from hushstream.agents.clock.loss.found import Loss
from hushstream.agents.clock.timeline import Timeline
from hushstream.errors import LedgerError

from ....support import DAY, NAMES, ORIGIN, deployment
from ..bench import with_pipeline

MADE = deployment()
TOPIC = MADE.inputs[0].topic
SECRET = bytes(32)


class Written:
    """A cluster in memory that holds what was written."""

    def __init__(self, monkeypatch: Any, version: int = FORMAT) -> None:
        self.topics: dict[str, list[bytes]] = {NAMES.begins: [b'{"offsets":[0]}']}
        ledger = Ledger()
        body = {"pipeline": "p", "number": 0, "partitions": {TOPIC: 1}}
        for kind, said in (("genesis", {"format": version}), ("pipeline", body)):
            record = ledger.next(kind, 1, said)
            ledger.take(record.encode())
            self.topics.setdefault(NAMES.ledger, []).append(record.encode())

        def append(cluster: object, identity: str, topic: str, key: None, made: Any) -> None:
            assert identity == NAMES.transactional_id("clock", "clock", 0)
            for line in made(Ledger.read(self.topics[topic], key)):
                assert isinstance(line, Line)
                self.topics[line.topic].append(line.value)

        monkeypatch.setattr(accept_module, "append", append)

    def read(self, topic: str) -> list[Any]:
        return [SimpleNamespace(value=lambda v=v: v) for v in self.topics[topic]]

    @property
    def ledger(self) -> Ledger:
        return Ledger.read(self.topics[NAMES.ledger])

    def accept(self, loss: Loss) -> None:
        cluster: Any = self
        floors, now = resumed(self.accepted()), ORIGIN + 61_000_001
        Acceptance(cluster, MADE, NAMES, now, SECRET, floors).write([loss], {"p": (0, 2)})

    def accepted(self) -> list[Lost]:
        cluster: Any = self
        return read_accepted(cluster, NAMES, self.ledger, SECRET)


def test_a_loss_is_written_with_its_format_and_sealed(monkeypatch):
    cluster = Written(monkeypatch)
    assert cluster.accepted() == [] and resumed([]) == {}
    cluster.accept(Loss(TOPIC, 0, 8_123, 9_456, 4))
    ledger = cluster.ledger
    assert [r.kind for r in ledger.records] == ["genesis", "pipeline", "format", "loss"]
    assert ledger.format == LOST and ledger.losses[0]["epochs"] == {"p": [0, 2]}
    text = b"".join(cluster.topics[NAMES.ledger])
    assert b"8123" not in text and b"9456" not in text  # exact counts of raw records
    assert ledger.records[-1].time % 60_000_000 == 0
    assert cluster.accepted() == [Lost(NAMES.genesis, TOPIC, [8_123], [9_456])]
    assert resumed(cluster.accepted()) == {TOPIC: [9_456]}


def test_a_second_loss_goes_on_where_the_first_ended(monkeypatch):
    cluster = Written(monkeypatch)
    cluster.accept(Loss(TOPIC, 0, 8, 9, 4))
    cluster.accept(Loss(TOPIC, 0, 11, 15, 6))
    assert [r.kind for r in cluster.ledger.records][2:] == ["format", "loss", "loss"]
    assert resumed(cluster.accepted()) == {TOPIC: [15]}


def test_offsets_that_the_ledger_did_not_seal_are_refused(monkeypatch):
    cluster = Written(monkeypatch)
    cluster.accept(Loss(TOPIC, 0, 8, 9, 4))
    cluster.topics[NAMES.begins][-1] = Lost(NAMES.genesis, TOPIC, [8], [90]).encode()
    with pytest.raises(LedgerError, match="does not hold a loss as the ledger sealed it"):
        cluster.accepted()


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": {}},
        {"epochs": {"p": (0, 1), "q": (0, 1)}},
        {"epochs": {"p": (2, 1)}},
        {"seal": 1},
    ],
)
def test_a_loss_that_says_less_than_it_must_breaks_the_ledger(monkeypatch, change):
    ledger = Written(monkeypatch, LOST).ledger
    body = {"topic": TOPIC, "epochs": {"p": (0, 1)}, "seal": "0"}
    with pytest.raises(LedgerError, match="accepts lost records"):
        ledger.take(ledger.next("loss", 1, body | change).encode())


def test_an_older_version_could_go_on_without_the_format(monkeypatch):
    ledger = Written(monkeypatch).ledger
    body = {"topic": TOPIC, "epochs": {"p": (0, 1)}, "seal": "0"}
    with pytest.raises(LedgerError, match=f"in format {FORMAT}"):
        ledger.take(ledger.next("loss", 1, body).encode())


def test_epochs_reach_from_the_oldest_open_window_to_the_newest_that_may_have_records():
    (p,) = with_pipeline(external=False).inputs[0].pipelines
    now = ORIGIN + 5 * DAY
    epoch, newest = p.windows.epoch, p.windows.window(now + p.max_future_skew)
    line = Timeline(p.traits.horizon, first=0, floor=4)
    assert _span(p, line, [], now) == (epoch(4), epoch(newest))
    assert _span(p, line, [2, 3], now) == (epoch(2), epoch(newest))  # fired, but not released
    (asked,) = with_pipeline(external=True).inputs[0].pipelines
    line.done = {6: 1}
    assert _span(asked, line, [], now) == (epoch(4), epoch(6))  # its windows follow no clock
