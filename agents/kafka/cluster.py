"""Administration of a cluster over confluent-kafka: topics, settings, reads of whole partitions."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from ...errors import EngineError, OutageError
from ...topics.config.access.clients import librdkafka_options
from ...topics.config.model import Kafka
from ..deployment.cluster.topic_specs import TopicSpec, sized
from .access.refusals import Permits, locked_out, mistaken, of_group, of_token, passing
from .groups import ConsumerGroups
from .logs import consumer, failed
from .offsets import PartitionOffsets

SPREAD_SECONDS = 5.0  # within which brokers learn what another one has created
OPEN_SECONDS = 3.0  # for a commit to become visible, which takes milliseconds
log = logging.getLogger("hushstream.kafka")


def _member(kafka: Kafka, options: Mapping[str, Any], group: str) -> Consumer:
    return consumer(kafka, committed=True, more={**options, "group.id": group})


class Cluster:
    """Administration over confluent-kafka; blocking, so never used in a worker's event loop.

    Args:
        patience: seconds to wait for the cluster, and for metadata to spread.
        role: the client's role, for errors of refused rights; empty: not known.
        options: further options of librdkafka, which take precedence.

    Attributes:
        kafka: the connection.
        rights: rights of this user.
        offsets: offsets of partitions.
        groups: consumer groups.
    """

    def __init__(
        self,
        kafka: Kafka,
        patience: float = 30.0,
        role: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._options = librdkafka_options(kafka) | dict(options or {})
        self._heard: list[KafkaError] = []
        more = {"socket.timeout.ms": 10_000, "error_cb": self._heard.append}
        self._admin = AdminClient(self._options | more)
        self._patience = patience
        self.kafka = kafka
        self.rights = Permits(self._admin, kafka, role)
        self.offsets = PartitionOffsets(self._admin, self.rights, patience)
        # Not a method: a reference cycle would keep the client's threads and sockets alive.
        member = partial(_member, kafka, self._options)
        self.groups = ConsumerGroups(self._admin, self.rights, member)
        self.bootstrap = kafka.bootstrap

    def wait(self, told: Callable[[str], None] | None = None) -> None:
        """Wait for the cluster to answer.

        Args:
            told: called with the reason after each failed attempt; None: it is logged once.

        Raises:
            OutageError: the cluster did not answer in time.
            EngineError: it rejects this user.
        """
        until, said, tries = time.monotonic() + self._patience, False, 0
        silent = f"no Kafka answers at {self.bootstrap}"
        while True:
            try:
                self._admin.list_topics(timeout=2)
                return
            except KafkaException:
                self._admin.poll(0)
                # A starting broker may refuse a client once, so the second answer counts.
                error, late = locked_out(self.kafka, self._heard), time.monotonic() > until
                hint = mistaken(self.kafka, self._heard)
                sure = (tries or any(map(of_token, self._heard))) and not passing(self._heard)
                if error is not None and (late or sure):
                    raise error from None
                self._heard[:] = filter(of_token, self._heard)
                tries += 1
                if late:
                    start = "start one (`hush broker start`) or name another with --bootstrap"
                    raise OutageError(f"{silent}: {hint or start}") from None
                if told is not None:
                    told(silent)
                elif not said:
                    log.warning("waiting for Kafka at %s", self.bootstrap)
                    said = True

    def topics(self, named: Iterable[str] = ()) -> dict[str, int]:
        """List all topics, with their numbers of partitions.

        Kafka hides topics on which this user has no right at all.

        Args:
            named: topics that must not be hidden.

        Raises:
            RightError: one of ``named`` is hidden.
        """
        listed = self._admin.list_topics(timeout=10).topics
        found = {name: len(t.partitions) for name, t in listed.items()}
        for name in [name for name in named if name not in found]:
            if number := self.partitions(name):
                found[name] = number
        return found

    def brokers(self) -> int:
        """Count the brokers that are known to one of them."""
        return len(self._admin.list_topics(timeout=10).brokers)

    def partitions(self, topic: str, operation: str = "DESCRIBE") -> int:
        """Ask for the number of partitions of a topic; 0: there is no such topic.

        Raises:
            RightError: this user has no right on a topic of that name, whether it exists or not.
        """
        try:
            told = self._admin.describe_topics(TopicCollection([topic]))[topic].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return 0
            self.rights.refuse(error, operation, topic)
            raise
        return len(told.partitions)

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Ask for the topic ids, which change when a topic is created again.

        Raises:
            RightError: this user may not describe one.
        """
        names = list(topics)
        until = time.monotonic() + SPREAD_SECONDS
        while names:
            found = self._admin.describe_topics(TopicCollection(names))
            try:
                return {
                    name: str(self.rights.result(found[name], "DESCRIBE", name).topic_id)
                    for name in names
                }
            except KafkaException as error:
                new = error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                if not new or time.monotonic() > until:
                    raise
            time.sleep(0.1)
        return {}

    def settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Ask for the effective configuration of each topic, by topic and name.

        Raises:
            RightError: this user may not describe the configuration of one.
        """
        wanted = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        found: dict[str, dict[str, str]] = {}
        for resource, future in (self._admin.describe_configs(wanted) if wanted else {}).items():
            entries = self.rights.result(future, "DESCRIBE_CONFIGS", resource.name)
            found[resource.name] = {name: entry.value for name, entry in entries.items()}
        return found

    def own_settings(self) -> dict[str, str]:
        """Ask a broker for its own configuration, by name.

        Raises:
            RightError: this user may not describe it.
        """
        one = str(min(self._admin.list_topics(timeout=10).brokers))
        asked = self._admin.describe_configs([ConfigResource(ResourceType.BROKER, one)])
        ((_, future),) = asked.items()
        entries = self.rights.result(future, "DESCRIBE_CONFIGS", "kafka-cluster")
        return {name: entry.value for name, entry in entries.items()}

    def create(self, specs: Iterable[TopicSpec], replication: int) -> list[str]:
        """Create missing topics, and wait until the cluster's metadata show them.

        Args:
            replication: copies of each partition; -1 is the cluster's default.

        Returns:
            Names of the topics created.

        Raises:
            EngineError: the broker refuses one, or it does not appear in time.
        """
        existing = self.topics()
        missing = [s for s in specs if s.name not in existing]
        new = [
            NewTopic(s.name, s.partitions, replication_factor=replication, config=dict(s.config))
            for s in missing
        ]
        created = []
        for name, future in (self._admin.create_topics(new) if new else {}).items():
            try:
                future.result()
                created.append(name)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue  # another process was faster
                self.rights.refuse(error, "CREATE", name)
                raise EngineError(
                    f"topic {name} cannot be created: {error.args[0].str()}"
                ) from None
        self._until_known([s.name for s in missing])
        return created

    def extend(self, topics: Mapping[str, int]) -> None:
        """Add partitions to topics, and wait until the cluster's metadata show them.

        Args:
            topics: wanted number of partitions by topic; topics with as many are left alone.

        Raises:
            RightError: this user may not alter one.
            EngineError: the broker refuses, or the partitions do not appear in time.
        """
        short = {t: n for t, n in topics.items() if self.partitions(t) < n}
        new = [NewPartitions(topic, number) for topic, number in short.items()]
        for topic, future in (self._admin.create_partitions(new) if new else {}).items():
            try:
                future.result()
            except KafkaException as error:
                if self.partitions(topic) == topics[topic]:
                    continue  # another process was faster
                self.rights.refuse(error, "ALTER", topic)
                raise EngineError(
                    f"no partitions can be added to topic {topic}: {error.args[0].str()}"
                ) from None
        until = time.monotonic() + self._patience
        while any(self.partitions(topic) < number for topic, number in short.items()):
            if time.monotonic() > until:
                raise EngineError("added partitions do not appear in the cluster's metadata")
            time.sleep(0.1)

    def resize(self, specs: Iterable[TopicSpec]) -> tuple[list[str], list[str]]:
        """Apply the `SIZED` settings of specifications to existing topics.

        Args:
            specs: specifications; missing topics are skipped.

        Returns:
            Names of changed topics, and of topics that this user may not change.
        """
        existing = self.topics()
        wanted = {s.name: sized(s) for s in specs if s.name in existing and sized(s)}
        found = self.settings(wanted)
        changes = []
        for topic, settings in wanted.items():
            entries = [
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in settings.items()
                if found[topic].get(name) != value
            ]
            if entries:
                changes.append(
                    ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
                )
        answers = self._admin.incremental_alter_configs(changes) if changes else {}
        changed, refused = [], []
        for resource, future in answers.items():
            try:
                future.result()
                changed.append(resource.name)
            except KafkaException:
                refused.append(resource.name)
        return sorted(changed), sorted(refused)

    def delete(self, topics: list[str]) -> None:
        """Delete topics; topics that are already deleted are skipped.

        Raises:
            RightError: this user may not delete one.
        """
        for topic, future in (self._admin.delete_topics(topics) if topics else {}).items():
            try:
                self.rights.result(future, "DELETE", topic)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise

    def _until_known(self, names: list[str]) -> None:
        until = time.monotonic() + self._patience
        while not set(names) <= set(self.topics()):
            if time.monotonic() > until:
                raise EngineError("created topics do not appear in the cluster's metadata")
            time.sleep(0.1)

    def read(self, topic: str, partition: int = 0, start: int = 0) -> list[Any]:
        """Read all committed records of one partition; see `each`."""
        return list(self.each(topic, partition, start))

    def each(
        self,
        topic: str,
        partition: int = 0,
        start: int = 0,
        ended: Callable[[int], None] = lambda end: None,
    ) -> Iterator[Any]:
        """Yield all committed records of one partition, as confluent messages.

        A commit returns before its records become visible. So this waits for everything that was
        written before the call, unless a producer died and left its transaction open.

        Args:
            ended: called with the end up to which all was read, as the broker that was read has it.

        Raises:
            OutageError: the broker is silent, or the partition has no leader.
            EngineError: it reports another error, or refuses the right to read.
        """
        written = self.offsets.written(topic, partition)
        until = time.monotonic() + OPEN_SECONDS
        more = self._options | {"auto.offset.reset": "earliest"}
        with closing(consumer(self.kafka, committed=True, more=more)) as client:
            client.assign([TopicPartition(topic, partition, start)])
            reached = -1  # last end of the partition that was seen
            while reached < written and not (reached >= 0 and time.monotonic() > until):
                message = client.poll(10.0 if reached < 0 else 0.1)
                if message is None:
                    if reached < 0:
                        raise OutageError(f"{topic}-{partition} could not be read to its end")
                elif not message.error():
                    yield message
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    reached = message.offset()
                elif not of_group(message.error()):
                    self.rights.refuse(KafkaException(message.error()), "READ", topic)
                    raise failed(message.error(), f"{topic}-{partition}")
        ended(reached)

    def producer(self, **options: Any) -> Producer:
        """Make a producer with this cluster's settings; ``options`` of librdkafka override them."""
        return Producer(self._options | options)

    def write(self, topic: str, records: Iterable[tuple[bytes | None, bytes]]) -> None:
        """Write records to the first partition of a topic, and wait until all are acknowledged.

        Raises:
            EngineError: the broker refused them, or the right to write.
        """
        failed: list[KafkaError] = []
        producer = self.producer(acks="all")
        for key, value in records:
            producer.produce(
                topic, value, key=key, partition=0,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )  # fmt: skip
        if producer.flush(30):
            raise EngineError(f"{topic} could not be written: no answer within 30 s")
        if failed:
            self.rights.refuse(KafkaException(failed[0]), "WRITE", topic)
            raise EngineError(f"{topic} could not be written: {failed[0].str()}")
