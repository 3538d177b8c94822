"""Checks, while a worker runs, that the topics pinned by the ledger still exist and are read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from aiokafka.structs import TopicPartition as TP
from confluent_kafka import KafkaException

from ....errors import EngineError
from ....topics.names import OWNERS
from ...clock.ledger import Ledger
from ...clock.pinned import verify
from ...deployment.cluster.topic_specs import internal_topics, public_topics
from ...deployment.model import Deployment
from ...kafka.access.owners import unclaimed
from ...kafka.cluster import Cluster
from ...kafka.progress import Progress

LOOK_SECONDS = 5.0
CONFIRM_SECONDS = 1.5  # a broker that has just started may not know all topics yet
SAID_SECONDS = 600.0
log = logging.getLogger("hushstream.worker")


class TopicWatch:
    """Compares the topics of the cluster with the ledger while a worker runs.

    For a deleted topic, clients get errors that are transient in other cases, so they retry for
    ever. Kafka's list of topics shows the deletion at once.

    Args:
        cluster: connection of its own, used by one thread.

    Attributes:
        progress: progress that moves whenever the cluster has answered.
    """

    def __init__(self, cluster: Cluster, deployment: Deployment, ledger: Ledger) -> None:
        self._cluster = cluster
        self._deployment = deployment
        self._ledger = ledger
        self._owners = ""  # id of the topic as first seen
        self._said = -SAID_SECONDS
        self.progress = Progress("an answer of the cluster")
        self.progress.moved()  # the cluster has just answered the start

    def look(self) -> None:
        """Compare once, and again a little later if something does not match.

        A cluster that does not answer is no error here: other tasks wait for it, and report it.

        Raises:
            EngineError: the topics are not those that the ledger pinned; the message says what to
            do.
        """
        try:
            self._compare()
        except EngineError:
            time.sleep(CONFIRM_SECONDS)
            try:
                self._compare()
            except KafkaException:
                return
        except KafkaException:
            return

    def _compare(self) -> None:
        names = verify(self._cluster, self._deployment, self._ledger)
        known = self._cluster.topics()
        self.progress.moved()
        # Views cost no budget, so the ledger does not pin their topics.
        for spec in (*public_topics(self._deployment), *internal_topics(self._deployment, names)):
            if spec.name not in known and spec.name != OWNERS:
                emptied = "run `hush topics`, which makes an empty one: what it held is gone"
                anew = "begin a new deployment (another deployment.name)"
                outside = spec.pipeline and names.genesis not in spec.name
                raise EngineError(
                    f"topic {spec.name} ({spec.purpose}) was deleted while the worker was running: "
                    f"restore it, or {emptied if outside else anew}"
                )
        self._look_at_owners(OWNERS in known)

    def _look_at_owners(self, there: bool) -> None:
        """Log that the list of owners is gone; no release of this deployment depends on it."""
        if not there:
            self._owners = ""
            self._warn("was deleted")
            return
        identity = self._cluster.ids([OWNERS])[OWNERS]
        if identity != self._owners:
            missing = unclaimed(self._cluster, self._deployment)
            if missing:
                self._warn(f"does not say who writes {', '.join(missing)}")
            else:
                self._owners = identity

    def _warn(self, what: str) -> None:
        if time.monotonic() - self._said >= SAID_SECONDS:
            self._said = time.monotonic()
            log.error(
                "topic %s %s: nothing keeps another deployment from writing the same topics, and "
                "readers do not find schemas; run `hush topics` of every deployment of this "
                "cluster, which claims them again", OWNERS, what)  # fmt: skip


class Inflow:
    """Checks that what topics hold is fetched.

    Args:
        seen: returns the end of a raw partition by the clock log; 0 for an internal one.
        ends: latest end offsets from the broker; the follower updates them.
        away: returns whether the broker is away, in which case fetching is not to blame.
    """

    def __init__(
        self, seen: Callable[[TP], int], ends: Mapping[TP, int], away: Callable[[], bool]
    ) -> None:
        self._seen, self._ends, self._away = seen, ends, away
        self._before: dict[TP, int] = {}
        self.progress: dict[TP, Progress] = {}

    def look(self, wanted: Mapping[TP, int]) -> None:
        """Note the next offset to fetch of each partition that is not paused."""
        for gone in self.progress.keys() - wanted.keys():
            del self.progress[gone]
        for tp, position in wanted.items():
            one = self.progress.get(tp)
            if one is None:
                one = self.progress[tp] = Progress(f"fetching {tp.topic}-{tp.partition}")
            if position >= max(self._seen(tp), self._ends.get(tp, 0)):
                one.rest()
            elif one.resting or self._before.get(tp) != position or self._away():
                one.moved()
        self._before = dict(wanted)
