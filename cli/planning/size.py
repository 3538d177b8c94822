"""``hush size``: what a load needs, from costs that benchmarks measured."""

from __future__ import annotations

import math
from typing import Any

import click
from rich.table import Table

from ...agents.deployment.compile import compile_config
from ...agents.deployment.spread import spread_of
from ...agents.worker.lines.screen import Screen
from ...errors import ConfigError
from ...planning.costs import COSTS, MEASURED_BY
from ...planning.limits import Limit, limits
from ...planning.size import Load, Size
from ...planning.size import size as size_of
from ...topics.config.load import Config
from ..options import Flags, emit, json_option, read_config, readable


class Finite(click.FloatRange):
    """A range of numbers without "nan", which no range excludes, and without infinity."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read a number, or say that it is none that a load can have."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number", param, ctx)
        return found


NUMBER, COUNT = Finite(0, 1e18), click.IntRange(1)  # products of all of them are finite
MIB = 1024 * 1024


@click.command()
@click.option("--users", type=NUMBER, required=True,
              help="Privacy units that are active in one epoch.")  # fmt: skip
@click.option("--keys", type=NUMBER, required=True, help="Keys seen in one window.")
@click.option("--rate", type=NUMBER, required=True, help="Events per second.")
@click.option("--pairs", type=NUMBER, default=3.0, show_default=True,
              help="Average number of keys of one unit in an epoch.")  # fmt: skip
@click.option("--raw-bytes", type=NUMBER, default=100.0, show_default=True,
              help="Bytes of an event in its raw topic.")  # fmt: skip
@click.option("--key-bytes", "key_text", type=NUMBER, default=16.0, show_default=True,
              help="Bytes of a key.")  # fmt: skip
@click.option("--every", type=Finite(0.001), default=3600.0, show_default=True,
              help="Seconds between two triggers.")  # fmt: skip
@click.option("--keep", type=NUMBER, default=604800.0, show_default=True,
              help="Seconds for which units topics are kept (engine.keep_clock).")  # fmt: skip
@click.option("--rekeyed", is_flag=True, help="The input declares no partitioner.")
@click.option("--replicas", type=COUNT, default=3, show_default=True,
              help="Replicas of internal topics.")  # fmt: skip
@click.option("--brokers", type=COUNT, default=3, show_default=True)
@click.option("--processes", type=COUNT, help="Number of workers; default: as many as needed.")
@click.option("--partitions", type=COUNT, help="Partitions of raw topics; default: 3 per process.")
@click.option(
    "--units-partitions",
    "units",
    type=COUNT,
    help="Partitions of units topics; default: those of raw topics.",
)
@click.option(
    "--cells-partitions",
    "cells",
    type=COUNT,
    help="Partitions of cells topics; default: 3 per process.",
)
@click.option("--step-records", "step", type=COUNT, default=40_000, show_default=True,
              help="Events of one step (engine.step_records).")  # fmt: skip
@click.option("--beat", type=Finite(0.01), default=1.0, show_default=True,
              help="Seconds between two beats (engine.beat_interval).")  # fmt: skip
@click.option("--unit-cache-mb", type=click.IntRange(0),
              help="Memory for rows of units, per process; default: enough for all.")  # fmt: skip
@click.option("--input-mb", type=click.IntRange(1), default=256, show_default=True,
              help="Memory of records that wait for their step (engine.input_mb).")  # fmt: skip
@click.option("-c", "--config", "path", metavar="HUSH.TOML",
              help="Take pipelines and settings of the engine from a configuration.")  # fmt: skip
@json_option
def size(
    brokers: int, unit_cache_mb: int | None, input_mb: int, rekeyed: bool, path: str | None,
    as_json: bool, **given: Any,
) -> None:  # fmt: skip
    """Estimate partitions, cores, memory, disk and traffic, and say what gives way first.

    Costs were measured on one machine by the benchmarks that --json names; measure yours with them.
    Every pipeline is taken for a histogram that gets all events.
    """
    cache = None if unit_cache_mb is None else float(unit_cache_mb * MIB)
    load = Load(direct=int(not rekeyed), rekeyed=int(rekeyed), unit_cache=cache,
                waiting=float(input_mb * MIB), **given)  # fmt: skip
    if path is not None:
        load = configured(load, read_config(Flags(path)))
    found = size_of(load, COSTS)
    parts = limits(load, found, brokers)
    if as_json:
        body: dict[str, Any] = {
            "load": load._asdict(),
            "size": {**found._asdict(), "topics": found.topics._asdict()},
            "limits": [{"room": _finite(part.room), "words": part.words} for part in parts],
            "costs": {name: {"value": value, "measured_by": MEASURED_BY[name]}
                      for name, value in COSTS._asdict().items()},
        }  # fmt: skip
        emit(body)
        return
    Screen().print(readable(table_of(load, found, parts)))


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def configured(load: Load, config: Config) -> Load:
    """Take pipelines, partitions and settings of the engine from a configuration.

    Every pipeline is assumed to get every event; ``load`` gives the replicas if the configuration
    does not.
    """
    engine, spread = config.engine, spread_of(config)
    declared = {source.name for source in config.input if source.partitioner != "none"}
    direct = sum(pipeline.input in declared for pipeline in config.pipeline)
    made = compile_config(config).pipelines
    if not made:
        raise ConfigError("the configuration has no [[pipeline]]: declare one, or leave out -c")
    every = min(p.windows.length / p.traits.horizon for p in made) / 1e6
    return load._replace(
        direct=direct,
        rekeyed=len(made) - direct,
        replicas=load.replicas if engine.replication_factor < 1 else engine.replication_factor,
        every=every,
        keep=engine.keep_clock / 1e6 if engine.keep_units else 0.0,
        beat=engine.beat_interval / 1e6,
        step=engine.step_records,
        unit_cache=float(engine.unit_cache_mb * MIB),
        standbys=engine.standbys,
        snapshots=engine.snapshot_interval / 1e6 if engine.snapshots else 0.0,
        waiting=float(engine.input_mb * MIB),
        units=spread.units,
        cells=spread.cells,
    )


def table_of(load: Load, found: Size, parts: list[Limit]) -> Table:
    """Lay out what a load needs, and which parts give way first, in 80 columns."""
    title = f"{load.rate:,.0f} events/s, {load.users:,.0f} users, {load.keys:,.0f} keys"
    table = Table("", "", title=title, show_header=False, title_justify="left")
    for row in _rows(load, found):
        table.add_row(*row)
    first = parts[0]
    grows = "has given way" if first.room < 1 else f"when the load is {first.room:,.1f} times this"
    table.add_row("gives way first", f"{first.words}; {grows}")
    return table


def _rows(load: Load, found: Size) -> list[tuple[str, str]]:
    frames = found.frame_cores / found.worker_cores if found.worker_cores else 0.0
    steps = found.step_cores / found.worker_cores if found.worker_cores else 0.0
    topics = found.topics
    stored = f"{bytes_of(found.stored)}, {bytes_of(found.sent)}/s"
    each = ", ".join(f"{name} {size:,.0f}" for name, size in topics._asdict().items() if size)
    return [
        ("pipelines", f"{load.direct} direct, {load.rekeyed} re-partitioned"),
        ("processes, one core each", f"{found.processes:,} (they use {found.worker_cores:,.2f})"),
        ("  of which frames", f"{frames:.0%}: {found.frames:,.0f}/s"),
        ("  of which steps", f"{steps:.0%}: {found.steps:,.0f}/s, of {found.shards:,} shards"),
        ("  for an event", f"{found.worker_us:,.1f} µs of CPU"),
        ("partitions", f"{found.partitions:,} raw, {found.units:,} units, {found.cells:,} cells"),
        ("cores of the brokers", f"{found.broker_cores:,.2f}, for internal topics"),
        ("memory, catching up", bytes_of(found.memory)),
        ("  unit_cache_mb", f"{found.unit_cache / MIB:,.0f} each"),
        ("  users' rows in memory", f"{found.known:.0%}"),
        ("disk of local tables", bytes_of(found.disk)),
        *([("snapshots in the store", stored)] if found.stored else []),
        ("raw topic", f"{bytes_of(found.raw)}/s, one replica"),
        ("internal topics", f"{bytes_of(found.written)}/s, {load.replicas} replicas"),
        ("  for an event", f"{topics.all:,.0f} B, one replica: {each}"),
        ("  kept", f"{bytes_of(found.kept)}: units topics, changelogs"),
        ("trigger, all keys read", f"{found.trigger:,.2f} s at each cells partition"),
        ("restore, tables lost", f"{found.restore:,.1f} s of work a process"),
    ]


def bytes_of(number: float) -> str:
    """Write a number of bytes with three digits.

    >>> bytes_of(1234.0)
    '1.23 kB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:,.3g} {unit}"
        number /= 1000
    return f"{number:,.3g} TB"
