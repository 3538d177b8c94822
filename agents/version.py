"""The version of the code that runs, which every charge and release names."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def code_version() -> str:
    """Version of the installed package."""
    try:
        return version("hushstream")
    except PackageNotFoundError:  # run from a source tree
        return "0+source"
