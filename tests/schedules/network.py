"""Requests to a broker in memory: on their way, late, twice, lost, or held during an outage."""

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
        self.slow = 0.0  # most seconds that an answer takes beyond the usual
        self.lossy = 0.0  # share of answers that are lost
        self.torn = 0.0  # share of the requests of transactions that come late or twice
        self.tears = Random(0)  # decides which ones
        self.tore = 0  # number of torn requests
        self.cut: set[str] = set()  # machines whose requests do not arrive
        self.deaf: set[str] = set()  # machines that get no answers
        self._parked: list[tuple[Any, ...]] = []
        self._waiting: dict[str, list[Callable[[], Any]]] = {}

    def away(self, process: Process | None) -> bool:
        """Whether the broker is unreachable for a process."""
        return self.down or (process is not None and process.name in self.cut)

    def delay(self) -> float:
        """Seconds that a message travels."""
        draw = self.random.random
        return draw() ** 3 * 0.03 + (draw() ** 2 * self.slow if self.slow else 0.0)

    def call(
        self,
        work: Callable[[], Any],
        patience: float = PATIENCE,
        at: float | None = None,
        twice: bool = False,
    ) -> asyncio.Future[Any]:
        """Send a request; return the answer, or the error of a client that waited too long.

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
        """By chance, let a request come later than it was sent.

        Args:
            work: the broker's action when it arrives.
            repeats: whether it may arrive again after it was answered.
            into: transactional id; the request may come in that id's next transaction.

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
        """Deliver the requests that waited for the next transaction of an id."""
        for work in self._waiting.pop(into, ()):
            self.loop.call_later(self.tears.random() * 0.01, self._late, work, context=SERVER)

    def _late(self, work: Callable[[], Any]) -> None:
        if self.down:
            self.loop.call_later(0.5, self._late, work, context=SERVER)
            return
        with suppress(Exception):  # the answer is lost
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
        """The broker is unreachable: the client asks again after the outage, or gives up before."""
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
            future.exception()  # a client that has left never reads it
        else:
            future.set_result(found)

    def outage_error(self) -> BaseException:
        """The error of a client that has waited too long."""
        return KafkaTimeoutError() if self.random.random() < 0.5 else KafkaConnectionError("away")

    def go_down(self) -> None:
        """Begin an outage."""
        self.down = True
        self.outages += 1

    def come_back(self) -> None:
        """End an outage: waiting clients ask again."""
        self.down = False
        self.send_again()

    def send_again(self) -> None:
        """Deliver the requests that did not arrive, if they can arrive now."""
        parked, self._parked = self._parked, []
        for request in parked:
            _, future, process, _, _ = request
            if (process is not None and process.dead) or future.done():
                continue
            self.loop.call_later(self.delay() * 5, self._arrive, request, context=SERVER)
