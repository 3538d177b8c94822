"""``hush produce``: a file becomes the records of a raw topic."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..agents.kafka.cluster import Cluster
from ..agents.worker.lines.screen import Screen, say
from ..errors import HushError
from ..offline.contents import of_file
from ..offline.files import FileLayout
from ..offline.loading import Loaded, Loading, LoadMode, checked, input_of
from ..topics.config.toml.values import counted
from .options import Flags, config_options, emit, json_option, read_config

SIGNS = {"tab": "\t", r"\t": "\t", "space": " "}


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("topic")
@config_options
@click.option("--partitions", type=click.IntRange(1, 1000), default=1, show_default=True,
              help="Partitions of the topic, if it is created.")  # fmt: skip
@click.option("--append", is_flag=True, help="Write even if the topic exists.")
@click.option("--resume", is_flag=True,
              help="Go on exactly where an earlier run of this file ended.")  # fmt: skip
@click.option("--force", is_flag=True,
              help="Write even if rows do not fit; these become dead letters.")  # fmt: skip
@click.option("--delimiter", default="", metavar="SIGN",
              help="Sign between fields of a CSV file; else a comma, in .tsv a tab.")  # fmt: skip
@click.option("--no-header", is_flag=True, help="The CSV file has no header; give --columns.")
@click.option("--columns", default="", metavar="A,B,C",
              help="Names of its columns, with --no-header.")  # fmt: skip
@json_option
def produce(
    file: Path,
    topic: str,
    flags: Flags,
    partitions: int,
    append: bool,
    resume: bool,
    force: bool,
    delimiter: str,
    no_header: bool,
    columns: str,
    as_json: bool,
) -> None:
    """Write the rows of FILE as JSON records to the raw TOPIC, each exactly once.

    FILE is CSV or TSV, JSON lines, Arrow or Parquet; texts may be compressed (.gz, .bz2, .zst). A
    missing topic is created. The event time of a record becomes Kafka's timestamp, and its unit
    becomes the key if the input names a partitioner. Nothing is written if the file lacks a field
    that the input or one of its pipelines reads, if most of the first rows cannot become events, or
    if a row has more or fewer fields than the header.

    Records are written in transactions, together with the number of rows that are done. So a run
    that was interrupted, killed or cut off goes on with --resume; a file that has changed is
    refused.
    """
    if append and resume:
        raise click.UsageError("give --append or --resume, not both")
    layout = _layout(delimiter, no_header, columns)
    config = read_config(flags, tables=False)
    source = input_of(config, topic)
    content = of_file(file, layout)
    total = checked(content, source, force)
    cluster = Cluster(config.kafka, role="producer")
    cluster.wait()
    loading = Loading(cluster, source, content, config.engine.replication_factor)
    columns_ = (TextColumn(f"writing {topic}"), BarColumn(), MofNCompleteColumn(),
                TimeRemainingColumn())  # fmt: skip
    try:
        with Progress(*columns_, console=Screen(stderr=True), disable=as_json) as bar:
            task = bar.add_task("", total=total)
            asked = LoadMode(partitions, append, resume)
            done = loading.run(asked, total, lambda number: bar.advance(task, number))
    except KeyboardInterrupt:
        _told_interrupt(loading, total)
        raise
    if as_json:
        emit(done._asdict())
        return
    _told(done, total)


def _layout(delimiter: str, no_header: bool, columns: str) -> FileLayout:
    sign = SIGNS.get(delimiter, delimiter)
    if len(sign) > 1 or sign in ('"', "\r", "\n"):
        raise click.BadParameter(f"{delimiter!r} is not one sign; a tab is 'tab'",
                                 param_hint="--delimiter")  # fmt: skip
    if no_header != bool(columns):
        raise click.UsageError("--no-header and --columns go together, for a file without a header")
    names = tuple(name.strip() for name in columns.split(",")) if columns else ()
    if "" in names:
        raise click.BadParameter(f"{columns!r} holds an empty name", param_hint="--columns")
    return FileLayout(sign, names)


def _told(done: Loaded, total: int) -> None:
    more = ", topic created" * done.created
    if done.before:
        more = f", after {done.before:,} of an earlier run"
    if done.before == total:
        say(f"{done.topic}: all {total:,} records were written before")
    else:
        say(f"{done.topic}: {counted(done.records, 'record')} written{more}")
    if done.unusable:
        say(f"  {done.unusable:,} of them lack a unit or a time: they will be dead letters")


def _told_interrupt(loading: Loading, total: int) -> None:
    """Ask Kafka what is committed: a commit may have succeeded although its answer was lost."""
    words = [one for one in sys.argv[1:] if one not in ("--append", "--resume")]
    again = f"hush {shlex.join(words)} --resume" if "produce" in words else "--resume"
    try:
        at = loading.position()
    except HushError:
        say(f"{loading.topic}: how many records are written is kept in Kafka; go on by {again}",
            err=True)  # fmt: skip
        return
    say(f"{loading.topic}: {at or 0:,} of {total:,} records are written; go on by {again}",
        err=True)  # fmt: skip
