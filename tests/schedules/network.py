"""Requests to a broker in memory: on their way, late, twice or lost, or held while it is away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from random import Random
from typing import Any

from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError

from .loop import HERE, Process, VirtualLoop

PATIENCE = 40.0
SERVER = Context()


class Again(Exception):
    """The broker asks the client to try again in a moment."""


class Held(KafkaConnectionError):
    """The connection ended before an answer came, and the request is still on its way."""


class Network:
    """The way to one broker and back."""

    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.down = False
        self.outages = 0
        self.slow = 0.0  # seconds that an answer may take at most, beyond the usual
        self.lossy = 0.0  # share of answers that are lost
        self.torn = 0.0  # share of the requests of transactions that come late or twice
        self.tears = Random(0)  # decides which
        self.tore = 0  # how many there were
        self.cut: set[str] = set()  # machines whose requests do not arrive
        self.deaf: set[str] = set()  # machines that no answers reach
        self._parked: list[tuple[Any, ...]] = []
        self._waiting: dict[str, list[Callable[[], Any]]] = {}

    def away(self, process: Process | None) -> bool:
        """Whether the broker is away, for a process."""
        return self.down or (process is not None and process.name in self.cut)

    def delay(self) -> float:
        """Seconds that a message is on its way."""
        draw = self.random.random
        return draw() ** 3 * 0.03 + (draw() ** 2 * self.slow if self.slow else 0.0)

    def call(
        self,
        work: Callable[[], Any],
        patience: float = PATIENCE,
        at: float | None = None,
        twice: bool = False,
    ) -> asyncio.Future[Any]:
        """Send a request; the answer, or the error of a client that waited for too long.

        Args:
            work: the broker's action when the request arrives.
            patience: time limit in seconds.
            at: time of arrival; None: after some delay.
            twice: whether the answer travels separately, so that client or answer may be lost.
        """
        future = self.loop.create_future()
        when = self.loop.now + self.delay() if at is None else at
        request = (work, future, HERE.get(), self.loop.now + patience, twice)
        self.loop.call_at(when, self._arrive, request, context=SERVER)
        return future

    def tear(self, work: Callable[[], Any], repeats: bool = True, into: str = "") -> bool:
        """Perhaps have a request come later than it was sent.

        Args:
            work: the broker's action when it arrives.
            repeats: whether it may arrive once more although it was answered.
            into: transactional id into whose next transaction it may fall.

        Returns:
            Whether its connection ends before there is an answer.
        """
        draw = self.tears.random
        if not self.torn or draw() > self.torn:
            return False
        held = not repeats or draw() < 0.5
        late = 0.1 + draw() * 0.3 if draw() < 0.6 else draw() ** 2 * 8
        self.tore += 1
        if into and draw() < 0.7:
            self._waiting.setdefault(into, []).append(work)
        else:
            self.loop.call_later(late, self._late, work, context=SERVER)
        return held

    def let_in(self, into: str) -> None:
        """Have the requests come that waited for the next transaction of an id."""
        for work in self._waiting.pop(into, ()):
            self.loop.call_later(self.tears.random() * 0.01, self._late, work, context=SERVER)

    def _late(self, work: Callable[[], Any]) -> None:
        if self.down:
            self.loop.call_later(0.5, self._late, work, context=SERVER)
            return
        with suppress(Exception):  # nobody hears
            work()

    def _arrive(self, request: tuple[Any, ...]) -> None:
        work, future, process, deadline, twice = request
        if self.away(process) or (process is not None and process.paused and future.done()):
            self._park(request)
            return
        try:
            found = work()
        except Again:
            if process is None or not process.dead:
                delay = 0.02 + self.delay()
                if self.loop.now + delay > deadline:
                    self._reply(future, KafkaTimeoutError())
                else:
                    self.loop.call_later(delay, self._arrive, request, context=SERVER)
            return
        except Exception as error:
            found = error
        if process is not None and process.name in self.deaf:
            until = min(deadline, self.loop.now + 10 * self.random.random())
            error = self.outage_error()
            self.loop.call_at(until, self._reply, future, error, context=SERVER)
            return
        if self.lossy and self.random.random() < self.lossy:
            found = self.outage_error()
        if twice:
            self.loop.call_later(self.delay(), self._reply, future, found, context=SERVER)
        else:
            self._reply(future, found)

    def _park(self, request: tuple[Any, ...]) -> None:
        """The broker is away: the client asks again when it is back, or gives up before."""
        _, future, process, deadline, _ = request
        if process is not None and process.dead:
            return
        self._parked.append(request)
        if not future.done():
            error = self.outage_error()
            self.loop.call_at(max(deadline, self.loop.now), self._reply, future, error,
                              context=SERVER)  # fmt: skip

    @staticmethod
    def _reply(future: asyncio.Future[Any], found: Any) -> None:
        if future.done():
            return
        if isinstance(found, BaseException):
            future.set_exception(found)
            future.exception()  # a client that went away never asks
        else:
            future.set_result(found)

    def outage_error(self) -> BaseException:
        """What a client raises when it has waited for too long."""
        return KafkaTimeoutError() if self.random.random() < 0.5 else KafkaConnectionError("away")

    def go_down(self) -> None:
        """Begin an outage."""
        self.down = True
        self.outages += 1

    def come_back(self) -> None:
        """End an outage: clients that still wait ask again."""
        self.down = False
        self.send_again()

    def send_again(self) -> None:
        """Have requests that did not arrive arrive, if they can by now."""
        parked, self._parked = self._parked, []
        for request in parked:
            _, future, process, _, _ = request
            if (process is not None and process.dead) or future.done():
                continue
            self.loop.call_later(self.delay() * 5, self._arrive, request, context=SERVER)
