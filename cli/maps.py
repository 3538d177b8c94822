"""``hush map`` and ``hush points``: a released map as cells or synthetic points, in files."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from pyarrow import csv, parquet

from ..agents.worker.lines.screen import say
from ..errors import EngineError
from ..reading.client import Wanted, moment
from ..reading.client import releases as read
from ..reading.grids import FINEST
from ..reading.maps import cells_of, domain_of, map_before, points_as_geojson, points_of
from ..reading.regrid import regrid
from ..reading.tables import table_of
from ..topics.assembly import Released
from ..topics.cut_share import in_words
from .options import F, Flags, check_place, config_options, release_topic

FORMATS = ("geojson", "csv", "parquet")
SUFFIXES = {".geojson": "geojson", ".json": "geojson", ".csv": "csv", ".parquet": "parquet"}


def _options(command: F) -> F:
    """Add the options that both commands share."""
    for option in (
        click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
                     help="Write FILE; default: standard output."),
        click.option("--format", "kind", type=click.Choice(FORMATS),
                     help="Format of the output; default: by FILE's suffix, else geojson."),
        click.option("--window", metavar="TIME",
                     help="The window that holds TIME; default: the newest."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command("map")
@config_options
@_options
@click.option("--h3", type=click.IntRange(0, FINEST["h3"]), metavar="RES",
              help="Share the cells among the H3 hexagons of a resolution, 0 to 15.")  # fmt: skip
@click.option("--geohash", type=click.IntRange(1, FINEST["geohash"]), metavar="LENGTH",
              help="Share the cells among the geohashes of a length, 1 to 12.")  # fmt: skip
@click.option("--lonlat", is_flag=True,
              help="The first two axes are longitude and latitude in degrees, whatever "
                   "their names.")  # fmt: skip
@click.argument("pipeline")
def map_(
    flags: Flags,
    window: str | None,
    kind: str | None,
    out: Path | None,
    h3: int | None,
    geohash: int | None,
    lonlat: bool,
    pipeline: str,
) -> None:
    """Write the newest map of a spatial PIPELINE: its cells with values and error bars.

    On another grid (--h3, --geohash), the records of a cell are shared by area; totals stay.
    """
    kind = _kind(kind, out)
    if h3 is not None and geohash is not None:
        raise click.UsageError("give one of --h3 and --geohash")
    if lonlat and h3 is None and geohash is None:
        raise click.UsageError("--lonlat goes with --h3 or --geohash")
    release = _newest(flags, pipeline, window)
    domain_of(release)  # refuses releases without cells
    say(in_words(release.cut), err=True)
    if h3 is not None or geohash is not None:
        shared = regrid(release, h3=h3, geohash=geohash, lonlat=lonlat)
        _write(kind, out, shared.to_geojson() if kind == "geojson" else {}, shared.to_table())
        return
    cells = cells_of(release)
    _write(kind, out, cells, table_of([release]))


@click.command()
@config_options
@_options
@click.option("--number", type=click.IntRange(min=0), metavar="N",
              help="Number of points; default: the sum of the counts.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Another seed gives other points of the same distribution.")  # fmt: skip
@click.option("--smooth", is_flag=True,
              help="Smooth the density across the edges of cells.")  # fmt: skip
@click.option("--earlier", is_flag=True,
              help="Divide cells in the proportions of the last map of the window before, as far "
                   "as the two agree.")  # fmt: skip
@click.argument("pipeline")
def points(
    flags: Flags,
    window: str | None,
    kind: str | None,
    out: Path | None,
    number: int | None,
    seed: int,
    smooth: bool,
    earlier: bool,
    pipeline: str,
) -> None:
    """Write synthetic points drawn from the newest map of a spatial PIPELINE.

    They follow from releases alone, so they cost no privacy, however many are drawn.
    """
    kind = _kind(kind, out)
    if earlier:
        release, before = _with_map_before(flags, pipeline, window)
    else:
        release, before = _newest(flags, pipeline, window), None
    drawn = points_of(release, number, seed, smooth, before)
    shapes = points_as_geojson(domain_of(release), drawn) if kind == "geojson" else {}
    _write(kind, out, shapes, drawn)


def _kind(kind: str | None, out: Path | None) -> str:
    """The format of the output, which a suffix of the file must not contradict.

    Raises:
        click.UsageError: the file's suffix is unknown or contradicts ``--format``, or its folder
            does not exist.
    """
    check_place("--out", out)
    suffix = "" if out is None else out.suffix.lower()
    if out is None or not suffix:
        return kind or "geojson"
    if suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise click.UsageError(f"--out {out}: no format has this suffix; there are {known}")
    if kind is not None and kind != SUFFIXES[suffix]:
        raise click.UsageError(f"--out {out} is not named as --format {kind}: leave one out")
    return SUFFIXES[suffix]


def _newest(flags: Flags, pipeline: str, window: str | None) -> Released:
    """The newest complete release of the newest window, or of the given one."""
    topic = release_topic(flags, pipeline)
    every = read(topic, Wanted(window=moment("--window", window)))
    return _last(every, pipeline, window)


def _with_map_before(
    flags: Flags, pipeline: str, window: str | None
) -> tuple[Released, Released | None]:
    """The same, and the last map of the previous window, if there is one."""
    topic, asked = release_topic(flags, pipeline), moment("--window", window)
    every = list(read(topic, Wanted()))
    release = _last(filter(Wanted(window=asked).takes, every), pipeline, window)
    before = map_before(every, release)
    if before is None:
        say("no earlier window of this space has ended: cells stay as they are", err=True)
    return release, before


def _last(every: Iterable[Released], pipeline: str, window: str | None) -> Released:
    newest = max(every, key=lambda one: (one.window.start, one.trigger), default=None)
    if newest is None:
        which = " yet" if window is None else f" in the window of {window}"
        raise EngineError(f"pipeline {pipeline!r} has no complete release{which}")
    return newest


def _write(kind: str, out: Path | None, shapes: dict[str, Any], table: Any) -> None:
    if kind == "geojson":
        data = json.dumps(shapes, ensure_ascii=False).encode() + b"\n"
    else:
        made = io.BytesIO()
        (csv.write_csv if kind == "csv" else parquet.write_table)(table, made)
        data = made.getvalue()
    if out is None:
        if kind == "parquet" and sys.stdout.isatty():
            raise click.UsageError("parquet is not text: give --out FILE, or redirect the output")
        stdout = click.get_binary_stream("stdout")
        stdout.write(data)
        stdout.flush()
    else:
        out.write_bytes(data)
