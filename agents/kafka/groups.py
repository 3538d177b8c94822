"""Consumer groups, asked over confluent-kafka: who is in one, and how far it has come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from .access.refusals import Permits
from .logs import failed

Place = tuple[str, int]  # topic, partition
STABLE_SECONDS = 70.0  # Kafka itself aborts after 60 what a client left open


class Committed(NamedTuple):
    """Position that a group has committed for one partition."""

    offset: int
    text: str  # stored with the offset; empty: none was


class Member(NamedTuple):
    """One client of a group."""

    client_id: str
    instance: str | None  # its static name
    host: str  # as the broker sees it
    partitions: int  # that it has now


class ConsumerGroups:
    """Consumer groups of a cluster.

    Args:
        member: makes a client of a group, which does not join it.
    """

    def __init__(
        self, admin: AdminClient, rights: Permits, member: Callable[[str], Consumer]
    ) -> None:
        self._admin = admin
        self._rights = rights
        self._member = member

    def members(self, group: str) -> list[Member]:
        """List the clients of a group; none if there is no such group.

        Raises:
            RightError: this user may not describe it.
        """
        asked = self._admin.describe_consumer_groups([group])[group]
        told = self._rights.result(asked, "DESCRIBE", group)
        return [
            Member(m.client_id, m.group_instance_id, m.host.lstrip("/"),
                   len(m.assignment.topic_partitions))
            for m in told.members
        ]  # fmt: skip

    def committed(self, group: str, topics: Mapping[str, int]) -> dict[Place, int]:
        """Ask for the offsets that a group has committed; waits for transactions that hold some.

        Args:
            group: its name; it need not exist.
            topics: number of partitions of each topic that is asked for.

        Returns:
            Offsets by topic and partition, without partitions of which none was committed.

        Raises:
            RightError: this user may not describe the group.
            OutageError: no broker answers, or a transaction stays open for `STABLE_SECONDS`.
        """
        return {place: one.offset for place, one in self.told(group, topics).items()}

    def told(self, group: str, topics: Mapping[str, int]) -> dict[Place, Committed]:
        """Ask for offsets with the texts that were stored with them; else as `committed`.

        The client of a group waits for its coordinator and for open transactions. An administrator
        does not: it would take an offset that is being committed for none.
        """
        places = [TopicPartition(t, n) for t, number in topics.items() for n in range(number)]
        try:
            with closing(self._member(group)) as member:
                told = member.committed(places, STABLE_SECONDS)
            for one in told:
                if one.error is not None:
                    raise KafkaException(one.error)
        except KafkaException as error:
            self._rights.refuse(error, "DESCRIBE", group)
            raise failed(error.args[0], f"group {group}: its offsets are unknown") from None
        return {
            (one.topic, one.partition): Committed(one.offset, one.metadata or "")
            for one in told
            if one.offset >= 0
        }
