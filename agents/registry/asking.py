"""Fetches schemas in the background: stages ask at any time, and an answer wakes them.

While the registry gives no clear answer, stages wait. So an outage delays records, and never turns
a good one into a dead letter. If one id gets no answer while others do, it is bad: writers must not
be able to stop a worker, or delay other partitions, by ids in records. Stages themselves keep the
schema of an id, so a later, different answer of the registry is never asked for.

A record whose schema is unknown has no readable unit, and is nobody's (`docs/guarantee.md`). It may
still decide about other records: if the registry gets the schema a moment later, `UNKNOWN_SECONDS`
go by before it is asked for again, and meanwhile records with that schema are dead letters.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from ...errors import EngineError
from ...formats.schemas.schema import Known, Schema, Verdict
from ...formats.values.codec import MOST_ID
from ...topics.config.model import RegistrySettings
from ..kafka.progress import Progress
from .refusals import FORBIDDEN, WHOLE, IdRefused

AGAIN_SECONDS = 0.5  # until an unknown id is asked for again, since replicas may lag
RETRY_SECONDS = 1.0
ALONE_SECONDS = 60.0  # for one id without an answer, while the registry answers others
UNKNOWN_SECONDS = 30.0  # for which an unknown id is not asked for again
MOST_UNKNOWN = 10_000
MOST_FOUND = 64_000_000  # bytes of schemas
MOST_ASKED = 100  # most unknown ids asked for, per partition and minute
MINUTE = 60.0
SLOTS = 16  # requests at a time
MINE = 8  # most requests of one partition
WAKE_SECONDS = 0.02  # for answers to gather, which then wake stages once
WITNESSES = 3

log = logging.getLogger("hushstream.registry")
Place = tuple[str, int]  # raw topic, partition


class Fetcher(Protocol):
    """A client of a registry; several threads use it."""

    def fetch(self, number: int) -> Schema | Verdict:
        """Ask for a schema by its id.

        Raises:
            IdRefused: the answer has no schema, perhaps for this id only.
            Exception: there is no answer.
        """

    def probe(self, number: int) -> None:
        """Ask for an id again, without a cache; any error means that there is no answer."""


class _Quota:
    """Limits the ids of one partition that are asked for: writers may send any number."""

    def __init__(self) -> None:
        self.asked: set[int] = set()
        self.slots = asyncio.Semaphore(MINE)
        self.unknown = 0
        self._begun = 0.0

    def begin(self, now: float) -> None:
        """Reset the count after a minute."""
        if now - self._begun >= MINUTE:
            self._begun, self.unknown = now, 0


class Asking:
    """Answers stages from memory, and asks the registry for new ids.

    Args:
        patience: most microseconds without a clear answer, `registry.outage_timeout`.

    Attributes:
        progress: progress of the requests; away while the registry does not answer.
    """

    def __init__(self, client: Fetcher, patience: int, wake: Callable[[], None]) -> None:
        self._client = client
        self._patience = patience / 1e6
        self._wake = wake
        self._lock = threading.Lock()
        self._found: dict[int, Schema] = {}
        self._found_bytes = 0
        self._unknown: dict[int, float] = {}  # until when they are not asked for, monotonic seconds
        self._aside: set[int] = set()  # unknown ids for which stages no longer wait
        self._witnesses: dict[int, None] = {}  # last ids with a schema
        self._quotas: defaultdict[Place, _Quota] = defaultdict(_Quota)
        self._fresh: list[tuple[Place, int]] = []
        self._asked = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open = 0  # ids being asked for
        self._waking = False
        self._away: float | None = None  # begin of the outage
        self._said = 0.0
        self._probed: dict[bool, tuple[float, bool]] = {}
        self.progress = Progress("asking the schema registry")

    def pinned(self, topic: str, partition: int) -> Known:
        """Add nothing to what a shard's own state holds."""
        return {}

    def seen(self, number: int) -> None:
        """Note an id that the registry has answered; any thread may call this."""
        with self._lock:
            self._witness(number)

    def ask(self, topic: str, partition: int, number: int) -> Schema | Verdict:
        """Answer at once; any thread may ask.

        Args:
            topic, partition: place of the id; unknown ids are limited per partition.
        """
        place, now = (topic, partition), time.monotonic()
        with self._lock:
            if number in self._found:
                return self._found[number]
            if self._unknown.get(number, 0.0) > now:
                return Verdict.UNKNOWN
            waits = Verdict.UNKNOWN if number in self._aside else Verdict.PENDING
            quota = self._quotas[place]
            quota.begin(now)
            if number in quota.asked:
                return waits
            if quota.unknown >= MOST_ASKED:
                return Verdict.UNKNOWN
            if quota.unknown + len(quota.asked) >= MOST_ASKED:
                return waits  # it gets its turn after answers to others
            quota.asked.add(number)
            self._fresh.append((place, number))
        with contextlib.suppress(RuntimeError):  # the event loop is closed: the worker stops
            if (loop := self._loop) is not None:
                loop.call_soon_threadsafe(self._asked.set)
        return waits

    async def run(self) -> None:
        """Send requests for as long as the worker runs.

        Raises:
            EngineError: there was no clear answer for too long.
        """
        self._begin()
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(SLOTS + 1, "schema registry")  # and one for probes
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._serve(tasks)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._loop = None
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        """Make the objects of this event loop, and start the requests from before."""
        self._asked, self._slots, self._probing = (
            asyncio.Event(), asyncio.Semaphore(SLOTS), asyncio.Lock()
        )  # fmt: skip
        self._open, self._waking = 0, False
        with self._lock:
            for quota in self._quotas.values():
                quota.slots = asyncio.Semaphore(MINE)
            self._fresh = [(place, n) for place, one in self._quotas.items() for n in one.asked]
        self._asked.set()

    async def _serve(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            with self._lock:
                fresh, self._fresh = self._fresh, []
            for place, number in fresh:
                self.progress.moved()
                self._open += 1
                tasks.create_task(self._settle(place, number))

    async def _settle(self, place: Place, number: int) -> None:
        """Ask for one id until there is an answer, and remember it."""
        answer = await self._answer(place, number)
        with self._lock:
            quota = self._quotas[place]
            quota.asked.discard(number)
            if isinstance(answer, Schema):
                self._keep(number, answer)
            else:
                self._refuse(number, aside=answer is Verdict.PENDING)
                quota.unknown += 1
            full = quota.unknown == MOST_ASKED
        if full:  # at debug, since one record may decide it, and the log has other readers
            log.debug(
                "%s-%d: %d unknown schemas within a minute; its records with further ones are "
                "dead letters until the minute is over", *place, MOST_ASKED,
            )  # fmt: skip
        self._open -= 1
        if self._open:
            self.progress.moved()
        else:
            self.progress.rest()
        if not self._waking:
            self._waking = True
            asyncio.get_running_loop().call_later(WAKE_SECONDS, self._woken)

    def _woken(self) -> None:
        self._waking = False
        self._wake()

    async def _answer(self, place: Place, number: int) -> Schema | Verdict:
        """Get the answer for an id; `Verdict.PENDING` if only this id has none.

        An id without a schema is asked for twice.
        """
        denied, alone = 0, 0.0
        while True:
            if (found := self._found.get(number)) is not None:
                return found  # another partition asked for it
            begun = time.monotonic()
            try:
                answer = await self._fetch(place, number)
            except Exception as error:
                if not await self._answers_others(number, error):
                    self._outage(error)
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                self._answered()
                if not isinstance(error, IdRefused):
                    await asyncio.sleep(RETRY_SECONDS)
                    alone += time.monotonic() - begun
                    if alone > min(ALONE_SECONDS, self._patience):
                        log.debug(  # as above
                            "no answer for one schema (%s): its records are set aside", _why(error)
                        )
                        return Verdict.PENDING
                    continue
            else:
                self._answered()
                if isinstance(answer, Schema):
                    return answer
            denied += 1
            if denied == 2:
                return Verdict.UNKNOWN
            await asyncio.sleep(AGAIN_SECONDS)

    async def _fetch(self, place: Place, number: int) -> Schema | Verdict:
        loop = asyncio.get_running_loop()
        async with self._quotas[place].slots, self._slots:
            return await loop.run_in_executor(self._pool, self._client.fetch, number)

    # -- one id, or all of them ---------------------------------------------------------------

    async def _answers_others(self, number: int, error: Exception) -> bool:
        """Whether the registry answers other ids while it does not answer this one.

        It is asked for an unassigned id, and for some that it has answered: a proxy's page for a
        wrong address, or missing rights of the client, must not make a good record a bad one.
        """
        status = getattr(error, "http_status_code", None)
        if status in WHOLE:
            return False
        strict = status == FORBIDDEN  # looking up an unassigned id may need no right
        async with self._probing:
            when, good = self._probed.get(strict, (0.0, False))
            if time.monotonic() - when > RETRY_SECONDS:
                good = await self._probe(number, strict)
                self._probed[strict] = time.monotonic(), good
            return good

    async def _probe(self, number: int, strict: bool) -> bool:
        with self._lock:
            others = [one for one in self._witnesses if one != number]
        loop = asyncio.get_running_loop()
        for one in others if strict else [MOST_ID, *others]:
            with contextlib.suppress(Exception):
                await loop.run_in_executor(self._pool, self._client.probe, one)
                return True
        return False

    def _answered(self) -> None:
        self._away = None
        self.progress.outage(False)

    def _outage(self, error: Exception) -> None:
        """Note that the registry does not answer."""
        now = time.monotonic()
        self._away = now if self._away is None else self._away
        self.progress.outage(True)
        if now - self._away > self._patience:
            raise EngineError(
                f"no clear answer of the schema registry for {self._patience:g} s "
                f"({_why(error)}; registry.outage_timeout); records wait for it"
            ) from error
        if now - self._said >= RETRY_SECONDS:
            self._said = now
            log.warning("records wait for the schema registry (%s)", _why(error))

    # -- what is remembered -------------------------------------------------------------------

    def _keep(self, number: int, schema: Schema) -> None:
        if number not in self._found:
            self._found[number] = schema
            self._found_bytes += schema.size
        while self._found_bytes > MOST_FOUND and len(self._found) > 1:
            self._found_bytes -= self._found.pop(next(iter(self._found))).size
        self._unknown.pop(number, None)
        self._aside.discard(number)
        self._witness(number)

    def _refuse(self, number: int, aside: bool) -> None:
        """Remember for a while that the registry has no such schema.

        An id that was set aside is asked for again later, but stages wait for it only once.
        """
        self._unknown.pop(number, None)
        if len(self._unknown) >= MOST_UNKNOWN:
            oldest = next(iter(self._unknown))
            del self._unknown[oldest]
            self._aside.discard(oldest)
        self._unknown[number] = time.monotonic() + UNKNOWN_SECONDS
        if aside:
            self._aside.add(number)

    def _witness(self, number: int) -> None:
        self._witnesses.pop(number, None)
        self._witnesses[number] = None
        if len(self._witnesses) > WITNESSES:
            del self._witnesses[next(iter(self._witnesses))]


def _why(error: Exception) -> str:
    """Name the type of an error, since its text may quote an answer."""
    status = getattr(error, "http_status_code", None)
    return type(error).__name__ + (f" {status}" if isinstance(status, int) else "")


def asking_of(settings: RegistrySettings, wake: Callable[[], None]) -> Asking:
    """Make the `Asking` for a configuration's registry.

    Raises:
        ConfigError: a certificate, a key or the password cannot be read.
        ExtraError: the client of a registry is not installed.
    """
    from .client import RegistryClient  # an optional part, which most deployments lack

    return Asking(RegistryClient(settings), settings.outage_timeout, wake)
