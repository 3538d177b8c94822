"""``hush ratchet``: make the ratchet of pipelines that forget their noise keys, and look at it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import click

from ..agents.worker.lines.screen import say
from ..topics.config.access.ratchet_file import RatchetFile, create
from .nearest import Nearest
from .options import Flags, config_options, emit, json_option, read_config


@click.group(cls=Nearest)
def ratchet() -> None:
    """Make or show the ratchet of pipelines that forget their noise keys."""


@ratchet.command()
@click.argument("file", default="hush.ratchet", type=click.Path(path_type=Path))
def new(file: Path) -> None:
    """Write a new ratchet into FILE. It moves to a worker's machine; no copy may stay here.

    Further machines get a copy of the file that a worker has by then, never of this one.
    """
    made = create(file)
    say(
        f"{file}  the ratchet: secret, and of one worker alone\n"
        "Next, in hush.toml:\n"
        f'[secret]\nratchet = "{made.name}"\n'
        "and forget_keys = true in each pipeline that is to forget its keys."
    )


@ratchet.command()
@config_options
@json_option
def show(flags: Flags, as_json: bool) -> None:
    """Show which epochs' noise keys this machine holds; no key is shown."""
    config = read_config(flags)
    found = RatchetFile(Path(config.secret.ratchet_file))
    kept: dict[str, list[int]] = defaultdict(list)
    for charge in found.kept:
        kept[charge.pipeline].append(charge.epoch)
    if as_json:
        emit({"ratchet": found.name, "step": found.step, "kept": kept})
        return
    say(f"ratchet {found.name}: the keys of all charges from ledger record {found.step} on")
    for pipeline, epochs in kept.items():
        say(f"pipeline {pipeline}: also of epochs {', '.join(map(str, sorted(epochs)))}")
