"""The files of ratchets, one on each machine; a loss of power may undo their last writes.

The product writes, renames and syncs a file; here, a file is the list of its contents over time.
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
    """All contents of the file on this process's machine; the last one is in force."""
    process = HERE.get()
    assert process is not None
    return world.current().ratchets.setdefault(process.name, [_copy(RATCHET)])


class File(PurePosixPath):
    """The path of a ratchet, with what the product uses of it."""

    __slots__ = ()

    def exists(self) -> bool:
        """Whether it exists: always, since a lost disk is not the one with keys."""
        return True


def read(path: File) -> Ratchet:
    """Read the ratchet of this machine."""
    return _copy(contents()[-1])


def replace(path: File, ratchet: Ratchet) -> None:
    """Write a later ratchet."""
    contents().append(_copy(ratchet))


@contextlib.contextmanager
def locked(path: File) -> Iterator[None]:
    """Lock nothing: the processes of a machine never overlap."""
    yield


def lose(name: str, number: int) -> None:
    """Undo the last writes of a machine's file; the first content stays."""
    held = world.current().ratchets.get(name, [])
    del held[max(len(held) - number, 1) :]


def _copy(one: Ratchet) -> Ratchet:
    kept = {charge: bytearray(key) for charge, key in one.kept.items()}
    return Ratchet(one.name, one.step, bytearray(one.key), kept)
