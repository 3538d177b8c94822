"""The demo's view of the running deployment: one consumer of everything that it shows."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from ...agents.deployment.model import Deployment
from ...agents.kafka.cluster import Cluster
from ...errors import EngineError
from ...topics.config.access.clients import librdkafka_options
from ...topics.config.load import Config
from ...topics.names import Names
from ...topics.records import Trigger, decode_clock

Rows = dict[str, dict[str, Any]]  # key -> released row


@dataclass
class Seen:
    """Everything that has been seen of one pipeline.

    Attributes:
        scheduled: scheduled time of the last trigger on the clock.
        triggers: triggers on the clock.
        released: triggers that every shard has published.
        rows: (window start, trigger) -> rows.
        dead, late: numbers of records set aside.
    """

    scheduled: int = 0
    triggers: int = 0
    released: list[tuple[str, int]] = field(default_factory=list)
    rows: dict[tuple[str, int], Rows] = field(default_factory=lambda: defaultdict(dict))
    shards: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    manifest: dict[str, Any] = field(default_factory=dict)
    finals: list[tuple[str, int]] = field(default_factory=list)
    dead: int = 0
    late: int = 0


class Watch:
    """Follower of clock, releases, dead letters and late records; committed records only."""

    def __init__(self, config: Config, deployment: Deployment, names: Names) -> None:
        self.seen = {p.name: Seen() for p in deployment.pipelines}
        self._of: dict[str, tuple[str, str]] = {}
        for p in deployment.pipelines:
            self._of[p.release_topic] = ("release", p.name)
            self._of[p.dlq_topic or ""] = ("dead", p.name)
            self._of[p.late_topic or ""] = ("late", p.name)
        self._clock = names.clock
        self._consumer = Consumer(
            librdkafka_options(config.kafka)
            | {
                "group.id": f"{names.base}.demo",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
            }
        )
        partitions = Cluster(config.kafka).topics()
        topics = [t for t in (*self._of, names.clock) if t]
        self._consumer.assign(
            [TopicPartition(t, n, 0) for t in topics for n in range(partitions[t])]
        )

    def poll(self, seconds: float) -> None:
        """Read what arrives, waiting at most ``seconds``; a lasting error is an `EngineError`."""
        for message in self._consumer.consume(2_000, seconds):
            if message.error():
                if not message.error().retriable():
                    raise EngineError(f"{message.topic()}: {message.error().str()}")
                continue
            self._take(message)

    def _take(self, message: Message) -> None:
        topic = message.topic() or ""
        if topic == self._clock:
            record = decode_clock(message.value() or b"")
            if isinstance(record, Trigger):
                seen = self.seen[record.pipeline]
                seen.triggers += 1
                seen.scheduled = max(seen.scheduled, record.scheduled)
            return
        kind, pipeline = self._of[topic]
        seen = self.seen[pipeline]
        if kind == "release":
            self._release(seen, json.loads(message.value() or b"{}"))
        elif kind == "dead":
            seen.dead += 1
        else:
            seen.late += 1

    def _release(self, seen: Seen, body: dict[str, Any]) -> None:
        place = body["window"]["start"], body["trigger"]
        if body["schema"] == "hush.release/2":
            shown = " / ".join(str(v) for v in body["key"].values())
            seen.rows[place][shown] = body
            return
        seen.shards[place] += 1
        seen.manifest = body
        if seen.shards[place] == body["shards"]:
            seen.released.append(place)
            seen.finals += [place] if body["final"] else []
            self._forget(seen)

    def _forget(self, seen: Seen) -> None:
        """Keep only the rows of the last release and of the last one that closed a window."""
        kept = {*seen.released[-1:], *seen.finals[-1:]}
        for place in [p for p in seen.rows if p in seen.released and p not in kept]:
            del seen.rows[place]

    def close(self) -> None:
        self._consumer.close()
