"""Consumer groups, asked over confluent-kafka: who is in one, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from .access.refusals import Permits

Place = tuple[str, int]  # topic, partition


class Member(NamedTuple):
    """One client of a group."""

    client_id: str
    instance: str | None  # its static name
    host: str  # as the broker sees it
    partitions: int  # that it has now


class ConsumerGroups:
    """Consumer groups of a cluster."""

    def __init__(self, admin: AdminClient, rights: Permits) -> None:
        self._admin = admin
        self._rights = rights

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
        """
        places = [TopicPartition(t, n) for t, number in topics.items() for n in range(number)]
        asked = ConsumerGroupTopicPartitions(group, places)
        future = self._admin.list_consumer_group_offsets([asked], require_stable=True)[group]
        told: Iterable[TopicPartition] = self._rights.result(
            future, "DESCRIBE", group
        ).topic_partitions
        return {(one.topic, one.partition): one.offset for one in told if one.offset >= 0}
