"""Batches written in one go: byte for byte those of the library's builder.

Covers: agents/kafka/batches/record_columns.py
"""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatch
from hushstream.agents.kafka.batches.record_columns import RecordColumns
from hushstream.agents.kafka.private import of_aiokafka
from hushstream.agents.kafka.private.of_aiokafka import PackedBatch, fill, fill_columns
from hushstream.mechanisms.keys import Keys

Rows = dict[bytes, bytes | None]


def some(random: Random, number: int) -> Rows:
    def value() -> bytes | None:
        if random.random() < 0.2:
            return None
        return random.randbytes(random.choice((0, 1, 12, 63, 64, 8191, 8192, 20_000)))

    return {
        random.randbytes(random.choice((1, 27, 63, 64, 200))) + b"%d" % n: value()
        for n in range(number)
    }


def of_library(batch: Any, rows: RecordColumns, begun: int, _: int) -> int:
    """Append the records one by one, with the library's builder."""
    return fill(batch, rows.contents, begun)


def batches(
    rows: RecordColumns, most: int, transactional: bool = True, filled: Any = fill_columns
) -> list[Any]:
    made, sent = [], 0
    while sent < len(rows.gone):
        batch = BatchBuilder(most, 0, is_transactional=transactional)
        sent = filled(batch, rows, sent, most)
        made.append(batch)
    return made


def finished(batch: Any, sequence: int) -> bytes:
    """The bytes that the producer sends."""
    batch._set_producer_state(71, 5, sequence)
    data = bytes(batch._build())
    assert batch.size() == len(data) and batch._build() == data  # a retry sends the same bytes
    return data


@pytest.fixture(autouse=True)
def _one_time(monkeypatch):
    monkeypatch.setattr(of_aiokafka, "time", SimpleNamespace(time=lambda: 1_700_000_000.123))


@pytest.mark.parametrize("seed", range(25))
def test_batches_are_byte_for_byte_those_of_the_library(seed):
    random = Random(seed)
    rows = some(random, random.choice((1, 2, 60, 70, 9_000 if seed % 5 == 0 else 300)))
    columns = RecordColumns.of(rows)
    most, transactional = random.choice((300, 20_100, 900_000)), random.random() < 0.8
    mine = batches(columns, most, transactional)
    theirs = batches(columns, most, transactional, of_library)
    assert all(isinstance(batch, PackedBatch) for batch in mine)
    assert not any(isinstance(batch, PackedBatch) for batch in theirs)
    assert [b.record_count() for b in mine] == [b.record_count() for b in theirs]
    read: Rows = {}
    for n, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        assert one.closed()
        data = finished(one, 10 * n)
        assert data == finished(other, 10 * n)
        parsed = DefaultRecordBatch(data)
        assert parsed.validate_crc() and parsed.is_transactional == transactional
        read |= {record.key: record.value for record in parsed}
    assert list(read.items()) == list(rows.items())


def test_columns_follow_columns_and_parts_of_larger_ones_are_written():
    keys, values = Keys.of([b"x", b"a", b"b"]), Keys.of([b"gone", b"1", b""])
    unit = RecordColumns.of({b"x": b"y", b"a": b"1", b"b": None})
    part = RecordColumns(
        Keys(keys.data, keys.offsets[1:]), Keys(values.data, values.offsets[1:]), unit.gone[1:]
    )
    rows = part.then(RecordColumns.of({b"m": b""}))
    assert [one[:2] for one in rows.contents] == [(b"a", b"1"), (b"b", None), (b"m", b"")]
    for columns in (part, rows):
        (batch,) = batches(columns, 1_000)
        found = DefaultRecordBatch(finished(batch, 0))
        assert [(r.key, r.value) for r in found] == [r[:2] for r in columns.contents]


def test_a_batch_of_another_kind_is_filled_record_by_record():
    class Other:
        def __init__(self) -> None:
            self._builder, self.taken = self, list[Any]()

        def append(self, *record: Any) -> Any:
            self.taken.append(record)
            return True

    batch = Other()
    assert fill_columns(batch, RecordColumns.of({b"a": b"1", b"b": None}), 1, 100) == 2
    assert [record[2:4] for record in batch.taken] == [(b"b", None)]
