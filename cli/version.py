"""``hush version``: it loads nothing that only other commands need."""

from __future__ import annotations

import json
import platform

import click

from ..agents.version import code_version
from ..agents.worker.lines.screen import put, say


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def version(as_json: bool) -> None:
    """Print the version."""
    if as_json:
        put(json.dumps({"version": code_version(), "python": platform.python_version()}))
    else:
        say(f"hushstream {code_version()} on Python {platform.python_version()}")
