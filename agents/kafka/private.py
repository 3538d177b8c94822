"""Private names of Faust and aiokafka that the product relies on: here, and nowhere else.

Both libraries are capped in ``pyproject.toml``, since any release may change what is private. Every
name of `NEEDED` is looked for when this module is imported, so that a worker on a version without
one of them stops before it reads a record. The functions and classes below wrap them; their own
names are public.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from types import CodeType, FunctionType
from typing import Any

import faust
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer import fetcher as fetching
from aiokafka.consumer.fetcher import Fetcher, FetchResult, PartitionRecords
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import TopicPartition
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, Message

from ...errors import EngineError
from ...topics.events.compiled import possible
from .intervals import Gone, Interval, Most, Positions, Taken, since
from .progress import Progress
from .record_columns import Content, RecordColumns

QUIET_SECONDS = 2.0  # without a record, after which a fetcher becomes patient
LONG_MS = 1_000  # for which the broker then holds a request; a new assignment may wait as long

HEADER = 61  # bytes of a batch before its records; places in it:
_LENGTH, _LENGTH_AT = struct.Struct(">i"), 8  # of all that follows it
_CRC, _CRC_AT = struct.Struct(">I"), 17
_ATTRIBUTES_AT = 21
_RECORDS, _RECORDS_AT = struct.Struct(">iqq"), 23  # last offset, first and latest time
_PRODUCER, _PRODUCER_AT = struct.Struct(">qhi"), 43  # id, epoch, sequence number
_COUNT, _COUNT_AT = struct.Struct(">i"), 57

NEEDED: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("faust-streaming", faust.App, ("_on_agent_error",)),
    (
        "faust-streaming",
        driver.Consumer,
        (
            "_drain_messages", "_filter_tps_with_pending_acks", "_get_active_partitions",
            "_new_consumer_thread", "_new_offset", "_paused_partitions", "_stopped", "_thread",
            "_unacked_messages",
        ),
    ),
    (
        "faust-streaming",
        driver.AIOKafkaConsumerThread,
        ("_consumer", "_create_consumer", "_create_worker_consumer", "_ensure_consumer"),
    ),
    ("aiokafka", AIOKafkaConsumer, ("_closed", "_coordinator", "_fetcher")),
    (
        "aiokafka",
        Fetcher,
        (
            "_closed", "_create_fetch_waiter", "_fetch_max_wait_ms", "_fetcher_timeout",
            "_notify", "_records", "_subscriptions", "_wait_consume_future",
        ),
    ),
    ("aiokafka", FetchResult, ("_assignment", "_partition_records", "_update_position")),
    ("aiokafka", PartitionRecords, ("_consumer_record", "_records")),
    ("aiokafka", GroupCoordinator, ("_coordination_task", "member_id")),
    (
        "aiokafka",
        BatchBuilder,
        ("_build", "_buffer", "_builder", "_closed", "_relative_offset", "_set_producer_state"),
    ),
    (
        "aiokafka",
        _DefaultRecordBatchPy,
        ("_buffer", "_maybe_uncompress", "_num_records", "_pos"),
    ),
    ("aiokafka", fetching, ("MemoryRecords",)),
)  # fmt: skip


def check(needed: Iterable[tuple[str, Any, tuple[str, ...]]] = NEEDED) -> None:
    """Look for every private name.

    Raises:
        EngineError: one is missing; the message names library, version and name.
    """
    for library, owner, names in needed:
        known = set(_names(owner))
        for name in names:
            if name not in known and not hasattr(owner, name):
                raise EngineError(
                    f"{library} {version(library)} has no {owner.__name__}.{name}, which this "
                    "version of hushstream relies on: install the versions of requirements.lock"
                )


def _names(owner: Any) -> Iterator[str]:
    """Attributes that the methods of a class use or annotate, those of instances included."""
    for one in getattr(owner, "__mro__", ()):
        yield from vars(one).get("__annotations__", ())
        for member in vars(one).values():
            if isinstance(member, FunctionType):
                yield from _used(member.__code__)


def _used(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _used(constant)


check()


# -- Faust ----------------------------------------------------------------------------------------


class FailingApp(faust.App):
    """A Faust application that stops when an agent fails.

    Stock Faust restarts the agent, after it has acknowledged, and so lost, the agent's event.

    Attributes:
        on_agent_failure: called with the error that an agent raised.
        outage_timeout: microseconds after which a broker that is away is given up.
        progress: of the consumer.
    """

    on_agent_failure: Callable[[BaseException], None]
    outage_timeout: int

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.progress = Progress("the consumer")

    async def _on_agent_error(self, agent: Any, exc: BaseException) -> None:
        self.on_agent_failure(exc)


class HookedThread(driver.AIOKafkaConsumerThread):
    """Faust's consumer thread with hooks: `make_consumer`, `open_client`, `client`."""

    def make_consumer(self, url: Any, port: int) -> AIOKafkaConsumer:
        """Make the client of this thread, without starting it."""
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
        """The client, or None before it was made."""
        return self._consumer

    @property
    def ready_client(self) -> Any:
        """The client; raises Faust's error before it was made."""
        return self._ensure_consumer()


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
        """The thread of `make_thread`, or None before the start."""
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
        """Acknowledge an event without noting its offset: positions are in the shards' state."""
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


# -- aiokafka: fetching ---------------------------------------------------------------------------


def closed(consumer: Any) -> bool:
    """Whether a consumer or what fetches for it has been closed."""
    return bool(consumer._closed or consumer._fetcher._closed)


class PatientFetcher(Fetcher):
    """A fetcher that lets the broker hold its request for longer while nothing comes.

    The broker answers as soon as there is a record, so an idle client asks once a second instead of
    ten times and learns of a record no later. A request in flight holds back only partitions that
    it does not name, those with fetched records that nobody has taken; so it is short while there
    are any, and for a while after.
    """

    _stirred = 0.0
    _short_ms = 0

    @property
    def _fetch_max_wait_ms(self) -> int:
        now = time.monotonic()
        if self._records:
            self._stirred = now
        return LONG_MS if now - self._stirred > QUIET_SECONDS else self._short_ms

    @_fetch_max_wait_ms.setter
    def _fetch_max_wait_ms(self, value: int) -> None:
        self._stirred = time.monotonic()
        self._short_ms = value


def wait_patiently(consumer: Any) -> None:
    """Have a started consumer ask the broker less often while nothing comes."""
    fetcher: Any = getattr(consumer, "_fetcher", None)
    if type(fetcher) is Fetcher:
        short = vars(fetcher).pop("_fetch_max_wait_ms")
        fetcher.__class__ = PatientFetcher
        fetcher._fetch_max_wait_ms = short
        fetcher._fetcher_timeout = LONG_MS / 2000  # it is woken by everything that it waits for


async def fetch(
    consumer: Any, active: set[TP], wanted: Positions, gone: Gone, most: Most, seconds: float
) -> list[Interval]:
    """Collect fetched intervals of the active partitions; wait a moment if there are none.

    Args:
        consumer: an open one.
        active: partitions to take from.
        wanted: the position that each open shard wants next.
        gone: judges positions that the broker refuses.
        most: of one interval.
        seconds: to wait.

    Raises:
        EngineError: a position that an open shard wants is gone.
        KafkaError: the broker reported another error.
    """
    fetcher = consumer._fetcher
    with fetcher._subscriptions.fetch_context():
        if fetcher._subscriptions.reassignment_in_progress:
            await fetcher._subscriptions.wait_for_assignment()
        found = list(take(consumer, active, wanted, gone, most))
        if not found:
            waiter = fetcher._create_fetch_waiter()
            await asyncio.wait([waiter], timeout=seconds)
            if not waiter.done():
                waiter.cancel()
            found = list(take(consumer, active, wanted, gone, most))
    return found


def take(
    consumer: Any, active: set[TP], wanted: Positions, gone: Gone, most: Most
) -> Iterator[Interval]:
    """Take the fetched records of ``active`` as intervals; arguments as for `fetch`.

    Raises:
        EngineError: a position that an open shard wants is gone.
        KafkaError: the broker reported another error.
    """
    fetcher = consumer._fetcher
    # aiokafka's own `getmany` returns records without the positions between which they were taken.
    # An empty list may cover a control record, and only the position shows that.
    for tp in list(fetcher._records):
        name = TP(tp.topic, tp.partition)
        if name not in active:
            if not fetcher._subscriptions.is_assigned(tp):
                del fetcher._records[tp]
            continue
        held = fetcher._records[tp]
        if type(held) is not FetchResult:
            gone.check(held, wanted())
            if held.calculate_backoff() == 0:  # else the fetcher would ask for it again at once
                _drop(fetcher, tp)
            continue
        found = _interval(name, tp, held, most)
        if not held.has_more():
            _drop(fetcher, tp)
        if found is not None:
            yield found


def _interval(name: TP, tp: TopicPartition, held: Any, most: Most) -> Interval | None:
    """Take records up to ``most``; None if the position has not moved, or was revoked."""
    assignment = held._assignment
    state = assignment.state_value(tp) if assignment.active else None
    start = state.position if state is not None else None
    records, size = _taken(tp, held, most)
    if state is None or start is None or state.position <= start:
        return None
    return Interval(name, start, state.position, since(records, start), size)


def _taken(tp: TopicPartition, held: Any, most: Most) -> tuple[Sequence[Any], int]:
    """Records of a fetched list, and their bytes; aiokafka's own `getall` counts records alone."""
    if not held.has_more() or not held.check_assignment(tp):
        return [], 0
    source, found = held._partition_records, Taken()
    source._consumer_record = _as_it_is
    if (reading := getattr(source._records, "reading", None)) is not None:
        reading.largest = most.largest.get(tp.topic, reading.largest)
        reading.columns = tp.topic in most.columns
    for one in source:
        found.add(one)
        if found.number >= most.records or found.size >= most.size:
            held._update_position()
            return found.records(), found.size
    held._update_position()
    held._partition_records = None
    return found.records(), found.size


def _drop(fetcher: Any, tp: TopicPartition) -> None:
    """Let the fetcher ask for the next list of a partition."""
    del fetcher._records[tp]
    fetcher._notify(fetcher._wait_consume_future)


def _as_it_is(_: TopicPartition, record: Any) -> Any:
    """A record as the parser made it: it has all that a shard reads, at a third of the cost."""
    return record


def member_id(consumer: Any) -> str:
    """Look up the id that the group gave a member; it changes when the membership was lost."""
    coordinator = getattr(consumer, "_coordinator", None)
    return str(getattr(coordinator, "member_id", ""))


def group_failure(consumer: Any) -> BaseException | None:
    """Find the error with which the group refused a member for good; no other call reports it."""
    coordinator = getattr(consumer, "_coordinator", None)
    task = getattr(coordinator, "_coordination_task", None)
    if task is None or not task.done():
        return None
    if task.cancelled():
        return EngineError("its group task was cancelled")
    error: BaseException | None = task.exception()
    return error or EngineError("its group task ended")


# -- aiokafka: batches ----------------------------------------------------------------------------


def fill(batch: Any, records: Sequence[Content], begun: int) -> int:
    """Append records until a batch is full.

    It goes straight to the batch's builder: most records are rows of a few bytes, for which
    wrapping would cost more than writing them.

    Args:
        batch: an empty one.
        records: of one partition.
        begun: index of the first one to append.

    Returns:
        Index of the first record that did not fit; ``len(records)`` if all did.
    """
    append, now, none = batch._builder.append, int(time.time() * 1000), list[Any]()
    for place, (key, value, stamp, headers) in enumerate(records[begun:]):
        at = now if stamp is None else stamp
        if append(place, at, key, value, list(headers) if headers else none) is None:
            break
    else:
        place = len(records) - begun
    batch._relative_offset = place
    return begun + place


class PackedBatch(BatchBuilder):
    """A batch whose records were written in one go, and not by the builder."""

    def _set_producer_state(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        _PRODUCER.pack_into(self._buffer, _PRODUCER_AT, producer_id, producer_epoch, sequence)

    def _build(self) -> bytearray:
        data: bytearray = self._buffer
        _CRC.pack_into(data, _CRC_AT, calc_crc32c(memoryview(data)[_ATTRIBUTES_AT:]))
        return data


def fill_columns(batch: Any, rows: RecordColumns, begun: int, most: int) -> int:
    """Write records into a batch until it is full; where loops can be compiled, all at once.

    Args:
        batch: an empty one.
        rows: of one partition.
        begun: index of the first one to write.
        most: bytes of a batch.

    Returns:
        Index of the first record that did not fit; ``len(rows.gone)`` if all did.
    """
    if type(batch) is not BatchBuilder or not possible():
        return fill(batch, rows.contents, begun)
    from .batch_pack import packed

    data, end = packed(rows, begun, most)
    # An empty batch of the builder's own: its attributes say what the producer is.
    data[:HEADER] = batch._builder.build()
    now = int(time.time() * 1000)
    _LENGTH.pack_into(data, _LENGTH_AT, len(data) - _LENGTH_AT - _LENGTH.size)
    _RECORDS.pack_into(data, _RECORDS_AT, end - begun - 1, now, now)
    _COUNT.pack_into(data, _COUNT_AT, end - begun)
    batch.__class__ = PackedBatch
    batch._buffer, batch._relative_offset, batch._closed = data, end - begun, True
    return end


def opened(data: memoryview) -> tuple[Any, bytearray, int, int]:
    """Uncompress a record batch.

    Args:
        data: one batch as it was fetched.

    Returns:
        The batch, its bytes, the index at which records begin, and their number.
    """
    batch = _DefaultRecordBatchPy(data)
    batch._maybe_uncompress()
    return batch, batch._buffer, batch._pos, batch._num_records


def read_batches_with(parser: type) -> None:
    """Have every consumer of this process parse fetched data with ``parser``."""
    fetching.MemoryRecords = parser
