"""Tables from topics, read from the cluster for a configuration that is being loaded."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ...errors import ConfigError, LedgerError
from ...formats.events.expressions.looked_up import Origin, PublicTable
from ...topics.config.inputs.reference import ReferenceRecord, table_of
from ...topics.config.model import Kafka
from ..kafka.cluster import Cluster
from .genesis import NoLedgerError, read_ledger
from .ledger import Ledger
from .tables import tables_of


class KeptTables:
    """Tables from topics: of declared pipelines as kept at declaration, of others as of now."""

    def __init__(self, kafka: Kafka, deployment: str, patience: float = 60.0) -> None:
        self._kafka, self._name, self._patience = kafka, deployment, patience
        self._read: dict[str, list[ReferenceRecord]] = {}

    def __call__(self, pipeline: str, origin: Origin) -> PublicTable:
        """Find a table.

        Raises:
            ConfigError: a declared pipeline has no such table, or a topic is missing or is no
            table.
            EngineError: the cluster does not answer, or the ledger is broken.
        """
        if self._ledger is None or pipeline not in self._ledger.pipelines:
            return table_of(self._stated(origin.topic), origin)
        found = self._kept.get((pipeline, origin))
        if found is None:
            raise ConfigError(
                f"pipeline {pipeline!r} was declared without a table of topic {origin.topic} with "
                f"{origin.match} and {origin.take}, or topic {self._topic} has lost it: restore "
                "that topic, or the old configuration; another table needs another pipeline"
            )
        return found

    @cached_property
    def _cluster(self) -> Cluster:
        cluster = Cluster(self._kafka, self._patience)
        cluster.wait()
        return cluster

    @cached_property
    def _ledger(self) -> Ledger | None:
        try:
            return read_ledger(self._cluster, self._name)
        except NoLedgerError:
            return None

    @property
    def _topic(self) -> str:
        assert self._ledger is not None
        return self._ledger.names(self._name).tables

    @cached_property
    def _kept(self) -> dict[Any, PublicTable]:
        if not self._cluster.partitions(self._topic, "READ"):
            return {}
        try:
            return tables_of((m.key(), m.value()) for m in self._cluster.read(self._topic))
        except (ValueError, TypeError) as error:
            raise LedgerError(f"topic {self._topic} holds no tables: restore it") from error

    def _stated(self, topic: str) -> list[ReferenceRecord]:
        """Read all records of a topic of reference data."""
        if topic not in self._read:
            number = self._cluster.partitions(topic, "READ")
            if not number:
                raise ConfigError(f"topic {topic} of a [[lookup]] does not exist: create it")
            self._read[topic] = [
                ReferenceRecord(place, m.offset(), m.key(), m.value())
                for place in range(number)
                for m in self._cluster.read(topic, place)
            ]
        return self._read[topic]
