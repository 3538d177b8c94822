"""Everything of one schedule in one place, and which schedule is running."""

from __future__ import annotations

import hashlib
from random import Random
from typing import TYPE_CHECKING, Any

from .broker import Broker
from .log import START
from .loop import HERE, VirtualLoop

if TYPE_CHECKING:
    from .group import Group

_current: list[World] = []


class World:
    """One cluster, its machines, and their time.

    Args:
        seed: seed of everything.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.loop = VirtualLoop(self.random)
        self.broker = Broker(self.loop, self.random)
        self.disks: dict[str, dict[bytes, bytes]] = {}  # rows of all tables, by folder
        self.written: dict[str, float] = {}  # wall-clock seconds of the last write, by folder
        self.files: dict[str, dict[bytes, bytes]] = {}  # that are no table yet, by path
        # What each write to a table replaced, by folder; None: not recorded.
        self.undo: dict[str, list[dict[bytes, bytes | None]]] | None = None
        self.ratchets: dict[str, list[Any]] = {}  # contents of files with keys, by machine
        self.registry = ""  # how the schema registry fails; empty: it answers
        self.holders: dict[str, Any] = {}  # the process that has each table open
        self.contents: dict[Any, set[Any]] = {}  # what each noise label was drawn for
        self.messages: list[tuple[float, str, str]] = []
        self.group: Group = None  # type: ignore[assignment]
        self.taken = 0  # number of copies with which shards opened
        self._bytes = 0
        self._named = 0

    def urandom(self, size: int) -> bytes:
        """Random bytes that follow from the seed."""
        self._bytes += 1
        state = f"{self._bytes} {self.random.random()}".encode()
        return hashlib.sha256(state).digest()[:size]

    def name(self, size: int) -> str:
        """A new unique name, which does not change the schedule."""
        self._named += 1
        return hashlib.sha256(f"{self.seed} {self._named}".encode()).hexdigest()[: 2 * size]


def enter(world: World) -> World:
    """Make a world the current one."""
    _current[:] = [world]
    return world


def current() -> World:
    """The world of the schedule that is running."""
    return _current[0]


class VirtualTime:
    """Stands for the module ``time`` in every module of the product."""

    perf_counter = staticmethod(lambda: _current[0].loop.now)

    @staticmethod
    def monotonic() -> float:
        """Seconds, equal on all machines; the product cannot notice that."""
        return 1000.0 + _current[0].loop.now

    @staticmethod
    def time() -> float:
        """Wall-clock seconds of the machine of this process."""
        process = HERE.get()
        return START + _current[0].loop.now + (0.0 if process is None else process.wall)

    @staticmethod
    def sleep(seconds: float) -> None:
        """Let the rest of the world run for a while; not within a task."""
        process = HERE.get()
        assert process is not None
        _current[0].loop.sleep(process, seconds)
