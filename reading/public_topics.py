"""The public topics of a deployment on its cluster, for a proof: ledger and release topics."""

from __future__ import annotations

from collections.abc import Iterator

from ..agents.clock.genesis import NoLedgerError, read_ledger
from ..agents.clock.ledger import Ledger
from ..agents.kafka.cluster import Cluster
from ..agents.kafka.logs import raw
from ..errors import LedgerError
from ..formats.events.decode import RawRecord
from ..topics.config.model import Kafka
from ..topics.names import ledger_topic


class PublicTopics:
    """Public topics of a deployment.

    Raises:
        OutageError: no broker answers.
    """

    def __init__(self, kafka: Kafka, deployment: str) -> None:
        self._cluster = Cluster(kafka, role="verifier")
        self._deployment = deployment
        self._cluster.wait()

    def ledger(self) -> Ledger:
        """Read the ledger and verify its chain.

        Raises:
            LedgerError: there is none, or it is broken.
        """
        try:
            return read_ledger(self._cluster, self._deployment)
        except NoLedgerError:
            raise LedgerError(
                f"there is no topic {ledger_topic(self._deployment)!r} here: is this the name of "
                "the deployment (--deployment), and this its cluster (--bootstrap)?"
            ) from None

    def partitions(self, topic: str) -> int:
        """Number of partitions of a release topic; 0 if it is gone."""
        return self._cluster.partitions(topic, "READ")

    def records(self, topic: str, partition: int) -> Iterator[RawRecord]:
        """Read all committed records of a partition of a release topic."""
        yield from map(raw, self._cluster.each(topic, partition))
