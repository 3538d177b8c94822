"""Record batches made by hand: small on the wire and large after inflation."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import aiokafka
import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c, encode_varint

HEADER = struct.Struct(">qiibIhiqqqhii")
CODECS = {"gzip": 1, "lz4": 3, "zstd": 4}


def record(offset: int, value: bytes) -> bytes:
    """One record in the format of a batch."""
    body = bytearray(b"\0")
    for number in (0, offset, -1, len(value)):
        encode_varint(number, body.append)
    body += value + b"\0"
    made = bytearray()
    encode_varint(len(body), made.append)
    return bytes(made + body)


def batch(values: Iterable[bytes], codec: str = "zstd", stamp: int = 0) -> bytes:
    """A compressed batch, made with at most one value in memory."""
    sink = pa.BufferOutputStream()
    count = 0
    with pa.CompressedOutputStream(sink, codec) as stream:
        for offset, value in enumerate(values):
            stream.write(record(offset, value))
            count += 1
    data = sink.getvalue().to_pybytes()
    rest = struct.pack(
        ">hiqqqhii", CODECS[codec], count - 1, stamp, stamp, -1, -1, -1, count
    )  # fmt: skip
    crc = calc_crc32c(rest + data)
    length = HEADER.size - 12 + len(data)
    return struct.pack(">qiibI", 0, length, -1, 2, crc) + rest + data


async def produce(bootstrap: str, topic: str, batches: Iterable[bytes]) -> None:
    """Send finished batches to partition 0 of a topic."""
    producer: Any = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=0)
    await producer.start()
    try:
        for data in batches:
            made = producer.create_batch()
            made.append(timestamp=None, key=None, value=b"?")
            made._builder = Ready(made._builder, data)
            made.close()
            await (await producer.send_batch(made, topic, partition=0))
    finally:
        await producer.stop()


class Ready:
    """A finished builder: its bytes are given, and another builder does the rest."""

    def __init__(self, builder: DefaultRecordBatchBuilder, data: bytes) -> None:
        self._builder, self._data = builder, data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    def build(self) -> bytearray:
        return bytearray(self._data)

    def size(self) -> int:
        return len(self._data)
