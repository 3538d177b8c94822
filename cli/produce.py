"""``hush produce``: a file becomes the records of a raw topic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click
from confluent_kafka import KafkaError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..agents.deployment.compile import compile_config
from ..agents.deployment.model import Input
from ..agents.deployment.topic_specs import TopicSpec
from ..agents.kafka.cluster import Cluster
from ..agents.stages.ingest.unit_digests import partition_text
from ..agents.worker.lines.screen import Screen, say
from ..errors import ConfigError, EngineError
from ..formats.events.decode import Decoder, RawRecord
from ..offline.again import PARTITIONERS
from ..offline.files import check_columns, stream_file
from ..offline.first_rows import unfit
from ..topics.config.load import Config
from ..topics.config.model import InputSettings
from .options import Flags, config_options, emit, json_option, read_config

CHUNK = 5_000
# Old times are kept, so that Kafka's retention by time would delete the records at once.
KEPT = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("topic")
@config_options
@click.option("--partitions", type=click.IntRange(1, 1000), default=1, show_default=True,
              help="Partitions of the topic, if it is created.")  # fmt: skip
@click.option("--append", is_flag=True, help="Write even if the topic exists.")
@click.option("--force", is_flag=True,
              help="Write even if rows do not fit; these become dead letters.")  # fmt: skip
@json_option
def produce(
    file: Path,
    topic: str,
    flags: Flags,
    partitions: int,
    append: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Write the rows of FILE (CSV, JSON lines, Arrow) as JSON records to the raw TOPIC.

    A missing topic is created. The event time of a record becomes Kafka's timestamp, and its unit
    becomes the key if the input names a partitioner. Nothing is written if the file lacks a field
    that the input or one of its pipelines reads, if most of the first rows cannot become events, or
    if a row has more or fewer fields than the header.
    """
    config = read_config(flags)
    given, source = _input(config, topic)
    total = _checked(file, source, force)
    cluster = Cluster(config.kafka)
    cluster.wait()
    existing = cluster.partitions(topic)
    if existing and not append:
        raise ConfigError(
            f"topic {topic!r} exists: records that are sent twice count twice; give --append to "
            "write to it nevertheless"
        )
    if not existing:
        spec = TopicSpec(topic, partitions, KEPT, False, "raw records")
        cluster.create([spec], config.engine.replication_factor)
    columns = (TextColumn(f"writing {topic}"), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=Screen(stderr=True), disable=as_json) as bar:
        task = bar.add_task("", total=total)
        sent, bad = 0, 0
        for count, faults in _sent(cluster, given, source, file):
            sent, bad = sent + count, bad + faults
            bar.advance(task, count)
    body = {"topic": topic, "created": not existing, "records": sent, "unusable": bad}
    if as_json:
        emit(body)
        return
    say(f"{topic}: {sent:,} records written" + (", topic created" * (not existing)))
    if bad:
        say(f"  {bad:,} of them lack a unit or a time: they will be dead letters")


def _input(config: Config, topic: str) -> tuple[InputSettings, Input]:
    for given in config.input:
        if given.topic != topic:
            continue
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
        return given, next(one for one in deployment.inputs if one.name == given.name)
    known = ", ".join(one.topic for one in config.input)
    raise ConfigError(f"no input reads topic {topic!r}; the configuration reads {known}")


def _checked(file: Path, source: Input, force: bool) -> int:
    """The number of rows; refuses a file that does not fit the input."""
    if any(p.mechanism.survey is not None for p in source.pipelines):
        raise ConfigError(
            "a pipeline of this input is a survey: devices make its records, which are reports, "
            "so raw values must not be written"
        )
    rows = stream_file(file, strict=not force)
    first = list(islice(rows, CHUNK))
    if not first:
        raise ConfigError(f"{file}: the file holds no record")
    check_columns(source, [dict.fromkeys(set().union(*first))], str(file))
    if not force and (why := unfit(source, first)) is not None:
        raise ConfigError(f"{file}: {why}. --force writes the file as it is")
    return len(first) + sum(1 for _ in rows)


def _sent(
    cluster: Cluster, given: InputSettings, source: Input, file: Path
) -> Iterator[tuple[int, int]]:
    """Write all rows; yields the records of each chunk, and how many of them lack unit or time."""
    refused: list[KafkaError] = []
    producer = cluster.producer(
        **{"acks": "all", "enable.idempotence": True, "linger.ms": 20, "compression.type": "zstd",
           "partitioner": PARTITIONERS[given.partitioner]}
    )  # fmt: skip
    decoder = Decoder(source.in_json().fields, (), ())
    rows = stream_file(file)
    while chunk := list(islice(rows, CHUNK)):
        values = [_json(row) for row in chunk]
        decoded = decoder.decode([RawRecord(i, 0, None, one) for i, one in enumerate(values)])
        for place, value in enumerate(values):
            options: dict[str, Any] = {}
            if place not in decoded.bad:
                options["timestamp"] = int(decoded.time[place]) // 1000
                if given.partitioner != "none":
                    options["key"] = partition_text(decoded.unit[place])
            _written(producer, given.topic, value, options, refused)
        producer.poll(0)
        if refused:
            raise EngineError(f"{given.topic} could not be written: {refused[0].str()}")
        yield len(values), len(decoded.bad)
    if producer.flush(60) or refused:
        why = refused[0].str() if refused else "no answer; some records may be written"
        raise EngineError(f"{given.topic} could not be written whole: {why}")


def _written(
    producer: Any, topic: str, value: bytes, options: dict[str, Any], refused: list[KafkaError]
) -> None:
    """Queue a record; a full queue is waited for."""
    while True:
        try:
            producer.produce(
                topic, value, **options,
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )  # fmt: skip
            return
        except BufferError:
            producer.poll(1)


def _json(row: dict[str, Any]) -> bytes:
    try:
        return json.dumps(row, default=str, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a pair, which UTF-8 cannot hold: as the file escapes it
        return json.dumps(row, default=str).encode()
