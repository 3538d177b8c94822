"""``hush status``: whether a deployment is well, and what to do if it is not."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, NoReturn

import click
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..agents.clock.genesis import read_ledger
from ..agents.clock.ledger import Ledger
from ..agents.clock.pinned import verify, verify_there
from ..agents.deployment.compile import compile_config
from ..agents.deployment.model import Pipeline
from ..agents.kafka.cluster import Cluster
from ..agents.worker.lines.screen import Screen
from ..errors import ConfigError, EngineError, OutageError, RightError
from ..reading.live.board import Board
from ..reading.live.health import moment
from ..reading.live.status import Aside, Status, Working, behind
from ..topics.config.load import Config
from .deployed import cluster_of
from .options import Flags, config_options, emit, json_option, read_config, readable

WRONG = 4
READY = {True: "ready", False: "not ready", None: "in the group; its page is not reachable"}


@click.command()
@config_options
@json_option
@click.option("--watch", is_flag=True, help="Show it again and again, until interrupted.")
@click.option("--every", type=click.IntRange(1, 3600), default=5, show_default=True,
              metavar="SECONDS", help="With --watch: how often.")  # fmt: skip
def status(flags: Flags, as_json: bool, watch: bool, every: int) -> None:
    """Show whether a deployment is well, and what to do if it is not.

    Workers, how far they are behind, the newest and the next release of each pipeline, its budget,
    and the records that it set aside. It exits with 4 if something is wrong. Counts of raw records
    are not private: what it prints is for operators alone.
    """
    config = read_config(flags)
    cluster = cluster_of(config, "worker")
    ledger = read_ledger(cluster, config.deployment.name)
    deployment = compile_config(config, spread=ledger.spread).only(ledger.pipelines)
    names = ledger.names(deployment.name)
    board = Board(config.kafka, deployment.name, [p.name for p in deployment.pipelines], windows=1)
    board.start()

    def now() -> Status:
        misfit = _misfit(cluster, config, ledger)
        return Status.of(cluster, board, deployment, names, config.engine, misfit)

    try:
        seen = now()
        if as_json:
            emit(seen.body())
        elif not watch:
            Screen().print(shown(seen))
        else:
            _watched(seen, now, every)
    finally:
        board.end()
    if seen.wrong:
        sys.exit(WRONG)


def _misfit(cluster: Cluster, config: Config, ledger: Ledger) -> str:
    """Say why topics, or configuration, let no worker start; empty: they do, or may not be seen."""
    numbers = {name: body["number"] for name, body in ledger.pipelines.items()}
    known = {p.name for p in config.pipeline} <= set(numbers)
    try:
        partitions = {one.topic: cluster.partitions(one.topic, "READ") for one in config.input}
        verify_there([t for t, number in partitions.items() if number], partitions, ledger)
        made = compile_config(config, partitions, numbers if known else None, ledger.spread)
        verify(cluster, made.each(partial(_with_declared_key, ledger)), ledger)
    except RightError:
        return ""
    except OutageError:
        raise
    except (ConfigError, EngineError) as error:
        return str(error)
    return ""


def _with_declared_key(ledger: Ledger, pipeline: Pipeline) -> Pipeline:
    """The pipeline with the key that the ledger names: operators need not have its file."""
    declared = ledger.pipelines.get(pipeline.name, {})
    return replace(pipeline, own_key=declared.get("key_fingerprint"))


def _watched(seen: Status, now: Callable[[], Status], every: int) -> NoReturn:
    """Show the state repeatedly: in place in a terminal, else one after the other."""
    screen = Screen()
    if not screen.is_terminal:
        while True:
            screen.print(shown(seen))
            sys.stdout.flush()
            time.sleep(every)
            seen = now()
    with Live(shown(seen), console=screen, auto_refresh=False) as live:
        while True:
            time.sleep(every)
            live.update(shown(now()), refresh=True)


def shown(seen: Status) -> Group:
    """Lay out a status as tables and sentences."""
    when = moment(seen.now * 1_000)
    parts: list[Any] = [Text(f"Deployment {seen.deployment}, {when}. For operators alone.\n")]
    parts += [_workers(seen.workers), _inputs(seen), _pipelines(seen)]
    if seen.views:
        listed = ", ".join(f"{name} (of {source})" for name, source in seen.views.items())
        parts.append(Text(f"Views, whose releases are not looked at here: {listed}"))
    if seen.wrong:
        parts.append(Text("Wrong:", style="bold red"))
        parts += [Text(f"- {one}") for one in seen.wrong]
    else:
        parts.append(Text("All is well.", style="bold green"))
    return Group(*parts)


def _workers(found: list[Working] | None) -> Table | Text:
    if found is None:
        return Text("Workers: no right to describe their group.\n")
    table = readable(Table("worker", "host", "since", "partitions", "state"))
    for one in found:
        since = "" if one.since is None else f"{datetime.fromtimestamp(one.since, UTC):%m-%d %H:%M}"
        table.add_row(one.name, one.host, since, str(one.partitions), READY[one.ready])
    return table


def _inputs(seen: Status) -> Table:
    table = readable(Table("raw topic", "workers are"))
    for topic, one in seen.backlogs.items():
        said = "not known: no right to ask" if one is None else behind(seen.now, one)
        table.add_row(topic, said)
    return table


def _pipelines(seen: Status) -> Table:
    table = readable(Table("pipeline", "releases", "ε spent", "set aside"))
    for one in seen.pipelines:
        left, total = seen.left(one), one["budget"]["total"]
        spent = f"{total:.4g}" if left is None else f"{total:.4g} of {left + total:.4g}"
        aside = _aside(seen.aside.get(one["name"]), seen.late(one["name"]))
        table.add_row(one["name"], one["health"]["words"], spent, aside)
    return table


def _aside(found: Aside | None, late: int | None) -> str:
    if found is None or not found.seen:
        said = ["dead not known"]
    else:
        dead = sum(one.records for one in found.dead)
        said = [f"{'' if found.whole else 'at least '}{dead:,} dead"]
    least = "at least " if found is not None and not found.whole_late else ""
    said.append("late not known" if late is None else f"{least}{late:,} late")
    return ", ".join(said)
