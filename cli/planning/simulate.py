"""``hush simulate``: run the pipelines on a file, in memory, and compare with the truth."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from pyarrow import parquet
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ...agents.deployment.compile import compile_config
from ...agents.deployment.model import Pipeline, ReleaseView
from ...agents.worker.lines.screen import Screen, say
from ...errors import ConfigError
from ...offline.engine import OfflineEngine
from ...offline.first_rows import mistimed
from ...offline.judged import SimulationReport
from ...offline.report import PRIVATE
from ...offline.report import show as show_simulated
from ...offline.simulate import read_file
from ...offline.simulate import simulate as run_simulation
from ...reading.live.declared import Declared
from ...reading.live.history import History
from ...reading.live.views import MOST_ROWS, Wish, view
from ...reading.tables import table_of
from ...topics.assembly import Assembly, Released
from ...topics.config.load import Config
from ...topics.config.toml.values import counted
from ...topics.private_files import private_file, private_folder
from ...topics.releases import decode_public
from ..options import Flags, config_options, emit, json_option, read_config
from .request import FIRST


@click.command()
@config_options
@json_option
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--input", "source", help="The input that FILE represents; default: the first.")
@click.option("--seed", help="Seed for repeatable noise.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
              help="Write the releases of each pipeline as Parquet.")  # fmt: skip
@click.option("--plot", "pictures", type=click.Path(path_type=Path, file_okay=False),
              metavar="FOLDER", help="Draw the releases of each pipeline as PNG.")  # fmt: skip
def simulate(
    flags: Flags,
    as_json: bool,
    file: Path,
    source: str | None,
    seed: str | None,
    out: Path | None,
    pictures: Path | None,
) -> None:
    """Run the pipelines on FILE (CSV, JSON lines, Arrow) and compare with the truth.

    FILE is a sample, best of public or synthetic data: the report shows exact figures of it, so it
    stays inside the trust boundary.
    """
    for folder in (out, pictures):
        if folder is not None and not folder.is_dir():
            private_folder(folder)
    config = read_config(flags)
    if not config.input:
        raise ConfigError(f"{flags.path} has no [[input]]: FILE represents one, so declare it")
    rows = read_file(file)
    if not rows:
        raise ConfigError(f"{file}: no record: a row below the header, or a JSON object")
    secret = hashlib.sha256(seed.encode()).digest() if seed else secrets.token_bytes(32)
    name = source or config.input[0].name
    for one in (one for one in compile_config(config).inputs if one.name == name):
        if (why := mistimed(one, rows[:FIRST])) is not None:
            say(f"warning: {file}: {why}", err=True)
    columns = (
        TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TextColumn("triggers"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Screen(stderr=True), disable=as_json) as bar:

        def fired(done: int, triggers: int, windows: int) -> None:
            if not bar.tasks:
                what = f"{counted(triggers, 'trigger')} of {counted(windows, 'window')}"
                bar.console.print(f"the file needs {what}", highlight=False)
                bar.add_task("", total=triggers)
            bar.update(bar.tasks[0].id, completed=done)

        reports, engine = run_simulation(config, rows, name, secret, None if as_json else fired)
    _write(config, engine, out, pictures)
    if as_json:
        emit({p: _figures(r) for p, r in reports.items()})
        return
    console = Screen()
    for report in reports.values():
        for part in show_simulated(report):
            console.print(part, highlight=False, markup=False)
        console.print()
    console.print(PRIVATE, highlight=False)


def _figures(report: SimulationReport) -> dict[str, Any]:
    body: dict[str, Any] = {"windows": report.windows, "counts": report.counts}
    body |= {"cut": report.cut, "counted": report.counted}
    body |= {"unusable": report.unusable} if report.unusable else {}
    return body | ({"note": report.note} if report.note else {})


def _write(config: Config, engine: OfflineEngine, out: Path | None, pictures: Path | None) -> None:
    """Write what was released, and draw it, a file for each pipeline."""
    made = compile_config(config)
    every: list[Pipeline | ReleaseView] = [*made.pipelines, *made.views]
    for p in every:
        assembly, found = Assembly(p.name), []
        for one in engine.outs.get(p.release_topic, ()):
            release = assembly.take(decode_public(one.headers, one.value))
            if release is not None:
                found.append(release)
        if not found:
            continue
        if out is not None:
            with _whole(out / f"{p.name}.parquet") as file:
                parquet.write_table(table_of(found), file)
        if pictures is not None and isinstance(p, Pipeline):
            with _whole(pictures / f"{p.name}.png") as file:
                _draw(p, found, file)


@contextlib.contextmanager
def _whole(file: Path) -> Iterator[Path]:
    """A private file that takes this name once it is whole; if that fails, none is left."""
    new = file.with_name(f".new-{file.name}")
    private_file(new)  # anyone who knows the seed can subtract the noise
    try:
        yield new
        os.replace(new, file)
    finally:
        new.unlink(missing_ok=True)


def _draw(p: Pipeline, found: list[Released], path: Path) -> None:
    from ...reading.live.picture import draw  # needs an optional part

    declared, history = Declared(p.name, p.number, p.config), History()
    for release in found:
        history.add(release)
    final = [w["start"] for w in history.windows() if w["final"] and w["rows"]]
    seen = view(declared, history, Wish(window=final[0] if final else None, size=MOST_ROWS))
    told = {"unit": p.unit_name, "mechanism": p.kind, "measured": declared.measured}
    draw(p.name, told, seen, path)
