"""A machine with one worker; its supervisor restarts the worker after any end."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from hushstream.agents.state.layout import INDEX, MARKER, POSITION
from hushstream.agents.worker.admission import prepare
from hushstream.agents.worker.startup import LEAVE_SECONDS
from hushstream.agents.worker.worker import Worker
from hushstream.topics.records import Marker, decode_marker, encode

from .disk import lose
from .loop import Process
from .network import SERVER
from .world import World

Disk = dict[str, dict[bytes, bytes]]
OTHER = "0ther00000"


class Machine:
    """One worker and what it has on disk.

    Args:
        world: world of the machine.
        config: configuration of the deployment.
        name: name of the worker.
        ended: called with the error with which a worker ended by itself, or None.

    Attributes:
        up: whether its supervisor keeps a worker running.
    """

    def __init__(
        self, world: World, config: Any, name: str, ended: Callable[[str, Any], None]
    ) -> None:
        self._world = world
        self._config = config
        self.name = name
        self._ended = ended
        self.up = True
        self.wall = 0.0
        self.process: Process | None = None
        self.worker: Worker | None = None
        self._kept: Disk = {}

    def set_config(self, config: Any) -> None:
        """Set another configuration, and let the supervisor start workers."""
        self._config, self.up = config, True

    @property
    def alive(self) -> bool:
        """Whether a process runs."""
        return self.process is not None and not self.process.dead

    def start(self) -> None:
        """Start a worker, unless one runs."""
        if self.up and not self.alive:
            self.process = Process(self.name)
            self.process.wall = self.wall
            self.worker = None
            loop = self._world.loop
            loop.call_soon(self._begin, self.process, context=self.process.context)

    def _begin(self, process: Process) -> None:
        try:
            self.worker = Worker(prepare(self._config, self.name))
        except Exception as error:
            self._end(process, error)
        else:
            self._world.loop.create_task(self._live(process, self.worker))

    async def _live(self, process: Process, worker: Worker) -> None:
        loop = self._world.loop

        def leave() -> None:
            self._end(process, TimeoutError("the worker did not stop"))

        try:
            await worker.run(lambda: loop.call_later(LEAVE_SECONDS, leave))
        except BaseException as error:
            self._end(process, error)
        else:
            self._end(process, None)

    def _end(self, process: Process, error: Any) -> None:
        if process.dead:
            return
        process.dead = True
        self._world.group.silent(process)
        self._ended(self.name, error)
        self._later()

    def _later(self) -> None:
        seconds = 0.5 + self._world.random.random() * 3
        self._world.loop.call_later(seconds, self.start, context=SERVER)

    # -- what may happen to it --------------------------------------------------------------------

    def kill(self, away: float) -> None:
        """Kill the process; it is restarted after some seconds."""
        if self.process is not None:
            self.process.dead = True
            self._world.group.silent(self.process)
        self._world.loop.call_later(away, self.start, context=SERVER)

    def stop(self) -> None:
        """Ask the process to end in order."""
        if self.worker is not None and self.alive:
            self.worker.stopped.set()

    def pause(self, seconds: float) -> None:
        """Suspend the process."""
        process = self.process
        if process is not None and self.alive:
            self._world.loop.pause(process)
            self._world.group.silent(process)
            self._world.loop.call_later(seconds, self._resume, process, context=SERVER)

    def _resume(self, process: Process) -> None:
        self._world.loop.resume(process)
        if self.worker is not None and process is self.process and not process.dead:
            self._world.group.resumed(process, self.worker.app)  # type: ignore[arg-type]

    def set_clock(self, ahead: float) -> None:
        """Set the machine's clock."""
        self.wall = ahead
        if self.process is not None:
            self.process.wall = ahead

    # -- its disk ---------------------------------------------------------------------------------

    def _mine(self) -> list[str]:
        return [path for path in self._world.disks if path.startswith(f"/data/{self.name}/")]

    def keep(self) -> None:
        """Keep a copy of the disk."""
        self._kept = {path: dict(self._world.disks[path]) for path in self._mine()}

    def wipe(self) -> None:
        """Lose the disk while no worker runs."""
        for path in self._mine():
            del self._world.disks[path]
            if self._world.undo is not None:
                self._world.undo.pop(path, None)

    def restore(self) -> None:
        """Replace the disk by its copy while no worker runs."""
        self.wipe()
        self._world.disks.update({path: dict(rows) for path, rows in self._kept.items()})

    def lose(self, random: Random) -> None:
        """Lose the last writes of each table, unless a worker runs again by now."""
        for path in () if self.alive else self._mine():
            lose(path, int(random.random() ** 2 * 12))

    def mistake(self) -> None:
        """Insert tables of another genesis, which have fewer rows but claim the same progress."""
        for path in self._mine():
            rows = self._world.disks[path]
            if MARKER in rows and POSITION in rows:
                marker = decode_marker(rows[MARKER])
                other = Marker(OTHER, 0)
                said = json.loads(rows[POSITION])
                if marker.applied > 0:
                    self._world.disks[path] = {
                        MARKER: encode(other),
                        POSITION: json.dumps(said).encode(),
                        INDEX: b"",
                    }
                    if self._world.undo is not None:
                        self._world.undo.pop(path, None)
