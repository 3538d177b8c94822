"""``hush verify``: prove releases and ledger from the public topics, without any secret."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from ..agents.worker.lines.screen import Screen, say
from ..errors import ConfigError
from ..reading.client import kafka_at
from ..reading.proof import Checkpoint, Proof, plain, prove
from ..reading.public_topics import PublicTopics
from ..topics.config.model import Kafka
from ..topics.config.toml.values import counted
from ..topics.signatures import is_public_key
from .options import CONFIG, Flags, config_options, emit, json_option, read_config

REFUSED = 3
AGAIN_SECONDS = 2.0


@click.command()
@config_options
@click.option(
    "--deployment", default="", help="Name of the deployment, if there is no configuration."
)
@click.option(
    "--public-key", default="", metavar="HEX", help="The key that must have signed everything."
)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Remember in this file what was proved; next time, all of it must still be there.",
)
@click.option(
    "--wait",
    type=click.IntRange(0),
    default=30,
    show_default=True,
    help="Seconds to wait for a release that is just being published.",
)
@json_option
def verify(
    flags: Flags,
    deployment: str,
    public_key: str,
    checkpoint: Path | None,
    wait: int,
    as_json: bool,
) -> None:
    """Prove that releases are complete, unaltered, and were charged before they were published.

    Reads the ledger and the release topics alone, and needs no secret. Exits with 3 if something is
    missing or altered, and names the place.
    """
    if public_key and not is_public_key(public_key):
        raise ConfigError("--public-key: must be 64 hexadecimal digits, as `hush topics` prints it")
    kafka, name = _place(flags, deployment)
    known = _known(checkpoint)
    reader = PublicTopics(kafka, name)
    until = time.monotonic() + wait
    columns = (TextColumn("{task.description}"), TextColumn("{task.completed:,} records"),
               TimeElapsedColumn())  # fmt: skip
    with Progress(*columns, console=Screen(stderr=True), transient=True, disable=as_json) as bar:
        task = bar.add_task("reading")

        def told(what: str, records: int) -> None:
            bar.update(task, description=f"reading {what}", completed=records)

        while True:
            proof = prove(
                reader.ledger, reader.records, reader.partitions, name, public_key, known, told
            )
            if not proof.unfinished or proof.fault or time.monotonic() > until:
                break
            time.sleep(AGAIN_SECONDS)
    if as_json:
        emit(plain(proof))
    else:
        for line in _said(proof):
            say(line)
        if proof.proved and not public_key:
            say("Hold the public key against the one that the operator publishes: --public-key")
    if not proof.proved:
        raise click.exceptions.Exit(REFUSED)
    if checkpoint is not None:
        checkpoint.write_bytes(msgspec.json.encode(proof.checkpoint()))


def _place(flags: Flags, deployment: str) -> tuple[Kafka, str]:
    """The cluster and the deployment's name; a reader may have no configuration."""
    if not flags.settings and flags.path == CONFIG:
        if flags.bootstrap and deployment:
            return kafka_at(flags.bootstrap), deployment
        if not Path(flags.path).exists():
            raise ConfigError(
                "name the cluster and the deployment (--bootstrap HOST:PORT --deployment NAME), or "
                f"a configuration (--config): there is no {flags.path} here"
            )
    config = read_config(flags, tables=False)
    return config.kafka, deployment or config.deployment.name


def _known(path: Path | None) -> Checkpoint | None:
    if path is None or not path.exists():
        if path is not None and not path.parent.is_dir():
            raise ConfigError(f"--checkpoint: there is no folder {path.parent}")
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Checkpoint)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not what `hush verify --checkpoint` has written") from error


def _said(proof: Proof) -> Iterator[str]:
    if proof.fault:
        yield f"NOT PROVED: {proof.fault}"
    elif proof.unfinished:
        yield (
            f"NOT COMPLETE: {proof.unfinished}. If it is still to be published, which takes "
            "engine.publish_delay and longer, run this again, or with a longer --wait; otherwise "
            "somebody withholds it, or its deployment stands still."
        )
    if not proof.proved:
        return
    yield f"deployment {proof.deployment}, signed by the public key {proof.public_key}"
    for name, number in proof.releases.items():
        yield f"  {name}: releases 1 to {number}, complete"
    yield (
        f"proved: {counted(proof.rows, 'row')}, none altered, missing, doubled or out of order, "
        f"up to {proof.until or 'now, as nothing was released yet'}"
    )
    yield (
        f"proved: each release was charged before it came; the ledger's chain of "
        f"{counted(proof.records, 'record')} with {counted(proof.charges, 'charge')} is unbroken, "
        f"head {proof.head}"
    )
