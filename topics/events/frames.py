"""Raw topics of columnar frames: one Kafka record holds many events as an Arrow IPC stream.

Columns are named like the fields of a JSON event; nested ones are structs. Every event of a frame
has the frame's offset, so that all of them fall into one micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from .decode import RawRecord

FRAMES_PER_STEP = 64


def expand(records: Sequence[RawRecord]) -> list[RawRecord]:
    """Events of each frame as JSON records; what is no frame stays, and is a bad record."""
    events: list[RawRecord] = []
    for record in records:
        events += _events(record)
    return events


def _events(record: RawRecord) -> list[RawRecord]:
    try:
        with pa.ipc.open_stream(record.value) as reader:
            rows = reader.read_all().to_pylist()
        values = [msgspec.json.encode(row) for row in rows]
    except (pa.ArrowException, OSError, TypeError, ValueError, msgspec.MsgspecError):
        # A fresh value that no JSON decoder takes: the whole frame is one dead letter.
        return [
            RawRecord(record.offset, record.timestamp, record.key, record.value, record.headers)
        ]
    return [
        RawRecord(record.offset, record.timestamp, record.key, v, record.headers) for v in values
    ]


def encode(rows: Sequence[dict[str, object]]) -> bytes:
    """A frame of events, for producers and tests."""
    batch = pa.RecordBatch.from_pylist(list(rows))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
