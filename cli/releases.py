"""``hush releases``: what a pipeline has released, as tables, CSV, JSON lines or Parquet."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from pyarrow import csv, parquet
from rich.table import Table

from ..agents.deployment.compile import compile_config
from ..agents.deployment.published.connect_sink import sink_properties, undeclared
from ..agents.worker.lines.screen import Screen, put, say
from ..agents.worker.lines.visible import visible
from ..errors import EngineError
from ..reading.client import Wanted, moment
from ..reading.client import releases as read
from ..reading.sinks.layout import layouts
from ..reading.tables import bodies_of, flat, placed, table_of
from ..topics.assembly import Released, newest, sorted_rows
from ..topics.cut_share import beyond_in_words, in_words
from ..topics.releases import Manifest, Row, Value
from .deployed import pipeline_of
from .options import Flags, check_place, config_options, read_config, release_topic


@click.command()
@config_options
@click.argument("pipeline")
@click.option("--latest", is_flag=True, help="Only the newest row of each window and key.")
@click.option("--final", is_flag=True, help="Only the last release of each window.")
@click.option("--window", metavar="TIME", help="Only the window that holds TIME.")
@click.option("--since", metavar="TIME", help="Only releases scheduled at or after TIME.")
@click.option("--follow", is_flag=True, help="Also show new releases, until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header.")
@click.option(
    "--parquet", "file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Write a Parquet file.",
)  # fmt: skip
def releases(
    flags: Flags,
    pipeline: str,
    latest: bool,
    final: bool,
    window: str | None,
    since: str | None,
    follow: bool,
    as_json: bool,
    as_csv: bool,
    file: Path | None,
) -> None:
    """Show what PIPELINE has released; error bars cover only the noise.

    Complete releases only. It ends after what is there, unless --follow is given. Where there is
    no configuration, --bootstrap is enough.
    """
    if as_json + as_csv + (file is not None) > 1:
        raise click.UsageError("give one of --json, --csv and --parquet")
    if latest and final:
        raise click.UsageError("give --latest or --final, not both")
    if follow and (latest or file is not None):
        raise click.UsageError("--follow goes with single releases: leave out --latest, --parquet")
    check_place("--parquet", file)
    source = release_topic(flags, pipeline)
    wanted = Wanted(final, moment("--window", window), moment("--since", since))
    every = read(source, wanted, follow)
    kind = "json" if as_json else "csv" if as_csv else "parquet" if file else "text"
    if follow and kind == "csv":
        _follow_csv(every)
    elif follow:
        for release in every:
            _print(kind, [release], False)
    elif file is not None:
        parquet.write_table(table_of(list(every), latest), file)
    else:
        found = list(every)
        if window is not None and not found and kind == "text":
            say(f"nothing in the window of {window}")
            return
        if kind == "csv" and not found:
            _header(flags, pipeline)
            return
        _print(kind, found, latest)


def _print(kind: str, found: list[Released], latest: bool) -> None:
    """Print complete releases."""
    if kind == "text":
        console = Screen()
        if not found:
            console.print("nothing yet")
        for listing in _newest(found) if latest else map(_single, _in_order(found)):
            for part in listing:
                console.print(part, highlight=False, markup=False)
        return
    if kind == "csv":
        _csv(table_of(found, latest), True)
        return
    for row in bodies_of(found, latest):
        put(visible(json.dumps(row, default=_iso, ensure_ascii=False)))  # the same JSON


def _follow_csv(every: Iterable[Released]) -> None:
    """Write releases as CSV under the one header of the first.

    The column of the whole key is left out: one release may need it, and the next one not.

    Raises:
        EngineError: a release has other columns, which no reader of the lines would expect.
    """
    header: list[str] = []
    for release in every:
        columns, _ = flat([release], placed([release]))
        if header and list(columns) != header:
            raise EngineError(
                f"from {_iso(release.scheduled)} on, releases of {release.pipeline} have other "
                f"columns: {', '.join(columns)}. Give them a header of their own: --since "
                f"{_iso(release.scheduled)}"
            )
        _csv(pa.table(columns), not header)
        header = list(columns)


def _csv(table: Any, header: bool) -> None:
    """Write CSV: for a person without characters that act on the terminal, else byte by byte."""
    written, options = io.BytesIO(), csv.WriteOptions(include_header=header)
    csv.write_csv(table, written, options)
    if sys.stdout.isatty():
        say(written.getvalue().decode().removesuffix("\n"))
        return
    out = click.get_binary_stream("stdout")
    out.write(written.getvalue())
    out.flush()


def _header(flags: Flags, pipeline: str) -> None:
    """Write the header of the CSV that later rows will have, if a configuration tells it."""
    if flags.bootstrap and flags.alone:
        return
    (layout,) = layouts(compile_config(read_config(flags, tables=False)), [pipeline], None, ())
    beside = {"release_id", "pipeline", layout.whole_key}
    names = [name for name in layout.columns if name not in beside]
    _csv(pa.table({name: pa.array([], pa.string()) for name in names}), True)


def _iso(value: datetime) -> str:
    return value.isoformat().replace("+00:00", "Z")


def _in_order(found: Iterable[Released]) -> list[Released]:
    return sorted(found, key=lambda one: (one.window.start, one.trigger))


def _single(release: Released) -> Iterator[Table | str]:
    """One release: its window and time, its rows, and its cost."""
    told = release.manifest
    last = ", the last one" if told.final else ""
    yield (
        f"{span(told.window.start, told.window.end)}: release {told.trigger} of {told.triggers}"
        f"{last}, {date(told.emitted_at)}{in_part(told)}"
    )
    yield table((release, row) for row in sorted_rows(release))
    yield f"{cost(told)}"
    yield f"{cut_off(release)}\n"


def _newest(found: list[Released]) -> Iterator[list[Table | str]]:
    """The newest row of each key, window by window."""
    rows = newest(found)
    for start in dict.fromkeys(release.window.start for release, _ in rows):
        mine = [(release, row) for release, row in rows if release.window.start == start]
        told = max((release.manifest for release, _ in mine), key=lambda one: one.trigger)
        yield [
            f"{span(told.window.start, told.window.end)}: newest values, release {told.trigger} of "
            f"{told.triggers} on {date(told.emitted_at)}{in_part(told)}",
            table(mine),
            f"{cost(told)}",
            f"{cut_off(max((r for r, _ in mine), key=lambda one: one.trigger))}\n",
        ]


def table(placed: Iterable[tuple[Released, Row]]) -> Table:
    """Rows with a column per key and value; a long text is folded, never cut."""
    rows = list(placed)
    told = rows[0][0].manifest if rows else None
    axes = list(rows[0][1].box) if rows else []
    keys = list(told.key_names) if told and not axes else []
    made = Table(box=None, padding=(0, 2, 0, 0), show_header=bool(rows))
    for name in (*keys, *axes):
        made.add_column(name, overflow="fold")
    for name in told.value_names if told else ():
        made.add_column(name, justify="right", overflow="fold")
    for _, row in rows:
        own = [visible(str(row.key.get(name, ""))) for name in keys]
        own += [f"{low:g} to {high:g}" for low, high in row.box.values()]
        made.add_row(*own, *(number(row.values.get(n)) for n in (told.value_names if told else ())))
    return made


def number(one: Value | None) -> str:
    """A value and the distance to the further end of its interval (an end may be cut at 0).

    >>> number(Value(1873, 98.9, 1679.2, 2066.8)), number(Value(3, 4.5, 0.0, 11.8))
    ('1,873 ±194', '3 ±8.8')
    """
    if one is None:
        return "–"
    value = f"{one.value:,}" if isinstance(one.value, int) else f"{one.value:,.6g}"
    reach = max(one.high - one.value, one.value - one.low)
    return f"{value} ±{float(f'{reach:.3g}'):,g}"


def cost(told: Manifest) -> str:
    """Cost of a release, and the plain sum for a unit active in every epoch so far."""
    paid = told.privacy
    text = f"a {paid.unit} pays ε={paid.epsilon:g} δ={paid.delta:g} per epoch"
    total, limit = paid.pipeline_epsilon_total, paid.pipeline_epsilon_limit
    if total is None:
        return text
    most = "" if limit is None else f"; composed, all epochs may cost at most ε={limit:g}"
    return f"{text}, added up ε={total:g} so far{most}"


def in_part(told: Manifest) -> str:
    """Say that a window holds only part of its length: its chain of releases began within it."""
    held, whole = told.hops or (1, 1)
    return "" if held == whole else f"; it holds only the last {held} of its {whole} hops"


def cut_off(release: Released) -> str:
    """State the intervals' confidence, and the share of records that the contribution bound cut."""
    return f"intervals: noise alone; {in_words(release.cut)}{beyond(release.manifest)}"


def beyond(told: Manifest) -> str:
    """State the share of values that a learnt threshold cuts, if known."""
    words = beyond_in_words(told.beyond)
    return words and f"\n{words}"


def span(start: datetime, end: datetime) -> str:
    """A window in words."""
    return f"{date(start)} to {date(end)}"


def date(time: datetime) -> str:
    """A UTC time, as short as possible.

    >>> from datetime import UTC
    >>> date(datetime(2026, 3, 1, tzinfo=UTC)), date(datetime(2026, 3, 1, 12, tzinfo=UTC))
    ('2026-03-01', '2026-03-01 12:00')
    """
    if not (time.hour or time.minute or time.second or time.microsecond):
        return f"{time:%Y-%m-%d}"
    if not (time.second or time.microsecond):
        return f"{time:%Y-%m-%d %H:%M}"
    return f"{time:%Y-%m-%d %H:%M:%S}" + (f".{time:%f}" if time.microsecond else "")


@click.command()
@config_options
@click.argument("pipeline")
@click.option("--url", default="jdbc:postgresql://localhost:5432/hush", show_default=True,
              help="Address of the database.")  # fmt: skip
@click.option("--table", help="Name of the table; default: the pipeline's.")
@click.option("--integer", "integers", multiple=True, metavar="COLUMN",
              help="Key column that holds integers, if not configured as such.")  # fmt: skip
@click.option("--bundle", type=click.Path(path_type=Path), metavar="FOLDER",
              help="Write these, a worker's and the connector's jars into a folder.")  # fmt: skip
def connect(
    flags: Flags,
    pipeline: str,
    url: str,
    table: str | None,
    integers: tuple[str, ...],
    bundle: Path | None,
) -> None:
    """Print the properties of a Kafka Connect sink that keeps a table of PIPELINE's newest values.

    It needs the configuration alone; the schema of the rows follows from it.
    """
    if not url.startswith("jdbc:"):
        rule = "must be an address of JDBC, such as jdbc:postgresql://localhost:5432/hush"
        raise click.BadParameter(f"{url!r} {rule}", param_hint="--url")
    config = read_config(flags, tables=False)
    one = pipeline_of(config, pipeline)
    properties = sink_properties(one, url, table or pipeline, integers)
    if bundle is None:
        put(properties, "")
    else:
        from .bundle import write_bundle  # needs an extra

        write_bundle(bundle, properties, config.kafka)
        say(f"{bundle / 'README.md'} has the commands")
    if unsure := sorted(set(undeclared(one)) - set(integers)):
        say(
            f"taken as text: {', '.join(unsure)}. Where producers write whole numbers, the table "
            f"would hold NULL: give --integer {unsure[0]}",
            err=True,
        )
