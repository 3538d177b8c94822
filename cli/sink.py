"""``hush sink``: keep releases in tables of a database or a folder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import NamedTuple

import click

from ..agents.deployment.compile import compile_config
from ..agents.deployment.model import Deployment
from ..agents.worker.lines.screen import say
from ..errors import OutageError
from ..reading.client import ReleaseTopic
from ..reading.sinks.feed import Feed
from ..reading.sinks.layout import SinkLayout, layouts, undeclared
from ..reading.sinks.target import SinkTarget, target_of
from ..topics.config.model import Kafka
from .options import Flags, config_options, emit, json_option, read_config

SECONDS = 1.0  # between two batches of one table


class _Drained(NamedTuple):
    """One topic that flows into its table."""

    layout: SinkLayout
    feed: Feed


@click.command()
@config_options
@click.argument("target")
@click.option("--pipeline", "only", multiple=True, metavar="NAME",
              help="Only this pipeline or view; default: all.")  # fmt: skip
@click.option("--table", help="Name of the table; default: the pipeline's.")
@click.option("--integer", "integers", multiple=True, metavar="COLUMN",
              help="Key column that holds integers, if not configured as such.")  # fmt: skip
@click.option("--once", is_flag=True, help="End after what is there.")
@json_option
def sink(
    flags: Flags,
    target: str,
    only: tuple[str, ...],
    table: str | None,
    integers: tuple[str, ...],
    once: bool,
    as_json: bool,
) -> None:
    """Keep tables of all releases in TARGET, each row once, until interrupted.

    TARGET is postgresql://USER@HOST/DATABASE, duckdb:FILE, parquet:FOLDER or iceberg:NAMESPACE.
    Each pipeline gets a table of its rows; in databases also TABLE_releases, with a row for each
    complete release, and the view TABLE_newest, with the newest row of each window and key. A
    column of text shows 5 and "5" alike; hush_key has the whole key as JSON, which differs. Only
    complete releases are written, in one transaction with the position in the topic: so a sink
    that was killed goes on exactly there. It reads release topics alone.
    """
    config = read_config(flags, tables=False)
    deployment = compile_config(config)
    wanted = layouts(deployment, only, table, integers)
    place = target_of(target)
    with ExitStack() as stack:
        flows = [_opened(stack, config.kafka, place, layout) for layout in wanted]
        if not as_json:
            _told_unsure(wanted, deployment)
        _drain(place, flows, once, as_json)


def _opened(stack: ExitStack, kafka: Kafka, place: SinkTarget, layout: SinkLayout) -> _Drained:
    feed = Feed(ReleaseTopic(kafka, layout.topic, layout.pipeline), place.open(layout))
    return _Drained(layout, stack.enter_context(closing(feed)))


def _drain(place: SinkTarget, flows: Sequence[_Drained], once: bool, as_json: bool) -> None:
    """Write batch after batch, and say what each brought.

    Raises:
        OutageError: the broker is silent before the end, and ``once`` asks to end there.
    """
    left, filled = list(flows), set[str]()
    warned, silent = set[tuple[str, str]](), set[str]()
    while left:
        for flow in list(left):
            batch = flow.feed.read(SECONDS / len(left))
            if batch is not None:
                place.write(flow.layout, batch)
                filled.add(flow.layout.table)
                silent.discard(flow.layout.table)
                _told(place, flow.layout, len(batch.releases), batch.rows, as_json)
                _told_unheld(flow.layout, flow.layout.unheld(batch.releases), warned)
            elif once and flow.feed.ended:
                left.remove(flow)
                if not as_json and flow.layout.table not in filled:
                    say(f"{place.name}: nothing new for {flow.layout.table}")
            elif flow.feed.silent and flow.layout.table not in silent:
                silent.add(flow.layout.table)
                _told_silent(flow.layout, once)


def _told(place: SinkTarget, layout: SinkLayout, releases: int, rows: int, as_json: bool) -> None:
    if as_json:
        emit({"table": layout.table, "releases": releases, "rows": rows})
        return
    say(f"{place.name}: {releases:,} releases with {rows:,} rows into {layout.table}")


def _told_silent(layout: SinkLayout, once: bool) -> None:
    """Say that the broker is silent, which ends a sink that is to end."""
    words = f"{layout.topic} could not be read to its end: the broker is silent"
    if once:
        raise OutageError(words)
    say(f"{words}; waiting for it", err=True)


def _told_unheld(layout: SinkLayout, fields: list[str], warned: set[tuple[str, str]]) -> None:
    """Warn once of each column that lacks values."""
    for field in fields:
        if (layout.table, field) not in warned:
            warned.add((layout.table, field))
            say(
                f"{layout.table}: where {field} is no whole number, its column is null; "
                f"{layout.whole_key} has the key. Without --integer {field}, another --table has "
                "it as text",
                err=True,
            )


def _told_unsure(wanted: Sequence[SinkLayout], deployment: Deployment) -> None:
    for layout in wanted:
        if unsure := undeclared(layout, deployment):
            say(
                f"{layout.table}: taken as text: {', '.join(unsure)}. Where producers write whole "
                f"numbers, give --integer {unsure[0]}",
                err=True,
            )
