"""A shard does not open if one of its logs lacks what it has applied or released."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.structs import TopicPartition
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.stages.aggregate.release_records import Writer
from hushstream.agents.stages.step import Out
from hushstream.agents.stages.topology import AGGREGATE, StageSpec, Topology
from hushstream.agents.worker.opening import check_opening, check_passed
from hushstream.deploy.broker import Broker
from hushstream.errors import RewoundError
from hushstream.topics.config.model import Kafka
from hushstream.topics.records import Marker
from msgspec import structs

from ...support import NAMES, beat, deployment, start, trigger

SHARDS = 3


class World:
    """A clock log with two triggers, and `made` a release topic of two partitions on the broker."""

    def __init__(self, broker: Broker, topic: str) -> None:
        made = deployment(cells=SHARDS).each(
            lambda p: replace(p, release_topic=topic, release_partitions=2)
        )
        (self.p,) = made.pipelines
        self._kafka = Kafka(bootstrap=broker.bootstrap)
        (stage,) = [one for one in Topology(made, NAMES).specs if one.stage == AGGREGATE]
        self.changelog = f"{topic}-changelog"
        self._stage: StageSpec = replace(stage, changelog=self.changelog)
        self.clock = ClockLog({"p": 4}, enumerate([start(self.p), *self.triggers]))
        self._producer = Producer({"bootstrap.servers": broker.bootstrap})

    def made(self) -> World:
        admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap})
        wanted = ((self.p.release_topic, 2), (self.changelog, SHARDS))
        for topic in admin.create_topics(
            [NewTopic(name, many, 1) for name, many in wanted]
        ).values():
            topic.result()
        return self

    @property
    def triggers(self) -> list[Any]:
        return [trigger(self.p, n, [n]) for n in (1, 2)]

    def marker(self, closed: int) -> Marker:
        """The marker of a shard that has published so many triggers."""
        if not closed:
            return Marker("g", 0)
        millis = self.triggers[closed - 1].scheduled // 1000
        return Marker("g", 5, closed={"p": closed}, released=millis)

    def put(self, out: Out) -> None:
        self._producer.produce(
            out.topic, out.value, out.key, out.partition, timestamp=out.timestamp,
            headers=list(out.headers),
        )  # fmt: skip
        assert self._producer.flush(10) == 0

    def manifest(self, shard: int, ordinal: int) -> Out:
        return Writer(self.p, self.triggers[ordinal - 1], shard).kept_manifest(b"{}")

    def check(self, marker: Marker, end: int = 0, whole: bool = True) -> None:
        """Check the last shard, whose changelog was read up to ``end``."""

        async def right(known: Any) -> bool:
            return whole  # and other logs are of one history

        place = TopicPartition("clock", 0)
        follower: Any = SimpleNamespace(clock=self.clock, place=place, check=right)
        tp = TopicPartition("cells", SHARDS - 1)
        asyncio.run(check_opening(self._kafka, follower, self._stage, tp, marker, end))


def test_a_release_that_the_changelog_lacks_is_found(
    broker: Broker, unique: Callable[[str], str]
) -> None:
    world = World(broker, unique("released")).made()
    world.put(world.manifest(2, 1))
    for shard, ordinal in ((0, 2), (1, 2)):  # others may be ahead, also in the same partition
        world.put(world.manifest(shard, ordinal))
    foreign = world.manifest(2, 2)
    world.put(foreign._replace(key=b"q" + (foreign.key or b"")[1:]))
    world.put(foreign._replace(headers=(("hush-row", b""),)))  # a key may read like a manifest's
    world.check(world.marker(1))
    with pytest.raises(RewoundError, match="-changelog-2 lacks a release that its shard"):
        world.check(world.marker(0))  # not even the first is in the changelog
    world.put(foreign)
    world.check(world.marker(2))
    with pytest.raises(RewoundError, match="lacks a release that its shard has published"):
        world.check(world.marker(1))
    world.put(Out(world.changelog, 2, b"", b"", 1))
    world.check(world.marker(1), end=0)  # another owner has written meanwhile, and published
    with pytest.raises(RewoundError, match="lacks a release that its shard has published"):
        world.check(world.marker(1), end=1)
    world.check(structs.replace(world.marker(1), released=0))  # of an earlier version
    world.clock = ClockLog({"p": 4}, enumerate([start(world.p), world.triggers[0]]))
    world.check(world.marker(1), end=1)  # the clock has not fired it: that log is older, not here
    with pytest.raises(RewoundError, match="lacks a release that its shard has published"):
        world.check(world.marker(1), end=1, whole=False)  # it has, but that is not read yet


def test_nothing_is_asked_where_no_further_trigger_was_fired(broker: Broker) -> None:
    world = World(broker, "no-such-topic")
    world.check(world.marker(2))
    world.clock = ClockLog({"p": 4})
    world.check(world.marker(0))


def test_a_clock_log_that_has_another_entry_before_a_shards_place_is_refused() -> None:
    deployed = deployment()
    (p,) = deployed.pipelines
    entries = list(enumerate([start(p), beat([3], 5), trigger(p, 1, [3]), beat([4], 9)]))
    log, marker = ClockLog({"p": 4}, entries), Marker("g", 4, 4, passed=9)
    check_passed(log, marker)
    check_passed(log, structs.replace(marker, passed=0))  # of an earlier version
    for other in ([*entries[:3], (3, beat([4], 8))], [*entries[:3], (4, beat([5], 9))]):
        with pytest.raises(RewoundError, match="another entry than the last one that a shard"):
            check_passed(ClockLog({"p": 4}, other), marker)
    log.prune(4)
    check_passed(log, marker)
    log.prune(9)
    log.restore(4, None, 4, ())
    check_passed(log, marker)  # trimmed, so that nobody knows
