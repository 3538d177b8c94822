"""``hush help``: what ``--help`` shows, for those who type it as a command."""

from __future__ import annotations

import click


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def help_(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show this list of commands, or the help of COMMAND, as --help does."""
    root = ctx.find_root()
    root.command.main([*words, "--help"], prog_name=root.info_name, standalone_mode=False)
