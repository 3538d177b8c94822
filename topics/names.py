"""Names of topics, groups and transactional ids; internal names contain the genesis id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

OWNERS = "hush.owners.v1"
"""Topic that records which deployment writes which topic; one per cluster."""
READ_GROUPS = "hush-read-"
"""Prefix of the group names of reading clients, which never join or commit."""


LOADS = "hush-load"
"""Prefix of the group and transactional id under which a file is written to a raw topic."""

_NAME = r"[A-Za-z0-9][A-Za-z0-9-]{0,62}"  # of a deployment or a pipeline
_INTERNAL = re.compile(
    rf"({_NAME})\.([0-9a-f]{{10}})\.(clock|requests|begins|tables|{_NAME}\.(units|cells|selected|flow|keys)"
    rf"|(ingest|bound|aggregate|view|flow)\..+-changelog)"
)
_ASIDE = re.compile(rf"hush\.({_NAME}\.)?{_NAME}\.(dlq|late)")
_LEDGER = re.compile(rf"({_NAME})\.ledger\.v[0-9]+")


class Seat(NamedTuple):
    """The partitions of a shared topic that stand for one topic of a pipeline."""

    topic: str
    first: int
    partitions: int


class Names(NamedTuple):
    """Every name of one deployment.

    If pipelines share topics, the stages still use the names of the pipelines' own topics; `place`
    maps them to the cluster.
    """

    deployment: str  # public prefix of the ledger topic
    genesis: str  # random hexadecimal id made with the ledger; a new one after `hush reset`
    seats: Mapping[str, Seat] = MappingProxyType({})  # by topic of a pipeline

    @property
    def ledger(self) -> str:
        """The ledger topic, which exists before the genesis id is known."""
        return ledger_topic(self.deployment)

    @property
    def base(self) -> str:
        return f"{self.deployment}.{self.genesis}"

    @property
    def group(self) -> str:
        """The consumer group of all workers."""
        return self.base

    @property
    def clock(self) -> str:
        """Beats and triggers; one partition, one writer."""
        return f"{self.base}.clock"

    @property
    def requests(self) -> str:
        """Requests of external triggers; one partition, read by the clock's owner."""
        return f"{self.base}.requests"

    @property
    def begins(self) -> str:
        """The first offsets of each raw topic for each pipeline, which are exact counts."""
        return f"{self.base}.begins"

    @property
    def tables(self) -> str:
        """Public tables from topics, as they were when pipelines were declared."""
        return f"{self.base}.tables"

    @property
    def apart(self) -> Names:
        """The same names without shared topics, for logs in memory."""
        return self._replace(seats=MappingProxyType({}))

    def place(self, topic: str, partition: int = 0) -> tuple[str, int]:
        """Map a partition of a pipeline's topic to topic and partition on the cluster.

        >>> seats = {"d.g.p.units": Seat("d.g.events.flow", 4, 2)}
        >>> Names("d", "g", seats).place("d.g.p.units", 1), Names("d", "g").place("events", 1)
        (('d.g.events.flow', 5), ('events', 1))
        """
        seat = self.seats.get(topic)
        return (topic, partition) if seat is None else (seat.topic, seat.first + partition)

    def home(self, topic: str, partition: int) -> tuple[str, int]:
        """Map a partition on the cluster to that of a pipeline's topic; the inverse of `place`."""
        for own, seat in self.seats.items():
            if seat.topic == topic and 0 <= partition - seat.first < seat.partitions:
                return own, partition - seat.first
        return topic, partition

    def flow(self, source: str) -> str:
        """Units and cells of all pipelines of an input, if they share topics."""
        return f"{self.base}.{source}.flow"

    def keys(self, source: str) -> str:
        """Released keys of all pipelines of an input, if they share topics."""
        return f"{self.base}.{source}.keys"

    def units(self, pipeline: str) -> str:
        """Events re-partitioned by privacy unit."""
        return f"{self.base}.{pipeline}.units"

    def cells(self, pipeline: str) -> str:
        """Exact partial sums by key, with barriers."""
        return f"{self.base}.{pipeline}.cells"

    def selected(self, pipeline: str) -> str:
        """Released keys, fed back to the bound shards of adaptive mechanisms."""
        return f"{self.base}.{pipeline}.selected"

    def changelog(self, stage: str, subject: str) -> str:
        """Compacted state of the shards of one stage; one partition each."""
        return f"{self.base}.{stage}.{subject}-changelog"

    def transactional_id(self, stage: str, topic: str, partition: int) -> str:
        """The transactional id of a shard; its use fences any earlier owner."""
        return f"{self.base}.{stage}.{topic}.{partition}"


def ledger_topic(deployment: str) -> str:
    return f"{deployment}.ledger.v1"


def genesis_of(topic: str) -> tuple[str, str] | None:
    """Deployment and genesis id in the name of an internal topic; None for other names.

    >>> genesis_of("hush.0a1b2c3d4e.pages.units"), genesis_of("hush.pages.releases.v1")
    (('hush', '0a1b2c3d4e'), None)
    """
    found = _INTERNAL.fullmatch(topic)
    return (found[1], found[2]) if found else None


def reserved(topic: str) -> str:
    """Say what a topic's name is reserved for, in any deployment; empty if it is not reserved.

    >>> reserved("__consumer_offsets"), reserved("hush.ledger.v1"), reserved("pages")
    ('an internal topic of Kafka', 'the ledger of deployment hush', '')
    """
    if topic.startswith("__"):
        return "an internal topic of Kafka"
    if topic == OWNERS:
        return "the list of who writes which topic, one for all deployments"
    if found := _LEDGER.fullmatch(topic):
        return f"the ledger of deployment {found[1]}"
    if names := genesis_of(topic):
        return f"an internal topic of deployment {names[0]}"
    return ""


def genesis_id(deployment: str) -> str:
    """The transactional id under which a deployment's genesis is written."""
    return f"{deployment}.genesis"


def load_group(topic: str, digest: str) -> str:
    """The group whose offsets say how much of a file, given by digest, is in a raw topic."""
    return f"{LOADS}.{topic}.{digest}"


def releases_topic(pipeline: str) -> str:
    """Default output topic of a pipeline."""
    return f"hush.{pipeline}.releases.v1"


def default_owner(releases: str) -> str:
    """The pipeline that a release topic is named after; empty for other names.

    >>> default_owner("hush.pages.releases.v1"), default_owner("pages")
    ('pages', '')
    """
    found = re.fullmatch(r"hush\.(.+)\.releases\.v1", releases)
    return found[1] if found else ""


def latest_topic(pipeline: str, releases: str | None = None) -> str:
    """The compacted topic of newest values; ``releases`` is a release topic with its own name."""
    return f"{releases}.latest" if releases else f"hush.{pipeline}.latest.v1"


def dead_letter_topic(whose: str) -> str:
    """Records that a pipeline, or those of a `shared` input, could not use."""
    return f"hush.{whose}.dlq"


def late_topic(whose: str) -> str:
    """Late and far-future records, likewise, if they are kept."""
    return f"hush.{whose}.late"


def set_aside(topic: str) -> bool:
    """Whether a topic of this name holds raw records that some deployment set aside.

    >>> set_aside(dead_letter_topic("orders")), set_aside(late_topic("shop.orders"))
    (True, True)
    """
    return _ASIDE.fullmatch(topic) is not None


def shared(deployment: str, source: str) -> str:
    """Name for an input whose pipelines share topics; no pipeline can have such a name.

    >>> dead_letter_topic(shared("shop", "orders"))
    'hush.shop.orders.dlq'
    """
    return f"{deployment}.{source}"
