"""The proposals of ``hush plan`` as tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from ..agents.deployment.model import Pipeline
from ..mechanisms.planner import PlanTable
from ..mechanisms.registry import planner_of


def show(console: Console, pipeline: Pipeline, body: dict[str, Any]) -> None:
    """Print the proposal for one pipeline."""
    made = planner_of(pipeline.kind).table(pipeline.name, body)
    console.print()
    if made.intro:
        console.print(made.intro, highlight=False, markup=False)
    table = _columns(made) if made.heads else _pairs(made)
    for column in table.columns:
        column.overflow = "fold"  # by default a long text would be cut
    console.print(table)
    for note in body["notes"]:
        console.print(f"• {note}", markup=False, highlight=False)
    console.print("proposed:" if body["changed"] else "no change needed:", style="bold")
    console.print(body["toml"], markup=False, highlight=False, soft_wrap=True)


def _columns(made: PlanTable) -> Table:
    table = Table(title=made.title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for place, head in enumerate(made.heads):
        justify = "right" if place else "left"
        table.add_column(head.text, justify=justify, no_wrap=not head.wraps)  # type: ignore[arg-type]
    for row in made.rows:
        table.add_row(*row)
    return table


def _pairs(made: PlanTable) -> Table:
    table = Table(title=made.title, show_header=False, title_justify="left")
    for row in made.rows:
        table.add_row(*row)
    return table
