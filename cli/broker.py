"""``hush broker start | stop | status``: a local Kafka for any client, without Docker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ..agents.worker.lines.screen import say
from .nearest import Nearest
from .options import emit, json_option

if TYPE_CHECKING:  # the local broker is optional: commands import it when they run
    from ..deploy.daemon import BrokerState

data_option = click.option(
    "--data", type=click.Path(path_type=Path), help="Data folder of the broker."
)


@click.group(cls=Nearest)
def broker() -> None:
    """Run a local Apache Kafka on the loopback interface."""


@broker.command()
@data_option
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Port for clients; default: the last one used, at first 9092.",
)
@json_option
def start(data: Path | None, port: int | None, as_json: bool) -> None:
    """Start the broker and wait until it serves; the first start downloads it."""
    from ..deploy import daemon

    _say(daemon.start(data, port), as_json)


@broker.command()
@data_option
@click.option("--delete", is_flag=True, help="Delete its data folder, with all topics.")
def stop(data: Path | None, delete: bool) -> None:
    """Stop the broker; it keeps its topics for the next start."""
    from ..deploy import daemon

    if delete:
        daemon.remove(data)
        say("stopped and deleted")
    else:
        say("stopped" if daemon.stop(data) else "it was not running")


@broker.command()
@data_option
@json_option
def status(data: Path | None, as_json: bool) -> None:
    """Show whether the broker runs, and where."""
    from ..deploy import daemon

    _say(daemon.status(data), as_json)


def _say(state: BrokerState, as_json: bool) -> None:
    if as_json:
        emit(msgspec.to_builtins(state))
        return
    where = f" at {state.bootstrap} (process {state.pid}, log {state.log})" if state.pid else ""
    say(f"{state.state}{where}; data in {state.data}")
