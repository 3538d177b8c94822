"""The answer of ``hush size`` as a table for people."""

from __future__ import annotations

from rich.table import Table

from .limits import Limit
from .size import Load, Size

MIB = 1024 * 1024


def table_of(load: Load, found: Size, parts: list[Limit]) -> Table:
    """Lay out what a load takes, in 80 columns, and the parts that give way first."""
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
    bytes_of = found.topics
    each = ", ".join(f"{name} {size:,.0f}" for name, size in bytes_of._asdict().items() if size)
    return [
        ("pipelines", f"{load.direct} direct, {load.rekeyed} re-partitioned"),
        ("processes, one core each", f"{found.processes:,} (they use {found.worker_cores:,.2f})"),
        ("  of which frames", f"{frames:.0%}: {found.frames:,.0f}/s"),
        ("  for an event", f"{found.worker_us:,.1f} µs of CPU"),
        ("partitions", f"{found.partitions:,} raw, {found.units:,} units, {found.cells:,} cells"),
        ("cores of the brokers", f"{found.broker_cores:,.2f}, for internal topics"),
        ("memory, catching up", size_of(found.memory)),
        ("  unit_cache_mb", f"{found.unit_cache / MIB:,.0f} each"),
        ("  users' rows in memory", f"{found.known:.0%}"),
        ("disk of local tables", size_of(found.disk)),
        ("raw topic", f"{size_of(found.raw)}/s, one replica"),
        ("internal topics", f"{size_of(found.written)}/s, {load.replicas} replicas"),
        ("  for an event", f"{bytes_of.all:,.0f} B, one replica: {each}"),
        ("  kept", f"{size_of(found.kept)}: units topics, changelogs"),
        ("trigger, all keys read", f"{found.trigger:,.2f} s at each cells partition"),
        ("restore, tables lost", f"{found.restore:,.1f} s of work a process"),
    ]


def size_of(number: float) -> str:
    """Write a number of bytes with three digits.

    >>> size_of(1234.0)
    '1.23 kB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:,.3g} {unit}"
        number /= 1000
    return f"{number:,.3g} TB"
