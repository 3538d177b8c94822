"""Private names of aiokafka: fetched records with their positions, and whole-batch writes."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.consumer import fetcher as fetching
from aiokafka.consumer.fetcher import Fetcher, FetchResult, PartitionRecords
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import KafkaError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.protocol.admin import DescribeGroupsRequest_v3, DescribeGroupsResponse_v3
from aiokafka.protocol.api import Request
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import TopicPartition

from ....errors import EngineError
from ..batches.header import CHECKED_FROM, OVERHEAD, BatchHeader
from ..batches.record_columns import Content, RecordColumns
from ..intervals import Gone, Interval, Most, Positions, Taken, since
from . import Needed, check

QUIET_SECONDS = 2.0  # without records, after which a fetcher becomes patient
BACKOFF = 0.1  # the library's seconds for which fetched records keep it from asking for others
LONG_MS = 1_000  # for which the broker then holds a request; a new assignment may wait as long
FIXED_MS = 5_000  # the same for a fixed assignment; other requests may wait as long

NEEDED: Needed = (
    (AIOKafkaAdminClient, ("_send_request",)),
    (AIOKafkaConsumer, ("_closed", "_coordinator", "_fetcher")),
    (
        Fetcher,
        (
            "_closed", "_create_fetch_waiter", "_fetch_max_wait_ms", "_fetch_task",
            "_fetcher_timeout", "_notify", "_prefetch_backoff", "_records", "_set_error",
            "_subscriptions", "_wait_consume_future",
        ),
    ),
    (FetchResult, ("_assignment", "_partition_records", "_update_position")),
    (PartitionRecords, ("_consumer_record", "_records")),
    (
        GroupCoordinator,
        (
            "_coordination_task", "_group_instance_id", "_pending_exception", "check_errors",
            "close", "member_id",
        ),
    ),
    (
        BatchBuilder,
        ("_build", "_buffer", "_builder", "_closed", "_relative_offset", "_set_producer_state"),
    ),
    (_DefaultRecordBatchPy, ("_buffer", "_maybe_uncompress", "_num_records", "_pos")),
    (fetching, ("MemoryRecords",)),
)  # fmt: skip
check("aiokafka", NEEDED)


# -- fetching --------------------------------------------------------------------------------------


def closed(consumer: Any) -> bool:
    """Whether a consumer or its fetcher is closed, or the fetcher's routine has failed."""
    fetcher = consumer._fetcher
    return bool(consumer._closed or fetcher._closed or fetcher._fetch_task.done())


class PatientFetcher(Fetcher):
    """A fetcher that lets the broker hold its request for longer while no records come.

    The broker answers as soon as there is a record, so an idle client asks once a second instead of
    ten times and still gets each record as early. A request in flight delays only partitions that
    it leaves out, which are those with fetched records that wait to be taken. So the time is short
    while there are any, and for a while after.

    Where a leader moves, two requests for a partition's first position may be in flight. If both
    find none, the library's fetcher fails at the second error, and nothing is fetched any more;
    here the first error stands.
    """

    _stirred = 0.0
    _short_ms = 0
    _long_ms = LONG_MS

    @property
    def _fetch_max_wait_ms(self) -> int:
        now = time.monotonic()
        if self._records:
            self._stirred = now
        return self._long_ms if now - self._stirred > QUIET_SECONDS else self._short_ms

    @_fetch_max_wait_ms.setter
    def _fetch_max_wait_ms(self, value: int) -> None:
        self._stirred = time.monotonic()
        self._short_ms = value

    def _set_error(self, tp: TopicPartition, error: Exception) -> None:
        if tp not in self._records:
            super()._set_error(tp, error)


def wait_patiently(consumer: Any, longest_ms: int = LONG_MS) -> None:
    """Let the broker hold a started consumer's requests for ``longest_ms`` without records."""
    fetcher: Any = getattr(consumer, "_fetcher", None)
    if type(fetcher) is Fetcher:
        short = vars(fetcher).pop("_fetch_max_wait_ms")
        fetcher.__class__ = PatientFetcher
        fetcher._fetch_max_wait_ms = short
        fetcher._long_ms = longest_ms
        fetcher._fetcher_timeout = longest_ms / 2000  # every awaited event wakes it


def pause(consumer: Any, seconds: float) -> None:
    """Let a consumer that is patient ask only once until its records are taken after a pause."""
    fetcher: Any = getattr(consumer, "_fetcher", None)
    if type(fetcher) is PatientFetcher:
        fetcher._prefetch_backoff = max(seconds, BACKOFF)


async def fetch(
    consumer: Any,
    active: set[TopicPartition],
    wanted: Positions,
    gone: Gone,
    most: Most,
    seconds: float,
) -> list[Interval]:
    """Collect fetched intervals of the active partitions; wait a moment if there are none.

    Args:
        wanted: the position that each open shard wants next.

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


async def fetch_columns(
    consumer: Any, tp: TopicPartition, position: int, seconds: float
) -> list[Interval] | None:
    """Collect fetched intervals of a partition as arrays; None if the client is no aiokafka one.

    Args:
        consumer: open consumer that reads nothing else.

    Raises:
        EngineError: the position is gone.
        KafkaError: the broker reported another error.
    """
    if not isinstance(getattr(consumer, "_fetcher", None), Fetcher):
        return None
    most = Most(sys.maxsize, columns=(tp.topic,))
    return await fetch(consumer, {tp}, lambda: {tp: position}, Gone(), most, seconds)


def take(
    consumer: Any, active: set[TopicPartition], wanted: Positions, gone: Gone, most: Most
) -> Iterator[Interval]:
    """Take the fetched records of ``active`` as intervals; arguments as for `fetch`.

    Raises:
        EngineError: a position that an open shard wants is gone.
        KafkaError: the broker reported another error.
    """
    fetcher = consumer._fetcher
    # aiokafka's `getmany` returns records without the positions between which they were taken. An
    # empty list may cover a control record, which only the position shows.
    for tp in list(fetcher._records):
        if tp not in active:
            if not fetcher._subscriptions.is_assigned(tp):
                del fetcher._records[tp]
            continue
        held = fetcher._records[tp]
        if type(held) is not FetchResult:
            gone.check(held, wanted())
            if held.calculate_backoff() == 0:  # else the fetcher would ask for it again at once
                _drop(fetcher, tp)
            continue
        found = _interval(tp, held, most)
        if not held.has_more():
            _drop(fetcher, tp)
        if found is not None:
            yield found


def _interval(tp: TopicPartition, held: Any, most: Most) -> Interval | None:
    """Take records up to ``most``; None if the position has not moved or is revoked."""
    assignment = held._assignment
    state = assignment.state_value(tp) if assignment.active else None
    start = state.position if state is not None else None
    records, size = _taken(tp, held, most)
    if state is None or start is None or state.position <= start:
        return None
    return Interval(tp, start, state.position, since(records, start), size)


def _taken(tp: TopicPartition, held: Any, most: Most) -> tuple[Sequence[Any], int]:
    """Take records of a fetched list, counting bytes; aiokafka's `getall` only counts records."""
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
    """Drop a partition's list, so that the fetcher asks for the next one."""
    del fetcher._records[tp]
    fetcher._notify(fetcher._wait_consume_future)


def _as_it_is(_: TopicPartition, record: Any) -> Any:
    """Return a record as parsed: it has all that a shard reads, at a third of the cost."""
    return record


def member_id(consumer: Any) -> str:
    """Return the id that the group gave a member; it changes when the membership is lost."""
    coordinator = getattr(consumer, "_coordinator", None)
    return str(getattr(coordinator, "member_id", ""))


async def leave_group(consumer: Any) -> None:
    """Remove a member, even a named one, from its group at once; it keeps fetching.

    The library lets named members stay until their session ends. Only this member is removed: a
    later one with the same name has another id.
    """
    coordinator = consumer._coordinator
    coordinator._group_instance_id = None
    await coordinator.close()


class _Described(DescribeGroupsRequest_v3):
    """Version 3 with rights, which the library would parse like version 2, without rights."""

    RESPONSE_TYPE = DescribeGroupsResponse_v3


class _Ask(Request[_Described]):
    API_KEY = 15

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[_Described]) -> _Described:
        return request_struct_class([self._group], True)


async def described(admin: AIOKafkaAdminClient, group: str) -> tuple[int, int]:
    """Ask a group's coordinator for this user's rights: an error code or 0, and bits of operations.

    Raises:
        KafkaError: there is no coordinator, or it does not answer.
    """
    coordinator = await admin.find_coordinator(group)
    answer: Any = await admin._send_request(_Ask(group), coordinator)
    code, *_, operations = answer.groups[0]
    return code, operations


def group_failure(consumer: Any) -> BaseException | None:
    """Find the error by which the group rejected a member for good; no other call reports it."""
    coordinator = getattr(consumer, "_coordinator", None)
    task = getattr(coordinator, "_coordination_task", None)
    if task is None or not task.done():
        return None
    if task.cancelled():
        return EngineError("its group task was cancelled")
    error: BaseException | None = task.exception()
    return error or EngineError("its group task ended")


def group_error(consumer: Any) -> BaseException | None:
    """Find the error that the group's coordinator reported; joining waits until it is taken."""
    coordinator = getattr(consumer, "_coordinator", None)
    error: BaseException | None = getattr(coordinator, "_pending_exception", None)
    return error


def join_again(consumer: Any) -> None:
    """Take that error, so that the member goes on joining; runs in the consumer's thread."""
    with suppress(KafkaError):
        consumer._coordinator.check_errors()


# -- batches ---------------------------------------------------------------------------------------


def fill(batch: Any, records: Sequence[Content], begun: int) -> int:
    """Append records until a batch is full; return the index of the first that did not fit.

    This uses the batch's builder directly: most records are rows of a few bytes, for which the
    wrapper costs more than the write.
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
    """A batch whose records were written at once, and not by the builder."""

    def _set_producer_state(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        data: bytearray = self._buffer
        head = BatchHeader.of(data)
        head.write(data, producer=producer_id, epoch=producer_epoch, sequence=sequence)

    def _build(self) -> bytearray:
        data: bytearray = self._buffer
        checksum = calc_crc32c(memoryview(data)[CHECKED_FROM:])
        BatchHeader.of(data).write(data, checksum=checksum)
        return data


def fill_columns(batch: Any, rows: RecordColumns, begun: int, most: int) -> int:
    """Write records into a batch until it is full; return the index of the first left out."""
    if type(batch) is not BatchBuilder:
        return fill(batch, rows.contents, begun)
    from ..batches.pack import packed

    data, end = packed(rows, begun, most)
    # An empty batch from the builder has the attributes of the producer.
    empty, now = BatchHeader.of(batch._builder.build()), int(time.time() * 1000)
    empty.write(
        data, length=len(data) - OVERHEAD, last=end - begun - 1, first_time=now, latest_time=now,
        records=end - begun,
    )  # fmt: skip
    batch.__class__ = PackedBatch
    batch._buffer, batch._relative_offset, batch._closed = data, end - begun, True
    return end


def opened(data: memoryview) -> tuple[Any, bytearray, int, int]:
    """Uncompress a record batch; return the batch, its bytes, the records' begin and number."""
    batch = _DefaultRecordBatchPy(data)
    batch._maybe_uncompress()
    return batch, batch._buffer, batch._pos, batch._num_records


def read_batches_with(parser: type) -> None:
    """Make every consumer of this process parse fetched data with ``parser``."""
    fetching.MemoryRecords = parser
