"""``hush releases``: follow a release topic in readable form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
from confluent_kafka import Consumer, TopicPartition

from ...errors import ConfigError
from ...topics.config.clients import librdkafka_options
from ..kafka.cluster import Cluster
from .options import config_options, read_config


@click.command()
@config_options
@click.argument("pipeline")
@click.option("--json", "as_json", is_flag=True, help="Print the raw records.")
@click.option("--once", is_flag=True, help="Stop at the end of the topic.")
def releases(
    path: str,
    bootstrap: str | None,
    settings: tuple[str, ...],
    pipeline: str,
    as_json: bool,
    once: bool,
) -> None:
    """Follow the releases of PIPELINE; error bars cover only the noise."""
    config = read_config(path, bootstrap, settings)
    found = [p for p in config.pipeline if p.name == pipeline]
    if not found:
        known = ", ".join(p.name for p in config.pipeline)
        raise ConfigError(f"pipeline {pipeline!r} is unknown; expected one of {known}")
    cluster = Cluster(config.kafka)
    cluster.wait()
    for value in follow(config.kafka, cluster, found[0].release_topic, once):
        click.echo(value.decode() if as_json else line(json.loads(value)))


def follow(kafka: Any, cluster: Cluster, topic: str, once: bool) -> Iterator[bytes]:
    """Yield the values of all partitions of a topic from the beginning.

    Args:
        kafka: the connection.
        cluster: the same, for administration.
        topic: name of the topic.
        once: stop at the end of the topic; else wait for more, for ever.

    Raises:
        ConfigError: the topic does not exist.
    """
    partitions = cluster.topics().get(topic)
    if partitions is None:
        raise ConfigError(f"topic {topic!r} does not exist yet: run `hush topics`")
    options = {
        "group.id": "hush-releases",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "log_level": 0,
    }
    client = Consumer(librdkafka_options(kafka) | options)
    client.assign([TopicPartition(topic, n, 0) for n in range(partitions)])
    ended: set[int] = set()
    try:
        while not (once and len(ended) == partitions):
            message = client.poll(0.5)
            if message is None:
                continue
            if message.error():
                ended.add(message.partition())
            else:
                yield message.value()
    finally:
        client.close()


def spent(privacy: dict[str, Any]) -> str:
    """Format the total that a unit active in every epoch has paid, according to a manifest."""
    total, limit = privacy.get("pipeline_epsilon_total"), privacy["pipeline_epsilon_limit"]
    if total is None:
        return ""
    most = "" if limit is None else f" of at most {limit:g}"
    return f", ε={total:g}{most} in all epochs so far"


def line(record: dict[str, Any]) -> str:
    """Format a released row or a manifest as one line."""
    window = record["window"]["start"]
    head = f"{window} #{record['trigger']}"
    if record["schema"].startswith("hush.manifest"):
        privacy = record["privacy"]
        last = ", last" if record["final"] else ""
        return (
            f"{head}  -- shard {record['shard'] + 1}/{record['shards']} released{last}; a "
            f"{privacy['unit']} pays ε={privacy['epsilon']:g} δ={privacy['delta']:g} per epoch"
            + spent(privacy)
        )
    key = record["key"]
    shown = " / ".join(str(v) for v in key.values()) if isinstance(key, dict) else str(key)
    values = "  ".join(
        f"{name}={v['value']:g} ±{v['high'] - v['value']:.3g}" if v else f"{name}=–"
        for name, v in record["values"].items()
    )
    return f"{head}  {shown:<32} {values}"


COMMANDS: list[click.Command] = [releases]
