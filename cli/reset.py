"""``hush reset``: delete a deployment and its topics."""

from __future__ import annotations

import asyncio
import sys

import click

from ..agents.clock.reset import Remains, delete, remains
from ..agents.snapshots.copies import delete_all, names_of
from ..agents.snapshots.objects import Objects
from ..agents.worker.lines.screen import say
from ..errors import ConfigError, SnapshotError
from .deployed import cluster_of
from .options import Flags, config_options, emit, json_option, read_config


@click.command()
@config_options
@json_option
@click.option("--name", metavar="DEPLOYMENT",
              help="Its name, where something was charged; asked for in a terminal.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
def reset(flags: Flags, as_json: bool, name: str | None, dry_run: bool) -> None:
    """Delete all topics of a deployment but the raw ones: releases, state and ledger.

    No worker may run; one that has just ended is waited for. Where something was charged, its name
    must be given: with the ledger the charges are forgotten, and what is released later from the
    same records costs their persons again. Snapshots in the object store that engine.snapshots
    names go too; one that was named earlier is not known. Tables on the disks of workers stay; a
    new deployment does not read them.
    """
    config = read_config(flags)
    cluster = cluster_of(config, "remover")
    session = config.engine.session_timeout / 1e6
    found = remains(
        cluster, config.deployment.name, session, lambda text: say(text, err=True), not dry_run
    )
    store = config.engine.snapshots
    if not as_json:
        _told(found)
        if store:
            say(f"and all snapshots in {store}, folder {found.genesis}")
    if dry_run:
        if as_json:
            listed = {"would_delete_snapshots": _stored(store, found.genesis)} if store else {}
            body = {"deleted": [], "would_delete": found.topics, "charges": found.charged}
            emit(body | listed)
        return
    if found.charged:
        _confirmed(found, name)
    objects = _forgotten(store, found.genesis)
    delete(cluster, found)
    if as_json:
        stored = {"snapshots": objects} if store else {}
        emit({"deleted": found.topics, "charges": found.charged} | stored)
        return
    say(f"deployment {found.deployment}: {len(found.topics)} topics deleted; `hush topics` begins "
        "it anew")  # fmt: skip


def _stored(store: str, genesis: str) -> list[str] | None:
    """Names of the objects of snapshots; None: the store does not say, and a message why."""
    try:
        return asyncio.run(names_of(Objects(store), genesis))
    except (ConfigError, SnapshotError) as error:
        say(f"snapshots in {store}, folder {genesis} are not listed: {error}", err=True)
        return None


def _forgotten(store: str, genesis: str) -> int | None:
    """Delete the snapshots; None: some stay, and a message says so."""
    try:
        return asyncio.run(delete_all(Objects(store), genesis)) if store else 0
    except (ConfigError, SnapshotError) as error:
        say(f"snapshots stay ({error}): delete the folder {genesis} in {store}; nothing opens them "
            "any more", err=True)  # fmt: skip
        return None


def _told(found: Remains) -> None:
    say(f"deployment {found.deployment}, charges: {found.charged}, topics to delete:")
    for topic in found.topics:
        say(f"  {topic}")


def _confirmed(found: Remains, name: str | None) -> None:
    if name is None and sys.stdin.isatty():
        name = click.prompt("its releases and its ledger will be lost; type its name", err=True)
    if name != found.deployment:
        said = "give" if name is None else f"{name!r} is not its name; give"
        raise ConfigError(
            f"deployment {found.deployment!r} has charged {found.charged} epochs, which would be "
            f"forgotten; nothing was deleted; {said} --name {found.deployment}"
        )
