"""Ownership of topics whose names do not contain a genesis id.

The configuration names the topics of releases, dead letters and late records, so two deployments on
one cluster may name the same topic. All deployments of a cluster share the topic `hush.owners.v1`,
which records who owns what: the first claim of a topic (by Kafka's topic id) counts, and later
claims are ignored. A topic that is deleted and created again can be claimed again. An unclaimed
topic can be claimed only if it holds no foreign records, among which releases would do damage.
Ledgers are claimed too.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

import msgspec

from ....errors import EngineError
from ....formats.values.codec import Announced
from ....topics.names import OWNERS, ledger_topic
from ....topics.records import encode
from ....topics.releases import GONE, MANIFEST, ROW
from ...deployment.model import Deployment
from ..cluster import Cluster
from ..logs import raw

REASON = "__streams.errors.reason"  # header of every record that was set aside
log = logging.getLogger("hushstream.kafka")


class Claim(msgspec.Struct, frozen=True):
    """The one deployment that writes a topic. All fields are public."""

    topic: str
    topic_id: str
    deployment: str


def written(deployment: Deployment) -> list[str]:
    """List topics that a deployment writes and others could also name."""
    found = (
        (p.release_topic, p.latest_topic, p.dlq_topic, p.late_topic) for p in deployment.pipelines
    )
    views = {v.release_topic for v in deployment.views}
    return sorted(views | {topic for topics in found for topic in topics if topic})


def _claimed(deployment: Deployment) -> list[str]:
    """List the topics that a deployment claims: those that it writes, and its ledger."""
    return [ledger_topic(deployment.name), *written(deployment)]


def claim(cluster: Cluster, deployment: Deployment) -> None:
    """Claim topics that are not claimed yet; safe to repeat.

    Raises:
        EngineError: another deployment owns one of the topics, or the claim cannot be written.
    """
    ids = cluster.ids(_claimed(deployment))
    owners = _owners(cluster)
    wanted = [Claim(t, i, deployment.name) for t, i in ids.items() if (t, i) not in owners]
    if wanted:
        cluster.write(OWNERS, [(one.topic.encode(), encode(one)) for one in wanted])
    verify_owned(cluster, deployment)


def verify_owned(cluster: Cluster, deployment: Deployment) -> None:
    """Check that a deployment owns every topic that it writes.

    Raises:
        EngineError: another deployment owns one, or one is unclaimed.
    """
    topics = cluster.topics((OWNERS, *written(deployment)))
    for topic in (OWNERS, *written(deployment)):
        if topic not in topics:
            raise EngineError(f"topic {topic} does not exist: run `hush topics`")
    for topic in unclaimed(cluster, deployment):
        raise EngineError(
            f"topic {topic} was made or made anew without `hush topics`: run it, so that "
            "this deployment owns the topic"
        )


def unclaimed(cluster: Cluster, deployment: Deployment) -> list[str]:
    """List the unclaimed topics that a deployment writes.

    The ledger is left out, because an earlier version did not claim it.

    Raises:
        EngineError: another deployment owns one.
    """
    owners, found = _owners(cluster), list[str]()
    for place in cluster.ids(_claimed(deployment)).items():
        if place in owners:
            _refuse_other(owners[place], deployment, place[0])
        elif place[0] != ledger_topic(deployment.name):
            found.append(place[0])
    return found


def verify_unclaimed(
    cluster: Cluster, deployment: Deployment, pipelines: Collection[str] = ()
) -> None:
    """Check that this deployment may claim the existing topics that it would write.

    Args:
        pipelines: former names of its pipelines.

    Raises:
        EngineError: another deployment owns a topic; or it is unclaimed, and holds records that are
            neither releases nor dead letters of this deployment.
    """
    wanted = _claimed(deployment)
    existing = cluster.topics((OWNERS, *wanted))
    owners = _owners(cluster) if OWNERS in existing else {}
    for place in cluster.ids([topic for topic in wanted if topic in existing]).items():
        topic = place[0]
        if place in owners:
            _refuse_other(owners[place], deployment, topic)
        elif topic != wanted[0]:  # readers check a ledger by its chain
            _refuse_strange(cluster, deployment, topic, existing[topic], pipelines)


def _refuse_strange(
    cluster: Cluster,
    deployment: Deployment,
    topic: str,
    partitions: int,
    pipelines: Collection[str],
) -> None:
    known = {name for p in deployment.pipelines for name in (p.name, *p.lineage)}
    released = {t for p in deployment.pipelines for t in (p.release_topic, p.latest_topic)}
    known |= {v.name for v in deployment.views}
    released |= {v.release_topic for v in deployment.views}
    begins = tuple(f"{name}|".encode() for name in known | set(pipelines))
    for number in range(partitions):
        if not cluster.offsets.written(topic, number):
            continue  # an empty topic needs no right to read, which an administrator may lack
        for message in cluster.each(topic, number):
            if not (_released(message, begins) if topic in released else _set_aside(message)):
                raise EngineError(
                    f"topic {topic} exists, no deployment has claimed it, and it holds records "
                    f"that are {'no releases' if topic in released else 'no dead letters'} of "
                    f"deployment {deployment.name!r}: writing there could damage other data; "
                    "give the pipeline another name or another release.topic, or delete the "
                    "topic if it is no longer needed"
                )


def _released(message: Any, begins: tuple[bytes, ...]) -> bool:
    """Whether a record is a release whose key begins with one of ``begins``."""
    own = {ROW, MANIFEST, GONE} & set(_headers(message))
    return bool(own) and (message.key() or b"").startswith(begins)


def _set_aside(message: Any) -> bool:
    """Whether a record is a dead letter or a late record."""
    return REASON in _headers(message)


def _headers(message: Any) -> list[str]:
    return [name for name, _ in raw(message).headers]


def _refuse_other(owner: str, deployment: Deployment, topic: str) -> None:
    if owner != deployment.name:
        raise EngineError(
            f"topic {topic} is written by deployment {owner!r}, and two that write it would "
            "mix their releases: give the pipeline another name or another release.topic"
        )


def claimants(cluster: Cluster) -> set[str]:
    """List all deployments that own topics of this cluster."""
    return set(_owners(cluster).values())


def owned(cluster: Cluster, deployment: str) -> set[str]:
    """List the topics of this cluster that a deployment has claimed."""
    claimed = {place for place, owner in _owners(cluster).items() if owner == deployment}
    there = claimed and {topic for topic, _ in claimed} & cluster.topics().keys()
    ids = cluster.ids(sorted(there)) if there else {}
    return {topic for topic, topic_id in ids.items() if (topic, topic_id) in claimed}


def _announces(value: bytes) -> bool:
    """Whether a record announces the schema of its topic."""
    try:
        msgspec.json.decode(value, type=Announced)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def _owners(cluster: Cluster) -> dict[tuple[str, str], str]:
    """Map each (topic, topic id) to the deployment that claimed it first."""
    owners: dict[tuple[str, str], str] = {}
    strange = 0
    for message in cluster.read(OWNERS):
        try:
            one = msgspec.json.decode(message.value() or b"", type=Claim)
        except msgspec.MsgspecError:
            strange += not _announces(message.value() or b"")
            continue
        # The first claim counts. If two deployments claim at once, both read the same order.
        owners.setdefault((one.topic, one.topic_id), one.deployment)
    if strange:
        log.warning("%s holds %d records that claim nothing; they are ignored", OWNERS, strange)
    return owners
