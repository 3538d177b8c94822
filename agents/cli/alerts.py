"""``hush alerts``: alerting rules that fit a configuration."""

from __future__ import annotations

import click

from ...deploy.alerts import rules, text
from ...topics.config.load import Config
from ...topics.schedule import Schedule
from .options import config_options, emit, json_option, read_config


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


COMMANDS: list[click.Command] = [alerts]
