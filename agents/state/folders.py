"""Folders of tables that are of no use any more."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path


def discard(path: Path) -> None:
    """Delete a shard's local state, all of which is in the changelog."""
    shutil.rmtree(path, ignore_errors=True)


def set_aside(path: Path) -> Path:
    """Rename a shard's damaged folder, and delete those renamed earlier."""
    other = path.with_name(f"damaged-{path.name}")
    shutil.rmtree(other, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):  # the damage may be that the folder is gone
        path.rename(other)
    return other
