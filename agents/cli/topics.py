"""``hush topics`` and ``hush alerts``: what a deployment needs on the cluster and beside it."""

from __future__ import annotations

import time

import click

from ...deploy.alerts import rules, text
from ...topics.config.load import Config
from ...topics.config.secret import noise_key
from ...topics.names import OWNERS, Names, genesis_id
from ...topics.schedule import Schedule
from ..clock.genesis import begin, read_ledger
from ..clock.ledger import Ledger
from ..deployment.compile import compile_config
from ..deployment.forms import pinned_forms, subjects, verify_pinned
from ..deployment.model import Deployment
from ..deployment.topic_specs import TopicSpec, internal_topics, public_topics
from ..kafka.cluster import Cluster
from ..registry.announced import announce
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
    deployment = _registered(config, deployment)
    created = begin(cluster, deployment, replication, now, secret)
    ledger = read_ledger(cluster, deployment.name)
    _announce(cluster, deployment, ledger)
    genesis = ledger.genesis["genesis"]
    names = Names(deployment.name, genesis)
    changed, refused = cluster.resize(internal_topics(deployment, names))
    if as_json:
        emit({"genesis": genesis, "created": created, "changed": changed, "refused": refused})
        return
    click.echo(f"deployment {deployment.name}, genesis {genesis}: {len(created)} topics created")
    for name in created:
        click.echo(f"  {name}")
    for name in changed:
        click.echo(f"  {name}: segments and compaction set as they should be")
    for name in refused:
        click.echo(f"  {name}: not allowed to set segments and compaction (ALTER_CONFIGS)")


def _registered(config: Config, deployment: Deployment) -> Deployment:
    """Register schemas of releases first: without them nothing is declared."""
    if not any(subjects(p) for p in deployment.pipelines):
        return deployment
    from ..registry.subjects import register  # needs an optional part

    return register(config.registry, deployment)


def _announce(cluster: Cluster, deployment: Deployment, ledger: Ledger) -> None:
    """Hold the registry's answers against what was pinned, and tell readers."""
    pinned = pinned_forms(deployment, ledger.pipelines)
    verify_pinned(deployment, pinned)
    announce(cluster, pinned)


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
        f"above; WRITE on all topics above but {OWNERS}; DELETE on cells, units, "
        "selected, clock and requests topics (to trim them); "
        f"READ on group {names.group}; DESCRIBE and WRITE on transactional ids with prefix "
        f"{names.base}.; IDEMPOTENT_WRITE on the cluster. `hush topics` needs the noise key, WRITE "
        f"on {OWNERS}, and the transactional id {genesis_id(deployment.name)} besides; with "
        "ALTER_CONFIGS it also sets the segments of internal topics that exist."
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
def alerts(path: str, bootstrap: str | None, settings: tuple[str, ...], as_json: bool) -> None:
    """Print Prometheus rules; each pipeline's schedule decides when it is overdue."""
    found = gaps(read_config(path, bootstrap, settings))
    if as_json:
        emit(rules(found))
    else:
        click.echo(text(found), nl=False)


def gaps(config: Config) -> dict[str, float]:
    """Find the longest time between two triggers of each pipeline that follows the clock.

    Pipelines that wait for `hush trigger` are left out: they cannot be overdue.

    Returns:
        Seconds by pipeline.
    """
    return {
        p.name: Schedule.of(p).longest_gap() / 1e6 for p in config.pipeline if p.schedule == "wall"
    }


COMMANDS: list[click.Command] = [topics, alerts]
