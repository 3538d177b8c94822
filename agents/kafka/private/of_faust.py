"""Private names of Faust: an application that stops on failure, and a consumer with hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import faust
from aiokafka import AIOKafkaConsumer
from faust.tables.manager import TableManager
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, Message

from ..progress import Progress
from . import Needed, check
from .of_aiokafka import wait_patiently

NEEDED: Needed = (
    (faust.App, ("_on_agent_error",)),
    (TableManager, ("_update_channels", "recovery", "should_stop")),
    (
        driver.Consumer,
        (
            "_drain_messages", "_filter_tps_with_pending_acks", "_get_active_partitions",
            "_new_consumer_thread", "_new_offset", "_paused_partitions", "_stopped", "_thread",
            "_unacked_messages",
        ),
    ),
    (
        driver.AIOKafkaConsumerThread,
        (
            "_consumer", "_create_consumer", "_create_worker_consumer", "_ensure_consumer",
            "_keepalive2",
        ),
    ),
)  # fmt: skip
check("faust-streaming", NEEDED)


class FailingApp(faust.App):
    """A Faust application that stops when an agent fails.

    Stock Faust restarts the agent after acknowledging, and so losing, its event.
    """

    on_agent_failure: Callable[[BaseException], None]  # called with an agent's error
    outage_timeout: int  # microseconds for which to wait for a broker that is away

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.progress = Progress("the consumer")

    async def _on_agent_error(self, agent: Any, exc: BaseException) -> None:
        self.on_agent_failure(exc)


class PromptTables(TableManager):
    """Faust's table manager without its wait of a second for declarations.

    There are no Faust tables here: state is in the shards.
    """

    async def on_start(self) -> None:
        """Start the work that follows the assignment of partitions."""
        if not self.should_stop:
            await self._update_channels()
            await self.recovery.start()


class HookedThread(driver.AIOKafkaConsumerThread):
    """Faust's consumer thread with hooks: `make_consumer`, `open_client`, `client`."""

    def make_consumer(self, url: Any, port: int) -> AIOKafkaConsumer:
        """Make this thread's client, without starting it."""
        raise NotImplementedError

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        return self.make_consumer(transport.url, transport.default_port)

    async def open_client(self) -> None:
        """Make and start the client."""
        self._consumer = self._create_consumer(loop=self.thread_loop)
        await self._consumer.start()
        wait_patiently(self._consumer)

    @property
    def client(self) -> Any:
        """The client; None before it is made."""
        return self._consumer

    @property
    def ready_client(self) -> Any:
        """The client; raises Faust's error before it is made."""
        return self._ensure_consumer()

    async def _keepalive2(self) -> None:
        """Log no error after three slow seconds: the worker watches what its thread does."""


class HookedConsumer(driver.Consumer):
    """Faust's consumer with hooks: `make_thread`, `deliver`, and what shards have `applied`.

    Attributes:
        applied: position that each open shard has applied, for lag monitoring.
    """

    applied: Callable[[], Mapping[TP, int]] = staticmethod(dict)

    def make_thread(self) -> HookedThread:
        """Make the thread that fetches."""
        raise NotImplementedError

    async def deliver(self, stopped: Callable[[], bool]) -> None:
        """Fetch and hand over until ``stopped``."""
        raise NotImplementedError

    @property
    def thread(self) -> Any:
        """The thread of `make_thread`; None before the start."""
        return self._thread

    @property
    def flowing_partitions(self) -> set[TP]:
        """Partitions that are assigned and not paused."""
        active: set[TP] = set(self._get_active_partitions())
        paused: set[TP] = self._paused_partitions
        return active - paused

    @property
    def any_paused(self) -> bool:
        """Whether an assigned partition is paused."""
        return bool(self._paused_partitions)

    def ack(self, message: Message) -> bool:
        """Acknowledge an event without its offset, since positions are in the shards' state."""
        message.acked = True
        self._unacked_messages.discard(message)
        return True

    def _new_consumer_thread(self) -> HookedThread:
        return self.make_thread()

    async def _drain_messages(self, fetcher: Any) -> None:
        await self.deliver(lambda: self._stopped.is_set() or fetcher._stopped.is_set())

    def _filter_tps_with_pending_acks(self, topics: Any = None) -> Iterator[TP]:
        return iter(self.applied())

    def _new_offset(self, tp: TP) -> int | None:
        offset: int | None = self.applied().get(tp)
        return offset
