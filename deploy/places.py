"""Where files of one user live: downloads (can be fetched again) and data (cannot)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

APPLICATION = "hushstream"


def _folder(variable: str, xdg: str, home: str, mac: str) -> Path:
    override = os.environ.get(variable)
    if override:
        return Path(override).expanduser().resolve()
    if sys.platform == "darwin":
        return Path.home() / "Library" / mac / APPLICATION
    return Path(os.environ.get(xdg) or Path.home() / home) / APPLICATION


def cache_dir() -> Path:
    """Folder for downloads: ``HUSH_CACHE``, else the platform's cache folder of this user."""
    return _folder("HUSH_CACHE", "XDG_CACHE_HOME", ".cache", "Caches")


def data_dir() -> Path:
    """Folder for data of local servers: ``HUSH_DATA``, else the platform's data folder."""
    return _folder("HUSH_DATA", "XDG_DATA_HOME", ".local/share", "Application Support")
