"""Folders of one user: downloads (can be fetched again) and data (cannot)."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import needs

with needs("local"):
    import platformdirs

APPLICATION = "hushstream"


def cache_dir() -> Path:
    """Folder for downloads: ``HUSH_CACHE``, or else the user's cache folder."""
    return _override("HUSH_CACHE") or platformdirs.user_cache_path(APPLICATION)


def data_dir() -> Path:
    """Folder for data of local servers: ``HUSH_DATA``, or else the user's data folder."""
    return _override("HUSH_DATA") or platformdirs.user_data_path(APPLICATION)


def _override(variable: str) -> Path | None:
    folder = os.environ.get(variable)
    return Path(folder).expanduser().resolve() if folder else None
