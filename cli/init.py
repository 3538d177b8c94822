"""``hush init`` and ``hush check``."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import click

from ..agents.deployment.cautions import NOTHING, cautions
from ..agents.deployment.compile import compile_config
from ..agents.deployment.model import Deployment
from ..agents.kafka.cluster import Cluster
from ..agents.worker.admission import prepare, warnings
from ..agents.worker.lines.screen import say
from ..errors import ConfigError, HushError
from ..mechanisms.noise import fingerprint
from ..topics.config.access.ratchet_file import ratchet_of
from ..topics.config.access.secret import noise_key, own_keys, signing_key, write_new_key
from ..topics.config.load import Config, load
from ..topics.config.toml.values import counted
from .group import exit_code
from .lines import with_line
from .options import Flags, config_options, emit, json_option, member_option, read_config


@click.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path))
def init(folder: Path) -> None:
    """Write a commented hush.toml and two fresh keys, for noise and signatures, into FOLDER."""
    if folder.suffix == ".toml" and not folder.is_dir():
        raise ConfigError(f"{folder} would be a folder: name the one that hush.toml goes into")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be a folder ({error.strerror}): name another") from None
    target = folder / "hush.toml"
    if target.exists():
        raise ConfigError(f"{target} already exists and is not overwritten")
    text = files("hushstream.topics.config").joinpath("template.toml").read_text("utf-8")
    key, signing = folder / "hush.key", folder / "hush-signing.key"
    for path in (key, signing):
        if not path.exists():
            write_new_key(path)
    target.write_text(text, "utf-8")
    load(target)  # the written file must be valid
    say(
        f"{target}  every setting, with comments\n"
        f"{key}  the noise key: back it up and keep it secret\n"
        f"{signing}  the key that signs what is released: likewise\n"
        "Next: edit hush.toml, then `hush plan`, `hush topics`, `hush worker`."
    )


@click.command()
@config_options
@json_option
@click.option("--offline", is_flag=True, help="Do not contact the cluster.")
@member_option("Compare the tables of this worker with the cluster.")
def check(flags: Flags, as_json: bool, offline: bool, member: str) -> None:
    """Check configuration, key, topics, ledger and clock log; exit 0 if a worker could start.

    Otherwise the exit code is the one that a worker would end with.
    """
    findings: list[Finding] = []
    code = 0
    try:
        config = read_config(flags, tables=not offline)
    except HushError as error:
        if not as_json:
            raise
        findings += [("fail", text) for text in str(error).split("\n")]
        code = exit_code(error)
    else:
        try:
            if offline:
                _offline(config, findings.append)
            else:
                _online(config, member, findings.append)
            findings += [("warn", text) for text in cautions(config, int(time.time() * 1e6))]
            if not config.pipeline:
                findings.append(("warn", NOTHING))
        except HushError as error:
            findings.append(("fail", str(with_line(error, flags.path))))
            code = exit_code(error)
    if as_json:
        emit({"ok": not code, "findings": [{"level": a, "text": b} for a, b in findings]})
    else:
        marks = {"ok": "ok   ", "warn": "warn ", "fail": "FAIL "}
        for level, text in findings:
            say(marks[level] + text)
    if code:
        raise click.exceptions.Exit(code)


Finding = tuple[str, str]  # "ok", "warn" or "fail", and a sentence


def _offline(config: Config, told: Callable[[Finding], None]) -> None:
    deployment = compile_config(config)
    told(("ok", f"configuration: {counted(len(deployment.pipelines), 'pipeline')}"))
    told(("ok", f"noise key, fingerprint {fingerprint(noise_key(config))}"))
    if (signing := signing_key(config)) is not None:
        told(("ok", f"signing key, public part {signing.public}"))
    for name, key in own_keys(config).items():
        told(("ok", f"noise key of pipeline {name}, fingerprint {fingerprint(key)}"))
    if (ratchet := ratchet_of(config)) is not None:
        told(("ok", f"ratchet {ratchet.name}"))


def _online(config: Config, member: str, told: Callable[[Finding], None]) -> None:
    """The conditions for a worker to start, and recommendations for production clusters."""
    plan = prepare(config, member, patience=5, told=lambda text: told(("ok", text)))
    if any(p.codec.records for p in plan.deployment.pipelines):
        told(("ok", _schemas(config, plan.deployment)))
    for text in warnings(Cluster(config.kafka), plan.deployment, plan.names):
        told(("warn", text))


def _schemas(config: Config, deployment: Deployment) -> str:
    """Compare the pinned schemas of releases with the registry; no worker needs this."""
    from ..agents.registry.subjects import look_up  # needs an optional part

    number = look_up(config.registry, deployment)
    return f"schema registry at {config.registry.url}: {number} subjects as the ledger pinned them"
