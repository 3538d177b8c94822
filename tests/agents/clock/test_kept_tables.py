"""Tables of topics in a configuration: a declared pipeline keeps the table of its declaration.

*Statement.* The declaration fixes the key that a record counts for. Whatever the topic contains
later, a declared pipeline has the table that was kept, or it is refused.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hushstream.agents.clock import kept_tables
from hushstream.agents.clock.genesis import NoLedgerError
from hushstream.agents.clock.kept_tables import KeptTables
from hushstream.agents.clock.tables import records_of
from hushstream.errors import ConfigError, LedgerError
from hushstream.formats.events.expressions.looked_up import Origin, PublicTable
from hushstream.topics.config.model import Kafka
from hushstream.topics.names import Names

ORIGIN = Origin("products", "id", "category")
NAMES = Names("shop", "0123456789")


class Message(tuple[Any, Any]):
    """A record, as confluent-kafka returns it."""

    def offset(self) -> int:
        return 0

    def key(self) -> Any:
        return self[0]

    def value(self) -> Any:
        return self[1]


class Logs:
    """A cluster of topics with one partition."""

    def __init__(self, logs: dict[str, list[Any]]) -> None:
        self.logs = logs

    def partitions(self, topic: str, operation: str = "") -> int:
        return int(topic in self.logs)

    def read(self, topic: str, partition: int = 0) -> list[Message]:
        return [Message(one) for one in self.logs[topic]]


def products(*categories: str) -> list[Any]:
    bodies = [{"id": n, "category": one} for n, one in enumerate(categories)]
    return [(str(body["id"]).encode(), json.dumps(body).encode()) for body in bodies]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(declared: list[str], **logs: list[Any]) -> KeptTables:
        def ledger(*_: Any) -> Any:
            if not declared:
                raise NoLedgerError("none")
            return SimpleNamespace(pipelines=dict.fromkeys(declared), names=lambda _: NAMES)

        monkeypatch.setattr(kept_tables, "read_ledger", ledger)
        found = KeptTables(Kafka(), "shop")
        known = {NAMES.tables if name == "tables" else name: log for name, log in logs.items()}
        found.__dict__["_cluster"] = Logs(known)
        return found

    return make


def test_a_pipeline_that_is_not_declared_has_what_the_topic_holds_now(made: Any):
    for declared in ([], ["q"]):
        tables = made(declared, products=products("new", "b"))
        assert tables("p", ORIGIN) == PublicTable({"0": "new", "1": "b"})


def test_a_declared_pipeline_has_what_it_was_declared_with(made: Any):
    kept = PublicTable({"0": "old"}, ORIGIN)
    tables = made(["p"], products=products("new", "b"), tables=list(records_of("p", kept)))
    assert tables("p", ORIGIN) == kept
    assert tables("later", ORIGIN).rows == {"0": "new", "1": "b"}
    assert made(["p"], tables=list(records_of("p", kept)))("p", ORIGIN) == kept  # its topic is gone


def test_a_declared_pipeline_without_its_table_is_refused(made: Any):
    other = list(records_of("q", PublicTable({"0": "old"}, ORIGIN)))
    for logs in ({}, {"tables": []}, {"tables": other}):
        with pytest.raises(ConfigError, match=r"or topic shop\.0123456789\.tables has lost it"):
            made(["p"], products=products("new"), **logs)("p", ORIGIN)


def test_a_topic_that_is_missing_or_broken_is_named(made: Any):
    with pytest.raises(ConfigError, match=r"topic products of a .* does not exist"):
        made([])("p", ORIGIN)
    with pytest.raises(LedgerError, match="holds no tables: restore it"):
        made(["p"], tables=[(b"[]", b"")])("p", ORIGIN)
