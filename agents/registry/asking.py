"""The asking for schemas beside the work: stages ask at any time, and are woken by the answer.

While the registry gives no clear answer, whoever asked waits. So an outage delays records, and
never turns a good one into a dead letter. What an id once stood for is remembered by the stages
themselves: a registry that says something else later is not even asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ...errors import EngineError
from ...topics.config.model import RegistrySettings
from ...topics.schemas.schema import Known, Schema, Verdict
from ..kafka.progress import Progress

AGAIN_SECONDS = 0.5  # until an id that is unknown is asked for once more: replicas may lag behind
RETRY_SECONDS = 1.0
UNKNOWN_SECONDS = 30.0  # how long an unknown id is not asked for again
MOST_UNKNOWN = 10_000

log = logging.getLogger("hushstream.registry")


class Fetcher(Protocol):
    """A client of a registry."""

    def fetch(self, number: int) -> Schema | Verdict:
        """Ask for a schema by its id; any error means that there is no clear answer."""


class Asking:
    """Answers stages from memory, and asks the registry for what is not known yet.

    Args:
        client: asked in a thread of its own.
        patience: microseconds without a clear answer, `registry.outage_timeout`.
        wake: called after new answers.

    Attributes:
        progress: of the asking; away while the registry does not answer.
    """

    def __init__(self, client: Fetcher, patience: int, wake: Callable[[], None]) -> None:
        self._client = client
        self._patience = patience
        self._wake = wake
        self._lock = threading.Lock()
        self._found: dict[int, Schema] = {}
        self._unknown: dict[int, float] = {}  # until when, seconds of the monotonic clock
        self._wanted: set[int] = set()
        self._asked = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.progress = Progress("asking the schema registry")

    def pinned(self, topic: str, partition: int) -> Known:
        """Add nothing to what a shard's own state holds."""
        return {}

    def ask(self, number: int) -> Schema | Verdict:
        """Answer at once; any thread may ask."""
        with self._lock:
            if number in self._found:
                return self._found[number]
            if self._unknown.get(number, 0.0) > time.monotonic():
                return Verdict.UNKNOWN
            self._wanted.add(number)
        with contextlib.suppress(RuntimeError):  # the worker stops: nobody waits any more
            if (loop := self._loop) is not None:
                loop.call_soon_threadsafe(self._asked.set)
        return Verdict.PENDING

    async def run(self) -> None:
        """Ask for what is wanted, for as long as the worker runs.

        Raises:
            EngineError: there was no clear answer for too long.
        """
        self._asked = asyncio.Event()  # of this loop
        self._loop = asyncio.get_running_loop()
        if self._wanted:
            self._asked.set()
        try:
            await self._serve()
        finally:
            self._loop = None

    async def _serve(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            self.progress.moved()
            with self._lock:
                wanted = sorted(self._wanted)
            missing = await self._fetch(wanted)
            if missing:
                await asyncio.sleep(AGAIN_SECONDS)
                self._refuse(await self._fetch(missing))
            self.progress.rest()
            self._wake()

    async def _fetch(self, wanted: Sequence[int]) -> list[int]:
        """Fetch schemas, however long it takes; return the ids that are unknown."""
        missing = []
        for number in wanted:
            answer = await self._answer(number)
            if isinstance(answer, Schema):
                with self._lock:
                    self._found[number] = answer
                    self._unknown.pop(number, None)
                    self._wanted.discard(number)
                self._wake()
            else:
                missing.append(number)
        return missing

    async def _answer(self, number: int) -> Schema | Verdict:
        until = time.monotonic() + self._patience / 1e6
        while True:
            try:
                answer = await asyncio.to_thread(self._client.fetch, number)
            except Exception as error:
                self.progress.outage(True)
                why = type(error).__name__  # its text may quote an answer
                status = getattr(error, "http_status_code", None)
                why += f" {status}" if isinstance(status, int) else ""
                if time.monotonic() > until:
                    raise EngineError(
                        f"no clear answer of the schema registry for {self._patience / 1e6:g} s "
                        f"({why}; registry.outage_timeout); records wait for it"
                    ) from error
                log.warning("records wait for the schema registry (%s)", why)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self.progress.outage(False)
                return answer

    def _refuse(self, missing: Sequence[int]) -> None:
        """Remember for a while that the registry has no such schemas."""
        until = time.monotonic() + UNKNOWN_SECONDS
        with self._lock:
            if len(self._unknown) + len(missing) > MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown.update(dict.fromkeys(missing, until))
            self._wanted.difference_update(missing)


def asking_of(settings: RegistrySettings, wake: Callable[[], None]) -> Asking:
    """Make what asks the registry of a configuration.

    Args:
        settings: with an address.
        wake: called after new answers.

    Raises:
        ConfigError: a certificate, a key or the password cannot be read.
        ExtraError: the client of a registry is not installed.
    """
    from .client import RegistryClient  # an optional part, which most deployments lack

    return Asking(RegistryClient(settings), settings.outage_timeout, wake)
