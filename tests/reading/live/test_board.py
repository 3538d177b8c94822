"""The board finds pipelines, releases and failures by itself, from public topics alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer
from hushstream import read_releases
from hushstream.deploy.broker import Broker
from hushstream.reading.live.board import Board
from hushstream.reading.live.history import millis
from hushstream.reading.live.views import Wish
from hushstream.topics.config.model import Kafka
from hushstream.topics.names import ledger_topic

from .showcase import Made, create, send, showcase
from .test_tail import until

CASES = ("histogram", "pak")


@contextmanager
def board(bootstrap: str, deployment: str, **more: Any) -> Iterator[Board]:
    made = Board(Kafka(bootstrap=bootstrap), deployment, **more)
    made.start()
    try:
        yield made
    finally:
        made.end()


def tell(bootstrap: str, made: Made, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(ledger_topic(made.deployment), value, partition=0)
    assert producer.flush(120) == 0


def told(board: Board, case: str) -> dict[str, Any]:
    name = case if "-" in case else ""
    return next(p for p in board.summary()["pipelines"] if p["name"].endswith(name or case))


def estimates(board: Board, name: str) -> dict[str, float]:
    seen = board.view(name, Wish(size=200)) or {"rows": []}
    return {row["key"]: row["estimate"][0] for row in seen["rows"]}


def link(board: Board) -> str:
    return str(board.summary()["link"]["words"])


def test_it_finds_pipelines_and_follows_their_releases(
    broker: Broker, unique: Callable[[str], str]
) -> None:
    made = showcase(unique("board"), CASES, scale=5)  # with fewer, a window may show no key at all
    topic = made.topics["histogram"]
    outs = made.releases[topic]
    last = max(o.timestamp or 0 for o in outs)
    with board(broker.bootstrap, made.deployment) as found:
        until(lambda: "cannot be read: there is no such topic" in link(found))
        assert found.names == []
        create(broker.bootstrap, made)
        tell(broker.bootstrap, made, made.ledger)
        until(lambda: len(found.names) == 2)
        until(lambda: told(found, "histogram")["health"]["state"] == "waiting")
        early = [(topic, out) for out in outs if (out.timestamp or 0) < last]
        send(broker.bootstrap, iter(early))
        until(lambda: told(found, "histogram")["windows"])
        until(
            lambda: told(found, "histogram")["health"]["last"] == max(o.timestamp for _, o in early)
        )
        version = found.wait(-1, 0)
        send(broker.bootstrap, ((topic, out) for out in outs if out.timestamp == last))
        until(lambda: told(found, "histogram")["health"]["last"] == last)
        assert found.wait(version, 10) > version
        until(lambda: told(found, "histogram")["health"]["state"] == "good")
        name = made.pipelines["histogram"]
        frame = read_releases(broker.bootstrap, name, which="latest").to_pylist()
        newest = told(found, "histogram")["windows"][0]["start"]
        counts = {r["zone"]: r["count"] for r in frame if millis(r["window_start"]) == newest}
        assert counts
        # Two releases have the last timestamp; for a moment the page may have only one of them.
        until(lambda: estimates(found, name) == counts)
        assert found.view("no such pipeline", Wish()) is None
        budget = told(found, "histogram")["budget"]
        assert budget["sum"] == 2.0 * 4 and 4 < budget["total"] < 5
        assert "appear by themselves" in link(found)
    with board(broker.bootstrap, made.deployment, only=["no-such"]) as found:
        until(lambda: "The ledger has no pipeline no-such; it has " in link(found))
    with board(broker.bootstrap, made.deployment, windows=1) as found:
        until(lambda: len(found.names) == 2)
        until(lambda: told(found, "histogram")["health"]["last"] == last)
        assert len(told(found, "histogram")["windows"]) == 2  # those of the last day


def test_a_ledger_that_was_changed_is_not_believed(
    broker: Broker, unique: Callable[[str], str]
) -> None:
    made = showcase(unique("board"), ("pak",), scale=1)
    create(broker.bootstrap, made)
    tell(broker.bootstrap, made, [*made.ledger[:-1], made.ledger[-1].replace(b'"seq"', b' "seq"')])
    with board(broker.bootstrap, made.deployment) as found:
        until(lambda: "The ledger cannot be trusted" in link(found))
        assert not found.summary()["link"]["good"]


@pytest.mark.thorough
@pytest.mark.slow
def test_it_says_that_kafka_is_away_and_goes_on_when_it_is_back(own_broker: Broker) -> None:
    made = showcase("board", ("pak",), scale=1)
    topic = made.topics["pak"]
    outs = made.releases[topic]
    last = max(o.timestamp or 0 for o in outs)
    create(own_broker.bootstrap, made)
    tell(own_broker.bootstrap, made, made.ledger)
    send(own_broker.bootstrap, ((topic, out) for out in outs if out.timestamp != last))
    with board(own_broker.bootstrap, made.deployment) as found:
        until(lambda: found.names and told(found, "pak")["windows"])
        own_broker.kill()
        until(lambda: "Kafka does not answer. What was read before is shown." in link(found))
        assert told(found, "pak")["windows"]
        own_broker.start()
        until(lambda: "appear by themselves" in link(found))
        send(own_broker.bootstrap, ((topic, out) for out in outs if out.timestamp == last))
        until(lambda: told(found, "pak")["health"]["last"] == last)
