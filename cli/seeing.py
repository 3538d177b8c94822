"""``hush live`` and ``hush plot``: releases on a page in the browser, or as a picture."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import click
from confluent_kafka import KafkaException

from ..agents.kafka.cluster import Cluster
from ..agents.worker.lines.screen import say
from ..errors import EngineError
from ..reading.client import ReleaseTopic, Wanted, kafka_at, moment
from ..reading.client import releases as read
from ..reading.live.board import Board
from ..reading.live.declared import Declared
from ..reading.live.history import History, millis
from ..reading.live.server import serve
from ..reading.live.views import MOST_ROWS, Wish, shown, view
from ..topics.config.model import Kafka
from ..topics.names import ledger_topic
from .deployed import pipeline_of
from .options import Flags, check_place, config_options, no_view, read_config


@click.command()
@config_options
@click.option(
    "--deployment", metavar="NAME", help="Name of the deployment; needed without a configuration."
)
@click.option(
    "--pipeline", "only", multiple=True, metavar="NAME", help="Show this pipeline; default: all."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8437, show_default=True,
              help="Port of the page; 0: any free one.")  # fmt: skip
@click.option("--bind", default="127.0.0.1", show_default=True, metavar="HOST",
              help="Address to serve at; 0.0.0.0: all addresses of this machine.")  # fmt: skip
@click.option("--windows", type=click.IntRange(1, 10_000), default=60, show_default=True,
              help="Number of newest windows to read.")  # fmt: skip
def live(
    flags: Flags, deployment: str | None, only: tuple[str, ...], port: int, bind: str, windows: int
) -> None:
    """Serve a live page of all releases; it follows the stream.

    It reads the public topics and the ledger, and nothing else: no noise key, no internal topic. So
    the page may be shown to anyone. With --bootstrap and --deployment no configuration is needed.
    """
    board = followed(flags, deployment, only, windows)
    board.start()
    server = serve(board, bind, port)
    say(f"{server.url} shows the releases of {board.deployment}; Ctrl-C ends it")
    try:
        threading.Event().wait()
    finally:
        board.end()
        server.shutdown()


def followed(
    flags: Flags, deployment: str | None, only: Sequence[str], windows: int, there: bool = False
) -> Board:
    """Make a board of a deployment's public topics; errors as for `read_config`, and `RightError`.

    Args:
        deployment: name of the deployment; None: the configuration's.
        only: pipelines to show; empty: all.
        windows: number of newest windows to read.
        there: whether to raise `EngineError` if Kafka does not answer or has no such deployment;
            else the board says so.
    """
    kafka, name = _source(flags, deployment, only)
    cluster, ledger = Cluster(kafka, role="verifier"), ledger_topic(name)
    if there:
        cluster.wait()
    with suppress(KafkaException):
        if not cluster.partitions(ledger, "READ") and there:
            raise EngineError(
                f"this cluster has no deployment {name!r}: {ledger} does not exist; `hush topics` "
                "begins it"
            )
    return Board(kafka, name, only, windows)


def _source(flags: Flags, deployment: str | None, only: Sequence[str]) -> tuple[Kafka, str]:
    """Connection and deployment, of the configuration or of the flags alone.

    Raises:
        ConfigError: one of ``only`` is a view.
    """
    if deployment and flags.bootstrap and not flags.settings and not Path(flags.path).exists():
        return kafka_at(flags.bootstrap), deployment
    config = read_config(flags, tables=False)
    for name in only:
        no_view(config, name)
    return config.kafka, deployment or config.deployment.name


@click.command()
@config_options
@click.argument("pipeline")
@click.option("--window", metavar="TIME", help="The window that holds TIME; default: the newest.")
@click.option("--value", metavar="NAME", help="Value to draw; default: the first.")
@click.option("--key", metavar="KEY", help="Key whose movement is drawn; default: the largest.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="File to write: .png, .svg or .pdf; default: PIPELINE.png.")  # fmt: skip
def plot(
    flags: Flags,
    pipeline: str,
    window: str | None,
    value: str | None,
    key: str | None,
    out: Path | None,
) -> None:
    """Draw what PIPELINE has released: newest values with error bars, and how they moved."""
    from ..reading.live.picture import KINDS, draw  # needs an optional part

    file = out or Path(f"{pipeline}.png")
    if file.suffix not in KINDS:
        raise click.BadParameter(f"{file}: must end in {', '.join(KINDS)}", param_hint="--out")
    check_place("--out", file)
    time = moment("--window", window)
    config = read_config(flags, tables=False)
    found = pipeline_of(config, pipeline)
    declared = Declared(pipeline, found.number, found.config)  # as its ledger would declare it
    history = History()
    for release in read(ReleaseTopic(config.kafka, declared.topic, pipeline), Wanted()):
        history.add(release)
    start = None if time is None else _start(history, time)
    asked = Wish(window=start, value=value, size=MOST_ROWS, key=_key(history, start, key))
    seen = view(declared, history, asked)
    if seen.get("empty"):
        which = " yet" if window is None else f" in the window of {window}"
        raise EngineError(f"pipeline {pipeline!r} has no complete release{which}")
    told = {
        "unit": declared.unit, "mechanism": declared.mechanism, "measured": declared.measured
    }  # fmt: skip
    draw(pipeline, told, seen, file)
    say(f"wrote {file}")


def _start(history: History, time: datetime) -> int:
    """Start of the window that holds a time, milliseconds; without one, the time itself."""
    at = millis(time)
    holding = [w["start"] for w in history.windows() if w["start"] <= at < w["end"]]
    return int(holding[0]) if holding else at


def _key(history: History, start: int | None, text: str | None) -> str | None:
    """Id of the key that the user names; raises `BadParameter` if the window lacks it."""
    sheet = history.state(start)
    if text is None or sheet is None:
        return None
    found = [one for one in sheet.ids if shown(one) == text]
    if not found:
        raise click.BadParameter(f"{text!r} is not released in this window", param_hint="--key")
    return found[0]
