"""A Faust transport that hands an agent whole fetched lists, with the interval that they cover.

Stock Faust makes one event of each record and drops empty lists. Here one event is an
`Interval`: the records of one partition between two positions, control records and aborted
transactions counted as covered. Intervals are captured in the consumer's thread, right after
the records were fetched, where ``position`` is exactly what was handed over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import faust
from aiokafka.consumer.fetcher import FetchResult
from aiokafka.errors import ConsumerStoppedError, NoOffsetForPartitionError, OffsetOutOfRangeError
from aiokafka.structs import TopicPartition
from faust.auth import SASLCredentials, SSLCredentials
from faust.transport import drivers
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage, Message

from ...errors import EngineError
from ...topics.config.clients import aiokafka_options
from ...topics.config.model import Kafka
from . import tolerant_batches as batches
from .clients import stop_quietly, through_outages

ALIAS = "hush"
MAX_RECORDS = 20_000
POLL_SECONDS = 0.1

GONE_SECONDS = 30.0

Positions = Callable[[], Mapping[TP, int]]


class Interval(NamedTuple):
    """Records of one partition in [start, end), in order; possibly none."""

    tp: TP
    start: int
    end: int
    records: list[Any]


class ConsumerThread(driver.AIOKafkaConsumerThread):
    """The consumer's own thread, fetching intervals."""

    _gone: Gone

    async def on_start(self) -> None:
        """Start the consumer; a broker that is away just then is waited for."""
        self.time_started = time.monotonic()
        self._gone = Gone()
        await through_outages("the consumer", self._open, self._let_go)

    async def _open(self) -> None:
        self._consumer = self._create_consumer(loop=self.thread_loop)
        await self._consumer.start()

    async def _let_go(self) -> None:
        await stop_quietly(self._consumer)

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # Everything upstream is read as committed; Faust only sets this with its own
        # transactions, which are not used.
        consumer._isolation_level = "read_committed"
        consumer._fetch_max_wait_ms = int(POLL_SECONDS * 1000)
        return consumer

    async def intervals(self, active: set[TP]) -> list[Interval]:
        """Fetch what there is for the active partitions, waiting a moment if nothing is."""
        return await self.call_thread(self._intervals, self._ensure_consumer(), active)  # type: ignore[no-any-return]

    async def _intervals(self, consumer: Any, active: set[TP]) -> list[Interval]:
        fetcher = consumer._fetcher
        if consumer._closed or fetcher._closed:
            raise ConsumerStoppedError()
        if not self.consumer.flow_active:
            return []
        with fetcher._subscriptions.fetch_context():
            if fetcher._subscriptions.reassignment_in_progress:
                await fetcher._subscriptions.wait_for_assignment()
            wanted = self.consumer.positions
            found = list(_take(fetcher, active, wanted, self._gone))
            if not found:
                waiter = fetcher._create_fetch_waiter()
                await asyncio.wait([waiter], timeout=POLL_SECONDS)
                if not waiter.done():
                    waiter.cancel()
                found = list(_take(fetcher, active, wanted, self._gone))
        return found


def _take(fetcher: Any, active: set[TP], wanted: Positions, gone: Gone) -> Iterator[Interval]:
    """What the fetcher holds for ``active``, as intervals; errors of the broker are raised."""
    for tp in list(fetcher._records):
        name = TP(tp.topic, tp.partition)
        if name not in active:
            if not fetcher._subscriptions.is_assigned(tp):
                del fetcher._records[tp]
            continue
        held = fetcher._records[tp]
        if type(held) is not FetchResult:
            gone.check(held, wanted())
            if held.calculate_backoff() == 0:  # else it would be asked for again at once
                del fetcher._records[tp]
                fetcher._notify(fetcher._wait_consume_future)
            continue
        assignment = held._assignment
        state = assignment.state_value(tp) if assignment.active else None
        start = state.position if state is not None else None
        if held.has_more():
            held._partition_records._consumer_record = _as_it_is
        records = held.getall(MAX_RECORDS)
        if not held.has_more():
            del fetcher._records[tp]
            fetcher._notify(fetcher._wait_consume_future)
        if start is not None and state is not None and state.position > start:
            yield Interval(name, start, state.position, records)


def _as_it_is(_: TopicPartition, record: Any) -> Any:
    """A record as the parser made it: it has all that a shard reads, at a third of the cost."""
    return record


class Gone:
    """Positions that the broker no longer has.

    Asking for one is no error at once. A position is asked of the group as soon as a partition
    is assigned, and the group may know none, or one that was trimmed since: a moment later the
    shard says where it stands. A worker that was asleep may have been overtaken by another one,
    which has applied and trimmed more: a moment later it is told so. Only where a shard goes on
    wanting what is gone, it is lost.
    """

    def __init__(self, patience: float = GONE_SECONDS) -> None:
        self._patience = patience
        self._since: dict[tuple[TP, int], float] = {}

    def check(self, failed: Any, wanted: Mapping[TP, int]) -> None:
        """Raise what a fetch reported, if it is a fault.

        Raises:
            EngineError: an open shard has wanted a position for some time that is gone.
        """
        try:
            failed.check_raise()
        except NoOffsetForPartitionError:
            return
        except OffsetOutOfRangeError as error:
            asked = {(TP(tp.topic, tp.partition), n) for tp, n in error.args[0].items()}
            self._judge({(tp, n) for tp, n in asked if n >= wanted.get(tp, n + 1)})

    def _judge(self, missing: set[tuple[TP, int]]) -> None:
        now = time.monotonic()
        partitions = {tp for tp, _ in missing}
        known = {one: t for one, t in self._since.items() if one[0] not in partitions}
        self._since = known | {one: self._since.get(one, now) for one in missing}
        lost = [one for one in missing if now - self._since[one] >= self._patience]
        if lost:
            # No offset: in a raw topic it is an exact count.
            places = ", ".join(sorted(f"{tp.topic}-{tp.partition}" for tp, _ in lost))
            raise EngineError(
                f"the next record to read is gone: {places}; it was deleted before it was applied "
                "(retention of the topic), or the topic was cut short: restore it, or begin a new "
                "deployment (another deployment.name)"
            ) from None


class Consumer(driver.Consumer):
    """Delivers intervals; positions come from the shards, never from the group.

    Attributes:
        positions: set by the worker; the position that each open shard wants next.
        applied: set by the worker; what each open shard has applied, for lag monitoring.
    """

    positions: Positions = staticmethod(dict)
    applied: Callable[[], Mapping[TP, int]] = staticmethod(dict)

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def _drain_messages(self, fetcher: Any) -> None:
        stopped: Callable[[], bool] = lambda: (  # noqa: E731
            self._stopped.is_set() or fetcher._stopped.is_set()
        )
        try:
            while not stopped():
                if not self.flow_active:
                    await self.wait(self.can_resume_flow)
                    continue
                await self._drain_once()
        except ConsumerStoppedError:
            if not self.app.should_stop:
                raise
        except asyncio.CancelledError:
            if not self.app.should_stop:
                raise

    async def _drain_once(self) -> None:
        generation = self.app.consumer_generation_id
        active = set(self._get_active_partitions()) - self._paused_partitions
        if not active:  # to aiokafka, an empty set would mean all
            await asyncio.sleep(POLL_SECONDS / 2)
            return
        thread = cast(ConsumerThread, self._thread)
        for interval in await thread.intervals(active):
            if not self.flow_active or self.app.consumer_generation_id != generation:
                return  # the new owner, or we after a seek, will fetch it again
            message = self._message(interval)
            await self.wait_first(self.callback(message), self.suspend_flow.wait())
        await asyncio.sleep(0)

    def _message(self, interval: Interval) -> Message:
        tp = interval.tp
        return ConsumerMessage(
            tp.topic,
            tp.partition,
            max(interval.end - 1, 0),
            time.time(),
            0,
            (),
            b"",
            cast(bytes, interval),
            None,
            0,
            0,
            tp,
            generation_id=self.app.consumer_generation_id,
        )

    async def perform_seek(self) -> None:
        """Seek to the shards' own positions; the group's offsets are for monitoring only."""
        for tp, position in self.positions().items():
            if tp in self.assignment():
                await self.seek_to(tp, position)

    async def seek_to(self, tp: TP, position: int) -> None:
        """Move one partition's position."""
        thread = cast(ConsumerThread, self._thread)
        consumer = thread._ensure_consumer()
        await thread.call_thread(_seek, consumer, TopicPartition(*tp), position)

    def group_error(self) -> EngineError | None:
        """Why the group refused this member for good, if it did: nobody else would say so."""
        thread = cast(ConsumerThread | None, self._thread)
        coordinator = getattr(getattr(thread, "_consumer", None), "_coordinator", None)
        task = getattr(coordinator, "_coordination_task", None)
        if task is None or not task.done() or task.cancelled() or task.exception() is None:
            return None
        return EngineError(f"the consumer group refused this worker: {task.exception()!r}")

    def ack(self, message: Message) -> bool:
        """Nothing to remember: what is applied is in the state."""
        message.acked = True
        self._unacked_messages.discard(message)
        return True

    def _filter_tps_with_pending_acks(self, topics: Any = None) -> Iterator[TP]:
        return iter(self.applied())

    def _new_offset(self, tp: TP) -> int | None:
        offset: int | None = self.applied().get(tp)
        return offset

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Idle shards are no fault here."""


async def _seek(consumer: Any, tp: TopicPartition, position: int) -> None:
    consumer.seek(tp, position)


class Producer(driver.Producer):
    """Faust wants a producer; nothing is produced through it, so it never connects.

    Each shard has a transactional producer of its own.
    """

    async def on_start(self) -> None:
        """Connect to nothing."""


class Transport(driver.Transport):
    """The ``hush://`` transport."""

    Consumer = Consumer
    Producer = Producer
    driver_version = f"hushstream on {driver.Transport.driver_version}"


class App(faust.App):
    """A Faust application that stops where an agent fails.

    Stock Faust restarts the agent, and the event that it had is acknowledged and lost.

    Attributes:
        on_agent_failure: told what an agent raised.
    """

    on_agent_failure: Callable[[BaseException], None]

    async def _on_agent_error(self, agent: Any, exc: BaseException) -> None:
        self.on_agent_failure(exc)


def register() -> None:
    """Make ``hush://host:port`` a broker address that Faust understands."""
    batches.install()
    drivers.TRANSPORTS.aliases[ALIAS] = f"{__name__}:Transport"


def credentials(kafka: Kafka) -> Any:
    """The configured security as Faust wants it; None for plain connections."""
    options = aiokafka_options(kafka)
    context = options.get("ssl_context")
    if "sasl_mechanism" in options:
        return SASLCredentials(
            username=options["sasl_plain_username"],
            password=options["sasl_plain_password"],
            mechanism=options["sasl_mechanism"],
            ssl_context=context,
        )
    return SSLCredentials(context) if context is not None else None
