"""Columnar frames between stages: one Kafka record carries many events or partial sums.

Every frame is an Arrow IPC stream of one record batch; its schema's metadata hold the kind,
the version and the few scalars. Frames are raw data and never leave the internal topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..errors import EngineError
from ..mechanisms.columns import I64, Part
from ..mechanisms.keys import Keys
from .records import Trigger, encode

VERSION = b"1"
LIMIT = 700_000  # bytes; well below the broker's default limit of one record


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
    """A marker that the origin has sent its whole micro-batch of this trigger."""

    origin: int
    trigger: Trigger
    totals: I64


AnyFrame = EventsFrame | CellsFrame | Barrier


def encode_events(origin: int, events: EventSlice) -> Iterator[bytes]:
    """Split into frames of at most `LIMIT` bytes each, in order."""
    frame = _encode_events(origin, events)
    if len(frame) <= LIMIT or len(events.unit) <= 1:
        yield frame
        return
    half = len(events.unit) // 2
    yield from encode_events(origin, events.part(np.arange(half)))
    yield from encode_events(origin, events.part(np.arange(half, len(events.unit))))


def encode_cells(origin: int, window: int, batch: int, part: Part) -> Iterator[bytes]:
    """Split into frames of at most `LIMIT` bytes each, in key order."""
    frame = _encode_cells(origin, window, batch, part)
    if len(frame) <= LIMIT or len(part.key) <= 1:
        yield frame
        return
    half = len(part.key) // 2
    for rows in (np.arange(half), np.arange(half, len(part.key))):
        yield from encode_cells(origin, window, batch, take_part(part, rows))


def take_part(part: Part, rows: NDArray[Any]) -> Part:
    """Some rows of a partial sum, with its totals."""
    return Part(part.key.take(rows), part.lane[rows], part.sums[rows], part.totals)


def encode_barrier(barrier: Barrier) -> bytes:
    """Encode a barrier with its whole trigger: a shard may read it before the clock record."""
    meta = {
        b"kind": b"barrier",
        b"origin": str(barrier.origin).encode(),
        b"trigger": encode(barrier.trigger),
        b"totals": encode(barrier.totals.tolist()),
    }
    return _write({}, meta)


def decode(frame: bytes) -> AnyFrame:
    """Decode the frame in a record's value.

    Raises:
        EngineError: the version or kind is unknown; an older worker must not guess.
    """
    batch = pa.ipc.open_stream(pa.py_buffer(frame)).read_next_batch()
    meta = batch.schema.metadata or {}
    if meta.get(b"version") != VERSION:
        raise EngineError("a frame of another version: upgrade this worker")
    origin = int(meta[b"origin"])
    if meta[b"kind"] == b"barrier":
        trigger = msgspec.json.decode(meta[b"trigger"], type=Trigger)
        totals = np.array(msgspec.json.decode(meta[b"totals"]), np.int64)
        return Barrier(origin, trigger, totals)
    window, number = int(meta[b"window"]), int(meta[b"batch"])
    if meta[b"kind"] == b"events":
        return EventsFrame(origin, _decode_events(batch, window, number))
    if meta[b"kind"] == b"cells":
        return CellsFrame(origin, window, number, _decode_cells(batch))
    raise EngineError("a frame of an unknown kind: upgrade this worker")


def binary(keys: Keys) -> pa.Array:
    """Keys as an Arrow binary array."""
    offsets = (keys.offsets - keys.offsets[0]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(keys.packed())]
    return pa.BinaryArray.from_buffers(pa.binary(), len(keys), buffers)


def keys_of(array: pa.Array) -> Keys:
    """An Arrow binary array as keys, without a copy of the bytes."""
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
            pa.array(events.key.astype(np.int32)), binary(events.keys)
        ),
        "sign": pa.array(events.sign),
    }
    for column in range(events.value.shape[1]):
        columns[f"v{column}"] = pa.array(np.ascontiguousarray(events.value[:, column]))
    return _write(columns, _scalars(b"events", origin, events.window, events.batch))


def _decode_events(batch: pa.RecordBatch, window: int, number: int) -> EventSlice:
    n = batch.num_rows
    unit = np.frombuffer(batch.column("unit").buffers()[1], np.uint8)[: n * 16].reshape(n, 16)
    key = batch.column("key")
    return EventSlice(
        window,
        number,
        unit,
        keys_of(key.dictionary),
        key.indices.to_numpy().astype(np.intp),
        _values(batch, "v", 0),
        batch.column("sign").to_numpy(),
    )


def _encode_cells(origin: int, window: int, number: int, part: Part) -> bytes:
    columns = {"key": binary(part.key), "lane": pa.array(part.lane)}
    for column in range(part.sums.shape[1]):
        columns[f"s{column}"] = pa.array(np.ascontiguousarray(part.sums[:, column]))
    meta = _scalars(b"cells", origin, window, number)
    return _write(columns, meta | {b"totals": encode(part.totals.tolist())})


def _decode_cells(batch: pa.RecordBatch) -> Part:
    totals = np.array(msgspec.json.decode(batch.schema.metadata[b"totals"]), np.int64)
    lane = batch.column("lane").to_numpy()
    return Part(keys_of(batch.column("key")), lane, _values(batch, "s", 1), totals)


def _values(batch: pa.RecordBatch, prefix: str, least: int) -> I64:
    names = [n for n in batch.schema.names if n[0] == prefix and n[1:].isdigit()]
    if not names:
        return np.empty((batch.num_rows, least), np.int64)
    return np.stack([batch.column(f"{prefix}{i}").to_numpy() for i in range(len(names))], axis=1)


def _scalars(kind: bytes, origin: int, window: int, batch: int) -> dict[bytes, bytes]:
    numbers = {b"origin": origin, b"window": window, b"batch": batch}
    return {b"kind": kind} | {name: str(value).encode() for name, value in numbers.items()}


def _write(columns: dict[str, pa.Array], meta: dict[bytes, bytes]) -> bytes:
    fields = [pa.field(name, array.type, nullable=False) for name, array in columns.items()]
    schema = pa.schema(fields, metadata=meta | {b"version": VERSION})
    batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
