"""Topics of a deployment: what there must be, creating it, pinning it at genesis, checking it."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from hushstream.mechanisms.errors import EngineError, LedgerError
from hushstream.topics.config_clients import librdkafka_options
from hushstream.topics.config_model import Kafka
from hushstream.topics.names import Names, genesis_id, ledger_topic

from .ledger import Ledger, Record
from .model import Deployment
from .specs import TopicSpec, internal_topics, layout, public_topics

log = logging.getLogger("hushstream.kafka")
OPEN_SECONDS = 3.0  # a commit becomes visible in milliseconds
QUIET = {"logger": logging.getLogger("hushstream.librdkafka"), "log_level": 0}


FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class Overtaken(EngineError):
    """Somebody else writes to the ledger at the same time."""


class Cluster:
    """Administration over confluent-kafka; never used inside a worker's event loop."""

    def __init__(self, kafka: Kafka, patience: float = 30.0) -> None:
        self._options = librdkafka_options(kafka) | {"log_level": 0}
        self._admin = AdminClient(self._options | {"socket.timeout.ms": 10_000})
        self._patience = patience
        self.bootstrap = kafka.bootstrap

    def wait(self) -> None:
        """Wait for the cluster to answer, saying so once.

        Raises:
            EngineError: it did not answer in time.
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
        """Partitions of every topic."""
        listed = self._admin.list_topics(timeout=10).topics
        return {name: len(t.partitions) for name, t in listed.items()}

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Kafka's own id of each topic: a recreated one has another."""
        from confluent_kafka import TopicCollection

        names = list(topics)
        if not names:
            return {}
        found = self._admin.describe_topics(TopicCollection(names))
        return {name: str(found[name].result().topic_id) for name in names}

    def begins(self, topic: str, partitions: int) -> list[int]:
        """First offset that each partition still has."""
        from confluent_kafka.admin import OffsetSpec

        places = [TopicPartition(topic, n) for n in range(partitions)]
        found = self._admin.list_offsets({place: OffsetSpec.earliest() for place in places})
        return [found[place].result().offset for place in places]

    def configs(self, topic: str) -> dict[str, str]:
        """Effective configuration of a topic."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, topic)
        future = self._admin.describe_configs([resource])[resource]
        return {name: entry.value for name, entry in future.result().items()}

    def create(self, specs: Iterable[TopicSpec], replication: int) -> list[str]:
        """Create what is missing; returns the names created."""
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
                    continue  # somebody else was faster
                raise EngineError(
                    f"topic {name} cannot be created: {error.args[0].str()}"
                ) from None
        self._until_known([s.name for s in missing])
        return created

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
        """All committed records of one partition, as confluent messages.

        A commit returns before its records become visible. So whatever was written before the
        call is waited for, unless a producer died and left its transaction open.
        """
        options = {
            "group.id": f"hush-read-{secrets.token_hex(4)}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # else the broker keeps the answer "this is the end" back
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
        """The end of a partition, open transactions and all."""
        place = TopicPartition(topic, partition)
        until = time.monotonic() + self._patience
        while True:
            answer = self._admin.list_offsets(
                {place: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_UNCOMMITTED
            )
            try:
                return int(answer[place].result().offset)
            except KafkaException as error:  # a topic has no leader for a moment after its making
                if time.monotonic() > until:
                    raise EngineError(
                        f"{topic}-{partition}: its end is unknown: {error.args[0].str()}"
                    ) from None
                time.sleep(0.1)

    def producer(self, **options: Any) -> Producer:
        """A producer with this cluster's settings."""
        return Producer(self._options | options)


def read_ledger(cluster: Cluster, deployment: str) -> Ledger:
    """The verified ledger of a deployment.

    Raises:
        LedgerError: there is none, or its chain is broken.
    """
    topic = ledger_topic(deployment)
    if topic not in cluster.topics():
        raise LedgerError(
            f"there is no ledger topic {topic!r}: run `hush topics` to begin this deployment"
        )
    ledger = Ledger.read(m.value() for m in cluster.read(topic))
    if not ledger.records:
        raise LedgerError(f"the ledger {topic!r} is empty: run `hush topics` to begin")
    return ledger


def begin(cluster: Cluster, deployment: Deployment, replication: int, now: int) -> list[str]:
    """Create all topics and write genesis and pipeline records; returns topics created.

    Safe to repeat: what exists is left alone, new pipelines are added to the ledger.
    """
    raw = cluster.topics()
    for source in deployment.inputs:
        if source.topic not in raw:
            raise EngineError(
                f"input topic {source.topic!r} does not exist: create it, or let a producer do so"
            )
    created = cluster.create(public_topics(deployment), replication)
    topic = ledger_topic(deployment.name)
    if not _read(cluster, topic).records:
        created += _first(cluster, deployment, replication, now)
    ledger = _read(cluster, topic)
    names = Names(deployment.name, ledger.genesis["genesis"])
    created += cluster.create(internal_topics(deployment, names), replication)
    if set(ledger.pipelines) >= {p.name for p in deployment.pipelines}:
        return created

    def missing() -> list[Record]:
        return _declarations(cluster, deployment, _read(cluster, topic), names, now)

    # The clock's id: its owner is fenced, for it may charge something meanwhile, and rereads.
    _append(cluster, names.transactional_id("clock", "clock", 0), topic, missing)
    return created


def _first(cluster: Cluster, deployment: Deployment, replication: int, now: int) -> list[str]:
    """Make a genesis under an id that all first runs share: only one of them can commit."""
    names = Names(deployment.name, secrets.token_hex(5))
    created: list[str] = []

    def records() -> list[Record]:
        if _read(cluster, names.ledger).records:
            return []  # somebody else was first
        created.extend(cluster.create(internal_topics(deployment, names), replication))
        return _declarations(cluster, deployment, Ledger(), names, now)

    try:
        _append(cluster, genesis_id(deployment.name), names.ledger, records)
    except Overtaken:
        if _read(cluster, names.ledger).genesis.get("genesis") != names.genesis:
            cluster.delete(created)  # named by a genesis that never was
        raise
    return created


def _declarations(
    cluster: Cluster, deployment: Deployment, ledger: Ledger, names: Names, now: int
) -> list[Record]:
    """Genesis if there is none, then every pipeline that was not declared yet."""
    records = []
    inputs = {i.topic: i.partitions for i in deployment.inputs}
    if not ledger.records:
        ids = cluster.ids([*inputs, names.clock, names.requests])
        body: dict[str, Any] = {
            "genesis": names.genesis,
            "deployment": deployment.name,
            "topic_ids": ids,
            "partitions": inputs,
        }
        records.append(ledger.next("genesis", now, body))
        ledger.take(records[-1].encode())
    for source in deployment.inputs:
        for p in source.pipelines:
            if p.name in ledger.pipelines:
                continue
            own = layout(source, p, names)
            body = {
                "pipeline": p.name,
                "number": len(ledger.pipelines),
                "config_hash": p.config_hash,
                "config": p.config,
                "topic_ids": cluster.ids(own),
                "begins": cluster.begins(source.topic, source.partitions),
                "partitions": own,
            }
            records.append(ledger.next("pipeline", now, body))
            ledger.take(records[-1].encode())
    return records


def _append(cluster: Cluster, identity: str, topic: str, made: Callable[[], list[Record]]) -> None:
    """Write ledger records in a transaction of an id that fences whoever had it before.

    ``made`` is called after that: what it reads of the ledger is what the records are chained to.

    Raises:
        Overtaken: somebody else has taken the id meanwhile; nothing was written.
    """
    producer = cluster.producer(**{"transactional.id": identity, "acks": "all"})
    try:
        producer.init_transactions(30)
        records = made()
        if not records:
            return
        producer.begin_transaction()
        for record in records:
            key = str(record.body.get("pipeline", "")).encode() or None
            producer.produce(topic, record.encode(), key=key, partition=0)
        producer.commit_transaction(30)
    except KafkaException as error:
        if error.args[0].code() in FENCED:
            raise Overtaken(
                "another `hush topics` runs at the same time and was faster: nothing was written "
                "here; run it again when the other one has ended"
            ) from None
        raise


def _read(cluster: Cluster, topic: str) -> Ledger:
    return Ledger.read(m.value() for m in cluster.read(topic))


def verify(cluster: Cluster, deployment: Deployment, ledger: Ledger) -> Names:
    """Check that ledger, configuration and topics belong together; fail closed.

    Raises:
        EngineError: what does not fit, and what to do.
    """
    names = Names(deployment.name, ledger.genesis["genesis"])
    for p in deployment.pipelines:
        declared = ledger.pipelines.get(p.name)
        if declared is None:
            raise EngineError(f"pipeline {p.name!r} is not in the ledger: run `hush topics`")
        if declared["config_hash"] != p.config_hash:
            changed = ", ".join(_differences(declared["config"], p.config)) or "the configuration"
            raise EngineError(
                f"pipeline {p.name!r}: {changed} differs from what the ledger declared, which "
                "stays for as long as the pipeline has its name: restore the old configuration, "
                "or give the pipeline a new name, and with it charges of its own"
            )
    _verify_ids(cluster, _of_clock(ledger, names), "the deployment")
    for source in deployment.inputs:
        for p in source.pipelines:
            _verify_topics(cluster, ledger.pipelines[p.name], p.name)
            _verify_layout(layout(source, p, names), ledger.pipelines[p.name], p.name)
    return names


def _verify_layout(wanted: Mapping[str, int], declared: Mapping[str, Any], name: str) -> None:
    """Another way of spreading units over shards would give each unit a second bound."""
    pinned = declared["partitions"]
    for topic in sorted({*wanted, *pinned}):
        if wanted.get(topic, 0) != pinned.get(topic, 0):
            raise EngineError(
                f"pipeline {name!r}: topic {topic} would have {wanted.get(topic, 0)} partitions "
                f"by this configuration, the ledger pinned {pinned.get(topic, 0)}: partitioner, "
                "units_partitions and cells_partitions cannot change; restore them, or give the "
                "pipeline a new name"
            )


def _verify_topics(cluster: Cluster, declared: Mapping[str, Any], pipeline: str) -> None:
    existing = cluster.topics()
    for topic, partitions in declared["partitions"].items():
        if existing.get(topic, partitions) != partitions:
            raise EngineError(
                f"pipeline {pipeline!r}: topic {topic} has {existing[topic]} partitions, the "
                f"ledger pinned {partitions}; partitions cannot be added to a running deployment"
            )
    _verify_ids(cluster, declared["topic_ids"], f"pipeline {pipeline!r}")


def _of_clock(ledger: Ledger, names: Names) -> dict[str, str]:
    """Pinned ids of the clock's own topics: a new clock would fire what was charged once more."""
    pinned = ledger.genesis.get("topic_ids", {})
    return {t: pinned[t] for t in (names.clock, names.requests) if t in pinned}


def _verify_ids(cluster: Cluster, pinned: Mapping[str, str], whose: str) -> None:
    existing = cluster.topics()
    for topic in pinned:
        if topic not in existing:
            raise EngineError(
                f"{whose}: topic {topic} is gone, and with it part of the state; "
                "restore it, or begin a new deployment (another deployment.name)"
            )
    for topic, identity in cluster.ids(pinned).items():
        if identity != pinned[topic]:
            raise EngineError(
                f"{whose}: topic {topic} was deleted and created again; its old records are "
                "counted already: begin a new deployment (another deployment.name)"
            )


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> list[str]:
    """Paths of the settings that differ."""
    found = []
    for name in sorted({*old, *new}):
        a, b = old.get(name), new.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += _differences(a, b, f"{path}{name}.")
        elif a != b:
            found.append(f"{path}{name}")
    return found
