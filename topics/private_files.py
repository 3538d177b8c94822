"""Folders and files that no other user of the machine can read.

Tables, witnesses and simulated releases hold exact counts, or follow from them. So folders get mode
0700 and files 0600. One exception: a folder with the setgid bit is deliberately shared with its
group, as Kubernetes volumes are (`fsGroup`); its group's rights stay as they are.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ..errors import ConfigError

OTHERS = stat.S_IRWXO
GROUP = stat.S_IRWXG
MASK = GROUP | OTHERS


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Make files and folders that this process creates in the block private to its user."""
    before = os.umask(MASK)
    try:
        yield
    finally:
        os.umask(before)


def private_folder(folder: Path, whole: bool = True) -> None:
    """Make a folder for this user alone, or remove others' rights on an existing one.

    Missing parents are made equally private; existing ones stay as they are. ``whole`` also
    tightens everything in the folder, without following links.

    Raises:
        ConfigError: it cannot be made; or others keep some rights, because it belongs to another
            user or the file system has no permissions.
    """
    try:
        with unseen():
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(_unmade(folder, error.strerror or "refused")) from None
    shared = folder.stat().st_mode & stat.S_ISGID
    taken = OTHERS if shared else MASK
    _tighten(folder, folder, taken)
    if not whole:
        return
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):  # it was deleted meanwhile
                _tighten(folder, Path(place, name), taken)


def could_be_made(folder: Path) -> None:
    """Refuse a folder that this process could not make or write to, without making it.

    Raises:
        ConfigError: a part of its path is not a folder, or is not writable.
    """
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if not there.is_dir():
        raise ConfigError(_unmade(folder, f"{there} is not a folder"))
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(_unmade(folder, f"{there} may not be written to"))


def _unmade(folder: Path, why: str) -> str:
    return f"folder {folder} cannot be made: {why}; name another one"


def private_file(path: Path) -> None:
    """Make a file for this user alone, or remove others' rights on an existing one.

    Its content stays. Raises `ConfigError` if others keep some rights.
    """
    with unseen():
        path.touch()
    _tighten(path, path, MASK)


def settle(path: Path) -> None:
    """Sync a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _tighten(whole: Path, one: Path, taken: int) -> None:
    mode = one.lstat().st_mode
    if stat.S_ISLNK(mode) or not mode & taken:
        return
    who = "go" if taken & GROUP else "o"
    try:
        one.chmod(stat.S_IMODE(mode) & ~taken)
    except PermissionError:
        raise ConfigError(
            f"{one} is open to other users and belongs to another one: what lies there are exact "
            f"counts; let its owner run `chmod -R {who}-rwx {whole}`, or name another place"
        ) from None
    if one.lstat().st_mode & taken:
        raise ConfigError(
            f"{one} stays open to other users: its file system keeps no rights; mount it so that "
            "this user alone may enter, or name another place"
        )
