"""Administration of a cluster over confluent-kafka: topics, their ids and ends, whole topics."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from ...errors import EngineError
from ...topics.config.clients import librdkafka_options
from ...topics.config.model import Kafka
from ..deployment.topic_specs import TopicSpec, sized

OPEN_SECONDS = 3.0  # a commit becomes visible in milliseconds
log = logging.getLogger("hushstream.kafka")


class Cluster:
    """Administration over confluent-kafka; never used inside a worker's event loop.

    Args:
        kafka: the connection.
        patience: seconds to wait for the cluster, and for metadata to spread.
    """

    def __init__(self, kafka: Kafka, patience: float = 30.0) -> None:
        self._options = librdkafka_options(kafka)
        self._admin = AdminClient(self._options | {"socket.timeout.ms": 10_000})
        self._patience = patience
        self.bootstrap = kafka.bootstrap

    def wait(self) -> None:
        """Wait for the cluster to answer; log that once.

        Raises:
            EngineError: the cluster did not answer in time.
        """
        until, said = time.monotonic() + self._patience, False
        while True:
            try:
                self._admin.list_topics(timeout=2)
                return
            except KafkaException:
                if time.monotonic() > until:
                    raise EngineError(
                        f"no Kafka answers at {self.bootstrap}: start one (`hush broker start`) or "
                        "name another with --bootstrap"
                    ) from None
                if not said:
                    log.warning("waiting for Kafka at %s", self.bootstrap)
                    said = True

    def topics(self) -> dict[str, int]:
        """List all topics, with their numbers of partitions."""
        listed = self._admin.list_topics(timeout=10).topics
        return {name: len(t.partitions) for name, t in listed.items()}

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Ask for Kafka's own id of each topic; a topic that is created again has another."""
        from confluent_kafka import TopicCollection

        names = list(topics)
        if not names:
            return {}
        found = self._admin.describe_topics(TopicCollection(names))
        return {name: str(found[name].result().topic_id) for name in names}

    def begins(self, topic: str, partitions: int) -> list[int]:
        """Ask for the first offset that each partition still has."""
        places = [TopicPartition(topic, n) for n in range(partitions)]
        found = self._admin.list_offsets({place: OffsetSpec.earliest() for place in places})
        return [found[place].result().offset for place in places]

    def settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Ask for the effective configuration of each topic, by topic and name.

        Raises:
            EngineError: this user lacks the right DESCRIBE_CONFIGS.
        """
        wanted = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        found: dict[str, dict[str, str]] = {}
        for resource, future in (self._admin.describe_configs(wanted) if wanted else {}).items():
            try:
                entries = future.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise EngineError(
                        f"no right DESCRIBE_CONFIGS on topic {resource.name}: `hush topics "
                        "--print` lists the rights that workers need"
                    ) from None
                raise
            found[resource.name] = {name: entry.value for name, entry in entries.items()}
        return found

    def ends(self, topic: str, partitions: int) -> list[int]:
        """Ask for the last stable offset of each partition: the end of what is committed."""
        places = [TopicPartition(topic, n) for n in range(partitions)]
        found = self._admin.list_offsets(
            {place: OffsetSpec.latest() for place in places},
            isolation_level=IsolationLevel.READ_COMMITTED,
        )
        return [found[place].result().offset for place in places]

    def create(self, specs: Iterable[TopicSpec], replication: int) -> list[str]:
        """Create missing topics, and wait until the cluster's metadata show them.

        Args:
            specs: the wanted topics.
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
                raise EngineError(
                    f"topic {name} cannot be created: {error.args[0].str()}"
                ) from None
        self._until_known([s.name for s in missing])
        return created

    def resize(self, specs: Iterable[TopicSpec]) -> tuple[list[str], list[str]]:
        """Give existing topics the settings of `SIZED` that their specifications have.

        Args:
            specs: topics that exist; others are passed over.

        Returns:
            Names of topics that were changed, and of those that this user may not change.
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
        """Delete topics."""
        for future in (self._admin.delete_topics(topics) if topics else {}).values():
            future.result()

    def _until_known(self, names: list[str]) -> None:
        until = time.monotonic() + self._patience
        while not set(names) <= set(self.topics()):
            if time.monotonic() > until:
                raise EngineError("created topics do not appear in the cluster's metadata")
            time.sleep(0.1)

    def read(self, topic: str, partition: int = 0, start: int = 0) -> list[Any]:
        """Read all committed records of one partition, as confluent messages.

        A commit returns before its records become visible. So the call waits for everything
        that was written before it, unless a producer died and left its transaction open.

        Args:
            topic: name of the topic.
            partition: its number.
            start: first offset to read.

        Raises:
            EngineError: the broker is silent, or reports an error.
        """
        options = {
            "group.id": f"hush-read-{secrets.token_hex(4)}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # else the broker delays its answer at the end of the log
        }
        written = self._written(topic, partition)
        until = time.monotonic() + OPEN_SECONDS
        client = Consumer(self._options | options)
        try:
            client.assign([TopicPartition(topic, partition, start)])
            found: list[Any] = []
            reached = -1  # where the last end of the partition was seen
            while reached < written and not (reached >= 0 and time.monotonic() > until):
                message = client.poll(10.0 if reached < 0 else 0.1)
                if message is None:
                    if reached < 0:
                        raise EngineError(f"{topic}-{partition} could not be read to its end")
                elif not message.error():
                    found.append(message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    reached = message.offset()
                else:
                    raise EngineError(f"{topic}-{partition}: {message.error().str()}")
            return found
        finally:
            client.close()

    def _written(self, topic: str, partition: int) -> int:
        """The end of a partition, records of open transactions included."""
        place = TopicPartition(topic, partition)
        until = time.monotonic() + self._patience
        while True:
            answer = self._admin.list_offsets(
                {place: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_UNCOMMITTED
            )
            try:
                return int(answer[place].result().offset)
            except KafkaException as error:  # a new topic has no leader for a moment
                if time.monotonic() > until:
                    raise EngineError(
                        f"{topic}-{partition}: its end is unknown: {error.args[0].str()}"
                    ) from None
                time.sleep(0.1)

    def producer(self, **options: Any) -> Producer:
        """Make a producer with this cluster's settings; ``options`` of librdkafka win."""
        return Producer(self._options | options)
