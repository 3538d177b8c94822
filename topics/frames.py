"""Columnar frames between stages: one Kafka record holds many events or partial sums.

Every frame is an Arrow IPC stream of one record batch; its schema's metadata hold the kind,
the version and the few scalars; a checksum follows it. Frames are raw data and never leave the
internal topics. A frame is read only after it was checked: first the checksum, then what Arrow does
not verify (lengths, offsets, indices), then columns, types and scalars.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..errors import EngineError
from ..mechanisms.columns import I64, Part
from ..mechanisms.keys import Keys
from .records import Trigger, WiderTrigger, encode

VERSION = b"1"
_MARK = b"hsh1"
_TAIL = 8  # a mark, and the CRC-32 of all bytes before it
_DIGITS = 20
_DAMAGED = "a frame of an internal topic is damaged"
_OPTIONS = pa.ipc.IpcWriteOptions()  # else Arrow reads the environment each time
LIMIT = 700_000  # bytes; well below the broker's default limit of one record


_KEY = pa.dictionary(pa.int32(), pa.binary())
_EVENTS = (("unit", pa.binary(16)), ("key", _KEY), ("sign", pa.int8()))
_CELLS = (("key", pa.binary()), ("lane", pa.uint8()))


class EventSlice(NamedTuple):
    """Events of one window and micro-batch of one pipeline, in log order."""

    window: int
    batch: int
    unit: NDArray[np.uint8]  # (n, 16) keyed digests
    keys: Keys  # (k,) distinct
    key: NDArray[np.intp]  # (n,)
    value: I64  # (n, c)
    sign: NDArray[np.int8]  # (n,)

    def part(self, rows: NDArray[Any]) -> EventSlice:
        """The slice of some rows."""
        used, key = np.unique(self.key[rows], return_inverse=True)
        return self._replace(
            unit=self.unit[rows],
            keys=self.keys.take(used),
            key=key.astype(np.intp),
            value=self.value[rows],
            sign=self.sign[rows],
        )

    def split(self, home: NDArray[np.intp]) -> Iterator[tuple[int, EventSlice]]:
        """Split by (n,) partition numbers; yields partitions that have events, with their slices.

        Equals `part` for each partition, but sorts once for all.
        """
        order = np.argsort(home, kind="stable")
        codes = home[order] * len(self.keys) + self.key[order]
        used, row = np.unique(codes, return_inverse=True)
        there = used // max(len(self.keys), 1)
        keys, row = self.keys.take(used - there * len(self.keys)), row.reshape(-1).astype(np.intp)
        unit, value, sign = self.unit[order], self.value[order], self.sign[order]
        for partition, rows in groups(home[order]):
            first, last = np.searchsorted(there, (partition, partition + 1)).tolist()
            key = row[rows] - first
            yield (
                partition,
                EventSlice(
                    self.window,
                    self.batch,
                    unit[rows],
                    keys[first:last],
                    key,
                    value[rows],
                    sign[rows],
                ),
            )


class EventsFrame(NamedTuple):
    """A slice sent by the first stage of one raw partition."""

    origin: int
    slice: EventSlice


class CellsFrame(NamedTuple):
    """A partial sum sent by one bound shard."""

    origin: int
    window: int
    batch: int
    part: Part


class Barrier(NamedTuple):
    """A marker that the origin has sent its whole micro-batch for this trigger."""

    origin: int
    trigger: Trigger
    totals: I64


AnyFrame = EventsFrame | CellsFrame | Barrier


def encode_events(origin: int, events: EventSlice) -> Iterator[bytes]:
    """Split into frames of at most `LIMIT` bytes each, in order."""
    columns = (events.unit, events.key.astype(np.int32), events.sign, events.value)
    if len(events.unit) <= 1 or _least(events.keys, columns) <= LIMIT:
        frame = _encode_events(origin, events)
        if len(events.unit) <= 1 or len(frame) <= LIMIT:
            yield frame
            return
    half = len(events.unit) // 2
    yield from encode_events(origin, events.part(np.arange(half)))
    yield from encode_events(origin, events.part(np.arange(half, len(events.unit))))


def encode_cells(origin: int, window: int, batch: int, part: Part) -> Iterator[bytes]:
    """Split into frames of at most `LIMIT` bytes each, in key order."""
    if len(part.key) <= 1 or _least(part.key, (part.lane, part.sums)) <= LIMIT:
        frame = _encode_cells(origin, window, batch, part)
        if len(part.key) <= 1 or len(frame) <= LIMIT:
            yield frame
            return
    half = len(part.key) // 2
    for rows in (slice(half), slice(half, None)):
        some = Part(part.key[rows], part.lane[rows], part.sums[rows], part.totals)
        yield from encode_cells(origin, window, batch, some)


def _least(keys: Keys, columns: tuple[NDArray[Any], ...]) -> int:
    """Lower bound on the bytes of a frame of these columns, to avoid encoding a larger one."""
    return int(keys.offsets[-1] - keys.offsets[0]) + sum(column.nbytes for column in columns)


def take_part(part: Part, rows: NDArray[Any]) -> Part:
    """Some rows of a partial sum, with its totals."""
    return Part(part.key.take(rows), part.lane[rows], part.sums[rows], part.totals)


def split_part(part: Part, home: NDArray[np.intp]) -> Iterator[tuple[int, Part]]:
    """Split by (k,) partition numbers; yields partitions that have sums, each with all totals."""
    order = np.argsort(home, kind="stable")
    key, lane, sums = part.key.take(order), part.lane[order], part.sums[order]
    for partition, rows in groups(home[order]):
        yield partition, Part(key[rows], lane[rows], sums[rows], part.totals)


def groups(numbers: NDArray[np.intp]) -> Iterator[tuple[int, slice]]:
    """Yield the distinct values of (n,) sorted numbers, each with its slice.

    >>> list(groups(np.array([2, 2, 5])))
    [(2, slice(0, 2, None)), (5, slice(2, 3, None))]
    """
    if not len(numbers):
        return
    ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for begin, end in pairwise([0, *ends]):
        yield int(numbers[begin]), slice(begin, end)


def encode_barrier(barrier: Barrier) -> bytes:
    """Encode a barrier with its whole trigger: a shard may read it before the clock record."""
    meta = {
        b"kind": b"barrier",
        b"origin": str(barrier.origin).encode(),
        b"trigger": encode(barrier.trigger),
        b"totals": _written(barrier.totals),
    }
    return _write({}, meta)


def seems_barrier(frame: bytes) -> bool:
    """Guess whether a frame is a barrier, without reading it; only `decode` knows."""
    size = int.from_bytes(frame[4:8], "little")  # of the schema, which has the kind
    return frame.find(b"barrier", 8, 8 + size) >= 0


def decode(frame: bytes) -> AnyFrame:
    """Check a record's value as a whole, then decode its frame.

    Raises:
        EngineError: the frame is truncated or damaged, or its version or kind is unknown: an older
            worker must not guess.
    """
    meta, batch = _read(_checked(frame))
    if meta.get(b"version") != VERSION:
        raise EngineError("a frame of another version: upgrade this worker")
    if (kind := meta.get(b"kind")) not in (b"barrier", b"events", b"cells"):
        raise EngineError("a frame of an unknown kind: upgrade this worker")
    try:
        return _decode(kind, meta, batch)
    except (KeyError, ValueError, OverflowError) as error:  # msgspec's errors are ValueErrors
        raise EngineError(f"{_DAMAGED}: its {kind.decode()} cannot be read") from error


def _checked(frame: bytes) -> memoryview:
    """The Arrow stream of a frame, after its checksum was verified."""
    body, tail = memoryview(frame)[:-_TAIL], frame[-_TAIL:]
    if tail[:4] != _MARK:
        raise EngineError(
            f"{_DAMAGED}: it lacks its checksum; if it comes from another version, upgrade this "
            "worker"
        )
    if zlib.crc32(body) != int.from_bytes(tail[4:], "big"):
        raise EngineError(f"{_DAMAGED}: its checksum is wrong")
    return body


def _read(body: memoryview) -> tuple[dict[bytes, bytes], pa.RecordBatch]:
    """Metadata and the one batch, validated: Arrow itself trusts offsets and indices."""
    try:
        batch = pa.ipc.open_stream(pa.py_buffer(body)).read_next_batch()
        batch.validate(full=True)
    except (pa.ArrowException, ValueError, OSError, StopIteration, MemoryError) as error:
        raise EngineError(f"{_DAMAGED}: it is not an Arrow stream") from error
    return dict(batch.schema.metadata or {}), batch


def _decode(kind: bytes, meta: dict[bytes, bytes], batch: pa.RecordBatch) -> AnyFrame:
    origin = _number(meta, b"origin")
    if kind == b"barrier":
        _expect(batch, ())
        trigger = msgspec.json.decode(meta[b"trigger"], type=Trigger | WiderTrigger)
        return Barrier(origin, trigger, _totals(meta))
    window, number = _number(meta, b"window"), _number(meta, b"batch")
    if kind == b"events":
        return EventsFrame(origin, _decode_events(batch, window, number))
    return CellsFrame(origin, window, number, _decode_cells(batch, _totals(meta)))


def _expect(
    batch: pa.RecordBatch, head: tuple[tuple[str, pa.DataType], ...], more: str = ""
) -> int:
    """Count the int64 columns ``more`` 0, 1, … after those of ``head``; refuse others.

    Raises:
        ValueError: names, types or order differ, there are rows without a column, or nulls.
    """
    extra = len(batch.schema) - len(head)
    names = [*head, *((f"{more}{place}", pa.int64()) for place in range(extra) if more)]
    if [(one.name, one.type) for one in batch.schema] != names:
        raise ValueError("other columns")
    if any(column.null_count for column in batch.columns) or (not names and batch.num_rows):
        raise ValueError("nulls, or rows without columns")
    return extra


def _number(meta: dict[bytes, bytes], name: bytes) -> int:
    number = int(meta[name][:_DIGITS])
    if str(number).encode() != meta[name] or not -(1 << 63) <= number < 1 << 63:
        raise ValueError("not an integer of 64 bits")
    return number


def _written(totals: I64) -> bytes:
    return msgspec.json.encode(totals.tolist())


def _totals(meta: dict[bytes, bytes]) -> I64:
    return np.array(msgspec.json.decode(meta[b"totals"], type=list[int]), np.int64)


def binary(keys: Keys) -> pa.Array:
    """Keys as an Arrow binary array."""
    offsets = (keys.offsets - keys.offsets[0]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(keys.packed())]
    return pa.BinaryArray.from_buffers(pa.binary(), len(keys), buffers)


def keys_of(array: pa.Array) -> Keys:
    """An Arrow binary array as keys, without a copy of the bytes."""
    if not len(array):
        return Keys.of([])
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return Keys(raw, ends.astype(np.int64))


def _encode_events(origin: int, events: EventSlice) -> bytes:
    columns = {
        "unit": pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(16), len(events.unit), [None, pa.py_buffer(np.ascontiguousarray(events.unit))]
        ),
        "key": pa.DictionaryArray.from_arrays(
            _column(events.key.astype(np.int32)), binary(events.keys)
        ),
        "sign": _column(events.sign),
    }
    for column in range(events.value.shape[1]):
        columns[f"v{column}"] = _column(events.value[:, column])
    return _write(columns, _scalars(b"events", origin, events.window, events.batch))


def _decode_events(batch: pa.RecordBatch, window: int, number: int) -> EventSlice:
    columns, n = _expect(batch, _EVENTS, "v"), batch.num_rows
    unit = np.frombuffer(batch.column("unit").buffers()[1], np.uint8)[: n * 16].reshape(n, 16)
    key, sign = batch.column("key"), _numbers(batch.column("sign"))
    if key.dictionary.null_count or not (np.abs(sign) == 1).all():
        raise ValueError("a null key, or a sign that is neither 1 nor -1")
    return EventSlice(
        window,
        number,
        unit,
        keys_of(key.dictionary),
        _numbers(key.indices).astype(np.intp),
        _values(batch, "v", columns),
        sign,
    )


def _encode_cells(origin: int, window: int, number: int, part: Part) -> bytes:
    columns = {"key": binary(part.key), "lane": _column(part.lane)}
    for column in range(part.sums.shape[1]):
        columns[f"s{column}"] = _column(part.sums[:, column])
    meta = _scalars(b"cells", origin, window, number)
    return _write(columns, meta | {b"totals": _written(part.totals)})


def _decode_cells(batch: pa.RecordBatch, totals: I64) -> Part:
    columns = max(1, _expect(batch, _CELLS, "s"))
    lane = _numbers(batch.column("lane"))
    return Part(keys_of(batch.column("key")), lane, _values(batch, "s", columns), totals)


def _values(batch: pa.RecordBatch, prefix: str, columns: int) -> I64:
    names = [f"{prefix}{place}" for place in range(columns)]
    if not set(names) & set(batch.schema.names):
        return np.empty((batch.num_rows, columns), np.int64)
    return np.stack([_numbers(batch.column(name)) for name in names], axis=1)


def _column(numbers: NDArray[Any]) -> pa.Array:
    """Numbers as an Arrow array; Arrow's own conversion would load pandas if installed."""
    kind = pa.from_numpy_dtype(numbers.dtype)
    data = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(kind, len(numbers), [None, data])


def _numbers(array: pa.Array) -> NDArray[Any]:
    """The numbers of an Arrow array without nulls; also without pandas."""
    kind = np.dtype(array.type.to_pandas_dtype())  # despite its name, a NumPy type
    if not len(array):
        return np.empty(0, kind)
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)


def _scalars(kind: bytes, origin: int, window: int, batch: int) -> dict[bytes, bytes]:
    numbers = {b"origin": origin, b"window": window, b"batch": batch}
    return {b"kind": kind} | {name: str(value).encode() for name, value in numbers.items()}


def _write(columns: dict[str, pa.Array], meta: dict[bytes, bytes]) -> bytes:
    kinds = tuple((name, array.type) for name, array in columns.items())
    schema = _schema(kinds, tuple(meta.items()))
    batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_OPTIONS) as writer:
        writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body + _MARK + zlib.crc32(body).to_bytes(4, "big")


@lru_cache(64)
def _schema(
    kinds: tuple[tuple[str, pa.DataType], ...], meta: tuple[tuple[bytes, bytes], ...]
) -> pa.Schema:
    """The schema of a frame, shared by all frames of one step and micro-batch."""
    fields = [pa.field(name, kind, nullable=False) for name, kind in kinds]
    return pa.schema(fields, metadata=dict(meta) | {b"version": VERSION})
