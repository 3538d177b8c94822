"""``hush ledger page``: the public page of what a deployment promises and has spent."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..agents.deployment.compile import compile_config
from ..agents.worker.lines.screen import say
from ..reading.live.promise import Limits, facts
from ..reading.live.public_page import page as page_of
from ..topics.config.load import Config
from .deployed import ledger_of
from .options import Flags, check_place, config_options, read_config


@click.command()
@config_options
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of the page; the same facts go into a .json file beside it.",
)
def page(flags: Flags, out: Path) -> None:
    """Write an HTML page for a web site that says what is promised and spent.

    It needs no secret: all of it follows from the ledger, and the limits of the configuration.
    """
    check_place("--out", out)
    beside = out.with_suffix(".json")
    if out.suffix.lower() == ".json":
        rule = f"{out} is the name of the facts beside the page: give another, such as"
        raise click.BadParameter(f"{rule} {out.with_suffix('.html')}", param_hint="--out")
    config = read_config(flags)
    told = facts(ledger_of(config), _limits(config))
    out.write_text(page_of(told), "utf-8")
    beside.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n", "utf-8")
    say(f"{out}  for people\n{beside}  for programs")


def _limits(config: Config) -> dict[str, Limits]:
    """Limits of pipelines, and of the budgets that some of them share."""
    found = {}
    for p in compile_config(config).pipelines:
        given = (p.terms.limit_epsilon, p.terms.limit_delta)
        limits = Limits(*(None if limit is None else float(limit) for limit in given))
        found[p.name if p.purse is None else p.purse.name] = limits
    return found
