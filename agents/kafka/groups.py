"""Consumer groups over confluent-kafka: their members and committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from .access.refusals import Permits
from .logs import failed

Place = tuple[str, int]  # topic, partition
STABLE_SECONDS = 70.0  # Kafka aborts abandoned transactions after 60


class Committed(NamedTuple):
    """The position that a group has committed for one partition."""

    offset: int
    text: str  # text stored with the offset; empty: none


class Member(NamedTuple):
    """One client of a group."""

    client_id: str
    instance: str | None  # static name
    host: str  # host as seen by the broker
    partitions: int  # number of assigned partitions


class ConsumerGroups:
    """Consumer groups of a cluster.

    Args:
        member: makes a client of a group that does not join it.
    """

    def __init__(
        self, admin: AdminClient, rights: Permits, member: Callable[[str], Consumer]
    ) -> None:
        self._admin = admin
        self._rights = rights
        self._member = member

    def members(self, group: str) -> list[Member]:
        """List the clients of a group; empty if there is no such group.

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
        """Ask for the committed offsets of a group; wait for open transactions that contain some.

        Args:
            group: name of the group, which need not exist.
            topics: number of partitions of each wanted topic.

        Returns:
            Offsets by topic and partition, without partitions that have none.

        Raises:
            RightError: this user may not describe the group.
            OutageError: no broker answers, or a transaction stays open for `STABLE_SECONDS`.
        """
        return {place: one.offset for place, one in self.told(group, topics).items()}

    def told(self, group: str, topics: Mapping[str, int]) -> dict[Place, Committed]:
        """Ask for committed offsets with their texts; otherwise like `committed`.

        A client of the group waits for its coordinator and for open transactions. The admin client
        does not: it would miss an offset that is being committed.
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
