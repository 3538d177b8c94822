"""Output for a terminal: names and keys from records cannot act on it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from .visible import visible_lines


class Screen(Console):
    """A console that escapes every character that acts on a terminal or hides text.

    Brackets are text, unless ``markup`` is set: a key "[red]" would vanish, and "[/]" be an error.
    """

    def __init__(self, *, markup: bool = False, **settings: Any) -> None:
        """Take the settings of `rich`'s console."""
        super().__init__(markup=markup, **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as `rich` does; its own colours and movements stay."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible_lines(text), style, control)


def say(text: str, err: bool = False) -> None:
    """Print lines for a person.

    Args:
        text: one line or several; every other control character is escaped.
    """
    click.echo(visible_lines(text), err=err)


def put(text: str, end: str = "\n") -> None:
    """Print, exactly as it is, what another program will read."""
    click.echo(text + end, nl=False, color=True)  # else click strips what looks like a colour code
