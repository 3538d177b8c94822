"""Command groups that suggest the nearest name for a misspelt command."""

from __future__ import annotations

from difflib import get_close_matches

import click


class Nearest(click.Group):
    """A group that suggests similar names when a command is unknown."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names.

        Raises:
            UsageError: there is none of this name.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            typed = args[0].lower().replace("_", "-")
            known = self.list_commands(ctx)
            near = [typed] if typed in known else get_close_matches(typed, known, 2, 0.65)
            if near:
                error.message += f" Did you mean {' or '.join(f'`{one}`' for one in near)}?"
            raise
