"""`hush mechanisms`: those that are there, built in or installed, and the settings of each."""

from __future__ import annotations

import click
from rich.table import Table

from ..agents.worker.lines.screen import Screen
from ..mechanisms.registry import entries, find
from ..topics.config.describe import settings_of
from .options import emit, json_option, readable


@click.command()
@click.argument("kind", required=False)
@json_option
def mechanisms(kind: str | None, as_json: bool) -> None:
    """List mechanisms, or the settings of one, built in or installed.

    KIND is what a pipeline names: mechanism = { kind = "KIND" }.
    """
    if kind is None:
        listed = {name: entry.summary for name, entry in sorted(entries().items())}
        rows, heads = [*listed.items()], ("kind", "purpose")
    else:
        entry = find(kind)
        rows, heads = settings_of(entry.parameters), ("setting", "type", "default", "meaning")
    if as_json:
        emit([dict(zip(heads, row, strict=True)) for row in rows])
        return
    table = Table(*heads, box=None, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*(text.replace("`", "") for text in row))
    Screen().print(readable(table))


COMMANDS: list[click.Command] = [mechanisms]
