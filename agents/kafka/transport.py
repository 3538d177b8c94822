"""A Faust transport that gives agents whole fetched lists, with the intervals that they cover.

Stock Faust makes an event of each record and drops empty lists. Here, an event is an `Interval`:
the records of one partition between two positions, which covers control records and aborted
transactions. Intervals are taken in the consumer's thread, right after a fetch, when ``position``
matches exactly what was taken.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import aiokafka
from aiokafka.errors import ConsumerStoppedError, IllegalStateError
from aiokafka.structs import TopicPartition
from faust.auth import OAuthCredentials, SASLCredentials, SSLCredentials
from faust.transport import drivers
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage, Message

from ...errors import EngineError
from ...topics.config.model import Kafka
from .access.tokens import PROVIDER, client_options
from .batches import tolerant
from .clients import stop_quietly
from .intervals import Gone, Interval, Most, Positions
from .patience import ROLE, aio_refusal, asked_to_end, through_outages
from .private import of_aiokafka, of_faust, of_faust_assignor
from .progress import Progress

log = logging.getLogger("hushstream.kafka")
ALIAS = "hush"
MAX_RECORDS = 20_000  # of one interval
POLL_SECONDS = 0.1
LITTLE = 1 << 18  # bytes of an interval; after a larger one, its partition may have more
REST_SECONDS = 1.0  # of one wait while no records come and nothing is paused


class ConsumerThread(of_faust.HookedThread):
    """The consumer's own thread, which fetches intervals."""

    _gone: Gone

    async def on_start(self) -> None:
        """Start the consumer, waiting for a broker that is away.

        Raises:
            EngineError: the broker stayed away for longer than `kafka.outage_timeout`.
        """
        self.time_started = time.monotonic()
        consumer = cast(Consumer, self.consumer)
        self._gone = Gone(doubt=lambda tp: consumer.doubt(tp))
        app = cast(of_faust.FailingApp, self.app)
        await through_outages(consumer.progress, self.open_client, self._let_go, app.outage_timeout)

    async def on_thread_stop(self) -> None:
        """Stop the consumer; its errors must not keep the thread from ending."""
        with suppress(asyncio.CancelledError):
            await super().on_thread_stop()

    async def _let_go(self) -> None:
        await stop_quietly(self.client)

    def make_consumer(self, url: Any, port: int) -> aiokafka.AIOKafkaConsumer:
        """Make the client like Faust, except for isolation level and waiting times.

        Faust reads only committed records if it runs transactions itself. Here it does not, so its
        own client would read records of other stages before their transactions commit.
        """
        conf = self.app.conf
        return aiokafka.AIOKafkaConsumer(
            client_id=conf.broker_client_id,
            group_id=conf.id,
            group_instance_id=conf.consumer_group_instance_id,
            bootstrap_servers=driver.server_list(url, port),
            partition_assignment_strategy=[self.app.assignor],  # sticky: shards stay in place
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset=conf.consumer_auto_offset_reset,
            max_poll_interval_ms=int(conf.broker_max_poll_interval * 1000),
            max_partition_fetch_bytes=conf.consumer_max_fetch_size,
            fetch_max_wait_ms=int(POLL_SECONDS * 1000),
            request_timeout_ms=int(conf.broker_request_timeout * 1000),
            check_crcs=conf.broker_check_crcs,
            session_timeout_ms=int(conf.broker_session_timeout * 1000),
            rebalance_timeout_ms=int(conf.broker_rebalance_timeout * 1000),
            heartbeat_interval_ms=int(conf.broker_heartbeat_interval * 1000),
            metadata_max_age_ms=conf.consumer_metadata_max_age_ms,
            connections_max_idle_ms=conf.consumer_connections_max_idle_ms,
            **driver.credentials_to_aiokafka_auth(conf.broker_credentials, conf.ssl_context),
        )

    async def intervals(self, active: set[TP], seconds: float, pause: float) -> list[Interval]:
        """Fetch intervals of the active partitions; wait a moment if there are none.

        Args:
            pause: seconds until the next call, if this one finds little.
        """
        return await self.call_thread(self._intervals, self.ready_client, active, seconds, pause)  # type: ignore[no-any-return]

    async def _intervals(
        self, consumer: Any, active: set[TP], seconds: float, pause: float
    ) -> list[Interval]:
        if of_aiokafka.closed(consumer):
            raise ConsumerStoppedError()
        # Check here too: a rebalance may have begun while the call was queued for this thread, and
        # intervals taken now would be dropped although the fetcher's position has moved.
        if not self.consumer.flow_active:
            return []
        of_aiokafka.pause(consumer, pause)
        wanted, most = self.consumer.positions, self.consumer.most()
        return await of_aiokafka.fetch(consumer, active, wanted, self._gone, most, seconds)


class Consumer(of_faust.HookedConsumer):
    """Delivers intervals; positions come from shards, never from the group.

    The group's offsets are written after a shard's transaction and may lag or be lost. A shard that
    began there would apply records twice.

    Attributes:
        positions: function, set by the worker, that returns the position that each open shard wants
            next.
        doubt: function, set by the worker, called with a partition whose wanted position is gone.
        most: limits of one interval, set by the worker.
        pause: seconds between two fetches that find little, set by the worker.
        progress: progress of joining the group and of fetching.
        hurry: event that ends a pause when set.
    """

    most: Callable[[], Most] = staticmethod(lambda: Most(MAX_RECORDS))
    positions: Positions = staticmethod(dict)
    doubt: Callable[[TP], None] = staticmethod(lambda _: None)
    pause: Callable[[], float] = staticmethod(float)
    progress: Progress
    hurry: asyncio.Event
    _heard = 0.0  # time when records last came
    _resumed = False  # since the last seek

    def make_thread(self) -> ConsumerThread:
        """Make the thread that fetches intervals."""
        self.progress = cast(of_faust.FailingApp, self.app).progress
        self.hurry = asyncio.Event()
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def deliver(self, stopped: Callable[[], bool]) -> None:
        """Hand intervals to the agents until ``stopped``, except during rebalances.

        Raises:
            EngineError: the consumer stopped without being asked to.
        """
        try:
            while not stopped():
                self.progress.moved()
                if not self.flow_active:  # a flow that is never resumed is no progress
                    await self.wait(self.can_resume_flow)
                    continue
                await self._deliver_once()
        except (ConsumerStoppedError, asyncio.CancelledError):
            # A silent end of this service would leave a worker that only seems to run, so it is an
            # error unless asked for.
            if asked_to_end() or stopped():
                raise
            if not self.app.should_stop:
                raise EngineError("the consumer stopped by itself; restart the worker") from None

    def resume_flow(self) -> None:
        """Let intervals flow again, after a rebalance.

        Faust seeks, and then empties the queues of its agents. If one rebalance overtakes another,
        intervals may come in between. They are then lost from the queues, in no shard, and would
        not be fetched again. So the next fetch begins with another seek.
        """
        self._resumed = True
        super().resume_flow()

    def serve(self, partitions: set[TP]) -> None:
        """Let intervals of some partitions flow before a rebalance has ended.

        Shards that stay need not wait until others are open. Intervals that come too early or twice
        do no harm: a shard refuses an interval that does not follow, and the next fetch begins with
        a seek.
        """
        self.resume_partitions(partitions & self.assignment())
        self.app.flow_control.resume()
        self.resume_flow()

    async def _deliver_once(self) -> None:
        if self._resumed:
            self._resumed = False
            await self.perform_seek()
        generation = self.app.consumer_generation_id
        active = self.flowing_partitions
        if not active:  # to aiokafka, an empty set would mean all
            await asyncio.sleep(POLL_SECONDS / 2)
            return
        self.hurry.clear()
        pause = 0.0 if self.any_paused else self.pause()
        thread = cast(ConsumerThread, self.thread)
        found = await thread.intervals(active, self._patience(), pause)
        if found:
            self._heard = time.monotonic()
        for n, interval in enumerate(found):
            if not self.flow_active or self.app.consumer_generation_id != generation:
                # The partition may have moved, and its new owner fetches these records again. If
                # the owner is this worker, it may have sought before this fetch. Without another
                # seek, it would miss these records until a later one shows the gap.
                await self._give_back({late.tp for late in found[n:]})
                return
            message = self._message(interval)
            # The callback waits while an agent's buffer is full; a rebalance must not wait for
            # that.
            await self.wait_first(self.callback(message), self.suspend_flow.wait())
        await asyncio.sleep(0)  # let the agents run, even if records come without a pause
        if pause and all(self._little(one) for one in found):
            with suppress(TimeoutError):
                await asyncio.wait_for(self.hurry.wait(), pause)

    def _little(self, one: Interval) -> bool:
        most = self.most()
        return one.size < min(LITTLE, most.size // 2) and len(one.records) < most.records // 2

    async def _give_back(self, dropped: set[TP]) -> None:
        """Make the client fetch undelivered records again."""
        for tp, position in self.positions().items():
            if tp in dropped:
                with suppress(IllegalStateError):  # revoked: it belongs to another worker
                    await self.seek_to(tp, position)

    def _patience(self) -> float:
        """Seconds to wait for records; a partition that is resumed meanwhile may wait as long."""
        quiet = time.monotonic() - self._heard > of_aiokafka.QUIET_SECONDS and not self.any_paused
        return REST_SECONDS if quiet else POLL_SECONDS

    def _message(self, interval: Interval) -> Message:
        """Wrap a whole interval as the value of one Faust event."""
        tp = TP(*interval.tp)  # Faust's own
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
                with suppress(IllegalStateError):  # the next rebalance has begun
                    await self.seek_to(tp, position)

    async def seek_to(self, tp: TP, position: int) -> None:
        """Move the position of one partition."""
        # In the consumer's thread: the position must not move between a fetch and its interval.
        thread = cast(ConsumerThread, self.thread)
        await thread.call_thread(_seek, thread.ready_client, TopicPartition(*tp), position)

    async def leave(self) -> None:
        """Leave the group, and keep serving the assigned partitions until others open them."""
        thread = cast(ConsumerThread, self.thread)
        self.applied = dict  # the new owners report positions from here on
        await thread.call_thread(of_aiokafka.leave_group, thread.ready_client)

    @property
    def member_id(self) -> str:
        """The id that the group gave this worker."""
        return "" if self.thread is None else of_aiokafka.member_id(self.thread.client)

    def group_error(self) -> EngineError | None:
        """Make the error if the group has rejected this member; otherwise None.

        After any other error of its coordinator, the member joins again.
        """
        if self.thread is None:
            return None
        client = self.thread.client
        if (error := of_aiokafka.group_failure(client)) is not None:
            refused = aio_refusal(error, ROLE)
            return refused or EngineError(f"the consumer group refused this worker: {error!r}")
        if (error := of_aiokafka.group_error(client)) is None:
            return None
        if (refused := aio_refusal(error, ROLE)) is None:
            log.warning("joining the group again, after an error of its coordinator: %s", error)
            self.thread.thread_loop.call_soon_threadsafe(of_aiokafka.join_again, client)
        return refused

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Check nothing (``now`` in seconds): an idle shard is no error."""


async def _seek(consumer: Any, tp: TopicPartition, position: int) -> None:
    consumer.seek(tp, position)


class Producer(driver.Producer):
    """A producer that never connects; Faust requires one.

    Nothing is sent through it: each shard has its own transactional producer.
    """

    async def on_start(self) -> None:
        """Connect to nothing."""


class Transport(driver.Transport):
    """The ``hush://`` transport."""

    Consumer = Consumer
    Producer = Producer
    driver_version = f"hushstream on {driver.Transport.driver_version}"


def register() -> None:
    """Make ``hush://host:port`` a broker address that Faust understands."""
    tolerant.install()
    of_faust_assignor.install()
    drivers.TRANSPORTS.aliases[ALIAS] = f"{__name__}:Transport"


def credentials(kafka: Kafka) -> Any:
    """Describe the configured security for Faust; None for plain connections."""
    options = client_options(kafka)
    context = options.get("ssl_context")
    if PROVIDER in options:
        return OAuthCredentials(oauth_cb=options[PROVIDER], ssl_context=context)
    if "sasl_mechanism" in options:
        return SASLCredentials(
            username=options["sasl_plain_username"],
            password=options["sasl_plain_password"],
            mechanism=options["sasl_mechanism"],
            ssl_context=context,
        )
    return SSLCredentials(context) if context is not None else None
