"""Publishes the schemas of releases, in the topic of owners, for readers without a registry."""

from __future__ import annotations

import msgspec

from ...formats.values.codec import Announced, Described
from ...topics.names import OWNERS
from ...topics.records import encode
from ..deployment.model import Deployment
from ..kafka.cluster import Cluster


def announce(cluster: Cluster, deployment: Deployment) -> None:
    """Publish the schemas of a deployment; safe to repeat.

    Raises:
        EngineError: it cannot be written.
    """
    wanted = [
        Announced(p.release_topic, header, one.encoding, one.number, one.shape)
        for p in deployment.pipelines
        for header, one in p.codec.records.items()
    ]
    if not wanted:
        return
    known = {topic: announced(cluster, topic) for topic in {one.topic for one in wanted}}
    fresh = [one for one in wanted if known[one.topic].get(one.number) != one.described]
    if fresh:
        cluster.write(OWNERS, [(one.topic.encode(), encode(one)) for one in fresh])


def announced(cluster: Cluster, topic: str) -> dict[int, Described]:
    """Read the published schemas of a release topic, by number; the last of each number counts.

    Raises:
        RightError: this user may not read `hush.owners.v1`.
    """
    found: dict[int, Described] = {}
    if not cluster.partitions(OWNERS, "READ"):
        return found
    for message in cluster.read(OWNERS):
        try:
            one = msgspec.json.decode(message.value() or b"", type=Announced)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue  # an owner's claim, or another program's record
        if one.topic == topic:
            found[one.number] = one.described
    return found
