"""Load the rows of a file or a frame into a raw topic, each exactly once.

Records and the number of written rows are committed in one transaction. The number is stored in the
offsets of a consumer group that belongs to the topic and the content, so `Loading` resumes exactly
there however the process ended, and never with another content. A record that counts twice is worse
than a lost one, so a load is refused if the written rows are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from ..agents.deployment.cluster.topic_specs import TopicSpec
from ..agents.deployment.compile import compile_config
from ..agents.deployment.model import Input
from ..agents.kafka.cluster import Cluster
from ..agents.kafka.logs import consumer
from ..agents.stages.ingest.unit_digests import partition_text
from ..errors import ConfigError, EngineError
from ..formats.events.decode import Decoder, RawRecord
from ..topics.config.load import Config, load
from ..topics.names import load_group
from .again import SECONDS, producer_to
from .contents import Content, as_json, of_file, of_frame
from .files import FileLayout, check_columns
from .first_rows import unfit
from .timestamps import AFTER, BEFORE, limit_of, refused

CHUNK = 5_000  # rows of one transaction
# Records keep their old times, so Kafka's retention by time would delete them at once.
KEPT = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}


class Loaded(NamedTuple):
    """Outcome of a load into a raw topic.

    Attributes:
        topic: name of the topic.
        created: whether it was created.
        records: number of records written by this run.
        unusable: number of these without a unit or a time: they will be dead letters.
        before: number of rows written by earlier runs.
    """

    topic: str
    created: bool
    records: int
    unusable: int
    before: int


class LoadMode(NamedTuple):
    """Options of a load.

    Attributes:
        partitions: number of partitions of the topic, if it is created.
        append: whether to write to a topic that exists.
        resume: whether to continue where an earlier run ended.
    """

    partitions: int = 1
    append: bool = False
    resume: bool = False


def input_of(config: Config, topic: str) -> Input:
    """Find the input that reads a topic.

    Raises:
        ConfigError: no input reads it, or rows cannot become its records.
    """
    given = next((one for one in config.input if one.topic == topic), None)
    if given is None:
        known = ", ".join(one.topic for one in config.input)
        raise ConfigError(f"no input reads topic {topic!r}; the configuration reads {known}")
    if given.format != "json":
        raise ConfigError(
            f"input {given.name!r} reads {given.format}, and a file becomes JSON: set "
            'format = "json", or write with a producer that knows the schema'
        )
    if given.time.format == "record":
        raise ConfigError(
            f"input {given.name!r} takes times from Kafka, and a file has none: name the "
            'field, such as time = { field = "created", format = "iso" }'
        )
    deployment = compile_config(config)
    source = next(one for one in deployment.inputs if one.name == given.name)
    if any(p.mechanism.survey is not None for p in source.pipelines):
        raise ConfigError(
            "a pipeline of this input is a survey: devices make its records, which are reports, "
            "so raw values must not be written"
        )
    return source


def checked(content: Content, source: Input, force: bool) -> int:
    """Count rows; without ``force``, raise `ConfigError` if they do not fit the input."""
    rows = content.rows(not force)
    first = list(islice(rows, CHUNK))
    if not first:
        raise ConfigError(f"{content.name}: the file holds no record")
    check_columns(source, [dict.fromkeys(set().union(*first))], content.name)
    if not force and (why := unfit(source, first)) is not None:
        raise ConfigError(f"{content.name}: {why}. --force writes the file as it is")
    return len(first) + sum(1 for _ in rows)


@dataclass(frozen=True)
class Loading:
    """The load of one content into one topic.

    Args:
        cluster: the cluster, which must be reachable.
        source: the input that reads the topic.
        content: the rows.
        replicas: number of replicas of the topic, if it is created.
    """

    cluster: Cluster
    source: Input
    content: Content
    replicas: int = -1

    @property
    def topic(self) -> str:
        return self.source.topic

    @property
    def group(self) -> str:
        """The group that holds the position, which no consumer joins; also the transactional id."""
        return load_group(self.topic, self.content.digest)

    def position(self) -> int | None:
        """Fetch the number of committed rows; None if no run of this content is known.

        Rows in a topic that has since been deleted do not count.
        """
        found = self.cluster.groups.told(self.group, {self.topic: 1}).get((self.topic, 0))
        if found is None or found.text != self._topic_id():
            return None
        return found.offset

    def _topic_id(self) -> str:
        return self.cluster.ids([self.topic])[self.topic]

    def run(self, asked: LoadMode, total: int, told: Callable[[int], None]) -> Loaded:
        """Write the rows that were not written yet.

        Args:
            total: number of rows of the content.
            told: called with the number of rows that earlier runs wrote, and after each transaction
                with the number of its rows.

        Raises:
            ConfigError: rows would be written twice, it is unknown which were written, a row's time
                is too far from now for Kafka, or the file changed while it was read.
            EngineError: the cluster refuses a transaction; earlier ones stay.
        """
        there = self._there(asked)
        limit = limit_of(self.cluster, self.topic, there)
        if (why := refused(self.content, self.source, limit)) is not None:
            raise ConfigError(f"{self.content.name}: {why}; this run wrote nothing")
        created = not there and self._created(asked)
        try:
            # It ends an earlier run's open transaction, and that run.
            producer = producer_to(self.cluster, self.source, self.group)
            begin = 0 if created else self._begin(asked, total)
            told(begin)
            with closing(consumer(self.cluster.kafka, True, {"group.id": self.group})) as member:
                place = member.consumer_group_metadata()
                records, unusable = self._written(producer, place, begin, told)
        except KafkaException as error:
            of_id = error.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            self.cluster.rights.refuse(error, "WRITE", self.group if of_id else self.topic)
            raise EngineError(
                f"{self.topic} could not be written whole: {error.args[0].str()}; what is "
                "committed stays, and --resume goes on there"
            ) from None
        return Loaded(self.topic, created, records, unusable, begin)

    def _created(self, asked: LoadMode) -> bool:
        """Create the missing topic; return whether this process did."""
        spec = TopicSpec(self.topic, asked.partitions, KEPT, False, "raw records")
        return bool(self.cluster.create([spec], self.replicas))

    def _there(self, asked: LoadMode) -> bool:
        """Whether the topic exists; a `ConfigError` if that does not fit what was asked for."""
        topic = self.topic
        if not self.cluster.partitions(topic):
            if asked.resume:
                raise ConfigError(f"topic {topic!r} does not exist: leave out --resume")
            return False
        if not asked.resume and not asked.append:
            raise ConfigError(
                f"topic {topic!r} exists: records that are sent twice count twice; give --resume "
                "to go on where a run of this file ended, or --append to write all of it to the "
                "topic nevertheless"
            )
        return True

    def _begin(self, asked: LoadMode, total: int) -> int:
        """Number of rows to skip."""
        known, name = self.position(), self.content.name
        if asked.resume:
            if known is None:
                raise ConfigError(
                    f"{name}, as it is now, was never begun for topic {self.topic!r}: it has "
                    "changed since (or is read with another --delimiter or --columns), the topic "
                    "is a new one, or Kafka has forgotten the position "
                    "(offsets.retention.minutes). It is unknown which rows are written, so none is"
                )
            return known
        if known is not None and known < total:
            raise ConfigError(
                f"{known:,} of the {total:,} rows of {name} are in topic {self.topic!r}: give "
                "--resume to write the others"
            )
        return 0

    def _written(
        self, producer: Producer, place: Any, begin: int, told: Callable[[int], None]
    ) -> tuple[int, int]:
        """Write all rows from one on: records, and those of them that lack unit or time."""
        decoder = Decoder(self.source.in_json().fields, (), ())
        topic_id, at, unusable = self._topic_id(), begin, 0
        failed: list[KafkaError] = []  # a transaction's own error may hide the reason
        rows = islice(self.content.rows(False), begin, None)
        chunk: list[dict[str, Any]] = []  # the first, empty transaction marks the start of a run
        while True:
            producer.begin_transaction()
            try:
                unusable += self._queue(producer, decoder, chunk, failed)
                self.content.demand_unchanged()
                reached = [TopicPartition(self.topic, 0, at + len(chunk), topic_id)]
                producer.send_offsets_to_transaction(reached, place, SECONDS)
                producer.commit_transaction(SECONDS)
            except BaseException as error:
                with suppress(KafkaException):  # it is committed, or Kafka aborts it
                    producer.abort_transaction(SECONDS)
                if isinstance(error, SystemError):
                    # Ctrl-C while the client called back: it loses the exception, and ends anyway.
                    raise KeyboardInterrupt from error
                if any(one.code() == KafkaError.INVALID_TIMESTAMP for one in failed):
                    raise EngineError(
                        f"{self.topic} could not be written whole: a row's time is too far from "
                        f"now for Kafka. Give the topic a larger {AFTER} (by default an hour) or "
                        f"{BEFORE}, then go on by --resume; what is committed stays"
                    ) from None
                raise
            at += len(chunk)
            told(len(chunk))
            if not (chunk := list(islice(rows, CHUNK))):
                return at - begin, unusable

    def _queue(
        self,
        producer: Producer,
        decoder: Decoder,
        chunk: list[dict[str, Any]],
        failed: list[KafkaError],
    ) -> int:
        """Queue the records of a transaction; return the number of those without unit or time.

        Args:
            failed: gets the errors of records that the broker refuses.
        """

        def told(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        values = [as_json(row) for row in chunk]
        decoded = decoder.decode([RawRecord(n, 0, None, one) for n, one in enumerate(values)])
        keyed = self.source.partitioner != "none"
        for place, value in enumerate(values):
            options: dict[str, Any] = {"on_delivery": told}
            if place not in decoded.bad:
                options["timestamp"] = int(decoded.time[place]) // 1000
                if keyed:
                    options["key"] = partition_text(decoded.unit[place])
            _queued(producer, self.topic, value, options)
        return len(decoded.bad)


def _queued(producer: Producer, topic: str, value: bytes, options: dict[str, Any]) -> None:
    """Queue a record; wait while the queue is full."""
    while True:
        try:
            producer.produce(topic, value, **options)
            producer.poll(0)
            return
        except BufferError:
            producer.poll(1)


def produce(
    source: Any,
    topic: str,
    config: Config | Path | str = "hush.toml",
    *,
    partitions: int = 1,
    append: bool = False,
    force: bool = False,
    resume: bool = False,
    delimiter: str = "",
    columns: Sequence[str] = (),
) -> Loaded:
    """Write rows as JSON records to a raw topic, each exactly once; see ``hush produce``.

    Args:
        source: path of a file, or a frame: pandas, Polars, a ``pyarrow.Table``, or anything that
            exports an Arrow stream.
        topic: raw topic that an input of the configuration reads.
        config: the configuration, or its path.
        partitions: number of partitions of the topic, if it is created.
        append: whether to write to a topic that exists.
        force: whether to write rows that do not fit the input; these become dead letters.
        resume: whether to continue where an earlier call with the same content ended.
        delimiter: character between two fields of a text file; empty: the suffix decides.
        columns: names of the columns of a file without a header.

    Returns:
        Numbers of records, as in `Loaded`.

    Raises:
        ParameterError: ``source`` is neither a path nor a frame.
        ConfigError: rows do not fit, would be written twice, or have changed since the last run.
        EngineError: the cluster does not accept the records; those already committed stay.
    """
    given = config if isinstance(config, Config) else load(config)
    wanted = input_of(given, topic)
    if isinstance(source, str | Path):
        content = of_file(Path(source), FileLayout(delimiter, tuple(columns)))
    else:
        content = of_frame(source)
    total = checked(content, wanted, force)
    cluster = Cluster(given.kafka, role="producer")
    cluster.wait()
    loading = Loading(cluster, wanted, content, given.engine.replication_factor)
    return loading.run(LoadMode(partitions, append, resume), total, lambda _: None)
