"""The client: releases of a pipeline from Kafka, as a table or one by one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from ..agents.kafka.cluster import Cluster
from ..agents.kafka.logs import check, consumer, raw
from ..errors import EngineError, ParameterError
from ..topics.assembly import Assembly, Released
from ..topics.config.model import Kafka
from ..topics.config.toml.values import address_rule
from ..topics.names import releases_topic
from .schemas import Schemas
from .tables import table_of

Which = Literal["all", "final", "latest"]
Moment = datetime | str
POLL_SECONDS = 0.2
SILENCE_SECONDS = 30.0


class ReleaseTopic(NamedTuple):
    """Release topic and how to reach it.

    Attributes:
        kafka: the connection.
        topic: release topic.
        pipeline: name of the pipeline.
        options: further options of librdkafka, which win.
    """

    kafka: Kafka
    topic: str
    pipeline: str
    options: Mapping[str, Any] = {}


class Wanted(NamedTuple):
    """Choice of releases to read; None: any.

    Attributes:
        final: whether to read only the last one of each window.
        window: a time within the window.
        since: earliest scheduled time.
    """

    final: bool = False
    window: datetime | None = None
    since: datetime | None = None

    def takes(self, release: Released) -> bool:
        inside = self.window is None or release.window.start <= self.window < release.window.end
        late = self.since is None or release.scheduled >= self.since
        return inside and late and (release.final or not self.final)


def read_releases(
    bootstrap: str | Kafka,
    pipeline: str,
    *,
    which: Which = "all",
    window: Moment | None = None,
    since: Moment | None = None,
    topic: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Read what has been released so far, complete releases only, as an Arrow table.

    Pipelines that follow this one on its topic are included: they continue its releases.
    ``.to_pandas()`` and ``polars.from_arrow`` turn the table into data frames. Only committed
    records are read; a release that lacks rows or manifests is left out.

    Args:
        bootstrap: brokers as ``host:port``, or the settings ``load("hush.toml").kafka``.
        pipeline: name of the pipeline.
        which: "all" triggers; "final": the last one of each window; "latest": the newest row of
            each window and key.
        window: a time (ISO text or datetime; UTC if it has no zone): only the window that holds it.
        since: a time: only releases that were scheduled at or after it.
        topic: release topic; default ``hush.<pipeline>.releases.v1``.
        options: further options of librdkafka, such as ``sasl.username``.

    Returns:
        A ``pyarrow.Table`` by window, trigger and key, or a view's order. Columns are window_start,
        window_end, trigger, released (the scheduled time), final; one per field of the key; for
        maps both ends of the cell on each axis; ``<value>``, ``<value>_stddev``, ``<value>_low``
        and ``<value>_high`` for each value; and pipeline, if one follows another. Before the first
        release there are only the first five.

    Raises:
        ParameterError: a time or ``which`` cannot be understood.
        EngineError: no broker answers, the topic does not exist, or a record is damaged.
    """
    if which not in ("all", "final", "latest"):
        raise ParameterError("which", which, "must be all, final or latest")
    wanted = Wanted(which == "final", moment("window", window), moment("since", since))
    source = source_of(bootstrap, pipeline, topic, options)
    return table_of(list(releases(source, wanted)), latest=which == "latest")


def follow_releases(
    bootstrap: str | Kafka,
    pipeline: str,
    *,
    final: bool = False,
    since: Moment | None = None,
    topic: str | None = None,
    options: Mapping[str, Any] | None = None,
    patience: float | None = None,
) -> Iterator[Released]:
    """Yield each release once, when it is complete: existing ones first, then new ones.

    ``table_of([release])`` turns one into a table. Close the iterator to disconnect.
    Other arguments: as in `read_releases`.

    Args:
        final: whether to yield only the last release of each window.
        patience: seconds without a record after which the iterator ends; None: never.

    Raises:
        ParameterError: ``since`` cannot be understood.
        EngineError: no broker answers, the topic does not exist, or a record is damaged.
    """
    wanted = Wanted(final, None, moment("since", since))
    source = source_of(bootstrap, pipeline, topic, options)
    return releases(source, wanted, follow=True, patience=patience)


def kafka_at(bootstrap: str) -> Kafka:
    """The connection to brokers without encryption; a wrong address is a `ParameterError`."""
    if (rule := address_rule(bootstrap)) is not None:
        raise ParameterError("bootstrap", bootstrap, rule)
    return Kafka(bootstrap=bootstrap)


def source_of(
    bootstrap: str | Kafka,
    pipeline: str,
    topic: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> ReleaseTopic:
    """The source that a client's arguments name."""
    kafka = kafka_at(bootstrap) if isinstance(bootstrap, str) else bootstrap
    return ReleaseTopic(kafka, topic or releases_topic(pipeline), pipeline, options or {})


def moment(name: str, given: Moment | None) -> datetime | None:
    """A time with a zone, UTC if it has none; a text that is no ISO time is a `ParameterError`."""
    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given)
        except ValueError:
            rule = "must be an ISO time such as 2019-03-02 or 2019-03-02T12:00Z"
            raise ParameterError(name, given, rule) from None
    return given if given is None or given.tzinfo else given.replace(tzinfo=UTC)


def releases(
    source: ReleaseTopic, wanted: Wanted, follow: bool = False, patience: float | None = None
) -> Iterator[Released]:
    """Wanted releases of a topic, in the order in which they become complete.

    ``follow`` goes on at the end of the topic, until no record has come for ``patience`` seconds
    (None: no limit).
    """
    assembly, schemas = (
        Assembly(source.pipeline, onward=True),
        Schemas(source.kafka, source.topic, source.options),
    )
    for record in _records(source, wanted.since, follow, patience):
        release = assembly.take(schemas.decode(record))
        if release is not None and wanted.takes(release):
            yield release


def _records(
    source: ReleaseTopic, since: datetime | None, follow: bool, patience: float | None
) -> Iterator[Any]:
    cluster = Cluster(source.kafka, role="reader", options=source.options)
    cluster.wait()
    partitions = cluster.partitions(source.topic, "READ")
    if not partitions:
        raise EngineError(
            f"topic {source.topic!r} does not exist on this cluster: check the name of the "
            "pipeline and the address; topics are created before a pipeline begins"
        )
    more = {"auto.offset.reset": "earliest", **source.options}
    with closing(consumer(source.kafka, True, more)) as client:
        client.assign(_starts(client, source.topic, partitions, since))
        yield from _polled(client, source, partitions, follow, patience)


def _starts(
    client: Consumer, topic: str, partitions: int, since: datetime | None
) -> list[TopicPartition]:
    """The first offset in each partition that may belong to a wanted release.

    Records carry scheduled times, so the broker's time index finds it.
    """
    if since is None:
        return [TopicPartition(topic, n, 0) for n in range(partitions)]
    millis = int(since.timestamp() * 1000)
    places = [TopicPartition(topic, n, max(millis, 0)) for n in range(partitions)]
    return list(client.offsets_for_times(places, timeout=SILENCE_SECONDS))


def _polled(
    client: Consumer, source: ReleaseTopic, partitions: int, follow: bool, patience: float | None
) -> Iterator[Any]:
    topic = source.topic
    unread, heard = set(range(partitions)), time.monotonic()
    while follow or unread:
        message = client.poll(POLL_SECONDS)
        now = time.monotonic()
        if message is None or message.error():
            if message is not None and message.error().code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
                heard = heard if follow else now
            elif message is not None:
                check(source.kafka, topic, message.error(), topic, "reader")
            if follow and patience is not None and not unread and now - heard > patience:
                return
            if not follow and now - heard > SILENCE_SECONDS:
                raise EngineError(f"{topic} could not be read to its end: the broker is silent")
            continue
        heard = now
        yield raw(message)
