"""``hush init``, ``hush check`` and ``hush version``."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import click

from ...errors import ConfigError, HushError
from ...mechanisms.noise import fingerprint
from ...topics.config.load import Config, load
from ...topics.config.secret import noise_key, write_new_key
from ..clock.genesis import read_ledger, verify
from ..deployment.compile import compile_config
from ..deployment.model import Deployment
from ..deployment.topic_specs import CLOCK, PUBLIC
from ..kafka.cluster import Cluster
from ..worker.metrics import code_version
from .options import config_options, emit, json_option, read_config


@click.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path))
def init(folder: Path) -> None:
    """Write a commented hush.toml and a fresh noise key into FOLDER."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "hush.toml"
    if target.exists():
        raise ConfigError(f"{target} already exists and is not overwritten")
    text = files("hushstream.topics.config").joinpath("template.toml").read_text("utf-8")
    key = folder / "hush.key"
    if not key.exists():
        write_new_key(key)
    target.write_text(text, "utf-8")
    load(target)  # the written file must be valid
    click.echo(
        f"{target}  every setting, with comments\n"
        f"{key}  the noise key: back it up and keep it secret\n"
        "Next: edit hush.toml, then `hush plan`, `hush topics`, `hush worker`."
    )


@click.command()
@config_options
@json_option
@click.option("--offline", is_flag=True, help="Do not contact the cluster.")
def check(
    path: str, bootstrap: str | None, settings: tuple[str, ...], as_json: bool, offline: bool
) -> None:
    """Check configuration, key, topics and ledger; exit 0 if a worker could start."""
    config = read_config(path, bootstrap, settings)
    findings = list(_offline(config))
    if not offline:
        findings += _online(config)
    failed = [f for f in findings if f[0] == "fail"]
    if as_json:
        emit({"ok": not failed, "findings": [{"level": a, "text": b} for a, b in findings]})
    else:
        marks = {"ok": "ok   ", "warn": "warn ", "fail": "FAIL "}
        for level, text in findings:
            click.echo(marks[level] + text)
    if failed:
        raise click.exceptions.Exit(4)


Finding = tuple[str, str]  # "ok", "warn" or "fail", and what


def _offline(config: Config) -> list[Finding]:
    deployment = compile_config(config)
    found = [("ok", f"configuration: {len(deployment.pipelines)} pipelines")]
    try:
        found.append(("ok", f"noise key, fingerprint {fingerprint(noise_key(config))}"))
    except HushError as error:
        found.append(("fail", str(error)))
    return found


def _online(config: Config) -> list[Finding]:
    cluster = Cluster(config.kafka, patience=5)
    try:
        cluster.wait()
        topics = cluster.topics()
        found = [("ok", f"cluster at {config.kafka.bootstrap}: {len(topics)} topics")]
        deployment = compile_config(config, {i.topic: topics.get(i.topic, 0) for i in config.input})
        found += _inputs(cluster, deployment, topics)
        ledger = read_ledger(cluster, deployment.name)
        names = verify(cluster, deployment, ledger)
        found.append(("ok", f"ledger: {len(ledger.charges)} charges, chain intact"))
        found += _safety(cluster, names.ledger, config)
        found += _safety(cluster, names.clock, config)
        found += _stamps(cluster, names.clock, CLOCK)
        for topic in sorted({p.release_topic for p in deployment.pipelines}):
            found += _stamps(cluster, topic, PUBLIC)
        return found
    except HushError as error:
        return [("fail", str(error))]


def _inputs(cluster: Cluster, deployment: Deployment, topics: dict[str, int]) -> list[Finding]:
    found: list[Finding] = []
    for source in deployment.inputs:
        if source.topic not in topics:
            found.append(("fail", f"input topic {source.topic} does not exist"))
            continue
        policy = cluster.configs(source.topic).get("cleanup.policy", "delete")
        if "compact" in policy:
            found.append(
                ("fail", f"input topic {source.topic} is compacted: it loses records, so a "
                 "replay would count differently; use a topic with cleanup.policy=delete")
            )  # fmt: skip
        else:
            found.append(("ok", f"input topic {source.topic}: {topics[source.topic]} partitions"))
    return found


def _safety(cluster: Cluster, topic: str, config: Config) -> list[Finding]:
    """Settings that a production cluster should have."""
    settings = cluster.configs(topic)
    found: list[Finding] = []
    if int(settings.get("min.insync.replicas", "1")) < 2:
        found.append(("warn", f"{topic}: min.insync.replicas is below 2: one disk may hold all"))
    if settings.get("unclean.leader.election.enable") == "true":
        found.append(("warn", f"{topic}: unclean leader election may lose committed records"))
    if settings.get("retention.ms") != "-1":
        found.append(("fail", f"{topic}: retention.ms must be -1, or Kafka deletes state"))
    return found


def _stamps(cluster: Cluster, topic: str, wanted: Mapping[str, str]) -> list[Finding]:
    """Who sets the timestamps of a topic's records."""
    name = "message.timestamp.type"
    if cluster.configs(topic).get(name) == wanted[name]:
        return [("ok", f"{topic}: {name} is {wanted[name]}")]
    return [("fail", f"{topic}: {name} must be {wanted[name]}")]


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Print the version."""
    if as_json:
        emit({"version": code_version(), "python": platform.python_version()})
    else:
        click.echo(f"hushstream {code_version()} on Python {platform.python_version()}")


COMMANDS: list[click.Command] = [init, check, version]
