"""The files of ratchets, one on each machine; a loss of power may take their last contents.

The product's module writes, renames and syncs; here a file is a list of the contents that it had.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import PurePosixPath

from hushstream.mechanisms.noise import Ratchet

from . import world
from .loop import HERE

ROOT = bytes(range(32, 64))
RATCHET = Ratchet.new(ROOT)
STATE = {"step": 0, "key": ROOT.hex(), "kept": []}
"""The first content, as an auditor keeps it."""


def contents() -> list[Ratchet]:
    """All that the file of the machine of this process has held; the last is in force."""
    process = HERE.get()
    assert process is not None
    return world.current().ratchets.setdefault(process.name, [_copy(RATCHET)])


class File(PurePosixPath):
    """Where a ratchet lies, as far as the product looks at it."""

    __slots__ = ()

    def exists(self) -> bool:
        """Whether there is one: a disk that is lost is not the one with keys."""
        return True


def read(path: File) -> Ratchet:
    """Read the ratchet of this machine."""
    return _copy(contents()[-1])


def replace(path: File, ratchet: Ratchet) -> None:
    """Put a later one in its place."""
    contents().append(_copy(ratchet))


@contextlib.contextmanager
def locked(path: File) -> Iterator[None]:
    """No two processes of a machine run at a time."""
    yield


def lose(name: str, number: int) -> None:
    """Take the last contents of a machine's file back; the first one stays."""
    held = world.current().ratchets.get(name, [])
    del held[max(len(held) - number, 1) :]


def _copy(one: Ratchet) -> Ratchet:
    kept = {charge: bytearray(key) for charge, key in one.kept.items()}
    return Ratchet(one.name, one.step, bytearray(one.key), kept)
