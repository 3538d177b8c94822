"""Whole batches read into arrays: the same records as the library reads.

Covers: formats/events/raw.py, agents/kafka/batches/header.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c, decode_varint
from faust.types import TP
from hushstream.agents.kafka.backlog import Backlog, Room
from hushstream.agents.kafka.batches import scan as scanning
from hushstream.agents.kafka.batches.inflated import Allowed
from hushstream.agents.kafka.batches.scan import scan
from hushstream.agents.kafka.batches.tolerant import TolerantBatches, patiently
from hushstream.agents.kafka.intervals import Interval, Taken, joined, since
from hushstream.formats.events.raw import RawBatch, RawChunk, RawRecord

Content = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]


def batch(contents: Sequence[Content], base: int = 0, codec: int = 0) -> bytearray:
    made = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 24)
    for place, (stamp, key, value, headers) in enumerate(contents):
        assert made.append(place, stamp, key, value, headers) is not None
    data = bytearray(made.build())
    data[0:8] = base.to_bytes(8, "big")
    return data


def contents(random: Random, number: int) -> list[Content]:
    def some(most: int) -> bytes | None:
        return None if random.random() < 0.1 else random.randbytes(random.randrange(most))

    return [
        (
            1_700_000_000_000 + random.randrange(-(10**6), 10**6),
            some(20),
            some(random.choice((5, 80, 20_000))),
            [("é" * random.randrange(3), some(9) or b"") for _ in range(random.choice((0, 0, 2)))],
        )
        for _ in range(number)
    ]


def plain(data: bytes) -> list[RawRecord]:
    """The records as the library reads them."""
    return [RawRecord(r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
            for r in DefaultRecordBatch(bytes(data))]  # fmt: skip


@pytest.mark.spread(3)
@pytest.mark.parametrize("seed", range(20))
def test_records_are_those_that_the_library_reads(seed):
    random = Random(seed)
    data = batch(contents(random, random.randrange(1, 60)), base=random.randrange(1 << 40))
    assert list(scan(memoryview(data))) == plain(bytes(data))


def test_the_brokers_time_counts_where_the_topic_says_so():
    data = batch(contents(Random(1), 5))
    data[22] |= 0x08
    data[35:43] = (1_800_000_000_000).to_bytes(8, "big")
    assert {r.timestamp for r in scan(memoryview(data))} == {1_800_000_000_000}
    assert list(scan(memoryview(data))) == plain(bytes(data))


def either(make: Callable[[], Any]) -> list[RawRecord] | None:
    """Records, or None if the reader refuses them."""
    try:
        return [RawRecord(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in make()]
    except CorruptRecordException:
        return None


def test_a_spoilt_batch_is_refused_or_read_alike_by_loop_and_library():
    random, refused, read = Random(7), 0, 0
    for _ in range(3_000):
        data = batch(contents(random, 3))
        for _ in range(random.choice((1, 1, 3))):
            data[random.randrange(57, len(data))] = random.randrange(256)
        found = either(lambda data=data: scan(memoryview(data)))
        slow = either(lambda data=data: next(iter_batches(data)))
        assert found == slow == either(lambda data=data: patiently(memoryview(data)))
        refused += found is None
        read += found is not None
    assert refused > 200 and read > 200


def iter_batches(data: bytes) -> Iterator[Any]:
    batches = TolerantBatches(bytes(data))
    while batches.has_next():
        yield batches.next_batch()


@pytest.mark.parametrize("attributes", [1, 0x7F, 0x80, 0xFF])
def test_attributes_of_a_record_say_nothing_whatever_they_are(attributes):
    """Brokers accept any attributes; only aiokafka would misread what follows them."""
    data = batch(contents(Random(3), 4))
    wanted = plain(bytes(data))
    place = 61
    for _ in range(3):
        length, place = decode_varint(data, place)
        data[place] = attributes
        place += length
    assert list(scan(memoryview(data))) == wanted
    assert either(lambda: next(iter_batches(data))) == wanted


def test_what_is_left_over_behind_the_last_record_is_refused():
    data = batch(contents(Random(1), 5))
    data[57:61] = (4).to_bytes(4, "big")
    assert either(lambda: scan(memoryview(data))) is None
    assert either(lambda: next(iter_batches(data))) is None
    assert either(lambda: patiently(memoryview(data))) is None


def test_a_batch_that_says_more_than_it_has_is_refused():
    data = batch(contents(Random(1), 5))
    for number in (6, 1 << 30, -1):
        data[57:61] = (number & 0xFFFFFFFF).to_bytes(4, "big")
        with pytest.raises(CorruptRecordException):
            scan(memoryview(data))
    with pytest.raises(CorruptRecordException):
        scan(memoryview(batch(contents(Random(1), 5))[:90]))


def read(data: bytes, columns: bool) -> Taken:
    batches, taken = TolerantBatches(data), Taken()
    batches.reading = Allowed(columns=columns)
    while batches.has_next():
        for one in batches.next_batch():
            taken.add(one)
    return taken


@pytest.mark.parametrize("codec", [0, 1, 3])
def test_a_fetch_is_the_same_records_by_chunks(codec):
    random = Random(codec)
    data = b"".join(bytes(batch(contents(random, 40), 40 * n, codec)) for n in range(6))
    chunks, records = read(data, True), read(data, False)
    assert isinstance(chunks.records(), RawBatch)
    assert chunks.number == records.number == 240
    got = list(chunks.records())
    assert [r.offset for r in got] == list(range(240))
    assert [(r.key, r.value) for r in got] == [(r.key, r.value) for r in records.records()]
    assert [r.headers for r in got] == [tuple(r.headers) for r in records.records()]


def iterated(data: bytes, columns: bool, aborted: Sequence[tuple[int, int]] = ()) -> Any:
    """Records as the library's fetcher takes them; the class of an error; the offset after them."""
    source = TolerantBatches(data)
    source.reading = Allowed(columns=columns)
    made = fetcher.PartitionRecords(TP("t", 0), source, list(aborted), 3, None, None, True, 1)
    made._consumer_record = lambda _, record: record
    taken, error = Taken(), None
    try:
        for one in made:
            taken.add(one)
    except CorruptRecordException as found:
        error = type(found)
    read = since(taken.records(), 3)  # a chunk may begin before the position
    told = [RawRecord(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in read]
    return told, error, made.next_fetch_offset


def mixed(random: Random, number: int) -> bytes:
    """Batches of every kind, mostly plain ones of a record or two, with gaps between offsets."""
    parts, base = [], 0
    for _ in range(number):
        codec = random.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, 1))
        rows = random.choice((1, 1, 2, 9))
        made = batch(contents(random, rows), base, codec)
        kind = random.random()
        if kind < 0.1:
            sealed(made, 0x10, producer=7)  # part of a transaction
        elif kind < 0.15:
            control = DefaultRecordBatchBuilder(2, 0, True, 7, 0, -1, 1 << 10)
            control.append(0, 5, b"\0\0\0" + random.choice((b"\0", b"\1")), b"\0\0\0\0\0\0", [])
            made, rows = bytearray(control.build()), 1
            made[0:8] = base.to_bytes(8, "big")
            sealed(made, 0x20)
        elif kind < 0.2:
            sealed(made, 0x08)  # the broker's time
        parts.append(bytes(made))
        base += rows + random.choice((0, 0, 0, 4))
    return b"".join(parts)


def sealed(data: bytearray, attributes: int, producer: int | None = None) -> None:
    """Set attributes of a batch, and its checksum."""
    data[22] |= attributes
    if producer is not None:
        data[43:51] = producer.to_bytes(8, "big")
    data[17:21] = calc_crc32c(memoryview(data)[21:]).to_bytes(4, "big")


@pytest.mark.spread(3)
@pytest.mark.parametrize("seed", range(30))
def test_a_run_of_batches_is_what_they_are_one_by_one(seed):
    random = Random(seed)
    data = mixed(random, 60)
    aborted = [(7, n) for n in sorted(random.sample(range(150), 3))]
    found = iterated(data, True, aborted)
    assert found == iterated(data, False, aborted)
    assert len(found[0]) > 30 and found[1] is None
    whole = iterated(data[: -random.randrange(1, 60)], True)  # the last one is cut off
    assert len(whole[0]) >= 30 and whole[1] is None


def test_a_run_goes_on_after_records_that_compaction_has_taken():
    made = [batch([(5, b"k", b"v", [])], 10 * n) for n in range(4)]
    for one in made:
        one[23:27] = (6).to_bytes(4, "big")  # its last record had a later offset
        sealed(one, 0)
    found = iterated(b"".join(map(bytes, made)), True)
    assert found[2] == 37 and found == iterated(b"".join(map(bytes, made)), False)


def test_adjacent_batches_are_one_chunk_up_to_a_limit(monkeypatch):
    data = b"".join(bytes(batch([(5, b"k", b"v" * 40, [])], n)) for n in range(40))
    assert [len(one) for one in chunks(data)] == [40]
    monkeypatch.setattr(scanning, "RUN", len(data) // 4)
    assert [len(one) for one in chunks(data)] == [10] * 4
    monkeypatch.setattr(scanning, "RUN", 10)  # each is larger
    assert [len(one) for one in chunks(data)] == [1] * 40


def chunks(data: bytes) -> list[RawBatch]:
    source = TolerantBatches(data)
    source.reading = Allowed(columns=True)
    found = list[RawBatch]()
    while source.has_next():
        found += [one.records for one in source.next_batch()]
    return found


@pytest.mark.parametrize("at", [0, 1, 5, 9])
@pytest.mark.parametrize("place", [20, 22, 26, 60, 62, 70, -1])
def test_a_spoilt_batch_ends_a_run_and_is_refused_alone(at, place):
    """And the records before it are read."""
    made = [batch([(5 + n, b"key", b"value", [])], n) for n in range(10)]
    made[at][place] ^= 0x41
    found = iterated(b"".join(map(bytes, made)), True)
    assert found[1] is CorruptRecordException and found[2] == (at or 3)
    assert [r.offset for r in found[0]] == list(range(3, at))


@pytest.mark.parametrize("at", [0, 5])
def test_a_batch_whose_records_contradict_its_header_ends_a_run(at):
    made = [batch([(5 + n, b"key", b"value", [])], n) for n in range(10)]
    made[at][61] += 2  # the length of its record; the checksum is right
    sealed(made[at], 0)
    found = iterated(b"".join(map(bytes, made)), True)
    assert found[1] is CorruptRecordException and [r.offset for r in found[0]] == list(range(3, at))


def test_a_batch_that_is_shorter_than_any_is_refused():
    data = bytearray(batch([(5, b"k", b"v", [])]))
    for length in (-50, -1, 0, 13):
        data[8:12] = length.to_bytes(4, "big", signed=True)
        for columns in (True, False):
            assert iterated(bytes(data), columns)[1] is CorruptRecordException


def test_batches_are_cut_and_joined_and_hold_nothing_else():
    random = Random(3)
    made = [scan(memoryview(batch(contents(random, 50), 50 * n))) for n in range(4)]
    every = [record for one in made for record in one]
    whole = joined(made)
    assert isinstance(whole, RawBatch) and list(whole) == every
    for position in (0, 1, 77, 100, 199, 200):
        assert list(since(whole, position)) == every[position:]
    rest = joined([since(whole, 120), made[0]])
    assert isinstance(rest, RawBatch)
    assert list(rest) == every[120:] + every[:50]
    assert len(rest.data) < len(whole.data)
    assert joined([made[0], [every[60]]]) == [*every[:50], every[60]]
    assert list(joined([made[1]])) == every[50:100]
    assert isinstance(joined([[], made[0], whole[:0], made[1]]), RawBatch)
    assert joined([[], []]) == joined([]) == []


def test_a_backlog_that_was_empty_goes_on_in_batches():
    random, held = Random(4), Backlog(Room(1 << 20))
    assert joined(held.offered()[0]) == []  # a step that found no records
    held.release(0)
    for n in range(4):
        made = scan(memoryview(batch(contents(random, 50), 50 * n)))
        held.take(Interval(TP("t", 0), 50 * n, 50 * n + 50, made))
        held.take(Interval(TP("t", 0), 50 * n + 50, 50 * n + 50, []))
        parts, end = held.offered()
        records = joined(parts)
        assert isinstance(records, RawBatch) and end == 50 * n + 50
        assert list(records.offset) == list(range(50 * n - (n > 0), end))
        held.release(end - (n < 3))  # leave one record, or none
        held.take(Interval(TP("t", 0), end, end, []))
    assert len(held.records) == 0
    held.take(Interval(TP("t", 0), 200, 250, made))
    assert isinstance(joined(held.offered()[0]), RawBatch)


def test_a_chunk_ends_at_its_last_record():
    data = bytes(batch(contents(Random(2), 9), 100))
    taken = TolerantBatches(data)
    taken.reading = Allowed(columns=True)
    (chunk,) = taken.next_batch()
    assert isinstance(chunk, RawChunk)
    assert chunk.offset == 108 and len(chunk.records) == 9 and chunk.size >= len(data) - 80


def test_a_header_whose_name_is_no_text_costs_its_record_the_headers():
    data = batch([(5, b"k", b"v", [("ab", b"x")]), (6, b"k", b"w", [("cd", b"y")])])
    at = data.index(b"ab")
    data[at : at + 2] = b"\xff\xfe"
    first, second = scan(memoryview(data))
    assert (first.value, first.headers) == (b"v", ())
    assert second.headers == (("cd", b"y"),)
