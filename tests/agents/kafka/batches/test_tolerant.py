"""Batches with header names that are not UTF-8 are read as well; everything else is unchanged."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import (
    DefaultRecordBatchBuilder,
    _DefaultRecordBatchBuilderPy,
)
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition
from hushstream.agents.kafka.batches import tolerant as batches
from hushstream.agents.kafka.batches.tolerant import TolerantBatches, patiently
from hypothesis import given
from hypothesis import strategies as st


class Name(str):
    """A header name that is sent as the given bytes."""

    raw: bytes

    def encode(self, *_: Any, **__: Any) -> bytes:
        return self.raw


def name(raw: bytes) -> Name:
    made = Name("?")
    made.raw = raw
    return made


NONE = st.none()
VALUES = NONE | st.binary(max_size=9)
NAMES = st.binary(max_size=4) | st.text(max_size=3).map(str.encode)
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=3)
RECORDS = st.lists(
    st.tuples(st.integers(0, 2**41), VALUES, VALUES, HEADERS), min_size=1, max_size=6
)


def build(records: list[Any], codec: int = 0) -> bytes:
    made = _DefaultRecordBatchBuilderPy(2, codec, 0, -1, -1, -1, 1 << 20)
    for place, (stamp, key, value, headers) in enumerate(records):
        made.append(place, stamp, key, value, [(name(n), v) for n, v in headers])
    return bytes(made.build())


def text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def expected(records: list[Any]) -> list[Any]:
    out = []
    for place, (stamp, key, value, headers) in enumerate(records):
        names = [text(n) for n, _ in headers]
        kept = [] if None in names else list(zip(names, (v for _, v in headers), strict=True))
        out.append((place, stamp, key, value, kept))
    return out


def told(record: Any) -> Any:
    return record.offset, record.timestamp, record.key, record.value, list(record.headers)


def seen(source: Any) -> list[Any]:
    found = []
    while source.has_next():
        found += map(told, source.next_batch())
    assert source.next_batch() is None
    return found


@given(RECORDS, st.sampled_from([0, 1, 2, 3, 4]))
def test_all_records_are_read_whatever_their_headers_are_called(records, codec):
    assert seen(TolerantBatches(build(records, codec))) == expected(records)


@given(RECORDS)
def test_patience_gives_what_speed_would(records):
    """If all names are text, both readers agree with aiokafka's."""
    plain = [(*r[:3], [(n, v) for n, v in r[3] if text(n) is not None]) for r in records]
    data = build(plain)
    fast = seen(MemoryRecords(data))
    slow = [
        (r.offset, r.timestamp, r.key, r.value, list(r.headers))
        for r in patiently(memoryview(data))
    ]
    assert fast == slow == seen(TolerantBatches(data)) == expected(plain)


def test_several_batches_a_cut_off_one_at_the_end_and_none():
    odd = [(5, b"k", b"v", [(b"\xff", b"1")])] * 2
    data = build(odd) + build([(7, None, b"w", [])]) + build(odd)[:-3]
    assert [v for *_, v, _ in seen(TolerantBatches(data))] == [b"v", b"v", b"w"]
    assert seen(TolerantBatches(b"")) == []
    for part in (data, data[:20], b""):  # a batch larger than a fetch: a fetcher compares
        ours, theirs = TolerantBatches(part), MemoryRecords(part)
        assert ours.size_in_bytes() == theirs.size_in_bytes() == len(part)
        assert ours.has_next() == theirs.has_next()


def test_what_a_fetcher_asks_of_a_batch_is_passed_on():
    made = DefaultRecordBatchBuilder(2, 0, 1, 77, 3, 5, 1 << 20)
    made.append(0, 9, b"k", b"v", [])
    data = bytes(made.build())
    ours, theirs = TolerantBatches(data).next_batch(), MemoryRecords(data).next_batch()
    for attribute in ("producer_id", "base_offset", "next_offset", "is_control_batch",
                      "is_transactional"):  # fmt: skip
        assert getattr(ours, attribute) == getattr(theirs, attribute)
    assert ours.validate_crc() and ours.is_transactional
    assert next(ours).value == b"v"  # control batches are read like this
    broken = bytearray(data)
    broken[-1] ^= 1
    assert not TolerantBatches(bytes(broken)).next_batch().validate_crc()


def partition_records(kind: Any, data: bytes) -> list[Any]:
    tp = TopicPartition("t", 0)
    made = fetcher.PartitionRecords(tp, kind(data), [], 1, None, None, True, 1)
    return [r.offset for r in made]


def test_aiokafka_itself_would_give_up_and_ours_is_installed(monkeypatch):
    odd = [(5, b"k", b"v", [(b"\xff", b"1")] * (n == 2)) for n in range(4)]
    data = build(odd)
    with pytest.raises(UnicodeDecodeError):
        partition_records(MemoryRecords, data)
    assert partition_records(TolerantBatches, data) == [1, 2, 3]
    monkeypatch.setattr(fetcher, "MemoryRecords", MemoryRecords)
    batches.install()
    assert fetcher.MemoryRecords is TolerantBatches
