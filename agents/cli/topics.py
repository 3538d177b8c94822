"""``hush topics`` and ``hush trigger``: a deployment's topics, and requests to its clock."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime

import click

from ...errors import ConfigError
from ...topics.config.load import Config
from ...topics.config.secret import noise_key
from ...topics.names import OWNERS, Names, genesis_id
from ...topics.records import TriggerRequest, encode
from ..clock.genesis import begin, read_ledger
from ..deployment.compile import compile_config
from ..deployment.topic_specs import TopicSpec, internal_topics, public_topics
from ..kafka.cluster import Cluster
from .options import config_options, emit, json_option, read_config


@click.command()
@config_options
@json_option
@click.option("--print", "only_print", is_flag=True, help="Create nothing; show what must exist.")
def topics(
    path: str, bootstrap: str | None, settings: tuple[str, ...], as_json: bool, only_print: bool
) -> None:
    """Create a deployment's topics and its ledger, or show them for an administrator."""
    config = read_config(path, bootstrap, settings)
    cluster = Cluster(config.kafka)
    if only_print:
        _show(config, as_json)
        return
    cluster.wait()
    existing = cluster.topics()
    deployment = compile_config(config, {i.topic: existing.get(i.topic, 0) for i in config.input})
    replication = config.engine.replication_factor
    now, secret = int(time.time() * 1e6), noise_key(config)
    created = begin(cluster, deployment, replication, now, secret)
    genesis = read_ledger(cluster, deployment.name).genesis["genesis"]
    if as_json:
        emit({"genesis": genesis, "created": created})
        return
    click.echo(f"deployment {deployment.name}, genesis {genesis}: {len(created)} topics created")
    for name in created:
        click.echo(f"  {name}")


def _show(config: Config, as_json: bool) -> None:
    """Topics, transactional ids and ACLs; works without a cluster."""
    deployment = compile_config(config)
    names = Names(deployment.name, "GENESIS")
    specs = [*public_topics(deployment), *internal_topics(deployment, names)]
    inputs = [i.topic for i in deployment.inputs]
    if as_json:
        emit(
            {
                "topics": [s._asdict() for s in specs],
                "group": names.group,
                "transactional_ids": f"{names.base}.*",
                "reads": inputs,
            }
        )
        return
    for spec in specs:
        click.echo(_line(spec))
    click.echo(
        "\nThe first `hush topics` generates GENESIS. A changelog of stage `ingest` has as many "
        "partitions as its input topic.\n"
        f"Workers need READ on {', '.join(inputs)} and READ and DESCRIBE_CONFIGS on all topics "
        f"above; WRITE on all topics above but {OWNERS}; DELETE on cells topics (to trim them); "
        f"READ on group {names.group}; DESCRIBE and WRITE on transactional ids with prefix "
        f"{names.base}.; IDEMPOTENT_WRITE on the cluster. `hush topics` needs the noise key, WRITE "
        f"on {OWNERS}, and the transactional id {genesis_id(deployment.name)} besides."
    )


def _line(spec: TopicSpec) -> str:
    who = "workers only: raw data" if spec.internal else "anyone"
    if spec.name.endswith(".ledger.v1"):
        who = "operators and auditors"
    config = " ".join(f"{name}={value}" for name, value in sorted(spec.config.items()))
    return (
        f"{spec.name}\n    partitions {spec.partitions}; {config}\n"
        f"    {spec.purpose}; readers: {who}"
    )


@click.command()
@config_options
@json_option
@click.option(
    "--at", metavar="TIME", help="Fire all triggers scheduled up to this time; default: now."
)
@click.option("--pipeline", "only", multiple=True, help="Only this pipeline; repeatable.")
@click.option("--id", "identity", help="Id of the request; repeating it changes nothing.")
def trigger(
    path: str,
    bootstrap: str | None,
    settings: tuple[str, ...],
    as_json: bool,
    at: str | None,
    only: tuple[str, ...],
    identity: str | None,
) -> None:
    """Advance the schedule of pipelines with schedule = "external".

    The trigger times remain those of the configuration. Requests made because data arrived are
    outside the guarantee: their timing reveals the arrival.
    """
    config = read_config(path, bootstrap, settings)
    external = {p.name for p in config.pipeline if p.schedule == "external"}
    unknown = set(only) - external
    if unknown:
        raise ConfigError(f'pipeline {", ".join(sorted(unknown))} has no schedule = "external"')
    cluster = Cluster(config.kafka)
    cluster.wait()
    ledger = read_ledger(cluster, config.deployment.name)
    names = Names(config.deployment.name, ledger.genesis["genesis"])
    request = TriggerRequest(identity or secrets.token_hex(8), moment(at), sorted(only) or None)
    producer = cluster.producer(acks="all")
    producer.produce(names.requests, encode(request), partition=0)
    producer.flush(30)
    if as_json:
        emit({"id": request.id, "at": request.at})
    else:
        click.echo(f"requested: everything scheduled up to {at or 'now'} ({request.id})")


def moment(text: str | None) -> int:
    """Microseconds of an ISO time; the present if there is none."""
    if text is None:
        return int(time.time() * 1e6)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not an ISO time such as 2019-03-02T00:00Z") from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000_000)


COMMANDS: list[click.Command] = [topics, trigger]
