"""``hush replay``: recompute releases from the logs and compare them, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..agents.worker.lines.screen import Screen
from ..offline.compare import ReplayOutcome
from ..offline.replay import replay as run_replay
from ..topics.config.load import Config
from .deployed import pipeline_of
from .options import Flags, config_options, emit, json_option, moment, read_config, readable

DISAGREES = 4


@click.command()
@config_options
@click.argument("pipelines", nargs=-1)
@click.option(
    "--window", "windows", multiple=True, metavar="TIME", help="Only windows that contain TIME."
)
@click.option(
    "--escrow-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="An auditor's private key, for epochs whose noise keys were forgotten.",
)
@json_option
def replay(
    flags: Flags,
    pipelines: tuple[str, ...],
    windows: tuple[str, ...],
    escrow_key: Path | None,
    as_json: bool,
) -> None:
    """Recompute the releases of PIPELINES (default: all) and compare every byte.

    Reads the raw log, the clock log, the ledger and the noise keys; epochs whose keys were
    forgotten are left out. Exits with 4 if a release differs, is missing or occurs twice. It may
    run beside the workers. It prints exact numbers of records: they are for operators alone.
    """
    times = [moment(text, "--window") for text in windows]
    config = read_config(flags)
    numbers = _numbers(config, pipelines, times)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())  # fmt: skip
    with Progress(*columns, console=Screen(stderr=True), transient=True, disable=as_json) as bar:
        task = bar.add_task("reading")

        def told(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total or None)

        outcome = run_replay(config, pipelines, numbers, told, escrow_key)
    if as_json:
        emit(outcome.figures())
    else:
        _show(outcome)
    if not outcome.agrees:
        raise click.exceptions.Exit(DISAGREES)


def _numbers(config: Config, pipelines: tuple[str, ...], times: Sequence[int]) -> set[int] | None:
    """Numbers of the windows that contain the given times; each pipeline numbers its own."""
    if not times:
        return None
    if len(pipelines) != 1:
        raise click.UsageError("--window needs exactly one pipeline: each counts its own windows")
    schedule = pipeline_of(config, pipelines[0]).windows
    return {n for time in times for n in schedule.holding(time)}


def _show(outcome: ReplayOutcome) -> None:
    figures: dict[str, Any] = outcome.figures()
    table = Table("", "records", title="published and recomputed")
    words = {
        "compared": "identical, byte for byte",
        "differing": "differing",
        "lost": "lost",
        "doubled": "doubled",
        "pending": "not published yet",
        "aborted": "identical copies in aborted transactions",
        "routed": "events followed through units logs",
    }
    for name, text in words.items():
        table.add_row(text, f"{figures[name]:,}")
    console = Screen()
    console.print(readable(table))
    for text in outcome.left_out:
        console.print(text, style="yellow", highlight=False)
    for problem in outcome.problems:
        console.print(problem, style="red", highlight=False)
