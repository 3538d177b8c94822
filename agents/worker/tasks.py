"""Tasks that run as long as the worker: if one ends by itself, the worker stops.

A library may cancel a task of ours by mistake (aiokafka does, when a client is closed after an
outage), and asyncio does not report a cancelled task. So all long-lived tasks are started here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from ...errors import EngineError, HushError
from .lines.redaction import quoting, told

log = logging.getLogger("hushstream.worker")


class Tasks:
    """Starts long-lived tasks; if one ends unasked, passes the reason to ``fail``."""

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        self._fail = fail
        self._running: set[asyncio.Task[None]] = set()

    def start(self, name: str, body: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``body`` until it is released or stopped; the log shows ``name``."""
        task = asyncio.create_task(body, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def release(self, task: asyncio.Task[None]) -> None:
        """Allow a task to end by itself from now on."""
        self._running.discard(task)

    async def stop(self, task: asyncio.Task[None], patience: float = 3.0) -> None:
        """Cancel a task, and wait for its end at most ``patience`` seconds."""
        self.release(task)
        task.cancel()
        await asyncio.wait([task], timeout=patience)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if task not in self._running:
            return
        self._running.discard(task)
        self._fail(_reason(task.get_name(), error, task.cancelled()))


def _reason(name: str, error: BaseException | None, cancelled: bool) -> HushError:
    """Choose the error to raise for a task that ended; our own errors stay as they are."""
    if isinstance(error, HushError):
        log.error("%s stopped", name)
        return error
    how = "was cancelled from outside" if cancelled else "returned"
    if error is not None:
        how = told(error)
        log.error("%s failed", name, exc_info=error if quoting() else None)
    reason = EngineError(f"{name} stopped while the worker was running: {how}; restart the worker")
    reason.__cause__ = error
    return reason
