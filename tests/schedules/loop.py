"""An event loop that owns time: nothing waits in real time, and one seed makes every choice.

Callbacks that are ready at the same virtual time run in random order, across all processes. A
callback belongs to the process in whose context it was scheduled. Callbacks of a dead process are
dropped; those of a paused process are kept until it resumes.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections.abc import Callable
from random import Random
from typing import Any

HERE: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class Stuck(Exception):
    """More callbacks were scheduled than a schedule can need: something loops without progress."""


class Ended(BaseException):
    """A process was killed in the middle of a callback."""


class Process:
    """One life of a simulated process: it ends once, and may be paused before.

    Attributes:
        name: name of the worker, kept by its next life.
        asleep: number of its calls that wait in the middle of a callback.
        wall: seconds by which its machine's clock is ahead.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.paused = False
        self.asleep = 0
        self.wall = 0.0
        self.held: list[Handle] = []
        self.context = contextvars.copy_context()
        self.context.run(HERE.set, self)


class Handle:
    """A scheduled callback."""

    __slots__ = ("args", "callback", "context", "gone", "process")

    def __init__(
        self,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = contextvars.copy_context() if context is None else context
        self.process = self.context.get(HERE)
        self.gone = False

    def cancel(self) -> None:
        """Prevent it from running."""
        self.gone = True

    def cancelled(self) -> bool:
        """Whether it will not run."""
        return self.gone


class VirtualLoop(asyncio.AbstractEventLoop):
    """The loop of one schedule.

    Args:
        random: source of the choice of what runs next.
        most: number of callbacks after which the schedule counts as stuck.
    """

    def __init__(self, random: Random, most: int = 400_000) -> None:
        self.now = 0.0
        self.ran = 0
        self.trace = 0
        self._most = most
        self._draw = random.random
        self._ready: list[Handle] = []
        self._timers: list[tuple[float, int, Handle]] = []
        self._serial = 0
        self.kept: list[Any] = []  # no task is collected while the schedule runs
        self.errors: list[dict[str, Any]] = []

    # -- what asyncio asks ------------------------------------------------------------------------

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = Handle(callback, args, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = Handle(callback, args, context)
        self._serial += 1
        heapq.heappush(self._timers, (when, self._serial, handle))
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.kept.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """Run another thread's work at a later time, in one piece."""
        future = self.create_future()
        self.call_later(self._draw() ** 4 * 0.02, self._work, future, func, args)
        return future

    @staticmethod
    def _work(future: asyncio.Future[Any], func: Callable[..., Any], args: Any) -> None:
        try:
            found = func(*args)
        except BaseException as error:
            if not future.cancelled():
                future.set_exception(error)
        else:
            if not future.cancelled():
                future.set_result(found)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)

    # -- running ----------------------------------------------------------------------------------

    def run(self, until: float) -> None:
        """Run everything that is due before a time, and set the time to it."""
        ready, draw = self._ready, self._draw
        while ready or self._forward(until):
            waiting = len(ready)
            if waiting > 1:
                place = int(draw() * waiting)
                handle, last = ready[place], ready.pop()
                if last is not handle:
                    ready[place] = last
            else:
                place, handle = 0, ready.pop()
            process = handle.process
            if handle.gone:
                continue
            if process is not None:
                if process.dead:
                    continue
                if process.paused or process.asleep:
                    process.held.append(handle)
                    continue
            self.ran += 1
            if self.ran > self._most:
                raise Stuck(f"{self.ran} callbacks by {self.now:.0f} s")
            self.trace = hash((self.trace, self.now, place, waiting))
            try:
                handle.context.run(handle.callback, *handle.args)
            except Ended:
                continue

    def sleep(self, process: Process, seconds: float) -> None:
        """Let all others run while a process waits in the middle of a callback."""
        process.asleep += 1
        self.run(self.now + seconds)
        process.asleep -= 1
        if process.dead:
            raise Ended
        self._wake(process)

    def _forward(self, until: float) -> bool:
        """Advance to the next time at which something is due, and make that ready."""
        timers, ready, pop = self._timers, self._ready, heapq.heappop
        while timers:
            handle = timers[0][2]
            if not (handle.gone or (handle.process is not None and handle.process.dead)):
                break
            pop(timers)
        if not timers or timers[0][0] > until:
            self.now = max(self.now, until)
            return False
        now = self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= now:
            ready.append(pop(timers)[2])
        return True

    def pause(self, process: Process) -> None:
        """Pause a process."""
        process.paused = True

    def resume(self, process: Process) -> None:
        """Resume a paused process: everything that came due meanwhile runs at once."""
        process.paused = False
        self._wake(process)

    def _wake(self, process: Process) -> None:
        if not (process.paused or process.asleep):
            self._ready += process.held
            process.held = []
