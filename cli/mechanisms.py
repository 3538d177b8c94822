"""`hush mechanisms`: the mechanisms, built in or installed, and the settings of each."""

from __future__ import annotations

import click
from rich.table import Table

from ..agents.worker.lines.screen import Screen
from ..mechanisms.catalogue import entries, find
from ..topics.config.describe import settings_of
from .options import emit, json_option, readable

HEADS = ("setting", "type", "default", "meaning")


@click.command()
@click.argument("kind", required=False)
@json_option
def mechanisms(kind: str | None, as_json: bool) -> None:
    """List mechanisms, or the settings of one, built in or installed.

    KIND is what a pipeline names: mechanism = { kind = "KIND" }.
    """
    heads: tuple[str, ...] = ("kind", "purpose")
    rows: list[tuple[str, ...]] = [(name, one.summary) for name, one in sorted(entries().items())]
    if kind is not None:
        heads, rows = HEADS, settings_of(find(kind).parameters)
    if as_json:
        emit([dict(zip(heads, row, strict=True)) for row in rows])
        return
    table = Table(*heads, box=None, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*(text.replace("`", "") for text in row))
    Screen().print(readable(table))
