"""``hush watch``: the live page of one pipeline in the terminal."""

from __future__ import annotations

from collections.abc import Iterator

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from ..agents.worker.lines.screen import Screen
from ..errors import EngineError
from ..reading.live.board import Board
from ..reading.live.status import released
from ..reading.live.terminal.panel import panel
from ..reading.live.views import MOST_ROWS, Wish
from .options import Flags, config_options
from .seeing import followed

EVERY_SECONDS = 5.0  # displayed ages grow even without new releases
WINDOWS = 60  # newest windows to read
LINES = 40  # of a figure written to a file


@click.command()
@config_options
@click.argument("pipeline")
@click.option(
    "--deployment", metavar="NAME", help="Name of the deployment; needed without a configuration."
)
@click.option("--value", metavar="NAME", help="Value to show; default: the first.")
@click.option("--once", is_flag=True, help="Show it once and end.")
def watch(
    flags: Flags, pipeline: str, deployment: str | None, value: str | None, once: bool
) -> None:
    """Show the newest values of PIPELINE in the terminal; it follows the stream.

    It shows what `hush live` shows of one pipeline: values with their intervals, a map or a curve,
    the next release and the budget. Where there is no terminal, each release is printed as text.
    """
    board, screen = followed(flags, deployment, [pipeline], WINDOWS, True), Screen()
    board.start()
    try:
        wish = Wish(value=value, size=MOST_ROWS)
        told = released(board)
        if pipeline not in board.names:
            raise EngineError(str(told["link"]["words"]))
        if once or not screen.is_terminal:
            for lines in _texts(board, pipeline, wish, screen, once):
                screen.print(lines, soft_wrap=True)
            return
        with Live(console=screen, auto_refresh=False, vertical_overflow="crop") as live:
            version = -1
            while True:
                version = board.wait(version, EVERY_SECONDS)
                live.update(_drawn(board, pipeline, wish, screen.size), refresh=True)
    finally:
        board.end()


def _drawn(board: Board, pipeline: str, wish: Wish, size: tuple[int, int]) -> Group:
    """All lines for a terminal of ``size`` (columns, lines)."""
    summary = board.summary()
    told = next(one for one in summary["pipelines"] if one["name"] == pipeline)
    seen = board.view(pipeline, wish) or {"empty": True}
    return Group(*panel(summary["link"], told, seen, size))


def _texts(board: Board, pipeline: str, wish: Wish, screen: Screen, once: bool) -> Iterator[Group]:
    """Yield the current view, then, unless ``once``, the view after each new release."""
    version, shown = -1, -1
    while True:
        version = board.wait(version, EVERY_SECONDS)
        seen = board.view(pipeline, wish) or {"version": 0}
        if seen["version"] != shown:
            shown = seen["version"]
            yield Group(*_drawn(board, pipeline, wish, (screen.width, LINES)).renderables, Text())
        if once:
            return
