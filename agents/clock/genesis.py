"""Topics of a deployment: what there must be, creating it, pinning it at genesis, checking it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import (
    KafkaError,
    KafkaException,
)

from ...errors import EngineError, LedgerError
from ...topics.names import Names, genesis_id, ledger_topic
from ..deployment.model import Deployment
from ..deployment.topic_specs import internal_topics, layout, public_topics
from ..kafka.cluster import Cluster
from .ledger import Ledger, Record

log = logging.getLogger("hushstream.kafka")
QUIET = {"logger": logging.getLogger("hushstream.librdkafka"), "log_level": 0}


FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class Overtaken(EngineError):
    """Somebody else writes to the ledger at the same time."""


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
