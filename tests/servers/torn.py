"""A proxy in front of a broker that delays requests, loses their answers, or repeats them.

It reads Kafka's framing and the headers of requests, and changes nothing else. A delayed request is
not lost: the client sees its connection end, and the broker gets the request later, as from a
buffer in the network or in the broker itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from hushstream.deploy.broker import Broker
from hushstream.deploy.settings import HOST, BrokerNode, free_port

KEYS = {0: "Produce", 22: "InitProducerId", 24: "AddPartitionsToTxn", 26: "EndTxn"}
Kind = Literal["hold", "lose", "repeat"]


class Asked(NamedTuple):
    """A request of a kind that the proxy may treat.

    Attributes:
        name: one of `KEYS`.
        version: version of the request.
        client: client id in the request.
        body: everything after the header's first fields.
    """

    name: str
    version: int
    client: str
    body: bytes


class Torn(NamedTuple):
    """What is done to a request.

    Attributes:
        kind: ``hold``: the connection ends at once, and the request arrives later; ``lose``: it is
            handled, but the connection ends in place of the answer; ``repeat``: it is answered,
            and the same request arrives once more later.
        seconds: delay in seconds, for ``hold`` and ``repeat``.
    """

    kind: Kind
    seconds: float = 0.0


Choice = Callable[[Asked], Torn | None]


@dataclass
class Proxy:
    """The proxy, which runs in its own thread.

    Attributes:
        port: port for clients.
        choose: function that decides about a request; may be replaced at any time.
        torn: number of affected requests, by name and kind.
    """

    port: int
    upstream: int
    choose: Choice = lambda _: None
    torn: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._late: set[asyncio.Task[None]] = set()

    @property
    def bootstrap(self) -> str:
        """Address for clients."""
        return f"{HOST}:{self.port}"

    @contextmanager
    def serving(self) -> Iterator[Proxy]:
        """Serve until the end of the block."""
        ready, ends = threading.Event(), list[Callable[[], object]]()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready, ends)), daemon=True)
        thread.start()
        assert ready.wait(10)
        try:
            yield self
        finally:
            ends[0]()
            thread.join(10)

    @property
    def count(self) -> int:
        """The number of requests that were torn."""
        return sum(self.torn.values())

    async def _serve(self, ready: threading.Event, ends: list[Callable[[], object]]) -> None:
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        ends.append(lambda: loop.call_soon_threadsafe(ended.set))
        server = await asyncio.start_server(self._client, HOST, self.port, limit=1 << 26)
        ready.set()
        await ended.wait()
        server.close()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.wait(others)
        await asyncio.sleep(0.05)  # closed connections are released

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            try:
                await self._between(reader, writer)
            finally:
                writer.transport.abort()

    async def _between(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection(HOST, self.upstream, limit=1 << 26)
        lost: set[bytes] = set()
        answers = asyncio.ensure_future(self._answers(back, writer, lost))
        try:
            with contextlib.suppress(OSError, EOFError):
                while (frame := await _frame(reader)) and self._ask(frame, forth, lost):
                    await forth.drain()
            if not lost:
                writer.transport.abort()
            # If the client has gone, the broker still reads what was sent before.
            forth.close()
            await answers
        finally:
            answers.cancel()
            forth.transport.abort()

    def _ask(self, frame: bytes, forth: asyncio.StreamWriter, lost: set[bytes]) -> bool:
        """Treat a request; False ends the connection."""
        asked = _read(frame)
        torn = None if asked is None else self.choose(asked)
        if torn is None or asked is None:
            forth.write(_framed(frame))
            return True
        label = f"{asked.name} {torn.kind}"
        self.torn[label] = self.torn.get(label, 0) + 1
        if torn.kind == "lose":
            lost.add(frame[4:8])
        if torn.kind != "hold":
            forth.write(_framed(frame))
        if torn.kind != "lose":
            task = asyncio.ensure_future(self._deliver(frame, torn.seconds))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
        return torn.kind != "hold"

    async def _answers(
        self, back: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: set[bytes]
    ) -> None:
        with contextlib.suppress(OSError, EOFError):
            while frame := await _frame(back):
                if frame[:4] in lost:
                    break
                writer.write(_framed(frame))
                await writer.drain()
        writer.transport.abort()

    async def _deliver(self, frame: bytes, seconds: float) -> None:
        """Send a request on its own connection, and drop its answer."""
        await asyncio.sleep(seconds)
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            reader, writer = await asyncio.open_connection(HOST, self.upstream)
            try:
                writer.write(_framed(frame))
                await asyncio.wait_for(_frame(reader), 10)
            finally:
                writer.transport.abort()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def _framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def _read(frame: bytes) -> Asked | None:
    key, version, _, size = struct.unpack_from(">hhih", frame)
    if key not in KEYS:
        return None
    end = 10 + max(size, 0)
    return Asked(KEYS[key], version, frame[10:end].decode(), frame[end:])


@contextmanager
def proxied(
    overrides: Mapping[str, str] | None = None, version: int = 2
) -> Iterator[tuple[Broker, Proxy]]:
    """A broker, and a proxy that serves clients on another listener.

    Args:
        overrides: settings of the broker, beside its listeners.
        version: version of its transactions (``transaction.version``).
    """
    ports = {name: free_port() for name in ("plain", "controller", "behind", "proxy")}
    at = {name: f"{HOST}:{port}" for name, port in ports.items()}
    settings = {
        "listeners": (
            f"PLAINTEXT://{at['plain']},CONTROLLER://{at['controller']},PROXIED://{at['behind']}"
        ),
        "advertised.listeners": f"PLAINTEXT://{at['plain']},PROXIED://{at['proxy']}",
        "controller.quorum.voters": f"1@{at['controller']}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT"
        ),
    }
    own = Broker(
        quiet=True,
        port=ports["plain"],
        overrides=settings | dict(overrides or {}),
        node=BrokerNode(features={"transaction.version": version}),
    )
    with own as broker, Proxy(ports["proxy"], ports["behind"]).serving() as proxy:
        yield broker, proxy
